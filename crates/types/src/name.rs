//! Names of directory entries and the order in which a directory lists them.

use crate::Code;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

/// The name of a directory entry: 1 to 255 bytes, neither `/` nor NUL, not `.` or `..`. It takes 24 bytes,
/// and no others up to a length of 22: caches hold hundreds of thousands.
#[derive(Clone)]
pub struct Name(Bytes);

#[derive(Clone)]
enum Bytes {
    Short(u8, [u8; SHORT_MAX]),
    Long(Box<[u8]>),
}

const SHORT_MAX: usize = 22;

impl Name {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Checks and takes a name. [`Code::NameTooLong`] beyond 255 bytes, [`Code::InvalidArgument`] for
    /// anything that cannot stand in a directory.
    pub fn new(bytes: &[u8]) -> Result<Name, Code> {
        if bytes.len() > Name::BYTES_MAX {
            return Err(Code::NameTooLong);
        }
        let reserved = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if reserved || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err(Code::InvalidArgument);
        }
        if bytes.len() > SHORT_MAX {
            return Ok(Name(Bytes::Long(bytes.into())));
        }
        let mut short = [0; SHORT_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Ok(Name(Bytes::Short(bytes.len() as u8, short)))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(length, bytes) => &bytes[..usize::from(*length)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::hash::Hash::hash(self.as_bytes(), state);
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_bytes(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bytes of a name of a directory entry")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Name, E> {
        Name::new(bytes).map_err(|_| E::custom("not a name of a directory entry"))
    }

    /// Formats without bytes of their own, such as JSON, have a list of numbers.
    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Name, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = numbers.next_element()? {
            bytes.push(byte);
            // One more than fits is enough to refuse it.
            if bytes.len() > Name::BYTES_MAX {
                break;
            }
        }
        self.visit_bytes(&bytes)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// The key of the name hash: one per filesystem, so that nobody can aim names at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameKey(pub u64);

/// The keyed 48-bit hash of a name. A name's position is monotone in it, so a listing runs in (hash, name)
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct NameHash(u64);

/// A number that is no hash of a name, or no cookie: it has more bits than these have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooWide(u64);

impl fmt::Display for TooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} has more bits than a name's hash or a cookie", self.0)
    }
}

impl TryFrom<u64> for NameHash {
    type Error = TooWide;

    fn try_from(bits: u64) -> Result<NameHash, TooWide> {
        if bits <= NameHash::LAST.0 { Ok(NameHash(bits)) } else { Err(TooWide(bits)) }
    }
}

impl NameHash {
    /// Width of the hash in bits.
    pub const BITS: u32 = 48;
    /// The smallest hash.
    pub const FIRST: NameHash = NameHash(0);
    /// The largest hash.
    pub const LAST: NameHash = NameHash((1 << NameHash::BITS) - 1);

    /// The hash of a name under a filesystem's key (XXH3-64 with the key as seed, top 48 bits).
    pub fn of(key: NameKey, name: &Name) -> NameHash {
        NameHash(xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), key.0) >> (64 - NameHash::BITS))
    }

    /// A hash from its number; bits above 48 are dropped.
    pub fn from_bits(bits: u64) -> NameHash {
        NameHash(bits & NameHash::LAST.0)
    }

    /// The hash as a number below 2^48.
    pub fn to_bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for NameHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{:012x}", self.0)
    }
}

/// Where a listing goes on: the 48-bit hash and a 15-bit ordinal among names of equal hash. It says by itself
/// which tablet goes on, after any split, move or failover. Layout: bit 63 zero, bits 62..15 hash, bits 14..0
/// ordinal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Cookie(u64);

impl TryFrom<u64> for Cookie {
    type Error = TooWide;

    fn try_from(bits: u64) -> Result<Cookie, TooWide> {
        if bits >> 63 == 0 { Ok(Cookie(bits)) } else { Err(TooWide(bits)) }
    }
}

impl Cookie {
    /// Before the first entry. (Entries have ordinals from 1, so no entry has this cookie.)
    pub const START: Cookie = Cookie(0);
    /// The largest ordinal: so many names of one directory may share one hash.
    pub const ORDINAL_MAX: u16 = (1 << 15) - 1;

    /// The cookie of the entry with this hash and ordinal.
    pub fn new(hash: NameHash, ordinal: u16) -> Cookie {
        Cookie(hash.0 << 15 | u64::from(ordinal & Cookie::ORDINAL_MAX))
    }

    /// A cookie from the number that the kernel or a program kept. Bit 63 is dropped.
    pub fn from_bits(bits: u64) -> Cookie {
        Cookie(bits & (u64::MAX >> 1))
    }

    /// The number to hand out; it fits a signed 64-bit offset.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The hash of the entry.
    pub fn hash(self) -> NameHash {
        NameHash(self.0 >> 15)
    }

    /// The ordinal among entries of equal hash.
    pub fn ordinal(self) -> u16 {
        (self.0 & u64::from(Cookie::ORDINAL_MAX)) as u16
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.hash(), self.ordinal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_stand_in_a_directory_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(Code::InvalidArgument), "{bad:?}");
        }
        assert_eq!(Name::new(&[b'x'; 256]), Err(Code::NameTooLong));
        assert!(Name::new(&[0xff; 255]).is_ok());
    }

    #[test]
    fn numbers_with_more_bits_are_no_hashes_and_no_cookies() {
        assert_eq!(NameHash::try_from(1 << 48), Err(TooWide(1 << 48)));
        assert_eq!(NameHash::try_from(NameHash::LAST.to_bits()), Ok(NameHash::LAST));
        assert_eq!(Cookie::try_from(1 << 63), Err(TooWide(1 << 63)));
        assert_eq!(Cookie::try_from(u64::MAX >> 1).map(Cookie::hash), Ok(NameHash::LAST));
    }

    #[test]
    fn a_name_is_its_bytes_however_it_is_kept() {
        let lengths = [1, SHORT_MAX - 1, SHORT_MAX, SHORT_MAX + 1, Name::BYTES_MAX];
        let names = lengths.map(|length| (vec![b'x'; length], Name::new(&vec![b'x'; length]).unwrap()));
        for (bytes, name) in &names {
            assert_eq!(name.as_bytes(), bytes);
            for (other_bytes, other) in &names {
                assert_eq!(name.cmp(other), bytes.cmp(other_bytes));
                assert_eq!(name == other, bytes == other_bytes);
            }
        }
        assert_eq!(size_of::<Name>(), 24);
    }

    #[test]
    fn a_cookie_gives_back_its_parts_and_orders_by_hash_then_ordinal() {
        let low = Cookie::new(NameHash::from_bits(7), 3);
        let next = Cookie::new(NameHash::from_bits(7), 4);
        let high = Cookie::new(NameHash::from_bits(8), 1);
        assert!(Cookie::START < low && low < next && next < high);
        assert_eq!((low.hash().to_bits(), low.ordinal()), (7, 3));
        assert_eq!(Cookie::from_bits(low.to_bits()), low);
        assert!(Cookie::new(NameHash::LAST, Cookie::ORDINAL_MAX).to_bits() <= i64::MAX as u64);
    }
}
