//! Berkeley's traces as text: `t=842425208, hid=9, uid=109, pid=0, sys=STAT, dev=9, fid=4`.
//!
//! They name files by device and number, never by path: all files of a device lie in one directory here, and
//! the shape of the tree is not known.

use super::event::{Event, Kind, Parsed, Parser, client_of};
use super::time::microseconds;

pub(super) struct Berkeley;

impl Parser for Berkeley {
    fn line(&mut self, line: &str) -> Parsed {
        let value = |key: &str| {
            let pairs = line.split(',').filter_map(|pair| pair.trim().split_once('='));
            pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).next()
        };
        let Some(system) = value("sys") else { return Parsed::Malformed("it has no sys=") };
        let Some(at) = value("t").and_then(microseconds) else {
            return Parsed::Malformed("it has no t= with seconds");
        };
        let kind = match system.to_ascii_uppercase().as_str() {
            "STAT" | "LSTAT" | "FSTAT" | "ACCESS" | "READLINK" | "LOOKUP" | "GETATTR" | "CHDIR" => {
                Kind::Lookup
            }
            "GETDIRENTRIES" | "GETDENTS" | "READDIR" => Kind::List,
            "OPEN" | "EXEC" | "EXECVE" => Kind::Open,
            "CLOSE" => Kind::Close,
            "CREAT" | "CREATE" | "MKNOD" | "SYMLINK" => Kind::Create,
            "MKDIR" => Kind::MakeDirectory,
            "RMDIR" => Kind::RemoveDirectory,
            "UNLINK" | "REMOVE" => Kind::Remove,
            "CHMOD" | "CHOWN" | "LCHOWN" | "FCHMOD" | "FCHOWN" | "UTIME" | "UTIMES" | "TRUNCATE"
            | "FTRUNCATE" | "SETATTR" => Kind::Update,
            "READ" | "READV" | "MREAD" => Kind::Read,
            "WRITE" | "WRITEV" | "MWRITE" => Kind::Write,
            // These name two files, of which the text gives one.
            "RENAME" => Kind::Rename,
            "LINK" => Kind::Link,
            other => return Parsed::Other(other.to_owned()),
        };
        let (Some(device), Some(file)) = (value("dev"), value("fid")) else {
            return Parsed::Malformed("it has no dev= and fid=");
        };
        let client = client_of(value("hid").unwrap_or("").as_bytes());
        Parsed::Event(at, Event { at_us: 0, client, kind, path: format!("/{device}/{file}"), to: None })
    }
}
