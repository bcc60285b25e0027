//! Names of extended attributes, and the limits that Linux sets (xattr(7)).

use crate::Code;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of an extended attribute, like `user.mime_type`: a namespace that is known, a dot, and more; 255
/// bytes at most, no NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct XattrName(Box<[u8]>);

/// Whom an extended attribute is for: the part of its name before the first dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrSpace {
    /// Anybody who may read or write the file or directory.
    User,
    /// Root alone; nobody else sees them.
    Trusted,
    /// The kernel's security modules: root sets them, anybody sees them.
    Security,
    /// The access control list of a node: the owner sets it, anybody sees it.
    AccessList,
    /// The one that what is made in a directory begins with.
    DefaultList,
}

impl XattrName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 255;
    /// The longest value, in bytes.
    pub const VALUE_BYTES_MAX: usize = 65_536;
    /// The longest list of all names of a node, in bytes: each name and a NUL.
    pub const LIST_BYTES_MAX: usize = 65_536;

    /// Access control lists have one name each.
    const LISTS: [(&[u8], XattrSpace); 2] = [
        (b"system.posix_acl_access", XattrSpace::AccessList),
        (b"system.posix_acl_default", XattrSpace::DefaultList),
    ];

    const SPACES: [(&[u8], XattrSpace); 3] = [
        (b"user.", XattrSpace::User),
        (b"trusted.", XattrSpace::Trusted),
        (b"security.", XattrSpace::Security),
    ];

    /// Checks and takes a name. [`Code::Unsupported`] outside the known namespaces, [`Code::InvalidArgument`]
    /// for one that is nothing but a namespace, too long, or holds a NUL.
    pub fn new(bytes: &[u8]) -> Result<XattrName, Code> {
        if XattrName::list_of(bytes).is_some() {
            return Ok(XattrName(bytes.into()));
        }
        let (prefix, _) = XattrName::space_of(bytes).ok_or(Code::Unsupported)?;
        if bytes.len() == prefix.len() || bytes.len() > XattrName::BYTES_MAX || bytes.contains(&0) {
            return Err(Code::InvalidArgument);
        }
        Ok(XattrName(bytes.into()))
    }

    fn space_of(bytes: &[u8]) -> Option<(&'static [u8], XattrSpace)> {
        XattrName::SPACES.into_iter().find(|(prefix, _)| bytes.starts_with(prefix))
    }

    fn list_of(bytes: &[u8]) -> Option<XattrSpace> {
        XattrName::LISTS.into_iter().find(|(name, _)| bytes == *name).map(|(_, space)| space)
    }

    /// The name of an access control list.
    pub fn of_list(space: XattrSpace) -> Option<XattrName> {
        let (name, _) = XattrName::LISTS.into_iter().find(|(_, other)| *other == space)?;
        Some(XattrName(name.into()))
    }

    /// Whom it is for.
    pub fn space(&self) -> XattrSpace {
        let in_space = || XattrName::space_of(&self.0).map(|(_, space)| space);
        XattrName::list_of(&self.0).or_else(in_space).expect("checked when it was made")
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What it adds to a list of names, in bytes.
    pub fn list_bytes(&self) -> usize {
        self.0.len() + 1
    }
}

impl<'de> Deserialize<'de> for XattrName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<XattrName, D::Error> {
        let bytes = Box::<[u8]>::deserialize(deserializer)?;
        XattrName::new(&bytes).map_err(|_| serde::de::Error::custom("not a name of an extended attribute"))
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Names as listxattr(2) gives them: each with a NUL behind it.
pub fn xattr_list<'a>(names: impl IntoIterator<Item = &'a XattrName>) -> Vec<u8> {
    names.into_iter().flat_map(|name| name.as_bytes().iter().copied().chain([0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_a_known_namespace_and_not_too_long() {
        for (name, space) in [
            ("user.a", XattrSpace::User),
            ("trusted.b", XattrSpace::Trusted),
            ("security.c", XattrSpace::Security),
        ] {
            assert_eq!(XattrName::new(name.as_bytes()).unwrap().space(), space);
        }
        for space in [XattrSpace::AccessList, XattrSpace::DefaultList] {
            let name = XattrName::of_list(space).unwrap();
            assert_eq!((XattrName::new(name.as_bytes()).as_ref(), name.space()), (Ok(&name), space));
        }
        for name in ["", "user", "other.a", "system.posix_acl"] {
            assert_eq!(XattrName::new(name.as_bytes()), Err(Code::Unsupported), "{name}");
        }
        for name in ["user.", "user.a\0b"] {
            assert_eq!(XattrName::new(name.as_bytes()), Err(Code::InvalidArgument), "{name}");
        }
        let long = format!("user.{}", "x".repeat(250));
        assert!(XattrName::new(long.as_bytes()).is_ok());
        assert_eq!(XattrName::new(format!("{long}x").as_bytes()), Err(Code::InvalidArgument));
    }

    #[test]
    fn a_list_holds_each_name_with_a_nul() {
        let names = ["user.a", "trusted.b"].map(|name| XattrName::new(name.as_bytes()).unwrap());
        assert_eq!(xattr_list(&names), b"user.a\0trusted.b\0");
        assert_eq!(xattr_list(&names).len(), names.iter().map(XattrName::list_bytes).sum::<usize>());
    }
}
