//! Access control lists as Linux keeps them (fs/posix_acl.c): whole, beside the permission bits, with code
//! that keeps the two equal. Production keeps each right once and has no such code, so neither is checked by
//! itself.

use super::Node;
use bearing_types::{Access, Code, Credentials, FileType, Gid, Mode, Permission, Uid, XattrName, XattrSpace};

/// Whom an entry is about, in the order of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The owner.
    Owner,
    /// Another user.
    User(u32),
    /// The node's group.
    Group,
    /// Another group.
    OtherGroup(u32),
    /// The most that all but the owner and others get.
    Mask,
    /// Everybody else.
    Others,
}

/// Entries with rights: read 4, write 2, execute 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List(pub Vec<(Who, u8)>);

const VERSION: [u8; 4] = 2u32.to_le_bytes();
const NOBODY: u32 = u32::MAX;

impl Who {
    fn tag(self) -> (u16, u32) {
        match self {
            Who::Owner => (1, NOBODY),
            Who::User(uid) => (2, uid),
            Who::Group => (4, NOBODY),
            Who::OtherGroup(gid) => (8, gid),
            Who::Mask => (16, NOBODY),
            Who::Others => (32, NOBODY),
        }
    }
}

impl List {
    /// Its bytes in an extended attribute.
    pub fn encode(&self) -> Vec<u8> {
        let entry = |(who, rights): &(Who, u8)| {
            let (tag, id) = who.tag();
            [&tag.to_le_bytes()[..], &u16::from(*rights).to_le_bytes(), &id.to_le_bytes()].concat()
        };
        VERSION.into_iter().chain(self.0.iter().flat_map(entry)).collect()
    }

    /// A list from its bytes; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<List> {
        let entries = bytes.strip_prefix(&VERSION)?;
        let entry = |entry: &[u8]| {
            let (tag, id) = (u16::from_le_bytes([entry[0], entry[1]]), &entry[4..8]);
            let id = u32::from_le_bytes(id.try_into().expect("four bytes"));
            let all = [Who::Owner, Who::User(id), Who::Group, Who::OtherGroup(id), Who::Mask, Who::Others];
            Some((all.into_iter().find(|who| who.tag().0 == tag)?, entry[2]))
        };
        let list = List(entries.chunks(8).map(entry).collect::<Option<_>>()?);
        let whole = [Who::Owner, Who::Group, Who::Others].into_iter().all(|who| list.of(who).is_some());
        (whole && (!list.names_somebody() || list.of(Who::Mask).is_some())).then_some(list)
    }

    fn of(&self, who: Who) -> Option<u8> {
        self.0.iter().find(|(of, _)| *of == who).map(|(_, rights)| *rights)
    }

    fn names_somebody(&self) -> bool {
        self.0.iter().any(|(who, _)| matches!(who, Who::User(_) | Who::OtherGroup(_)))
    }

    /// Whether permission bits cannot say all of it.
    fn says_more(&self) -> bool {
        self.names_somebody() || self.of(Who::Mask).is_some()
    }

    /// The entry that the group's permission bits stand for.
    fn group_class(&self) -> Who {
        if self.of(Who::Mask).is_some() { Who::Mask } else { Who::Group }
    }

    fn classes(&self) -> [(Who, u32); 3] {
        [(Who::Owner, 6), (self.group_class(), 3), (Who::Others, 0)]
    }

    /// The permission bits that go with it.
    fn mode(&self, before: Mode) -> Mode {
        let bits = self.classes().map(|(who, shift)| u32::from(self.of(who).unwrap_or(0)) << shift);
        Mode::new(before.bits() & 0o7000 | bits[0] | bits[1] | bits[2])
    }

    /// chmod.
    fn follow(&mut self, mode: Mode) {
        for (who, shift) in self.classes() {
            self.limit(who, |_| (mode.bits() >> shift) as u8 & 7);
        }
    }

    fn limit(&mut self, who: Who, to: impl Fn(u8) -> u8) {
        self.0.iter_mut().filter(|(of, _)| *of == who).for_each(|(_, rights)| *rights = to(*rights));
    }

    /// What a node that is made with these permission bits inherits of it.
    fn inherited(&self, mode: Mode) -> List {
        let mut list = self.clone();
        for (who, shift) in self.classes() {
            list.limit(who, |rights| rights & (mode.bits() >> shift) as u8 & 7);
        }
        list
    }

    /// Whether it gives somebody who is not the owner what he wants.
    fn gives(&self, access: Access, who: &Credentials, want: u8) -> bool {
        let mask = self.of(Who::Mask).unwrap_or(7);
        let mut in_some_group = false;
        for (of, rights) in &self.0 {
            let group = match of {
                Who::User(uid) if Uid(*uid) == who.uid => return rights & mask & want == want,
                Who::Group => access.gid,
                Who::OtherGroup(gid) => Gid(*gid),
                Who::Others => return !in_some_group && rights & want == want,
                Who::Owner | Who::User(_) | Who::Mask => continue,
            };
            if who.in_group(group) {
                in_some_group = true;
                if rights & want == want {
                    return rights & mask & want == want;
                }
            }
        }
        false
    }
}

impl Node {
    /// Whether somebody may do something with it.
    pub fn allows(&self, who: &Credentials, wish: Permission) -> bool {
        let Some(list) = self.access_list.as_ref().filter(|_| self.access.mode.has(0o070)) else {
            return self.access.allows(who, wish, self.file_type);
        };
        if who.uid == Uid(0) || who.uid == self.access.uid {
            return self.access.allows(who, wish, self.file_type);
        }
        list.gives(self.access, who, wish.bits())
    }

    /// chmod: its list follows.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.access.mode = mode;
        if let Some(list) = &mut self.access_list {
            list.follow(mode);
        }
    }

    /// A list in an extended attribute.
    pub(super) fn list(&self, space: XattrSpace) -> Option<&List> {
        match space {
            XattrSpace::AccessList => self.access_list.as_ref(),
            XattrSpace::DefaultList => self.default_list.as_ref(),
            XattrSpace::User | XattrSpace::Trusted | XattrSpace::Security => None,
        }
    }

    /// Which lists there are.
    pub(super) fn lists(&self) -> Vec<XattrName> {
        let spaces = [XattrSpace::AccessList, XattrSpace::DefaultList];
        let there = spaces.into_iter().filter(|space| self.list(*space).is_some());
        there.filter_map(XattrName::of_list).collect()
    }

    /// Why a list cannot be set by somebody, who may be the owner.
    pub(super) fn refuses_list(&self, space: XattrSpace, value: Option<&[u8]>) -> Vec<Code> {
        let list = value.map(List::decode);
        let unfit = space == XattrSpace::DefaultList && !self.is_directory();
        match list {
            _ if self.file_type == FileType::Symlink => vec![Code::Unsupported],
            Some(None) => vec![Code::InvalidArgument],
            Some(Some(_)) if unfit => vec![Code::Access],
            None if self.list(space).is_none() => vec![Code::NoData],
            Some(Some(_)) | None => Vec::new(),
        }
    }

    /// Sets a list, or removes it. `mode_of` is what becomes of permission bits that somebody sets.
    pub(super) fn set_list(
        &mut self,
        space: XattrSpace,
        value: Option<&[u8]>,
        mode_of: impl Fn(Mode) -> Mode,
    ) {
        let list = value.and_then(List::decode);
        if space == XattrSpace::DefaultList {
            self.default_list = list;
            return;
        }
        if let Some(list) = &list {
            self.access.mode = mode_of(list.mode(self.access.mode));
        }
        self.access_list = list.filter(List::says_more);
    }

    /// It is made in a directory: what that has as its default list, this one has as its list.
    pub(super) fn inherit(&mut self, parent: &Node) {
        let Some(default) = parent.default_list.as_ref().filter(|_| self.file_type != FileType::Symlink)
        else {
            return;
        };
        let list = default.inherited(self.access.mode);
        self.access.mode = list.mode(self.access.mode);
        self.access_list = Some(list).filter(List::says_more);
        self.default_list = Some(default.clone()).filter(|_| self.is_directory());
    }
}
