//! The rules of the namespace: facts in, a verdict or new attributes out.
//!
//! A directory's home decides by them, and so does a client to which the directory is delegated: its
//! steps are decided again at the home, and where the two differed what the client told its users would
//! be lost. Where facts come from is the caller's business: nothing here reads, waits, or knows who asks
//! it.

mod attributes;
mod directory;
mod made;
mod opened;
mod removed;

pub use attributes::{
    Changer, Committed, FILE_BYTES_MAX, changed, committed, note_access, owns, resize, set_mode, touch,
};
pub use directory::{directory_attributes, entries_of, entry_added, entry_removed};
pub use made::{access_of_new, attributes_of_new, attributes_of_new_directory, check_new};
pub use opened::{OpenWish, check_open};
pub use removed::check_same_kind;
