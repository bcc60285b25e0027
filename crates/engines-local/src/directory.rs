//! What all engines do with directories and files: lock, check the format's version, sync names, and translate errors.

use bearing_seams::{EngineError, EngineResult};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "LOCK";
/// A format file is one short line.
const FORMAT_BYTES_MAX: u64 = 200;

/// Translates an error of the system: no space is worth another try, everything else ends writing.
pub fn failed(doing: &str, path: &Path, error: &io::Error) -> EngineError {
    let doing = format!("{doing} {}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full { doing },
        _ => EngineError::Failed { doing: format!("{doing} ({error})") },
    }
}

/// The error of a call that makes no sense in the engine's present state. It changes nothing.
pub fn refused<T>(doing: String) -> EngineResult<T> {
    Err(EngineError::Failed { doing })
}

/// Makes a directory's names stable.
pub fn sync_directory(path: &Path) -> EngineResult<()> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| failed("sync directory", path, &error))
}

/// Writes a small file so that after a crash it is there whole or not at all.
pub fn write_whole(path: &Path, content: &[u8]) -> EngineResult<()> {
    let unfinished = path.with_extension("new");
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|error| failed("write", path, &error))?;
    sync_directory(parent(path))
}

/// The directory of a path.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A format by name and the newest version that this program knows. Version 1 is the first.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// As in the file, such as `bearing-store`.
    pub name: &'static str,
    /// The version written, and the newest read.
    pub version: u32,
}

/// An engine's directory, locked against other processes while this lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Holds the lock; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl Directory {
    /// Opens a directory of a format, or makes it. A directory that holds something else is refused.
    pub fn open(path: &Path, format: Format) -> EngineResult<Directory> {
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(|error| failed("make directory", path, &error))?;
        if is_new {
            sync_directory(parent(path))?;
        }
        let lock = lock(path)?;
        let directory = Directory { path: path.to_owned(), _lock: lock };
        directory.check_format(format)?;
        Ok(directory)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn check_format(&self, format: Format) -> EngineResult<()> {
        let path = self.path.join(FORMAT_FILE);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() <= FORMAT_BYTES_MAX => {}
            Ok(metadata) => {
                let what =
                    format!("{}: {} bytes are too many for a format file", path.display(), metadata.len());
                return Err(EngineError::Corrupt { what });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.begin(format, &path),
            Err(error) => return Err(failed("read", &path, &error)),
        }
        let content = fs::read(&path).map_err(|error| failed("read", &path, &error))?;
        check_format_line(&content, format, &path)
    }

    /// Marks an empty directory as ours.
    fn begin(&self, format: Format, path: &Path) -> EngineResult<()> {
        let entries = fs::read_dir(&self.path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        let entries = entries.map_err(|error| failed("list", &self.path, &error))?;
        let ours = [LOCK_FILE, "FORMAT.new"];
        let foreign = entries.iter().find(|entry| !ours.iter().any(|name| entry.file_name() == *name));
        if let Some(foreign) = foreign {
            let what = format!(
                "{} has no {FORMAT_FILE} file but holds {:?}: it is not a {} directory",
                self.path.display(),
                foreign.file_name(),
                format.name
            );
            return Err(EngineError::Corrupt { what });
        }
        write_whole(path, format!("{} {}\n", format.name, format.version).as_bytes())
    }
}

fn lock(directory: &Path) -> EngineResult<File> {
    let path = directory.join(LOCK_FILE);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| failed("open", &path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(EngineError::Busy { what: directory.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(failed("lock", &path, &error)),
    }
}

fn check_format_line(content: &[u8], format: Format, path: &Path) -> EngineResult<()> {
    let line = String::from_utf8_lossy(content);
    let version = line.trim_end().strip_prefix(format.name).and_then(|rest| rest.strip_prefix(' '));
    match version.and_then(|version| version.parse::<u32>().ok()) {
        Some(found) if found > format.version => {
            let what = path.display().to_string();
            Err(EngineError::NewerVersion { what, found, known: format.version })
        }
        Some(found) if found >= 1 => Ok(()),
        _ => {
            let what =
                format!("{} holds {:?} instead of \"{} <version>\"", path.display(), line, format.name);
            Err(EngineError::Corrupt { what })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { name: "bearing-test", version: 3 };

    #[test]
    fn a_new_directory_is_marked_and_an_older_or_equal_version_opens() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("engine");
        drop(Directory::open(&path, FORMAT).unwrap());
        assert_eq!(fs::read_to_string(path.join("FORMAT")).unwrap(), "bearing-test 3\n");
        drop(Directory::open(&path, FORMAT).unwrap());
        fs::write(path.join("FORMAT"), "bearing-test 1\n").unwrap();
        Directory::open(&path, FORMAT).unwrap();
    }

    #[test]
    fn a_newer_version_is_refused_naming_both() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("FORMAT"), "bearing-test 4\n").unwrap();
        let error = Directory::open(temporary.path(), FORMAT).unwrap_err();
        assert!(matches!(error, EngineError::NewerVersion { found: 4, known: 3, .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("version 4") && message.contains("version 3"), "{message}");
    }

    #[test]
    fn garbage_and_foreign_directories_are_refused() {
        for garbage in
            ["", "bearing-test", "bearing-test x", "bearing-test 0", "bearing-store 1", "\u{0}\u{0}\u{0}"]
        {
            let temporary = tempfile::tempdir().unwrap();
            fs::write(temporary.path().join("FORMAT"), garbage).unwrap();
            let error = Directory::open(temporary.path(), FORMAT).unwrap_err();
            assert!(matches!(error, EngineError::Corrupt { .. }), "{garbage:?}: {error}");
        }
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("thesis.txt"), "precious").unwrap();
        let error = Directory::open(temporary.path(), FORMAT).unwrap_err();
        assert!(error.to_string().contains("thesis.txt"), "{error}");
    }

    #[test]
    fn a_directory_is_held_by_one_at_a_time() {
        let temporary = tempfile::tempdir().unwrap();
        let first = Directory::open(temporary.path(), FORMAT).unwrap();
        let error = Directory::open(temporary.path(), FORMAT).unwrap_err();
        assert!(matches!(error, EngineError::Busy { .. }), "{error}");
        drop(first);
        Directory::open(temporary.path(), FORMAT).unwrap();
    }
}
