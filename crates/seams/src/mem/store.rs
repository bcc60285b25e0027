//! The entry store in memory.

use super::{CrashFault, Switches, refused};
use crate::{Change, DiskLabel, EngineError, EngineResult, KeyRange, Pair, Pairs, Store};
use bearing_types::{DiskId, LogIndex, TabletSerial};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What takes one unflushed batch back: the applied index before it and the values that it replaced, in
/// order.
#[derive(Clone, Debug)]
struct Undo {
    applied: LogIndex,
    replaced: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

#[derive(Clone, Debug)]
struct Keyspace {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    applied: LogIndex,
    unflushed: Vec<Undo>,
    /// Whether the keyspace itself was flushed: an unflushed one may vanish.
    stable: bool,
    /// A key that cannot be read, until it is written again.
    spoilt: Option<Vec<u8>>,
    /// Somebody has tried.
    met: bool,
}

impl Keyspace {
    fn empty() -> Keyspace {
        Keyspace {
            pairs: BTreeMap::new(),
            applied: LogIndex::ZERO,
            unflushed: Vec::new(),
            stable: false,
            spoilt: None,
            met: false,
        }
    }

    fn check(&mut self, read: impl FnOnce(&Vec<u8>) -> bool) -> EngineResult<()> {
        let meets = self.spoilt.as_ref().is_some_and(read);
        self.met |= meets;
        match meets {
            true => Err(EngineError::Corrupt { what: "a key that was spoilt".into() }),
            false => Ok(()),
        }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
        self.spoilt.take_if(|spoilt| spoilt == key);
        match value {
            Some(value) => self.pairs.insert(key.to_vec(), value.to_vec()),
            None => self.pairs.remove(key),
        }
    }

    fn apply(&mut self, applied: LogIndex, changes: &[Change]) {
        let mut undo = Undo { applied: self.applied, replaced: Vec::with_capacity(changes.len()) };
        for change in changes {
            let before = self.put(&change.key, change.value.as_deref());
            undo.replaced.push((change.key.clone(), before));
        }
        self.applied = applied;
        self.unflushed.push(undo);
    }

    fn take_back(&mut self) {
        let Some(undo) = self.unflushed.pop() else { return };
        for (key, before) in undo.replaced.iter().rev() {
            self.put(key, before.as_deref());
        }
        self.applied = undo.applied;
    }
}

/// [`Store`] in memory. It keeps what it needs to take unflushed batches back, so a flush now and then keeps
/// it small.
#[derive(Clone, Debug, Default)]
pub struct MemStore {
    keyspaces: BTreeMap<TabletSerial, Keyspace>,
    /// Removed since the last flush: each as it was at the first such removal.
    removing: BTreeMap<TabletSerial, Keyspace>,
    switches: Switches,
    disk: Option<DiskId>,
}

impl DiskLabel for MemStore {
    fn disk(&mut self) -> EngineResult<Option<DiskId>> {
        Ok(self.disk)
    }

    fn set_disk(&mut self, disk: DiskId) -> EngineResult<()> {
        self.disk = Some(disk);
        Ok(())
    }
}

impl MemStore {
    /// An empty store.
    pub fn new() -> MemStore {
        MemStore::default()
    }

    /// Stops without closing and opens again. Of each tablet's unflushed batches any prefix survives, as the
    /// background flush of a real store would have it; a keyspace that was never flushed may be gone, and one
    /// that was being removed be back.
    pub fn crash(&mut self, fault: &mut CrashFault) {
        self.switches = Switches { full: self.switches.full, ..Switches::default() };
        for (tablet, removed) in std::mem::take(&mut self.removing) {
            if !fault.survives() {
                self.keyspaces.insert(tablet, removed);
            }
        }
        self.keyspaces.retain(|_, keyspace| {
            let kept = fault.survivors(keyspace.unflushed.len());
            while keyspace.unflushed.len() > kept {
                keyspace.take_back();
            }
            keyspace.unflushed.clear();
            keyspace.stable = keyspace.stable || kept > 0 || fault.survives();
            keyspace.stable
        });
    }

    /// The next flush fails, and with it every change until a crash.
    pub fn fail_next_sync(&mut self) {
        self.switches.fail_next_sync = true;
    }

    /// One of a tablet's keys, drawn by a number, cannot be read from now on, until it is written again.
    /// Whether there is one.
    pub fn spoil(&mut self, tablet: TabletSerial, number: u64) -> bool {
        let Some(keyspace) = self.keyspaces.get_mut(&tablet) else { return false };
        let count = keyspace.pairs.len().max(1) as u64;
        keyspace.spoilt = keyspace.pairs.keys().nth((number % count) as usize).cloned();
        keyspace.spoilt.is_some()
    }

    /// All keys of a tablet can be read again. Whether there was one that could not.
    pub fn unspoil(&mut self, tablet: TabletSerial) -> bool {
        let held = [&mut self.keyspaces, &mut self.removing];
        let held = held.into_iter().filter_map(|keyspaces| keyspaces.get_mut(&tablet));
        held.filter_map(|keyspace| keyspace.spoilt.take()).count() > 0
    }

    /// While full, changes are refused.
    pub fn set_full(&mut self, full: bool) {
        self.switches.full = full;
    }

    fn keyspace(&mut self, tablet: TabletSerial) -> EngineResult<&mut Keyspace> {
        match self.keyspaces.get_mut(&tablet) {
            Some(keyspace) => Ok(keyspace),
            None => refused(format!("read tablet {tablet}, which has no keyspace")),
        }
    }
}

impl Store for MemStore {
    fn tablets(&mut self) -> EngineResult<Vec<TabletSerial>> {
        Ok(self.keyspaces.keys().copied().collect())
    }

    fn create_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()> {
        self.switches.check_write("create keyspace")?;
        self.keyspaces.entry(tablet).or_insert_with(Keyspace::empty);
        Ok(())
    }

    fn remove_tablet(&mut self, tablet: TabletSerial) -> EngineResult<()> {
        self.switches.check_write("remove keyspace")?;
        if let Some(removed) = self.keyspaces.remove(&tablet) {
            self.removing.entry(tablet).or_insert(removed);
        }
        Ok(())
    }

    fn applied(&mut self, tablet: TabletSerial) -> EngineResult<Option<LogIndex>> {
        Ok(self.keyspaces.get(&tablet).map(|keyspace| keyspace.applied))
    }

    fn lacks_some(&mut self, tablet: TabletSerial) -> EngineResult<bool> {
        Ok(self.keyspaces.get(&tablet).is_some_and(|keyspace| keyspace.met && keyspace.spoilt.is_some()))
    }

    fn get(&mut self, tablet: TabletSerial, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let keyspace = self.keyspace(tablet)?;
        keyspace.check(|spoilt| spoilt == key)?;
        Ok(keyspace.pairs.get(key).cloned())
    }

    fn range(&mut self, tablet: TabletSerial, range: &KeyRange, count_max: usize) -> EngineResult<Vec<Pair>> {
        let keyspace = self.keyspace(tablet)?;
        if range.end.as_ref().is_some_and(|end| *end <= range.start) {
            return Ok(Vec::new());
        }
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let pairs = keyspace.pairs.range::<[u8], _>((Bound::Included(range.start.as_slice()), end));
        let found: Vec<Pair> =
            pairs.take(count_max).map(|(key, value)| (key.clone(), value.clone())).collect();
        keyspace.check(|spoilt| found.iter().any(|(key, _)| key == spoilt))?;
        Ok(found)
    }

    fn snapshot(&mut self, tablet: TabletSerial, range: &KeyRange) -> EngineResult<Pairs> {
        Ok(Box::new(self.range(tablet, range, usize::MAX)?.into_iter().map(Ok)))
    }

    fn apply(&mut self, tablet: TabletSerial, applied: LogIndex, changes: &[Change]) -> EngineResult<()> {
        self.switches.check_write("apply changes")?;
        match self.keyspaces.get_mut(&tablet) {
            Some(keyspace) => keyspace.apply(applied, changes),
            None => return refused(format!("apply changes to tablet {tablet}, which has no keyspace")),
        }
        Ok(())
    }

    fn flush(&mut self) -> EngineResult<()> {
        self.switches.check_sync("flush the store")?;
        self.removing.clear();
        for keyspace in self.keyspaces.values_mut() {
            keyspace.unflushed.clear();
            keyspace.stable = true;
        }
        Ok(())
    }
}
