//! What happened how often: faults, crash points, protocol steps. A kind that never happens in a whole run
//! fails the run.

use std::collections::BTreeMap;
use std::fmt;

/// What a step counts as, too, while its process may die at it.
pub const MORTAL: &str = "step that may be the last: ";

/// What has to happen in a run of a few hundred seeds.
const EXPECTED: &[&str] = &[
    "fault: packet dropped",
    "fault: packet doubled",
    "fault: packet late",
    "fault: packet very late",
    "fault: packet cut off by a partition",
    "fault: stream broken",
    "fault: bulk bytes damaged",
    "fault: one way is cut",
    "fault: two hosts are parted",
    "fault: half of the hosts are parted",
    "fault: a client with open files is cut off for long",
    "fault: a client is cut off from its session's home for long",
    "fault: a storm",
    "fault: a host crashes",
    "fault: a crash inside recovery",
    "fault: all servers lose power",
    "fault: crash that keeps what was not synced",
    "fault: crash that loses what was not synced",
    "fault: crash that tears what was not synced",
    "fault: unsynced log records kept",
    "fault: unsynced log records lost",
    "fault: log sync failed",
    "fault: data sync failed",
    "fault: a slow disk",
    "fault: a clock is turned",
    "fault: clock off by more than servers allow",
    "fault: a tablet is moved",
    "fault: a server joins",
    "fault: a server leaves",
    "fault: a server stays after all",
    "fault: a server is removed",
    "fault: data: a server joins",
    "fault: data: a server leaves",
    "fault: data: a server stays after all",
    "fault: data: a server is removed",
    "meta: tablets left to another member",
    "drill: tablets handed over",
    "fault: a metadata server loses the others",
    "fault: two metadata servers die within one grace",
    "fault: a metadata server overtakes another one",
    "fault: a client ends its session",
    "fault: a data server is lost for good",
    "fault: a bit of a sealed chunk flips",
    "fault: a data disk is emptied",
    "fault: a data disk is replaced by an older one",
    "fault: a bit of an unsealed chunk flips",
    "fault: a data server is away for long",
    "fault: who has damaged bytes whole is away for long",
    "fault: a data disk is full",
    "fault: all data disks are full",
    "fault: a data disk has no inodes left",
    "fault: a metadata disk has little space",
    "fault: a metadata disk has hardly any space",
    "fault: a metadata disk is full",
    "fault: a metadata disk is emptied",
    "fault: a metadata disk is emptied and keeps its id",
    "fault: a store is gone",
    "fault: a data disk is emptied",
    "data: refused a disk that is not the right one",
    "fault: a tablet log is gone",
    "fault: a metadata disk is another one",
    "fault: a metadata disk is an older state",
    "fault: a metadata disk is an older state under another id",
    "fault: a tablet log is damaged",
    "meta: refused a disk that is not the right one",
    "step: checkpoint stored",
    "step: checkpoint failed",
    "recovery: all metadata made anew",
    "recovery: checkpoint compared",
    "step: intent stable",
    "log records of intents",
    "fault: a metadata server is down for longer than a session lives",
    "fault: the coordinator is down for long",
    "fault: a process is stopped",
    "fault: a process is stopped for longer than a session lives",
    "fault: a disk does nothing",
    "fault: a question takes the coordinator long",
    "fault: an answer of the coordinator is lost",
    "fault: the coordinator's registers are older",
    "meta: refused registers that are older",
    "meta: went on with newer registers than the coordinator had",
    "step: prepared",
    "step: decided",
    "step: part committed",
    "step: part aborted",
    "step: presumed abort",
    "step: delivered",
    "step: duplicate",
    "step: recall",
    "step: synced, nobody told",
    "step: store flushed, log not cut",
    "step: log cut",
    "step: epoch taken",
    "step: tablet left",
    "step: untracked",
    "step: kept unasked",
    "step: a snapshot begins",
    "step: a part is kept, not answered",
    "step: a snapshot is there",
    "step: parts of a snapshot are lost",
    "step: a learner has everything",
    "step: a tablet is yielded",
    "step: a yielded tablet is taken",
    "step: a move is given up",
    "step: chunk opened",
    "step: fences sent",
    "step: seals sent",
    "step: seal recorded",
    "step: chunk sealed by its tablet",
    "step: chunk closed",
    "step: chunk found alive",
    "step: chunk found dead",
    "step: compaction begins",
    "step: a place on the ring is taken",
    "step: the ring is linked anew",
    "step: heir made",
    "step: extents moved",
    "step: chunk compacted",
    "step: compaction called off",
    "step: removals sent",
    "step: chunk removed",
    "step: replicas confirmed",
    "step: replica found missing",
    "step: replica removed",
    "step: copy asked for",
    "step: copy recorded",
    "step: damaged replica dropped",
    "step: extents committed",
    "step: session closed",
    "step: silent session ended",
    "step: session runs out",
    "step: session swept",
    "a session that something is held for ends in peace",
    "step: data chunk is named",
    "step: data append given to the log, not spread",
    "step: data append is here",
    "step: data append is everywhere, not answered",
    "step: data bytes of another frame are here, not appended",
    "step: data copy is here, not answered",
    "step: data sync begins",
    "step: data synced here",
    "step: data synced everywhere, not answered",
    "step: data copy synced, not answered",
    "step: data appends stopped",
    "step: data fence kept, not answered",
    "step: data seal kept, not answered",
    "step: data scan after a restart begins",
    "step: data scanned after a restart",
    "step: data fenced, nothing of it is here",
    "step: data damage within an unsealed chunk, nobody told",
    "step: data removed, not answered",
    "step: data copy begins",
    "step: data copy kept, not told",
    "step: data damage found, nobody told",
    "commit refused, chunk closed",
    "step: client change sent",
    "step: client commit sent",
    "step: client flush appended, not committed",
    "step: client sync done, not committed",
    "step: client flush committed",
    "step: client recalled, not answered",
    "step: client recall answered",
    "step: client session open",
    "step: client all flushed, session not closed",
    "meta: log cut",
    "meta: log waited for space",
    "meta: log goes on",
    "step: refused for space",
    "data: torn tail cut",
    "flow: reads planned from one replica",
    "flow: reads planned from several replicas",
    "flow: reads ended",
    "flow: flows taken up from counters",
    "client: bytes read ahead",
    "client: pieces fetched twice",
    "data: replica lost",
    "data: disk full",
    "Part: NoSpace",
    "Part: QuotaExceeded",
    "Link: QuotaExceeded",
    "appends",
    "copies",
    "copies that nobody disturbed",
    "client: requests sent again",
    "client: referred",
    "client: told to retry",
    "client: recalls answered",
    "client: open-state queries answered",
    "kernel: invalidations",
    "SetAccessList: done",
    "SetDefaultList: done",
];

/// The same in a run with several copies of each tablet.
const EXPECTED_OF_COPIES: &[&str] = &[
    "fault: a metadata disk is lost and replaced",
    "meta: a disk with less on it was filled up",
    "fault: a record of a store cannot be read",
    "meta: met a record that cannot be read",
    "meta: tablets claimed of a silent server",
    "meta: silent members swapped out",
    "meta: stuck members swapped out",
    "meta: members that lost entries swapped out",
];

/// Sums by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// One more.
    pub fn add(&mut self, name: &str) {
        self.add_many(name, 1);
    }

    /// So many more.
    pub fn add_many(&mut self, name: &str, count: u64) {
        match self.0.get_mut(name) {
            Some(sum) => *sum += count,
            None => {
                self.0.insert(name.to_owned(), count);
            }
        }
    }

    /// How often.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All names with their sums.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Kinds of faults, steps and crash points that never happened: a run that did not meet them proved
    /// nothing about them.
    pub fn missing(&self, copies: u8) -> Vec<String> {
        let steps = self.0.keys().filter_map(|name| name.strip_prefix(MORTAL));
        let crashes = steps.map(|step| format!("crash at: {step}"));
        let of_copies = if copies > 1 { EXPECTED_OF_COPIES } else { &[] };
        let all = EXPECTED.iter().chain(of_copies).map(|name| (*name).to_owned()).chain(crashes);
        all.filter(|name| self.of(name) == 0).collect()
    }

    /// Adds the sums of another run.
    pub fn absorb(&mut self, other: &Counts) {
        for (name, count) in other.iter() {
            self.add_many(name, count);
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.iter() {
            writeln!(f, "  {count:>9}  {name}")?;
        }
        Ok(())
    }
}
