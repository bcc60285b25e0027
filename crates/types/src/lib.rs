//! The words of Bearing: ids, units, positions on the ring, time, attributes and error codes.
//!
//! Invariants: every id and unit is its own type; nothing here does I/O, reads a clock or draws a
//! random number. This crate must not know any other room.

mod acl;
mod attributes;
mod bounds;
mod code;
mod id;
mod id_hasher;
mod lock;
mod name;
mod quota;
mod ring;
mod squash;
mod time;
mod xattr;

pub use acl::{Acl, Acls, Named, Rights};
pub use attributes::{Access, Attributes, Credentials, FileType, Gid, Mode, Permission, SetIds, Uid};
pub use bounds::{ParameterError, within};
pub use code::{Code, Outcome};
pub use id::{
    AclHash, ChunkId, DiskId, Epoch, FilesystemId, Generation, LogIndex, MapVersion, NodeId, NodeIdRange,
    Sequence, ServerId, SessionId, TabletSerial, TransactionId, Version,
};
pub use id_hasher::{IdHasher, IdMap};
pub use lock::{FileLocks, HeldLock, LOCKS_PER_FILE_MAX, Lock, LockMode, LockOwner, LockRange, LockSpace};
pub use name::{Cookie, Name, NameHash, NameKey};
pub use quota::Amount;
pub use ring::{Arc, Block, Position};
pub use squash::Squash;
pub use time::{Mono, Now, Wall};
pub use xattr::{XattrName, XattrSpace, xattr_list};
