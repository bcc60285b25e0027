//! Where a kernel's listing stands: offsets and what was fetched ahead.
//!
//! The offset of an entry is its cookie, so a listing goes on after any restart of this program or of a
//! server. `.` and `..` come first, under two offsets that no entry can have: entries have ordinals from 1,
//! these have ordinal 0.
//!
//! Invariant: what was fetched ahead is used only by a reader that goes on where the last one stopped; every
//! other offset asks anew.

use bearing_mount::{Caller, Detail, Handle, Listed, Operation};
use bearing_types::{Cookie, Credentials, Outcome};
use std::collections::VecDeque;

/// The offset at which a reader goes on after `.`.
pub(crate) const AFTER_SELF: u64 = 1 << 15;
/// The offset at which a reader goes on after `..`.
pub(crate) const AFTER_PARENT: u64 = 2 << 15;
/// Entries asked for at once.
const FETCH_COUNT: u32 = 512;
/// Entries that are looked up at once.
pub(crate) const LOOKED_UP_COUNT: usize = 64;

/// What comes next in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// `.`
    Itself,
    /// `..`
    Parent,
    /// The entries after this one.
    After(Cookie),
}

impl Next {
    /// What an offset means.
    pub fn of(offset: u64) -> Next {
        match offset {
            0 => Next::Itself,
            AFTER_SELF => Next::Parent,
            AFTER_PARENT => Next::After(Cookie::START),
            bits => Next::After(Cookie::from_bits(bits)),
        }
    }
}

/// Fetches the entries of one open directory.
#[derive(Debug)]
pub(crate) struct Stream {
    directory: Handle,
    who: Credentials,
    /// The entry after which `ahead` goes on.
    at: Cookie,
    ahead: VecDeque<Listed>,
    /// Whether nothing comes after `ahead`.
    is_last: bool,
}

impl Stream {
    /// A stream at the start.
    pub fn new(directory: Handle, who: Credentials) -> Stream {
        Stream { directory, who, at: Cookie::START, ahead: VecDeque::new(), is_last: false }
    }

    /// The directory.
    pub fn directory(&self) -> Handle {
        self.directory
    }

    /// Who opened it.
    pub fn who(&self) -> &Credentials {
        &self.who
    }

    /// The reader begins anew.
    pub fn rewind(&mut self) {
        self.ahead.clear();
        (self.at, self.is_last) = (Cookie::START, false);
    }

    /// The next entries after one, at most `count`. Empty at the end only. What was fetched ahead is used
    /// unless the reader is somewhere else. With `looks` they are looked up next.
    pub fn after(
        &mut self,
        caller: &dyn Caller,
        after: Cookie,
        count: usize,
        looks: bool,
    ) -> Outcome<Vec<Listed>> {
        self.seek(after);
        if self.ahead.is_empty() && !self.is_last {
            let (count_max, detail) =
                if looks { (LOOKED_UP_COUNT as u32, Detail::Lookups) } else { (FETCH_COUNT, Detail::Names) };
            let (directory, who) = (self.directory, self.who.clone());
            let entries = caller.listed(Operation::List { directory, who, after, count_max, detail })?;
            debug_assert!(entries.iter().all(|entry| entry.cookie > after && entry.cookie.ordinal() > 0));
            self.is_last = entries.len() < count_max as usize;
            self.ahead = entries.into();
        }
        Ok(self.ahead.iter().take(count).cloned().collect())
    }

    fn seek(&mut self, after: Cookie) {
        if after == self.at {
            return;
        }
        match self.ahead.iter().position(|entry| entry.cookie == after) {
            Some(place) => drop(self.ahead.drain(..=place)),
            None => {
                self.ahead.clear();
                self.is_last = false;
            }
        }
        self.at = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeCaller, handle};
    use bearing_types::NameHash;
    use proptest::prelude::*;

    fn read_all(caller: &FakeCaller, batch: usize) -> Vec<Listed> {
        let mut stream = Stream::new(handle(1), Credentials::ROOT);
        let mut all: Vec<Listed> = Vec::new();
        loop {
            let after = all.last().map_or(Cookie::START, |entry| entry.cookie);
            let entries = stream.after(caller, after, batch, batch.is_multiple_of(2)).unwrap();
            if entries.is_empty() {
                return all;
            }
            all.extend(entries);
        }
    }

    proptest! {
        #[test]
        fn no_entry_has_the_offset_of_a_dot(hash in 0..1u64 << 48, ordinal in 1u16..=Cookie::ORDINAL_MAX) {
            let cookie = Cookie::new(NameHash::from_bits(hash), ordinal);
            prop_assert_eq!(Next::of(cookie.to_bits()), Next::After(cookie));
        }

        #[test]
        fn every_entry_is_read_once_whatever_the_batch(count in 0usize..1500, batch in 1usize..700) {
            let caller = FakeCaller::with_entries(count);
            let read = read_all(&caller, batch);
            prop_assert_eq!(read, caller.entries());
        }

        #[test]
        fn a_reader_that_seeks_goes_on_after_the_offset(count in 1usize..1200, at in any::<prop::sample::Index>()) {
            let caller = FakeCaller::with_entries(count);
            let all = caller.entries();
            let at = at.index(count);
            let mut stream = Stream::new(handle(1), Credentials::ROOT);
            let next = stream.after(&caller, all[at].cookie, 1, false).unwrap();
            prop_assert_eq!(next.first(), all.get(at + 1));
        }
    }

    #[test]
    fn the_dots_come_first_and_lead_to_the_first_entry() {
        assert_eq!(Next::of(0), Next::Itself);
        assert_eq!(Next::of(AFTER_SELF), Next::Parent);
        assert_eq!(Next::of(AFTER_PARENT), Next::After(Cookie::START));
    }

    #[test]
    fn going_back_to_the_start_asks_anew() {
        let caller = FakeCaller::with_entries(3);
        let mut stream = Stream::new(handle(1), Credentials::ROOT);
        let first = stream.after(&caller, Cookie::START, 10, true).unwrap();
        assert_eq!(first.len(), 3);
        caller.add_entry();
        let rest = stream.after(&caller, first[0].cookie, 10, true).unwrap();
        assert_eq!(rest.len(), 2, "fetched already");
        stream.rewind();
        assert_eq!(stream.after(&caller, Cookie::START, 10, true).unwrap().len(), 4);
    }

    #[test]
    fn that_nothing_is_in_a_directory_is_asked_for_once() {
        let caller = FakeCaller::with_entries(0);
        let mut stream = Stream::new(handle(1), Credentials::ROOT);
        assert_eq!(stream.after(&caller, Cookie::START, 10, true), Ok(Vec::new()));
        caller.add_entry();
        assert_eq!(stream.after(&caller, Cookie::START, 10, true), Ok(Vec::new()), "it goes on");
    }
}
