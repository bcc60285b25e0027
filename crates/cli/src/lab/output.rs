//! Files that commands make of others: whole or not at all, and never over what they are made of.

use anyhow::{Context, Result, bail};
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
        let known = std::fs::metadata(path).ok();
        let number = |file: &Metadata| (file.dev(), file.ino());
        let source = source.and_then(|source| std::fs::metadata(source).ok());
        if let (Some(known), Some(source)) = (&known, &source)
            && known.is_file()
            && number(known) == number(source)
        {
            bail!("{} is the file that is read, and would be written over; give another one", path.display());
        }
        let beside = match known.is_none_or(|known| known.is_file()) && path != Path::new("-") {
            true => Some(path.with_added_extension("part")),
            false => None,
        };
        let out: Box<dyn Write> = match path.to_str() {
            Some("-") => Box::new(io::stdout().lock()),
            _ => {
                let file = File::create(beside.as_deref().unwrap_or(path));
                Box::new(file.with_context(|| format!("write {}", path.display()))?)
            }
        };
        Ok(Output { path: path.into(), beside, out: BufWriter::with_capacity(1 << 20, out) })
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
        let mut whole = Output::new(&other, Some(&source)).unwrap();
        whole.write_all(b"new").unwrap();
        whole.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "new");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3, "nothing is left beside");
    }
}
