//! What a directory's attributes say of its entries. Its home merges them from its node and its
//! fragments; a client to which it is delegated keeps the sum, and counts what it decides.

use crate::peer::FragmentStat;
use bearing_types::{Attributes, FileType, Wall};

/// What one entry adds to its directory's size, in bytes.
const ENTRY_BYTES: u64 = 32;

/// A directory's attributes. `modified_set` is when somebody set its modification time last: changes of
/// entries up to then do not show in that time.
pub fn directory_attributes(own: &Attributes, modified_set: Wall, fragments: &[FragmentStat]) -> Attributes {
    let changes = || fragments.iter().map(|fragment| fragment.modified);
    Attributes {
        modified: changes().filter(|change| *change > modified_set).max().unwrap_or(own.modified),
        changed: changes().fold(own.changed, Wall::max),
        links: 2 + fragments.iter().map(|fragment| fragment.directories).sum::<u32>(),
        size: fragments.iter().map(|fragment| fragment.entries).sum::<u64>() * ENTRY_BYTES,
        ..*own
    }
}

/// How many entries a directory has, by its attributes.
pub fn entries_of(directory: &Attributes) -> u64 {
    directory.size / ENTRY_BYTES
}

/// A directory got an entry.
pub fn entry_added(directory: &mut Attributes, entry: FileType, now: Wall) {
    directory.links += u32::from(entry == FileType::Directory);
    directory.size += ENTRY_BYTES;
    entries_changed(directory, now);
}

/// A directory lost an entry. What was told of it need not fit together.
pub fn entry_removed(directory: &mut Attributes, entry: FileType, now: Wall) {
    directory.links = directory.links.saturating_sub(u32::from(entry == FileType::Directory));
    directory.size = directory.size.saturating_sub(ENTRY_BYTES);
    entries_changed(directory, now);
}

fn entries_changed(directory: &mut Attributes, now: Wall) {
    // A later one than any change was set by somebody, and entries count from then on. What else is later
    // comes of a clock that went back.
    directory.modified = directory.modified.min(directory.changed).max(now);
    directory.changed = directory.changed.max(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{AttributeChange, TimeChange};
    use crate::rules::{Changer, attributes_of_new_directory, changed};
    use bearing_types::{Access, Credentials, Gid, Mode, Uid};
    use proptest::prelude::*;

    fn directory() -> Attributes {
        let access = Access { mode: Mode::new(0o755), uid: Uid(1), gid: Gid(1) };
        attributes_of_new_directory(access, Wall(5))
    }

    #[test]
    fn a_directory_is_the_sum_of_its_fragments_and_as_young_as_the_youngest_change_since_its_time_was_set() {
        let stat = |modified, directories| FragmentStat { entries: 3, directories, modified: Wall(modified) };
        for (modified_set, fragments, modified, changed) in [
            (i64::MIN, vec![], 5, 5),
            (i64::MIN, vec![stat(7, 1)], 7, 7),
            (i64::MIN, vec![stat(3, 0), stat(9, 2), stat(8, 0)], 9, 9),
            (8, vec![stat(7, 1), stat(8, 0)], 5, 8),
            (8, vec![stat(9, 1), stat(8, 0)], 9, 9),
        ] {
            let merged = directory_attributes(&directory(), Wall(modified_set), &fragments);
            let directories: u32 = fragments.iter().map(|fragment| fragment.directories).sum();
            assert_eq!((merged.modified, merged.changed), (Wall(modified), Wall(changed)), "{fragments:?}");
            assert_eq!((merged.links, entries_of(&merged)), (2 + directories, 3 * fragments.len() as u64));
        }
    }

    #[test]
    fn entries_come_and_go_and_never_below_none() {
        let mut attributes = directory();
        entry_added(&mut attributes, FileType::Directory, Wall(6));
        entry_added(&mut attributes, FileType::Regular, Wall(7));
        assert_eq!((attributes.links, entries_of(&attributes), attributes.modified), (3, 2, Wall(7)));
        for _ in 0..4 {
            entry_removed(&mut attributes, FileType::Directory, Wall(4));
        }
        assert_eq!((attributes.links, entries_of(&attributes)), (0, 0));
        assert_eq!((attributes.modified, attributes.changed), (Wall(7), Wall(7)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Add(FileType),
        Remove(FileType),
        SetModified(Option<i64>),
    }

    fn event() -> impl Strategy<Value = Event> {
        let kind = || prop_oneof![Just(FileType::Regular), Just(FileType::Directory)];
        prop_oneof![
            kind().prop_map(Event::Add),
            kind().prop_map(Event::Remove),
            proptest::option::of(-50i64..150).prop_map(Event::SetModified),
        ]
    }

    /// As its home has it: the node, when its modification time was set, and a fragment.
    struct Home {
        own: Attributes,
        modified_set: Wall,
        fragment: FragmentStat,
    }

    impl Home {
        fn merged(&self) -> Attributes {
            directory_attributes(&self.own, self.modified_set, std::slice::from_ref(&self.fragment))
        }

        fn has(&self, kind: FileType) -> bool {
            let directories = u64::from(self.fragment.directories);
            match kind {
                FileType::Directory => directories > 0,
                _ => self.fragment.entries > directories,
            }
        }

        fn count(&mut self, kind: FileType, entries: i64, now: Wall) {
            let fragment = &mut self.fragment;
            fragment.entries = fragment.entries.checked_add_signed(entries).unwrap();
            let directories = if kind == FileType::Directory { entries as i32 } else { 0 };
            fragment.directories = fragment.directories.checked_add_signed(directories).unwrap();
            fragment.modified = fragment.modified.max(now);
        }
    }

    fn set_modified(before: &Attributes, modified: TimeChange, now: Wall) -> Attributes {
        let changer = Changer { who: &Credentials::ROOT, list: None, has_open: false };
        let change = AttributeChange { modified: Some(modified), ..AttributeChange::default() };
        changed(before, changer, &change, now).unwrap()
    }

    proptest! {
        // What a client is lent, and goes on from, is at every moment what the home comes to by its own
        // records.
        #[test]
        fn a_directory_is_the_same_where_it_is_lent_as_at_its_home(
            events in proptest::collection::vec(event(), 1..20),
            lent_after in 0usize..20,
        ) {
            let fragment = FragmentStat { entries: 0, directories: 0, modified: Wall(5) };
            let mut home = Home { own: directory(), modified_set: Wall(i64::MIN), fragment };
            let mut lent = None;
            for (step, event) in events.into_iter().enumerate() {
                let now = Wall(6 + 7 * step as i64);
                if step == lent_after {
                    lent = Some(home.merged());
                }
                match event {
                    Event::Add(kind) => {
                        home.count(kind, 1, now);
                        lent.iter_mut().for_each(|lent| entry_added(lent, kind, now));
                    }
                    Event::Remove(kind) if home.has(kind) => {
                        home.count(kind, -1, now);
                        lent.iter_mut().for_each(|lent| entry_removed(lent, kind, now));
                    }
                    Event::Remove(_) => {}
                    Event::SetModified(to) => {
                        let to = to.map_or(TimeChange::Now, |to| TimeChange::To(Wall(to)));
                        home.own = set_modified(&home.own, to, now);
                        home.modified_set = now;
                        lent.iter_mut().for_each(|lent| *lent = set_modified(lent, to, now));
                    }
                }
                if let Some(lent) = lent {
                    prop_assert_eq!(lent, home.merged(), "after {:?}", event);
                }
            }
        }
    }
}
