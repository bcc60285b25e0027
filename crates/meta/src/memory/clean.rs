//! A bounded choice of what the store holds, by key: what was used last stays.
//!
//! As bytes, as the store has it: a directory's three records take half the room that way, and to decode one
//! takes no longer than to copy it with all that it points to.
//!
//! In many small tables, since a table grows and goes as a whole: with one of half a million records the
//! server answered nobody for 0.4 s meanwhile.

use crate::record::{Key, Record};
use bearing_types::{IdHasher, IdMap};

/// Records in a table: what fits the 8,192 places of a hash map, which would double for one more.
const TABLE_MAX: usize = (1 << 13) * 7 / 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Clean {
    /// Made at the first record.
    tables: Vec<Table>,
    tables_count: usize,
    generation_max: usize,
}

/// A record's bytes; `None` if the store has none.
type Bytes = Option<Box<[u8]>>;

/// Of two generations the older one goes when the younger one is full.
#[derive(Debug, Default)]
struct Table {
    young: IdMap<Key, Bytes>,
    old: IdMap<Key, Bytes>,
}

impl Clean {
    /// At most about `entries_max` records. At least 4,096 are kept, so that what one operation reads always
    /// fits: a batch of steps.
    pub fn new(entries_max: usize) -> Clean {
        let generation_max = (entries_max / 2).max(2048);
        let tables_count = generation_max.div_ceil(TABLE_MAX);
        Clean { tables: Vec::new(), tables_count, generation_max: generation_max.div_ceil(tables_count) }
    }

    /// What is known of a key.
    pub fn get(&mut self, key: &Key) -> Option<Option<Record>> {
        let max = self.generation_max;
        let table = self.table(key)?;
        if let Some(bytes) = table.young.get(key) {
            return Some(decoded(bytes));
        }
        let bytes = table.old.remove(key)?;
        let record = decoded(&bytes);
        table.insert(*key, bytes, max);
        Some(record)
    }

    pub fn contains(&mut self, key: &Key) -> bool {
        self.table(key).is_some_and(|table| table.young.contains_key(key) || table.old.contains_key(key))
    }

    pub fn insert(&mut self, key: Key, record: Option<&Record>) {
        if self.tables.is_empty() {
            self.tables.resize_with(self.tables_count, Table::default);
        }
        let max = self.generation_max;
        if let Some(table) = self.table(&key) {
            table.insert(key, record.map(|record| record.encode().into_boxed_slice()), max);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.tables.iter().map(|table| table.young.len() + table.old.len()).sum()
    }

    fn table(&mut self, key: &Key) -> Option<&mut Table> {
        // Not the bits by which a table places it.
        let hash = IdHasher::hash_of(key) >> 32;
        let place = hash as usize % self.tables_count;
        self.tables.get_mut(place)
    }
}

fn decoded(bytes: &Bytes) -> Option<Record> {
    bytes.as_ref().map(|bytes| Record::decode(bytes).expect("these bytes were encoded here"))
}

impl Table {
    fn insert(&mut self, key: Key, bytes: Bytes, generation_max: usize) {
        if self.young.len() >= generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::NameRecord;
    use bearing_types::{NameHash, NodeId};

    #[test]
    fn a_record_takes_no_more_room_than_its_key_and_bytes() {
        assert_eq!(size_of::<(Key, Bytes)>(), 48);
    }

    #[test]
    fn what_was_put_in_comes_out_also_from_the_older_generation() {
        let mut clean = Clean::new(0);
        let key = Key::Name(NodeId(1), NameHash::from_bits(7), 0);
        let record = Some(Record::Name(NameRecord { entry: None, more: true }));
        clean.insert(key, record.as_ref());
        clean.insert(Key::Node(NodeId(1)), None);
        for node in 2..2050 {
            clean.insert(Key::Node(NodeId(node)), None);
        }
        assert_eq!(clean.get(&key), Some(record));
        assert_eq!(clean.get(&Key::Node(NodeId(1))), Some(None));
        assert_eq!(clean.get(&Key::Node(NodeId(5000))), None);
    }

    #[test]
    fn no_table_is_large_and_as_many_records_are_kept_as_are_said() {
        let mut clean = Clean::new(1 << 18);
        for node in 0..1 << 19 {
            clean.insert(Key::Node(NodeId(node)), None);
        }
        assert!(clean.tables.iter().all(|table| table.young.len() <= TABLE_MAX));
        assert!(clean.tables.iter().all(|table| table.young.capacity() <= TABLE_MAX), "full, not half empty");
        assert!((1 << 17..=1 << 18).contains(&clean.len()), "{}", clean.len());
        let kept = (0..1 << 19).filter(|node| clean.contains(&Key::Node(NodeId(*node))));
        assert!(kept.count() >= 1 << 17);
    }
}
