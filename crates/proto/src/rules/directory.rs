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
    directory.modified = directory.modified.max(now);
    directory.changed = directory.changed.max(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::attributes_of_new_directory;
    use bearing_types::{Access, Gid, Mode, Uid};

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
}
