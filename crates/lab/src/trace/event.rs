//! An operation of a trace, and what a line says of one.

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since the trace began.
    pub at_us: u64,
    /// Who asked: the same number for the same host, process or user, as far as the recording tells them
    /// apart.
    pub client: u64,
    /// What was asked.
    pub kind: Kind,
    /// Of what: components separated by `/`, the first one empty.
    pub path: String,
    /// Of a rename or a link: the new name, if the recording says it.
    pub to: Option<String>,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Attributes, existence, rights.
    Lookup,
    /// The names in a directory.
    List,
    /// To use a file that is there.
    Open,
    /// The end of that.
    Close,
    /// A new file, or a symbolic link.
    Create,
    /// A new directory.
    MakeDirectory,
    /// Other attributes: mode, owner, times, size.
    Update,
    /// A file's name is gone.
    Remove,
    /// A directory is gone.
    RemoveDirectory,
    /// Another name.
    Rename,
    /// One more name.
    Link,
    /// Bytes of a file: no metadata are asked for.
    Read,
    /// The same.
    Write,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 13] = [
        Kind::Lookup,
        Kind::List,
        Kind::Open,
        Kind::Close,
        Kind::Create,
        Kind::MakeDirectory,
        Kind::Update,
        Kind::Remove,
        Kind::RemoveDirectory,
        Kind::Rename,
        Kind::Link,
        Kind::Read,
        Kind::Write,
    ];

    /// The word for it in plain traces.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lookup => "lookup",
            Kind::List => "list",
            Kind::Open => "open",
            Kind::Close => "close",
            Kind::Create => "create",
            Kind::MakeDirectory => "mkdir",
            Kind::Update => "update",
            Kind::Remove => "remove",
            Kind::RemoveDirectory => "rmdir",
            Kind::Rename => "rename",
            Kind::Link => "link",
            Kind::Read => "read",
            Kind::Write => "write",
        }
    }

    /// The kind of a word.
    pub fn named(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == word)
    }

    /// Whether a metadata server is asked.
    pub fn is_metadata(self) -> bool {
        !matches!(self, Kind::Read | Kind::Write)
    }
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// An operation, with its time in microseconds since whenever.
    Event(i64, Event),
    /// An operation of a kind that has nothing to do with names, by its own word.
    Other(String),
    /// A header, a comment, a reply.
    Nothing,
    /// It cannot be understood, because of this.
    Malformed(&'static str),
}

/// Understands the lines of one format, one after the other.
pub(super) trait Parser: Send {
    fn line(&mut self, line: &str) -> Parsed;
}

/// A number for whatever tells clients apart.
pub(super) fn client_of(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
