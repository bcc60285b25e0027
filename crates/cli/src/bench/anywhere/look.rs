//! Looking at a process's directory through another mount of the same filesystem, until all that it did is
//! there.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// How long a filesystem may take to show a change elsewhere.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks that came too early.
const PAUSE: Duration = Duration::from_millis(1);

/// What is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// So many names with a prefix, and no others. Found by listing the directory.
    Names {
        /// How they begin.
        prefix: &'static str,
        /// How many there are.
        count: u32,
    },
    /// A tree with so many files, of so many bytes together. Found by walking it, with the attributes of
    /// every file.
    Tree {
        /// Regular files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// One file of a size.
    File {
        /// Its name.
        name: &'static Path,
        /// Its size.
        bytes: u64,
    },
}

impl Expected {
    /// Looks at a directory until it is as expected.
    pub fn wait_until_seen(self, directory: &Path) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen(directory).with_context(|| format!("look at {}", directory.display()))?;
            let Some(difference) = seen else { return Ok(()) };
            if Instant::now() > deadline {
                bail!("after {PATIENCE:?}, {} still shows {difference}", directory.display());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// What is different, if anything.
    fn seen(self, directory: &Path) -> io::Result<Option<String>> {
        match self {
            Expected::Names { prefix, count } => {
                let (mut right, mut others) = (0_u32, 0_u32);
                for entry in fs::read_dir(directory)? {
                    let is_right = entry?.file_name().to_string_lossy().starts_with(prefix);
                    *(if is_right { &mut right } else { &mut others }) += 1;
                }
                Ok((right != count || others > 0)
                    .then(|| format!("{right} names of {count}, and {others} others")))
            }
            Expected::Tree { files, bytes } => {
                let (found_files, found_bytes) = match walk(directory) {
                    Ok(found) => found,
                    // Listed, and then gone: git renames what it has written.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Ok(Some("a name that is gone".to_owned()));
                    }
                    Err(error) => return Err(error),
                };
                Ok(((found_files, found_bytes) != (files, bytes))
                    .then(|| format!("{found_files} files of {files}, {found_bytes} bytes of {bytes}")))
            }
            Expected::File { name, bytes } => {
                let size = match fs::metadata(directory.join(name)) {
                    Ok(metadata) => metadata.len(),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                    Err(error) => return Err(error),
                };
                Ok((size != bytes).then(|| format!("{size} bytes of {bytes}")))
            }
        }
    }
}

/// Regular files below a directory, and their bytes.
pub fn walk(directory: &Path) -> io::Result<(u64, u64)> {
    let mut sum = (0, 0);
    for entry in walkdir::WalkDir::new(directory) {
        let entry = entry?;
        if entry.file_type().is_file() {
            sum.0 += 1;
            sum.1 += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_too_much_is_told_and_what_is_right_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let names = |count| Expected::Names { prefix: "file.", count };
        fs::write(directory.path().join("file.0"), "12345").expect("written");
        assert_eq!(names(1).seen(directory.path()).unwrap(), None);
        assert!(names(2).seen(directory.path()).unwrap().is_some());
        let file = |bytes| Expected::File { name: Path::new("file.0"), bytes };
        assert_eq!(file(5).seen(directory.path()).unwrap(), None);
        assert!(file(6).seen(directory.path()).unwrap().is_some());
        let tree = |files, bytes| Expected::Tree { files, bytes };
        assert_eq!(tree(1, 5).seen(directory.path()).unwrap(), None);
        assert!(tree(1, 4).seen(directory.path()).unwrap().is_some());
        fs::write(directory.path().join("other"), "").expect("written");
        assert!(names(1).seen(directory.path()).unwrap().is_some());
        assert_eq!(tree(2, 5).seen(directory.path()).unwrap(), None);
    }
}
