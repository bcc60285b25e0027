//! What all engines do with directories and files: lock, check the format's version, sync names, and
//! translate errors.

use bearing_seams::{EngineError, EngineResult};
use bearing_types::DiskId;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "LOCK";
const DISK_FILE: &str = "DISK";
/// How the line of a disk file begins; its id follows, as 32 hexadecimal digits.
const DISK_LINE: &str = "bearing-disk 1 ";
/// A format file is one short line.
const FORMAT_BYTES_MAX: u64 = 200;

/// Translates an error of the system: no space is worth another try, everything else ends writing.
pub fn failed(doing: &str, path: &Path, error: &io::Error) -> EngineError {
    let doing = format!("{doing} {}", path.display());
    match is_full(error) {
        true => EngineError::Full { doing },
        false => EngineError::Failed { doing: format!("{doing} ({error})") },
    }
}

/// Whether it would go when there were more space.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the disk does not give what it was given.
pub fn is_unreadable(error: &io::Error) -> bool {
    let unreadable = [libc::EIO, libc::ENODATA, libc::EILSEQ, libc::EBADMSG, libc::EUCLEAN];
    error.raw_os_error().is_some_and(|code| unreadable.contains(&code))
}

/// Takes room for a range of a file, so that writing there needs none. The file keeps its length and its
/// bytes. Where the file system cannot, nothing is done.
pub fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let number = |bytes| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    let (mode, offset, bytes) = (libc::FALLOC_FL_KEEP_SIZE, number(offset), number(bytes));
    // SAFETY: the descriptor is open for writing (borrowed here); the call takes no pointers.
    if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR) => Ok(()),
        _ => Err(error),
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
///
/// An engine has one of its own. Its caller gives those of what it keeps inside, which the engine does not
/// understand: a program that knows an engine's files but not what lies in them must not open them either.
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
    /// Holds the lock; the system releases it when the process ends, however it ends.
    _lock: File,
}

impl Directory {
    /// Opens a directory of a format with contents of further formats, or makes it. A directory that holds
    /// something else is refused, and so is one in which anything is newer than known here. What is older is
    /// raised: from now on newer things may be written.
    pub fn open(path: &Path, format: Format, contents: &[Format]) -> EngineResult<Directory> {
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(|error| failed("make directory", path, &error))?;
        if is_new {
            sync_directory(parent(path))?;
        }
        let lock = lock(path)?;
        let directory = Directory { path: path.to_owned(), _lock: lock };
        let formats: Vec<Format> = [format].iter().chain(contents).copied().collect();
        directory.check_formats(&formats)?;
        Ok(directory)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk id that lies here.
    pub fn disk(&self) -> EngineResult<Option<DiskId>> {
        let path = self.path.join(DISK_FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        let text = String::from_utf8_lossy(&bytes);
        let digits = text.strip_prefix(DISK_LINE).and_then(|rest| rest.strip_suffix('\n'));
        let disk = digits
            .filter(|digits| digits.len() == 32)
            .and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let damaged = || EngineError::Corrupt {
            what: format!("{} holds {text:?} instead of `{DISK_LINE}` and an id", path.display()),
        };
        disk.map(DiskId).map(Some).ok_or_else(damaged)
    }

    /// Keeps a disk id here.
    pub fn set_disk(&self, disk: DiskId) -> EngineResult<()> {
        write_whole(&self.path.join(DISK_FILE), format!("{DISK_LINE}{disk}\n").as_bytes())
    }

    fn check_formats(&self, formats: &[Format]) -> EngineResult<()> {
        let path = self.path.join(FORMAT_FILE);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() <= FORMAT_BYTES_MAX => {}
            Ok(metadata) => {
                let what =
                    format!("{}: {} bytes are too many for a format file", path.display(), metadata.len());
                return Err(EngineError::Corrupt { what });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.begin(formats, &path),
            Err(error) => return Err(failed("read", &path, &error)),
        }
        let content = fs::read(&path).map_err(|error| failed("read", &path, &error))?;
        let lines = lines_of(formats);
        if content == lines.as_bytes() {
            return Ok(());
        }
        check_format_lines(&content, formats, &path)?;
        write_whole(&path, lines.as_bytes())
    }

    /// Marks an empty directory as ours.
    fn begin(&self, formats: &[Format], path: &Path) -> EngineResult<()> {
        let entries = fs::read_dir(&self.path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        let entries = entries.map_err(|error| failed("list", &self.path, &error))?;
        let ours = [LOCK_FILE, "FORMAT.new"];
        let foreign = entries.iter().find(|entry| !ours.iter().any(|name| entry.file_name() == *name));
        if let Some(foreign) = foreign {
            let what = format!(
                "{} has no {FORMAT_FILE} file but holds {:?}: it is not a {} directory",
                self.path.display(),
                foreign.file_name(),
                formats[0].name
            );
            return Err(EngineError::Corrupt { what });
        }
        write_whole(path, lines_of(formats).as_bytes())
    }
}

fn lines_of(formats: &[Format]) -> String {
    formats.iter().map(|format| format!("{} {}\n", format.name, format.version)).collect()
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

/// Each format has a line. Newer versions are looked for first: a newer program may have more lines as well.
fn check_format_lines(content: &[u8], formats: &[Format], path: &Path) -> EngineResult<()> {
    let text = String::from_utf8_lossy(content);
    let lines: Vec<&str> = text.lines().collect();
    for (line, format) in lines.iter().zip(formats) {
        if let Some(found) = version_in(line, *format).filter(|found| *found > format.version) {
            let what = format!("{} ({})", path.display(), format.name);
            return Err(EngineError::NewerVersion { what, found, known: format.version });
        }
    }
    let is_known =
        |(line, format): (&&str, &Format)| version_in(line, *format).is_some_and(|found| found >= 1);
    if lines.len() == formats.len() && lines.iter().zip(formats).all(is_known) {
        return Ok(());
    }
    let wanted: Vec<String> = formats.iter().map(|format| format!("{} <version>", format.name)).collect();
    let what = format!("{} holds {text:?} instead of the lines {wanted:?}", path.display());
    Err(EngineError::Corrupt { what })
}

fn version_in(line: &str, format: Format) -> Option<u32> {
    line.strip_prefix(format.name)?.strip_prefix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { name: "bearing-test", version: 3 };

    const CONTENT: Format = Format { name: "bearing-content", version: 2 };

    fn open(path: &Path) -> EngineResult<Directory> {
        Directory::open(path, FORMAT, &[CONTENT])
    }

    #[test]
    fn a_new_directory_is_marked_and_an_older_one_opens_and_is_raised_to_what_may_be_written_now() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("engine");
        let marked = || fs::read_to_string(path.join("FORMAT")).unwrap();
        drop(open(&path).unwrap());
        assert_eq!(marked(), "bearing-test 3\nbearing-content 2\n");
        drop(open(&path).unwrap());
        for older in ["bearing-test 1\nbearing-content 2\n", "bearing-test 3\nbearing-content 1\n"] {
            fs::write(path.join("FORMAT"), older).unwrap();
            drop(open(&path).unwrap());
            assert_eq!(marked(), "bearing-test 3\nbearing-content 2\n");
        }
    }

    #[test]
    fn a_newer_version_is_refused_naming_both() {
        for (newer, name, found, known) in [
            ("bearing-test 4\nbearing-content 2\n", "bearing-test", 4, 3),
            ("bearing-test 3\nbearing-content 7\n", "bearing-content", 7, 2),
            ("bearing-test 3\nbearing-content 7\nbearing-other 1\n", "bearing-content", 7, 2),
        ] {
            let temporary = tempfile::tempdir().unwrap();
            let path = temporary.path().join("FORMAT");
            fs::write(&path, newer).unwrap();
            let message = open(temporary.path()).unwrap_err().to_string();
            for part in
                [path.to_str().unwrap(), name, &format!("version {found}"), &format!("version {known}")]
            {
                assert!(message.contains(part), "{message}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), newer, "nothing is changed");
        }
    }

    #[test]
    fn garbage_and_foreign_directories_are_refused() {
        for garbage in [
            "",
            "bearing-test",
            "bearing-test x",
            "bearing-test 0",
            "bearing-test 3\n",
            "bearing-test 3\nbearing-content 0\n",
            "bearing-test 3\nbearing-content 2\nbearing-other 1\n",
            "bearing-store 1",
            "\u{0}\u{0}\u{0}",
        ] {
            let temporary = tempfile::tempdir().unwrap();
            fs::write(temporary.path().join("FORMAT"), garbage).unwrap();
            let error = open(temporary.path()).unwrap_err();
            assert!(matches!(error, EngineError::Corrupt { .. }), "{garbage:?}: {error}");
        }
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("thesis.txt"), "precious").unwrap();
        let error = open(temporary.path()).unwrap_err();
        assert!(error.to_string().contains("thesis.txt"), "{error}");
    }

    #[test]
    fn a_disk_file_that_makes_no_sense_is_damage_and_not_a_disk_without_an_id() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = open(temporary.path()).unwrap();
        directory.set_disk(DiskId(7)).unwrap();
        let whole = fs::read_to_string(temporary.path().join("DISK")).unwrap();
        assert_eq!(whole, "bearing-disk 1 00000000000000000000000000000007\n");
        for damaged in
            ["", &whole[..20], "bearing-disk 1 x", &whole.replace("disk 1", "disk 2"), &format!("{whole}0")]
        {
            fs::write(temporary.path().join("DISK"), damaged).unwrap();
            assert!(matches!(directory.disk(), Err(EngineError::Corrupt { .. })), "{damaged:?}");
        }
    }

    #[test]
    fn a_directory_is_held_by_one_at_a_time() {
        let temporary = tempfile::tempdir().unwrap();
        let first = open(temporary.path()).unwrap();
        let error = open(temporary.path()).unwrap_err();
        assert!(matches!(error, EngineError::Busy { .. }), "{error}");
        drop(first);
        open(temporary.path()).unwrap();
    }
}
