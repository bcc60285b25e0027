//! A bounded choice of what the store holds, by key: what was used last stays.
//!
//! In many small tables, since a table grows and goes as a whole: with one of half a million records the
//! server answered nobody for 0.4 s meanwhile.

use crate::record::{Key, Record};
use bearing_types::{IdHasher, IdMap};

/// Records in a table, where there are more than one.
const TABLE_MAX: usize = 1 << 13;

/// See the module.
#[derive(Debug)]
pub(crate) struct Clean {
    /// Made at the first record.
    tables: Vec<Table>,
    tables_count: usize,
    generation_max: usize,
}

/// Of two generations the older one goes when the younger one is full.
#[derive(Debug, Default)]
struct Table {
    young: IdMap<Key, Option<Record>>,
    old: IdMap<Key, Option<Record>>,
}

impl Clean {
    /// At most about `entries_max` records. At least 4,096 are kept, so that what one operation reads always
    /// fits: a batch of steps.
    pub fn new(entries_max: usize) -> Clean {
        let generation_max = (entries_max / 2).max(2048);
        let tables_count = (generation_max / TABLE_MAX).max(1);
        Clean { tables: Vec::new(), tables_count, generation_max: generation_max.div_ceil(tables_count) }
    }

    /// What is known of a key.
    pub fn get(&mut self, key: &Key) -> Option<Option<Record>> {
        let max = self.generation_max;
        let table = self.table(key)?;
        if let Some(record) = table.young.get(key) {
            return Some(record.clone());
        }
        let record = table.old.remove(key)?;
        table.insert(*key, record.clone(), max);
        Some(record)
    }

    pub fn contains(&mut self, key: &Key) -> bool {
        self.table(key).is_some_and(|table| table.young.contains_key(key) || table.old.contains_key(key))
    }

    pub fn insert(&mut self, key: Key, record: Option<Record>) {
        if self.tables.is_empty() {
            self.tables.resize_with(self.tables_count, Table::default);
        }
        let max = self.generation_max;
        if let Some(table) = self.table(&key) {
            table.insert(key, record, max);
        }
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(table) = self.table(key) {
            table.young.remove(key);
            table.old.remove(key);
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

impl Table {
    fn insert(&mut self, key: Key, record: Option<Record>, generation_max: usize) {
        if self.young.len() >= generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::NodeId;

    #[test]
    fn no_table_is_large_and_as_many_records_are_kept_as_are_said() {
        let mut clean = Clean::new(1 << 18);
        for node in 0..1 << 19 {
            clean.insert(Key::Node(NodeId(node)), None);
        }
        assert!(clean.tables.iter().all(|table| table.young.len() <= TABLE_MAX));
        assert!((1 << 17..=1 << 18).contains(&clean.len()), "{}", clean.len());
        let kept = (0..1 << 19).filter(|node| clean.contains(&Key::Node(NodeId(*node))));
        assert!(kept.count() >= 1 << 17);
    }
}
