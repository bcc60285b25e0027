//! Files that commands make of others: whole or not at all, and never over what they are made of.

use anyhow::{Context, Result, bail};
use bearing_env::random_u64;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is written beside its place and moved there when it is whole; or what is printed, or a pipe.
pub struct Output {
    path: PathBuf,
    beside: Option<PathBuf>,
    out: BufWriter<Box<dyn Write>>,
}

impl Output {
    /// `-` prints it. Refused: the file that it is made from, by whatever name.
    pub fn new(path: &Path, source: Option<&Path>) -> Result<Output> {
        let writing = || format!("write {}", path.display());
        let known = std::fs::metadata(path).ok();
        let number = |file: &Metadata| (file.dev(), file.ino());
        let source = source.and_then(|source| std::fs::metadata(source).ok());
        if let (Some(known), Some(source)) = (&known, &source)
            && known.is_file()
            && number(known) == number(source)
        {
            bail!("{} is the file that is read, and would be written over; give another one", path.display());
        }
        if known.as_ref().is_some_and(Metadata::is_dir) {
            bail!("{} is a directory; give a file", path.display());
        }
        // Where a link leads to is written, not the link.
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_device = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        let is_file = known.is_none_or(|known| known.is_file()) && !is_device(path);
        let beside = (is_file && path != Path::new("-"))
            .then(|| place.with_added_extension(format!("{:016x}.part", random_u64())));
        let out: Box<dyn Write> = match (path.to_str(), &beside) {
            (Some("-"), _) => Box::new(io::stdout().lock()),
            (_, Some(beside)) => Box::new(File::create_new(beside).with_context(writing)?),
            (_, None) => Box::new(File::options().write(true).open(path).with_context(writing)?),
        };
        Ok(Output { path: place, beside, out: BufWriter::with_capacity(1 << 20, out) })
    }

    /// It is whole.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        match self.beside.take() {
            Some(beside) => std::fs::rename(beside, &self.path),
            None => Ok(()),
        }
    }
}

/// A file with this text in it.
pub fn put(path: &Path, text: &str) -> Result<()> {
    let mut out = Output::new(path, None)?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.finish());
    written.with_context(|| format!("write {}", path.display()))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = std::fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_not_written_over_by_any_name_and_what_was_there_stays_until_all_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let [source, link, other] = ["source", "link", "other"].map(|name| directory.path().join(name));
        std::fs::write(&source, "old").unwrap();
        std::fs::write(&other, "old").unwrap();
        std::os::unix::fs::symlink(&source, &link).unwrap();
        for same in [&source, &link, &directory.path().join("./source")] {
            let refused = Output::new(same, Some(&source)).err().unwrap().to_string();
            assert!(refused.contains("is the file that is read"), "{refused}");
        }
        let mut broken = Output::new(&other, Some(&source)).unwrap();
        broken.write_all(b"half").unwrap();
        drop(broken);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "old");
        // Also through a link, which stays one.
        let linked = directory.path().join("linked");
        std::os::unix::fs::symlink(&other, &linked).unwrap();
        let mut whole = Output::new(&linked, Some(&source)).unwrap();
        whole.write_all(b"new").unwrap();
        whole.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "new");
        assert!(std::fs::symlink_metadata(&linked).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4, "nothing is left beside");
        assert!(Output::new(directory.path(), None).is_err());
        // Of a download that is named as parts are.
        let part = directory.path().join("log.part");
        std::fs::write(&part, "all").unwrap();
        Output::new(&directory.path().join("log"), Some(&part)).unwrap().finish().unwrap();
        assert_eq!(std::fs::read_to_string(&part).unwrap(), "all");
    }
}
