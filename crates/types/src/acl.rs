//! POSIX access control lists (acl(5)): what they allow, what new nodes inherit, and their bytes in extended
//! attributes.
//!
//! The permission bits of a node and its list say some things twice. Here they are kept once: the owner's,
//! the mask's and the others' rights are the permission bits; [`Named`] has the rest. So a chmod changes the
//! mask, as it must, without touching the list.

use crate::{Access, AclHash, Code, Credentials, FileType, Gid, Mode, Permission, Uid};
use serde::{Deserialize, Serialize};

/// Read 4, write 2, execute 1.
pub type Rights = u8;

/// What a list adds to permission bits. While a node has it, the bits of its group class are the mask of all
/// that is said here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Rights of users, before the mask.
    pub users: Vec<(Uid, Rights)>,
    /// Rights of the node's group, before the mask.
    pub group: Rights,
    /// Rights of other groups, before the mask.
    pub groups: Vec<(Gid, Rights)>,
}

/// A whole list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acl {
    /// The owner's rights.
    pub owner: Rights,
    /// Rights of others.
    pub other: Rights,
    /// Users and groups.
    pub named: Named,
    /// The most that `named` may give. Only a list that names nobody may do without.
    pub mask: Option<Rights>,
}

/// The lists of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acls {
    /// Who may access it, beyond its permission bits.
    pub access: Option<Box<Named>>,
    /// What is made in a directory begins with this.
    pub default: Option<Box<Acl>>,
}

const ALL: Rights = 7;
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// As many entries as Linux passes on: they fit a page.
const ENTRIES_MAX: usize = (4096 - HEADER_BYTES) / ENTRY_BYTES;
const NOBODY: u32 = u32::MAX;

/// Tags of entries, in the order in which they must come.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OF_NODE: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

fn bits(mode: Mode, shift: u32) -> Rights {
    (mode.bits() >> shift) as Rights & ALL
}

impl Acl {
    /// The list that a node's permission bits and its own list make together.
    pub fn of(mode: Mode, named: &Named) -> Acl {
        Acl { owner: bits(mode, 6), other: bits(mode, 0), named: named.clone(), mask: Some(bits(mode, 3)) }
    }

    /// The permission bits that say the same as far as they can, and what they do not say.
    pub fn split(&self, before: Mode) -> (Mode, Option<Named>) {
        let class = |rights: Rights, shift: u32| u32::from(rights) << shift;
        let group = self.mask.unwrap_or(self.named.group);
        let special = before.bits() & 0o7000;
        let mode = Mode::new(special | class(self.owner, 6) | class(group, 3) | class(self.other, 0));
        (mode, self.mask.map(|_| self.named.clone()))
    }

    /// What a new node gets in a directory with this default list, if it is asked for with these permission
    /// bits.
    pub fn inherited(&self, mode: Mode) -> (Mode, Option<Named>) {
        let mut acl = self.clone();
        acl.owner &= bits(mode, 6);
        acl.other &= bits(mode, 0);
        match &mut acl.mask {
            Some(mask) => *mask &= bits(mode, 3),
            None => acl.named.group &= bits(mode, 3),
        }
        acl.split(mode)
    }

    /// A list from its extended attribute; `None`: an empty one, which is none at all.
    /// [`Code::InvalidArgument`] for what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Option<Acl>, Code> {
        let (version, entries) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Code::InvalidArgument)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Code::Unsupported);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() || entries.len() > ENTRIES_MAX {
            return Err(Code::InvalidArgument);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let (mut owner, mut group, mut other, mut mask) = (None, None, None, None);
        let mut named = Named::default();
        let mut tag_before = 0;
        for [t0, t1, r0, r1, id @ ..] in entries {
            let (tag, rights) = (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*r0, *r1]));
            let id = u32::from_le_bytes(*id);
            let rights = Rights::try_from(rights).ok().filter(|rights| *rights <= ALL);
            let rights = rights.ok_or(Code::InvalidArgument)?;
            let repeats = tag == tag_before && !matches!(tag, USER | GROUP);
            if tag < tag_before || repeats {
                return Err(Code::InvalidArgument);
            }
            tag_before = tag;
            match tag {
                OWNER => owner = Some(rights),
                USER if id != NOBODY => named.users.push((Uid(id), rights)),
                GROUP_OF_NODE => group = Some(rights),
                GROUP if id != NOBODY => named.groups.push((Gid(id), rights)),
                MASK => mask = Some(rights),
                OTHER => other = Some(rights),
                _ => return Err(Code::InvalidArgument),
            }
        }
        let names = !named.users.is_empty() || !named.groups.is_empty();
        let (Some(owner), Some(group), Some(other)) = (owner, group, other) else {
            return Err(Code::InvalidArgument);
        };
        if names && mask.is_none() {
            return Err(Code::InvalidArgument);
        }
        named.group = group;
        Ok(Some(Acl { owner, other, named, mask }))
    }

    /// The bytes of its extended attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, rights: Rights, id: u32| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(rights).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        put(OWNER, self.owner, NOBODY);
        self.named.users.iter().for_each(|(uid, rights)| put(USER, *rights, uid.0));
        put(GROUP_OF_NODE, self.named.group, NOBODY);
        self.named.groups.iter().for_each(|(gid, rights)| put(GROUP, *rights, gid.0));
        if let Some(mask) = self.mask {
            put(MASK, mask, NOBODY);
        }
        put(OTHER, self.other, NOBODY);
        bytes
    }
}

impl Acls {
    /// Whether there is neither list.
    pub fn is_empty(&self) -> bool {
        self.access.is_none() && self.default.is_none()
    }

    /// 0 without any list; else a number that differs when the lists do and says which there are.
    pub fn hash(&self) -> AclHash {
        if self.is_empty() {
            return AclHash(0);
        }
        let access = self.access.as_ref().map(|named| Acl::of(Mode::new(0), named).encode());
        let default = self.default.as_deref().map(Acl::encode);
        let bytes: Vec<u8> = [access, default].into_iter().flatten().flatten().collect();
        // Never 0, and the lowest bits say which lists there are.
        let lists = u64::from(self.access.is_some()) << 1 | u64::from(self.default.is_some());
        AclHash(xxhash_rust::xxh3::xxh3_64(&bytes) & !3 | lists)
    }
}

impl AclHash {
    /// Whether there is an access list among those that this is the hash of.
    pub fn has_access(self) -> bool {
        self.0 & 2 != 0
    }
}

impl Access {
    /// As [`Access::allows`], with the node's list if it has one. As on Linux, a list counts only while the
    /// group class has any right at all.
    pub fn allows_with(
        self,
        named: Option<&Named>,
        who: &Credentials,
        wish: Permission,
        file_type: FileType,
    ) -> bool {
        let Some(named) = named.filter(|_| self.mode.has(0o070)) else {
            return self.allows(who, wish, file_type);
        };
        if who.uid == Uid(0) || who.uid == self.uid {
            return self.allows(who, wish, file_type);
        }
        let wish = wish.bits();
        let mask = bits(self.mode, 3);
        let gives = |rights: Rights| rights & wish == wish;
        if let Some((_, rights)) = named.users.iter().find(|(uid, _)| *uid == who.uid) {
            return gives(rights & mask);
        }
        let own = Some(named.group).filter(|_| who.in_group(self.gid));
        let others = named.groups.iter().filter(|(gid, _)| who.in_group(*gid)).map(|(_, rights)| *rights);
        let mut groups = own.into_iter().chain(others).peekable();
        if groups.peek().is_none() {
            return gives(bits(self.mode, 0));
        }
        groups.any(|rights| gives(rights & mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid: Uid(uid), gid: Gid(gid), groups: groups.iter().copied().map(Gid).collect() }
    }

    fn named() -> Named {
        Named { users: vec![(Uid(5), 6), (Uid(6), 0)], group: 4, groups: vec![(Gid(50), 7), (Gid(60), 2)] }
    }

    #[test]
    fn the_first_class_that_fits_decides_and_the_mask_limits_it() {
        let access = |mode| Access { mode: Mode::new(mode), uid: Uid(1), gid: Gid(10) };
        let may = |mode, who: &Credentials, wish| {
            access(mode).allows_with(Some(&named()), who, wish, FileType::Regular)
        };
        let (read, write) = (Permission::READ, Permission::WRITE);
        let both = Permission::from_bits(6);
        // The owner's class is the permission bits' alone.
        assert!(may(0o470, &user(1, 10, &[]), read) && !may(0o470, &user(1, 10, &[]), write));
        assert!(may(0o070, &user(5, 0, &[]), both) && !may(0o040, &user(5, 0, &[]), both));
        // Named, so others' rights do not count.
        assert!(!may(0o077, &user(6, 0, &[]), read));
        // One of several groups has to give all that is wished for.
        assert!(may(0o070, &user(9, 10, &[50]), both));
        assert!(!may(0o070, &user(9, 10, &[60]), both));
        assert!(may(0o070, &user(9, 10, &[60]), read) && may(0o070, &user(9, 10, &[60]), write));
        assert!(!may(0o077, &user(9, 60, &[]), read), "in a group, so not one of the others");
        assert!(may(0o074, &user(9, 9, &[]), read) && !may(0o070, &user(9, 9, &[]), read));
        // Without rights of the group class Linux does not look at the list.
        assert!(may(0o004, &user(6, 0, &[]), read));
        assert!(may(0o000, &user(0, 0, &[]), both));
    }

    #[test]
    fn a_new_node_gets_no_more_than_it_asks_for_and_the_default_gives() {
        let default = Acl { owner: 7, other: 5, named: named(), mask: Some(7) };
        let (mode, list) = default.inherited(Mode::new(0o2640));
        assert_eq!((mode.bits(), list), (0o2640, Some(named())));
        let (mode, _) = default.inherited(Mode::new(0o777));
        assert_eq!(mode.bits(), 0o775);
        let plain = Named { group: 5, ..Named::default() };
        let default = Acl { owner: 7, other: 0, named: plain, mask: None };
        assert_eq!(default.inherited(Mode::new(0o666)), (Mode::new(0o640), None));
    }

    #[test]
    fn a_list_survives_its_bytes_and_senseless_ones_are_refused() {
        for mask in [Some(5), None] {
            let named = if mask.is_some() { named() } else { Named { group: 3, ..Named::default() } };
            let acl = Acl { owner: 7, other: 1, named, mask };
            let bytes = acl.encode();
            assert_eq!(Acl::decode(&bytes), Ok(Some(acl)));
            assert_eq!(Acl::decode(&bytes[..bytes.len() - 1]), Err(Code::InvalidArgument));
            assert_eq!(Acl::decode(&bytes[..bytes.len() - 8]), Err(Code::InvalidArgument), "no others");
        }
        assert_eq!(Acl::decode(&VERSION.to_le_bytes()), Ok(None));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(Code::Unsupported));
        let entry = |tag: u16, rights: u16, id: u32| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let list = |entries: &[Vec<u8>]| [&VERSION.to_le_bytes()[..], &entries.concat()].concat();
        let (owner, group, other) =
            (entry(OWNER, 7, NOBODY), entry(GROUP_OF_NODE, 7, NOBODY), entry(OTHER, 7, NOBODY));
        let senseless = [
            vec![group.clone(), owner.clone(), other.clone()],
            vec![owner.clone(), owner.clone(), group.clone(), other.clone()],
            vec![entry(OWNER, 8, NOBODY), group.clone(), other.clone()],
            vec![owner.clone(), entry(USER, 7, 5), group.clone(), other.clone()],
            vec![owner.clone(), entry(USER, 7, NOBODY), group, entry(MASK, 7, NOBODY), other],
        ];
        for entries in senseless {
            assert_eq!(Acl::decode(&list(&entries)), Err(Code::InvalidArgument), "{entries:?}");
        }
    }

    #[test]
    fn a_hash_tells_which_lists_there_are_and_when_they_differ() {
        let default = Acl { owner: 7, other: 5, named: named(), mask: Some(7) };
        let access = Acls { access: Some(Box::new(named())), default: None };
        let both = Acls { default: Some(Box::new(default)), ..access.clone() };
        assert_eq!(Acls::default().hash(), AclHash(0));
        assert!(both.hash().has_access() && access.hash().has_access());
        let only_default = Acls { access: None, ..both.clone() };
        assert!(!only_default.hash().has_access() && only_default.hash() != AclHash(0));
        assert_ne!(access.hash(), both.hash());
        assert_ne!(access.hash(), Acls { access: Some(Box::default()), default: None }.hash());
    }
}
