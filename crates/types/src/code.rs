//! What can go wrong with an operation, as the caller of the filesystem sees it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of a filesystem operation.
pub type Outcome<T> = Result<T, Code>;

/// The reason why an operation was refused. Each maps to one errno at the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// The owner says: no such entry (ENOENT).
    NotFound,
    /// The name exists (EEXIST).
    Exists,
    /// A directory is needed (ENOTDIR).
    NotDirectory,
    /// A directory will not do (EISDIR).
    IsDirectory,
    /// The directory has entries (ENOTEMPTY).
    NotEmpty,
    /// Permission bits forbid it (EACCES).
    Access,
    /// Only the owner or root may (EPERM).
    NotPermitted,
    /// The name exceeds 255 bytes (ENAMETOOLONG).
    NameTooLong,
    /// An argument makes no sense, or a directory would move into itself (EINVAL).
    InvalidArgument,
    /// The node behind a handle is gone (ESTALE).
    Stale,
    /// No space (ENOSPC).
    NoSpace,
    /// A node cannot have more links (EMLINK).
    TooManyLinks,
    /// Not within one filesystem or quota (EXDEV).
    CrossDevice,
    /// The file would become too large (EFBIG).
    TooLarge,
    /// The filesystem cannot do this (EOPNOTSUPP).
    Unsupported,
    /// Data or a store is damaged, or stable data is missing (EIO).
    Io,
    /// The server that owns the entry could not be reached in time (ETIMEDOUT).
    Unreachable,
    /// The session has ended or its secret is wrong (EACCES at mount time, EIO later).
    SessionEnded,
    /// A request, grant or capability does not carry a valid signature, or it has expired beyond renewal.
    Unauthenticated,
    /// The call was interrupted (EINTR).
    Interrupted,
    /// The node has no such extended attribute (ENODATA).
    NoData,
    /// Somebody else holds a lock that conflicts (EAGAIN).
    Locked,
    /// Waiting for the lock would be waiting for oneself (EDEADLK).
    Deadlock,
    /// The file has as many locks as it may have (ENOLCK).
    NoLocks,
    /// A quota is used up (EDQUOT).
    QuotaExceeded,
}

impl Code {
    /// A short phrase for people.
    pub fn phrase(self) -> &'static str {
        match self {
            Code::NotFound => "no such file or directory",
            Code::Exists => "file exists",
            Code::NotDirectory => "not a directory",
            Code::IsDirectory => "is a directory",
            Code::NotEmpty => "directory not empty",
            Code::Access => "permission denied",
            Code::NotPermitted => "operation not permitted",
            Code::NameTooLong => "file name too long (at most 255 bytes)",
            Code::InvalidArgument => "invalid argument",
            Code::Stale => "stale file handle",
            Code::NoSpace => "no space left",
            Code::TooManyLinks => "too many links",
            Code::CrossDevice => "cannot link or move across filesystems or quota roots",
            Code::TooLarge => "file too large",
            Code::Unsupported => "operation not supported",
            Code::Io => "input/output error: stored data is damaged or missing",
            Code::Unreachable => "the server that owns this entry did not answer in time",
            Code::SessionEnded => "the client's session has ended",
            Code::Unauthenticated => "not authenticated: the secret or signature is wrong",
            Code::Interrupted => "interrupted",
            Code::NoData => "no such attribute",
            Code::Locked => "somebody else holds a lock on it",
            Code::Deadlock => "waiting for the lock would never end: its holder waits for one of ours",
            Code::NoLocks => "the file has too many locks",
            Code::QuotaExceeded => "the quota of a directory above is used up",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

impl std::error::Error for Code {}
