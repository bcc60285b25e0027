//! Extended attributes as the kernel asks for them: with a buffer of some size, or of size 0 to learn how
//! much there is.

use crate::bridge::Bridge;
use bearing_mount::{Operation, XattrChange, XattrMode};
use bearing_types::{Code, Credentials, Outcome, XattrName};
use fuser::INodeNo;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What is said of bytes that are asked for with a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fitted {
    /// There are so many (nothing but that was asked).
    Size(u32),
    /// These.
    Bytes(Vec<u8>),
    /// More than the buffer takes (ERANGE).
    TooSmall,
}

/// Answers a question with a buffer of this size.
pub(crate) fn fit(bytes: Vec<u8>, buffer: u32) -> Fitted {
    match (bytes.len() as u32, buffer) {
        (length, 0) => Fitted::Size(length),
        (length, buffer) if length > buffer => Fitted::TooSmall,
        _ => Fitted::Bytes(bytes),
    }
}

impl Bridge {
    /// The value of an attribute.
    pub fn xattr(&self, number: INodeNo, name: &OsStr, who: Credentials) -> Outcome<Vec<u8>> {
        let inode = self.inode(number)?;
        let name = XattrName::new(name.as_bytes())?;
        self.caller.bytes(Operation::Xattr { node: inode.handle, file_type: inode.file_type, who, name })
    }

    /// The names of all attributes.
    pub fn xattrs(&self, number: INodeNo, who: Credentials) -> Outcome<Vec<u8>> {
        let inode = self.inode(number)?;
        self.caller.bytes(Operation::Xattrs { node: inode.handle, file_type: inode.file_type, who })
    }

    /// Sets an attribute, with the flags of setxattr(2).
    pub fn set_xattr(
        &self,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        who: Credentials,
    ) -> Outcome<()> {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Code::InvalidArgument),
        };
        self.change_xattr(number, name, XattrChange::Set { value: value.to_vec(), mode }, who)
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, number: INodeNo, name: &OsStr, who: Credentials) -> Outcome<()> {
        self.change_xattr(number, name, XattrChange::Remove, who)
    }

    fn change_xattr(
        &self,
        number: INodeNo,
        name: &OsStr,
        change: XattrChange,
        who: Credentials,
    ) -> Outcome<()> {
        let inode = self.inode(number)?;
        let name = XattrName::new(name.as_bytes())?;
        let (node, file_type) = (inode.handle, inode.file_type);
        self.caller.done(Operation::SetXattr { node, file_type, who, name, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeCaller, handle};
    use bearing_mount::Answer;
    use std::sync::Arc;

    #[test]
    fn a_buffer_of_size_0_asks_how_much_there_is_and_one_that_is_too_small_gets_nothing() {
        assert_eq!(fit(vec![7; 5], 0), Fitted::Size(5));
        assert_eq!(fit(vec![7; 5], 4), Fitted::TooSmall);
        assert_eq!(fit(vec![7; 5], 5), Fitted::Bytes(vec![7; 5]));
        assert_eq!(fit(vec![], 5), Fitted::Bytes(vec![]));
    }

    #[test]
    fn flags_are_passed_on_and_what_no_server_would_take_is_refused_here() {
        let caller = Arc::new(FakeCaller::answering(vec![Ok(Answer::Done), Ok(Answer::Done)]));
        let bridge = Bridge::new(caller.clone(), handle(1));
        let set = |name: &str, flags| {
            bridge.set_xattr(INodeNo::ROOT, OsStr::new(name), b"v", flags, Credentials::ROOT)
        };
        assert_eq!(set("other.a", 0), Err(Code::Unsupported));
        assert_eq!(set("user.a", 3), Err(Code::InvalidArgument));
        set("user.a", libc::XATTR_CREATE).unwrap();
        bridge.remove_xattr(INodeNo::ROOT, OsStr::new("user.a"), Credentials::ROOT).unwrap();
        let asked = caller.asked();
        let change = |asked: &Operation| match asked {
            Operation::SetXattr { change, .. } => change.clone(),
            other => panic!("{other:?}"),
        };
        let set = XattrChange::Set { value: b"v".to_vec(), mode: XattrMode::Create };
        assert_eq!(asked.iter().map(change).collect::<Vec<_>>(), [set, XattrChange::Remove]);
    }
}
