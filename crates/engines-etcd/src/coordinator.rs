//! [`Coordinator`] in etcd: each call is one transaction there.
//!
//! Invariants: versions are etcd's mod revisions; every swap writes the fact `last` too, whose revision is
//! the version of all registers. Each swap writes a mark of its own before every value: one whose answer was
//! lost is known again by that.

use crate::layout::{FORMAT, Layout, number, version};
use crate::members::{Connections, EtcdMembers, runtime};
use bearing_seams::{
    Changes, Coordinator, EngineError, EngineResult, Entry, Found, REMOVALS_KEPT, RegisterChange, Swap,
};
use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use tokio::runtime::Runtime;

/// The bytes of the mark before a value.
const MARK_BYTES: usize = 8;
/// etcd takes so many operations in a transaction if it is not told otherwise.
const OPERATIONS_MAX: usize = 128;

/// See the module.
pub struct EtcdCoordinator {
    runtime: Runtime,
    connections: Connections,
    layout: Layout,
    removals_kept: usize,
    /// Registers of this cluster were seen there.
    known: bool,
}

/// What a transaction found, operation by operation.
struct Answers {
    succeeded: bool,
    revision: u64,
    of: Vec<Vec<KeyValue>>,
    counts: Vec<u64>,
    again: bool,
}

impl Answers {
    fn new(response: &TxnResponse, again: bool) -> Answers {
        let (mut of, mut counts) = (Vec::new(), Vec::new());
        for answer in response.op_responses() {
            let mut found = (Vec::new(), 0);
            if let TxnOpResponse::Get(mut got) = answer {
                found = (got.take_kvs(), got.count().unsigned_abs());
            }
            of.push(found.0);
            counts.push(found.1);
        }
        let revision = response.header().map_or(0, |header| header.revision().unsigned_abs());
        Answers { succeeded: response.succeeded(), revision, of, counts, again }
    }
}

impl EtcdCoordinator {
    /// The registers of one cluster, whose keys lie below `root`. Nobody is asked yet: etcd may be away.
    pub fn new(members: &EtcdMembers, root: &str) -> EngineResult<EtcdCoordinator> {
        let endpoints = members.endpoints().map_err(|doing| EngineError::Failed { doing })?;
        Ok(EtcdCoordinator {
            runtime: runtime()?,
            connections: Connections::new(endpoints),
            layout: Layout::new(root),
            removals_kept: REMOVALS_KEPT,
            known: false,
        })
    }

    /// The same, which remembers so few removals.
    pub fn with_removals_kept(self, removals_kept: usize) -> EtcdCoordinator {
        EtcdCoordinator { removals_kept, ..self }
    }

    /// Makes a place for the registers of a new cluster, where there is none.
    pub fn create(&mut self) -> EngineResult<()> {
        let key = self.layout.format();
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let txn = Txn::new().when([absent]).and_then([put(key, FORMAT.to_string())]);
        let answers = self.transaction("make registers", txn)?;
        self.known = answers.succeeded;
        match answers.succeeded || answers.again {
            true => Ok(()),
            false => Err(EngineError::Busy {
                what: format!("{} in etcd: registers of a cluster are there already", self.layout.root()),
            }),
        }
    }

    /// Somebody knows newer registers than these, of which an older snapshot was put back: nobody changes
    /// them from now on, or epochs that were had already would be given away again.
    pub fn mark_older(&mut self) -> EngineResult<()> {
        let mark = Txn::new().and_then([put(self.layout.older(), "")]);
        self.transaction("mark registers as older than is known", mark).map(drop)
    }

    fn transaction(&mut self, doing: &str, txn: Txn) -> EngineResult<Answers> {
        let question = move |mut client: etcd_client::Client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        let (response, again) = self.runtime.block_on(self.connections.ask(doing, question))?;
        Ok(Answers::new(&response, again))
    }

    /// Before anything is believed: that these are registers of this cluster, of a format that is known.
    fn check(&mut self) -> EngineResult<()> {
        if self.known {
            return Ok(());
        }
        let format = Txn::new().and_then([get(self.layout.format(), None)]);
        let answers = self.transaction("look for registers", format)?;
        let what = format!("{} in etcd", self.layout.root());
        let found = answers.of.first().map(Vec::as_slice).unwrap_or_default();
        match number(found) {
            Some(found) if found > u64::from(FORMAT) => {
                let found = u32::try_from(found).unwrap_or(u32::MAX);
                return Err(EngineError::NewerVersion { what, found, known: FORMAT });
            }
            Some(_) => self.known = true,
            None if found.is_empty() => {
                return Err(EngineError::Foreign {
                    what: format!(
                        "{what} holds no registers: this etcd is another cluster's, or was emptied. Name the right \
                         endpoints, or put its last snapshot back"
                    ),
                });
            }
            None => return Err(EngineError::Corrupt { what: format!("{what}: its format is no number") }),
        }
        Ok(())
    }

    /// Forgets the oldest removals, if there are too many.
    fn forget(&mut self) -> EngineResult<()> {
        let prefix = self.layout.removed("");
        let count = Txn::new().and_then([get(prefix.clone(), Some(prefixed().with_count_only()))]);
        let count = self.transaction("count removals", count)?.counts.first().copied().unwrap_or(0) as usize;
        if count <= 2 * self.removals_kept {
            return Ok(());
        }
        let oldest = prefixed()
            .with_sort(SortTarget::Mod, SortOrder::Ascend)
            .with_keys_only()
            .with_limit((count - self.removals_kept) as i64);
        let list = Txn::new().and_then([get(prefix, Some(oldest))]);
        let oldest = self.transaction("list removals", list)?.of.pop().unwrap_or_default();
        let Some(last) = oldest.last().map(version) else { return Ok(()) };
        // First, so that nobody misses them.
        let forgotten = Txn::new().and_then([put(self.layout.forgotten(), last.to_string())]);
        self.transaction("forget removals", forgotten)?;
        for batch in oldest.chunks(OPERATIONS_MAX / 2) {
            // A register that was removed again since stays for the next time, with those beside it.
            let same = batch
                .iter()
                .map(|key| Compare::mod_revision(key.key(), CompareOp::Equal, key.mod_revision()));
            let delete = batch.iter().map(|key| TxnOp::delete(key.key(), None::<DeleteOptions>));
            let txn = Txn::new().when(same.collect::<Vec<_>>()).and_then(delete.collect::<Vec<_>>());
            self.transaction("forget removals", txn)?;
        }
        Ok(())
    }

    fn entry(&self, key: &KeyValue) -> EngineResult<Entry> {
        let register = self.layout.register(key);
        let (_, value) = key.value().split_at_checked(MARK_BYTES).ok_or_else(|| EngineError::Corrupt {
            what: format!("{register} in etcd: {} bytes", key.value().len()),
        })?;
        Ok(Entry { key: register, version: version(key), value: value.to_vec() })
    }
}

fn put(key: String, value: impl Into<Vec<u8>>) -> TxnOp {
    TxnOp::put(key, value, None::<PutOptions>)
}

fn get(key: String, options: Option<GetOptions>) -> TxnOp {
    TxnOp::get(key, options)
}

fn prefixed() -> GetOptions {
    GetOptions::new().with_prefix()
}

impl Coordinator for EtcdCoordinator {
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
        self.check()?;
        let txn = Txn::new().and_then([get(self.layout.entry(key), None)]);
        let answers = self.transaction("read a register", txn)?;
        answers.of.first().and_then(|found| found.first()).map(|found| self.entry(found)).transpose()
    }

    fn changes(&mut self, prefix: &str, since: u64) -> EngineResult<Changes> {
        self.check()?;
        let mut after = since;
        loop {
            let changed = prefixed().with_min_mod_revision(after as i64 + 1);
            let removed = changed.clone().with_keys_only();
            let txn = Txn::new().and_then([
                get(self.layout.last(), None),
                get(self.layout.forgotten(), None),
                get(self.layout.entry(prefix), Some(changed)),
                get(self.layout.removed(prefix), Some(removed)),
            ]);
            let answers = self.transaction("list registers", txn)?;
            let [last, forgotten, changed, removed] = &answers.of[..] else {
                return Err(EngineError::Corrupt { what: "an answer of etcd".to_owned() });
            };
            let version = last.first().map_or(0, version);
            let whole = since == 0 || since < number(forgotten).unwrap_or(0) || since > version;
            if whole && after > 0 {
                after = 0;
                continue;
            }
            let present = changed.iter().map(|key| self.entry(key)).collect::<EngineResult<_>>()?;
            let mut found = Found { present, absent: Vec::new() };
            if !whole {
                let is_back = |key: &String| found.present.iter().any(|entry| entry.key == *key);
                let removed = removed.iter().map(|key| self.layout.register(key));
                found.absent = removed.filter(|key| !is_back(key)).collect();
            }
            return Ok(Changes { version, whole, found });
        }
    }

    fn swap(&mut self, changes: &[RegisterChange]) -> EngineResult<Swap> {
        self.check()?;
        let compare = |change: &RegisterChange| {
            let key = self.layout.entry(&change.key);
            match change.expected {
                Some(version) => Compare::mod_revision(key, CompareOp::Equal, version as i64),
                None => Compare::create_revision(key, CompareOp::Equal, 0),
            }
        };
        let mark = mark()?;
        let mut operations = Vec::new();
        for change in changes {
            match &change.value {
                Some(value) => {
                    operations.push(put(self.layout.entry(&change.key), [&mark[..], &value[..]].concat()))
                }
                // Removing what is absent changes nothing.
                None if change.expected.is_none() => {}
                None => {
                    operations.push(TxnOp::delete(self.layout.entry(&change.key), None));
                    operations.push(put(self.layout.removed(&change.key), ""));
                }
            }
        }
        let removes = changes.iter().any(|change| change.value.is_none() && change.expected.is_some());
        let effective = !operations.is_empty();
        operations.push(match effective {
            true => put(self.layout.last(), ""),
            false => get(self.layout.last(), None),
        });
        if operations.len() > OPERATIONS_MAX {
            let doing = format!("change {} registers at once: etcd takes fewer", changes.len());
            return Err(EngineError::Failed { doing });
        }
        let newest = Compare::create_revision(self.layout.older(), CompareOp::Equal, 0);
        let look = changes.iter().map(|change| get(self.layout.entry(&change.key), None));
        let look = look.chain([get(self.layout.older(), None)]);
        let txn = Txn::new()
            .when(changes.iter().map(compare).chain([newest]).collect::<Vec<_>>())
            .and_then(operations)
            .or_else(look.collect::<Vec<_>>());
        let answers = self.transaction("change registers", txn)?;
        if answers.succeeded {
            if removes {
                self.forget()?;
            }
            let last = answers.of.last().and_then(|found| found.first()).map_or(0, version);
            return Ok(Swap::Done(if effective { answers.revision } else { last }));
        }
        if answers.of.last().is_some_and(|older| !older.is_empty()) {
            return Err(EngineError::Unavailable {
                what: "the registers in etcd are older than servers know, so nothing is changed in them; put the newest \
                       snapshot of etcd back"
                    .to_owned(),
            });
        }
        if answers.again {
            let mine = |key: &&KeyValue| key.value().starts_with(&mark);
            return match answers.of.iter().flatten().find(mine) {
                Some(key) => Ok(Swap::Done(version(key))),
                // It may have been done, and others have swapped since.
                None => Err(EngineError::Unavailable {
                    what: "etcd does not tell whether registers were changed: its answer was lost".to_owned(),
                }),
            };
        }
        let mut conflict = Found::default();
        for (change, found) in changes.iter().zip(&answers.of) {
            match found.first().map(|key| self.entry(key)).transpose()? {
                found if found.as_ref().map(|entry| entry.version) == change.expected => {}
                Some(entry) => conflict.present.push(entry),
                None => conflict.absent.push(change.key.clone()),
            }
        }
        Ok(Swap::Conflict(conflict))
    }
}

/// What no other swap writes.
fn mark() -> EngineResult<[u8; MARK_BYTES]> {
    let mut mark = [0; MARK_BYTES];
    let failed = |error| EngineError::Failed { doing: format!("draw a random number ({error})") };
    getrandom::fill(&mut mark).map_err(failed)?;
    Ok(mark)
}
