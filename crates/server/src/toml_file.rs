//! Typed TOML files: read with the file's name and line in every complaint, written by rename so that no
//! reader sees half of one.

use crate::StartError;
use serde::{Serialize, de::DeserializeOwned};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Reads a file. Unknown keys are refused by the types (`deny_unknown_fields`).
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, StartError> {
    let text = fs::read_to_string(path).map_err(|error| StartError::file("read", path, &error))?;
    parse(path, &text)
}

/// Parses text as if it were the content of `path`.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, StartError> {
    toml::from_str(text).map_err(|error| StartError::Config {
        file: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        complaint: error.message().to_owned(),
    })
}

/// Writes bytes to a file that is either the old one or the new one after a crash.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    try_replace(path, bytes, true).map_err(|error| StartError::file("write", path, &error))
}

fn try_replace(path: &Path, bytes: &[u8], stable: bool) -> io::Result<()> {
    // Processes may write the same report: a mount that ends, and the next one at the same point.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}.new", std::process::id()));
    let write = || {
        let mut file = fs::File::create(&beside)?;
        file.write_all(bytes)?;
        if stable {
            file.sync_all()?;
        }
        fs::rename(&beside, path)
    };
    if let Err(error) = write() {
        // It may be the disk that is full.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    match path.parent().filter(|_| stable) {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Writes a value that is only a report, as [`write`], but does not wait for the disk: who writes it has
/// more urgent things to do, and after a crash it says nothing anyway. On a full disk it takes the place of
/// the one before in its own room.
pub fn write_report<T: Serialize>(path: &Path, heading: &str, value: &T) -> Result<(), StartError> {
    let body = toml::to_string(value).map_err(|error| StartError::file("encode", path, &error))?;
    let text = format!("{heading}\n{body}");
    let overwrite = || {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)
    };
    let written = match try_replace(path, text.as_bytes(), false) {
        Err(error) if is_full(&error) => overwrite(),
        written => written,
    };
    match written {
        Err(error) if is_full(&error) => {
            tracing::warn!("{} is not up to date: there is no space for it", path.display());
            Ok(())
        }
        written => written.map_err(|error| StartError::file("write", path, &error)),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes a value under a heading of comment lines.
pub fn write<T: Serialize>(path: &Path, heading: &str, value: &T) -> Result<(), StartError> {
    let body = toml::to_string(value).map_err(|error| StartError::file("encode", path, &error))?;
    replace(path, format!("{heading}\n{body}").as_bytes())
}

/// The line of a byte of a text, from 1 on.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, Serialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        count: u32,
    }

    #[test]
    fn a_complaint_names_file_line_and_key() {
        let error =
            parse::<Sample>(Path::new("a/config.toml"), "# heading\ncount = 3\ncuont = 4\n").unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("a/config.toml:3: ") && said.contains("cuont"), "{said}");
    }

    #[test]
    fn a_wrong_type_names_its_line() {
        let error = parse::<Sample>(Path::new("c.toml"), "\n\ncount = \"many\"\n").unwrap_err();
        assert!(error.to_string().starts_with("c.toml:3: "), "{error}");
    }

    #[test]
    fn two_who_write_the_same_report_do_not_hinder_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sample.toml");
        std::thread::scope(|scope| {
            for count in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    (0..50).for_each(|_| write(path, "# a heading", &Sample { count }).unwrap());
                });
            }
        });
        assert!(read::<Sample>(&path).unwrap().count < 4);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_is_written_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sample.toml");
        write(&path, "# a heading", &Sample { count: 7 }).unwrap();
        assert_eq!(read::<Sample>(&path).unwrap(), Sample { count: 7 });
    }

    #[test]
    fn a_report_on_a_full_disk_takes_the_room_of_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_str().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=65536", "bearing-test", place];
        let mounted = std::process::Command::new("mount").args(mount).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: a tmpfs cannot be mounted");
            return;
        }
        let told = std::panic::catch_unwind(|| {
            let path = directory.path().join("state");
            write_report(&path, "# a longer heading", &Sample { count: 1_000_000 }).unwrap();
            let mut ballast = fs::File::create(directory.path().join("ballast")).unwrap();
            io::copy(&mut io::repeat(7), &mut ballast).unwrap_err();
            assert!(write(&path, "# a heading", &Sample { count: 7 }).is_err(), "the disk is full");
            write_report(&path, "# a heading", &Sample { count: 7 }).unwrap();
            read::<Sample>(&path).unwrap()
        });
        std::process::Command::new("umount").arg("-l").arg(place).output().unwrap();
        assert_eq!(told.unwrap(), Sample { count: 7 });
    }
}
