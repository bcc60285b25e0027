//! What an engine can say went wrong, divided by what the caller can do.

use std::fmt;

/// The result of a call to an engine.
pub type EngineResult<T> = Result<T, EngineError>;

/// Why an engine refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// The disk is full or a quota is used up: free space, then go on.
    Full {
        /// What was being done.
        doing: String,
    },
    /// Stored bytes fail their checksum or make no sense: never served; repair from a replica.
    Corrupt {
        /// Where, and the value seen.
        what: String,
    },
    /// The data were written by a newer version of the program: refuse to open.
    NewerVersion {
        /// What was opened.
        what: String,
        /// The version found.
        found: u32,
        /// The newest version this program reads.
        known: u32,
    },
    /// It answers, but is not what it is taken for: name the right one.
    Foreign {
        /// What is there, and what to try.
        what: String,
    },
    /// An engine on other machines does not answer, or refuses: try again.
    Unavailable {
        /// What was being done, and why it was not.
        what: String,
    },
    /// Another process holds it.
    Busy {
        /// What is held, and by whom if known.
        what: String,
    },
    /// The device failed (also: a sync failed). Stop accepting writes.
    Failed {
        /// What was being done, and the system's reason.
        doing: String,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Full { doing } => write!(f, "{doing}: no space left; free some and try again"),
            EngineError::Corrupt { what } => {
                write!(f, "{what}: stored bytes are damaged; restore this server from its replicas")
            }
            EngineError::NewerVersion { what, found, known } => write!(
                f,
                "{what} was written in format version {found}, this program knows up to version {known}; use a newer `bearing`"
            ),
            EngineError::Foreign { what } => f.write_str(what),
            EngineError::Unavailable { what } => f.write_str(what),
            EngineError::Busy { what } => write!(f, "{what} is in use by another process; stop it first"),
            EngineError::Failed { doing } => {
                write!(f, "{doing} failed; writes stop until the server is restarted")
            }
        }
    }
}

impl std::error::Error for EngineError {}
