//! Enrolments: the secrets by which clients prove that they may take part, and what they may.
//!
//! The *default* enrolment has no name and no rule; its secret is 32 random bytes in a file that servers and
//! clients hold. A *named* one has a secret that follows from the cluster key, the name and the rule, so
//! servers need no table of them: a client shows name and rule, and whoever changes either has another
//! secret. The file given to a client:
//!
//! ```text
//! bearing enrolment 1
//! name laptops
//! squash root 65534 65534
//! secret 64 hex digits
//! ```
//!
//! `squash` is `none`, `root UID GID` or `all UID GID`. The file of the default enrolment is the 64 hex
//! digits alone.

use crate::keys::Key;
use bearing_types::{Gid, Squash, Uid};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest name of an enrolment, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

const FIRST_LINE: &str = "bearing enrolment 1";

/// The name of an enrolment: letters, digits, `.`, `_` and `-`. Empty: the default one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EnrolmentName(String);

impl EnrolmentName {
    /// Checks a name.
    pub fn new(name: &str) -> Option<EnrolmentName> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (name.len() <= NAME_BYTES_MAX && name.bytes().all(good)).then(|| EnrolmentName(name.to_owned()))
    }

    /// Whether it is that of the default enrolment.
    pub fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for EnrolmentName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<EnrolmentName, &'static str> {
        EnrolmentName::new(&name).ok_or("no name of an enrolment")
    }
}

impl From<EnrolmentName> for String {
    fn from(name: EnrolmentName) -> String {
        name.0
    }
}

impl fmt::Display for EnrolmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_default() { "(default)" } else { &self.0 })
    }
}

/// What a client holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// Its name.
    pub name: EnrolmentName,
    /// Its rule.
    pub squash: Squash,
    /// Its secret.
    pub secret: Key,
}

impl From<Key> for Enrolment {
    /// The default enrolment.
    fn from(secret: Key) -> Enrolment {
        Enrolment { name: EnrolmentName::default(), squash: Squash::None, secret }
    }
}

impl Enrolment {
    /// The text of its file.
    pub fn to_text(&self) -> String {
        let secret = self.secret.to_hex();
        if self.name.is_default() {
            return format!("{secret}\n");
        }
        let squash = squash_text(self.squash);
        format!("{FIRST_LINE}\nname {}\nsquash {squash}\nsecret {secret}\n", self.name.as_str())
    }

    /// Reads the text of a file; the error says what is there instead, without showing any of it.
    pub fn parse(text: &str) -> Result<Enrolment, String> {
        let mut lines = text.trim().lines().map(str::trim);
        let first = lines.next().unwrap_or_default();
        if !first.starts_with("bearing enrolment ") {
            return Key::from_hex(first).map(Enrolment::from);
        }
        if first != FIRST_LINE {
            return Err("an enrolment of a newer format".to_owned());
        }
        let mut field = |key: &str| {
            let line = lines.next().unwrap_or_default();
            let value = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(' '));
            value.ok_or_else(|| format!("an enrolment without its line `{key}`"))
        };
        let name = EnrolmentName::new(field("name")?).filter(|name| !name.is_default());
        let squash = parse_squash(field("squash")?);
        let secret = Key::from_hex(field("secret")?)?;
        match (name, squash) {
            (Some(name), Some(squash)) => Ok(Enrolment { name, squash, secret }),
            (None, _) => Err("an enrolment whose name is none".to_owned()),
            (_, None) => Err("an enrolment whose squash rule is none".to_owned()),
        }
    }
}

/// A rule in words.
pub fn squash_text(squash: Squash) -> String {
    match squash {
        Squash::None => "none".to_owned(),
        Squash::Root { uid, gid } => format!("root {} {}", uid.0, gid.0),
        Squash::All { uid, gid } => format!("all {} {}", uid.0, gid.0),
    }
}

fn parse_squash(text: &str) -> Option<Squash> {
    let words: Vec<&str> = text.split(' ').collect();
    let ids = |uid: &str, gid: &str| Some((Uid(uid.parse().ok()?), Gid(gid.parse().ok()?)));
    match words[..] {
        ["none"] => Some(Squash::None),
        ["root", uid, gid] => ids(uid, gid).map(|(uid, gid)| Squash::Root { uid, gid }),
        ["all", uid, gid] => ids(uid, gid).map(|(uid, gid)| Squash::All { uid, gid }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_of_both_kinds_are_read_back_and_nonsense_is_named_without_being_shown() {
        let secret = Key::new([0xab; 32]);
        let default = Enrolment::from(secret.clone());
        assert_eq!(default.to_text(), format!("{}\n", "ab".repeat(32)));
        assert_eq!(Enrolment::parse(&default.to_text()), Ok(default));
        let (uid, gid) = (Uid(65_534), Gid(7));
        for squash in [Squash::None, Squash::Root { uid, gid }, Squash::All { uid, gid }] {
            let name = EnrolmentName::new("lab-7").unwrap();
            let named = Enrolment { name, squash, secret: secret.clone() };
            assert_eq!(Enrolment::parse(&named.to_text()), Ok(named));
        }
        let bad = format!("{FIRST_LINE}\nname x\nsquash sometimes\nsecret {}\n", "ab".repeat(32));
        assert!(Enrolment::parse(&bad).unwrap_err().contains("squash"));
        let newer = bad.replace("enrolment 1", "enrolment 2");
        assert!(Enrolment::parse(&newer).unwrap_err().contains("newer"));
        assert!(Enrolment::parse("abc").unwrap_err().contains("3 characters"));
        assert_eq!(EnrolmentName::new("a/b"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,200}", rest in ".{0,100}") {
            let _ = Enrolment::parse(&text);
            let _ = Enrolment::parse(&format!("{FIRST_LINE}\nname {text}\nsquash {rest}\nsecret {text}"));
        }
    }
}
