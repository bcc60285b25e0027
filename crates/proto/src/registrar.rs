//! The coordinator's part above its engine: what it answers to whom, and when.

use crate::coordinator::{Ask, AskCall, Register, RegisterChanges, SWAP_MAX, TABLET_PREFIX, TellBody, Told};
use crate::questions::Work;
use bearing_seams::{Changes, Coordinator, EngineError, EngineResult, Entry, Found, RegisterChange, Swap};
use bearing_types::ServerId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many listings of one asker wait for changes; of more, the oldest is answered as it is.
const WAITING_MAX: usize = 8;

/// What a coordinator answers. It decides nothing; compare-and-swap is the engine's. But it changes nothing
/// in registers that were put back from an older copy: epochs that were had already would be given away
/// again. So who wants a tablet says first up to which version it knows the registers.
#[derive(Clone, Debug, Default)]
pub struct Registrar {
    older: bool,
    /// The version of the registers when they were last listed or changed here.
    version: u64,
    /// Servers that have asked what changed.
    met: BTreeSet<ServerId>,
    waiting: BTreeMap<ServerId, VecDeque<Waiting>>,
}

/// A listing that waits for a change: the number of the question, the prefix, the version that is known.
#[derive(Clone, Debug)]
struct Waiting {
    id: u64,
    prefix: String,
    since: u64,
}

impl Registrar {
    /// Somebody asked who knows a version that these registers never had.
    pub fn has_older(&self) -> bool {
        self.older
    }

    /// Whether the registers need not be asked for this: who knows what was last seen of them waits.
    pub fn only_waits(&self, work: &Work) -> bool {
        match work {
            Work::Answer(_, Ask { call: AskCall::Await { since, .. }, .. }) => self.is_known(*since),
            Work::Answer(..) => false,
            Work::News => self.waiting.is_empty(),
        }
    }

    fn is_known(&self, version: u64) -> bool {
        version == self.version && version > 0
    }

    /// What a coordinator with these registers answers a server now; `None`: that comes with
    /// [`Registrar::news`].
    pub fn answer(&mut self, registers: &mut dyn Coordinator, asker: ServerId, ask: Ask) -> Option<Told> {
        let Ask { id, call } = ask;
        if let AskCall::Await { prefix, since } = call {
            let listed = (!self.is_known(since)).then(|| self.changes(registers, asker, &prefix, since));
            if let Some(listed) = listed.filter(|listed| listed.as_ref().map_or(true, is_news)) {
                return Some(told(id, listed.map(listing)));
            }
            self.met.insert(asker);
            let waiting = self.waiting.entry(asker).or_default();
            waiting.push_back(Waiting { id, prefix, since: self.version });
            return None;
        }
        Some(told(id, self.body(registers, asker, call)))
    }

    /// What is answered to those who await a change, now that something may have changed.
    pub fn news(&mut self, registers: &mut dyn Coordinator) -> Vec<(ServerId, Told)> {
        // Almost all of them know the same.
        let mut listings: BTreeMap<u64, EngineResult<Changes>> = BTreeMap::new();
        let mut news = Vec::new();
        for (asker, waiting) in &mut self.waiting {
            let mut surplus = waiting.len().saturating_sub(WAITING_MAX);
            waiting.retain_mut(|Waiting { id, prefix, since }| {
                let changes = listings.entry(*since).or_insert_with(|| registers.changes("", *since));
                let changes = changes.clone().map(|changes| under(prefix, changes));
                let is_over = changes.as_ref().map_or(true, is_news) || surplus > 0;
                surplus = surplus.saturating_sub(1);
                match (is_over, &changes) {
                    (true, _) => news.push((*asker, told(*id, changes.map(listing)))),
                    (false, Ok(changes)) => *since = changes.version,
                    (false, Err(_)) => {}
                }
                !is_over
            });
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        let versions = listings.into_values().flatten().map(|changes| changes.version);
        self.version = versions.fold(self.version, u64::max);
        news
    }

    fn body(
        &mut self,
        registers: &mut dyn Coordinator,
        asker: ServerId,
        call: AskCall,
    ) -> EngineResult<TellBody> {
        match call {
            AskCall::Read { key } => Ok(TellBody::Register(registers.read(&key)?.map(register))),
            AskCall::Changes { prefix, since } | AskCall::Await { prefix, since } => {
                self.changes(registers, asker, &prefix, since).map(listing)
            }
            AskCall::Swap { changes } => {
                self.check_swap(asker, &changes)?;
                match registers.swap(&changes)? {
                    Swap::Done(version) => {
                        self.version = self.version.max(version);
                        Ok(TellBody::Swapped(version))
                    }
                    Swap::Conflict(Found { present, absent }) => Ok(TellBody::Conflict {
                        present: present.into_iter().map(register).collect(),
                        absent,
                    }),
                }
            }
            AskCall::Sessions
            | AskCall::Tablets
            | AskCall::Compare { .. }
            | AskCall::Metrics
            | AskCall::Holders
            | AskCall::Checkpoint => {
                Err(EngineError::Failed { doing: "only metadata servers know that".to_owned() })
            }
        }
    }

    fn changes(
        &mut self,
        registers: &mut dyn Coordinator,
        asker: ServerId,
        prefix: &str,
        since: u64,
    ) -> EngineResult<Changes> {
        let changes = registers.changes(prefix, since)?;
        self.older |= since > changes.version;
        self.version = changes.version;
        self.met.insert(asker);
        Ok(changes)
    }

    fn check_swap(&self, asker: ServerId, changes: &[RegisterChange]) -> EngineResult<()> {
        let of_tablets = changes.iter().any(|change| change.key.starts_with(TABLET_PREFIX));
        let doing = if self.older {
            "change registers that are older than servers know; put the newest copy of them back".to_owned()
        } else if of_tablets && !self.met.contains(&asker) {
            "change registers of tablets for one that has not asked what changed".to_owned()
        } else {
            return check_keys(changes);
        };
        Err(EngineError::Failed { doing })
    }
}

/// Everything under a prefix is news only to those who know nothing, or nothing of use.
fn is_news(changes: &Changes) -> bool {
    changes.whole || changes.found != Found::default()
}

fn under(prefix: &str, mut changes: Changes) -> Changes {
    changes.found.present.retain(|entry| entry.key.starts_with(prefix));
    changes.found.absent.retain(|key| key.starts_with(prefix));
    changes
}

fn told(id: u64, result: EngineResult<TellBody>) -> Told {
    Told { id, result: result.map_err(|error| error.to_string()) }
}

fn listing(changes: Changes) -> TellBody {
    let Changes { version, whole, found: Found { present, absent } } = changes;
    let present = present.into_iter().map(register).collect();
    TellBody::Registers(RegisterChanges { version, whole, present, absent })
}

fn register(entry: Entry) -> Register {
    Register { key: entry.key, version: entry.version, value: entry.value }
}

fn check_keys(changes: &[RegisterChange]) -> EngineResult<()> {
    let doing = if changes.len() > SWAP_MAX {
        format!("{} registers in one swap: {SWAP_MAX} at most", changes.len())
    } else {
        let mut keys = BTreeSet::new();
        match changes.iter().find(|change| !keys.insert(&change.key)) {
            Some(twice) => format!("the register {} twice in one swap", twice.key),
            None => return Ok(()),
        }
    };
    Err(EngineError::Failed { doing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::tablet_key;
    use bearing_seams::MemCoordinator;
    use bearing_types::Block;

    fn swap(expected: Option<u64>, value: &[u8]) -> AskCall {
        AskCall::swap("server/1".into(), expected, Some(value.to_vec()))
    }

    fn told(registers: &mut MemCoordinator, call: AskCall) -> TellBody {
        let told = Registrar::default().answer(registers, ServerId(1), Ask { id: 7, call });
        let told = told.expect("only what awaits a change is answered later");
        assert_eq!(told.id, 7);
        told.result.expect("registers in memory never fail")
    }

    fn result(
        registrar: &mut Registrar,
        registers: &mut MemCoordinator,
        (asker, id): (u32, u64),
        call: AskCall,
    ) -> Option<Result<TellBody, String>> {
        registrar.answer(registers, ServerId(asker), Ask { id, call }).map(|told| told.result)
    }

    #[test]
    fn nothing_is_changed_in_registers_that_are_older_than_a_server_knows() {
        let mut older = MemCoordinator::default();
        told(&mut older, swap(None, b"1"));
        let mut newest = older.clone();
        told(&mut newest, swap(Some(1), b"2"));

        let registrar = &mut Registrar::default();
        let tablet = || AskCall::swap(tablet_key(Block::RING), None, Some(Vec::new()));
        let error = result(registrar, &mut older, (1, 1), tablet()).unwrap().unwrap_err();
        assert!(error.contains("has not asked what changed"), "{error}");
        let listed = |since| AskCall::Changes { prefix: String::new(), since };
        result(registrar, &mut older, (1, 2), listed(0)).unwrap().unwrap();
        // Who awaits a change of what it has seen is heard as well, and is told at once.
        let awaited = AskCall::Await { prefix: String::new(), since: 2 };
        result(registrar, &mut older, (2, 1), awaited).unwrap().unwrap();
        for call in [tablet(), swap(Some(1), b"3")] {
            let error = result(registrar, &mut older, (1, 3), call).unwrap().unwrap_err();
            assert!(error.contains("older than servers know"), "{error}");
        }
    }

    #[test]
    fn a_swap_over_an_old_version_shows_what_is_there() {
        let mut registers = MemCoordinator::default();
        let TellBody::Swapped(version) = told(&mut registers, swap(None, b"a")) else { panic!("swaps") };
        let there = Register { key: "server/1".into(), version, value: b"a".to_vec() };
        let conflict = TellBody::Conflict { present: vec![there], absent: vec![] };
        assert_eq!(told(&mut registers, swap(None, b"b")), conflict);
    }

    #[test]
    fn changes_are_told_once_to_who_says_what_it_has_seen() {
        let mut registers = MemCoordinator::default();
        told(&mut registers, swap(None, b"a"));
        let changes = |since| AskCall::Changes { prefix: "server/".into(), since };
        let TellBody::Registers(all) = told(&mut registers, changes(0)) else { panic!("registers") };
        assert!(all.whole && all.present.len() == 1, "{all:?}");
        let version = all.version;
        let tells = |version, absent| {
            TellBody::Registers(RegisterChanges { version, whole: false, present: vec![], absent })
        };
        assert_eq!(told(&mut registers, changes(version)), tells(version, vec![]));
        told(&mut registers, AskCall::swap("server/1".into(), Some(version), None));
        let removed = tells(version + 1, vec!["server/1".to_owned()]);
        assert_eq!(told(&mut registers, changes(version)), removed);
    }

    #[test]
    fn who_awaits_a_change_under_a_prefix_hears_of_the_next_one_there_and_only_once() {
        let (registrar, registers) = (&mut Registrar::default(), &mut MemCoordinator::default());
        told(registers, swap(None, b"a"));
        let awaits = |prefix: &str| AskCall::Await { prefix: prefix.into(), since: 1 };
        assert_eq!(result(registrar, registers, (1, 1), awaits("")), None);
        assert_eq!(result(registrar, registers, (2, 5), awaits("server/")), None);
        assert_eq!(result(registrar, registers, (3, 6), awaits("enrolment/")), None);
        assert_eq!(registrar.news(registers), [], "nothing has changed");
        told(registers, swap(Some(1), b"b"));
        let heard: Vec<_> = registrar.news(registers).into_iter().map(|(to, told)| (to.0, told.id)).collect();
        assert_eq!(heard, [(1, 1), (2, 5)]);
        told(registers, swap(Some(2), b"c"));
        assert_eq!(registrar.news(registers), []);
        let known = AskCall::Await { prefix: String::new(), since: 2 };
        assert!(result(registrar, registers, (1, 2), known).is_some(), "that was missed");
    }

    #[test]
    fn of_many_listings_of_one_asker_that_wait_the_oldest_are_answered_as_they_are() {
        let (registrar, registers) = (&mut Registrar::default(), &mut MemCoordinator::default());
        told(registers, swap(None, b"a"));
        for id in 0..WAITING_MAX as u64 + 2 {
            let call = AskCall::Await { prefix: String::new(), since: 1 };
            assert_eq!(result(registrar, registers, (1, id), call), None);
        }
        let ids: Vec<u64> = registrar.news(registers).into_iter().map(|(_, told)| told.id).collect();
        assert_eq!(ids, [0, 1]);
    }

    #[test]
    fn a_swap_of_too_many_registers_or_of_one_twice_is_refused() {
        let mut registers = MemCoordinator::default();
        let mut refused = |count: usize, distinct: usize| {
            let change = |at| RegisterChange::new(format!("k/{}", at % distinct), None, Some(vec![]));
            let call = AskCall::Swap { changes: (0..count).map(change).collect() };
            result(&mut Registrar::default(), &mut registers, (1, 1), call).unwrap().unwrap_err()
        };
        let error = refused(SWAP_MAX + 1, SWAP_MAX + 1);
        assert!(error.contains(&format!("{} registers in one swap", SWAP_MAX + 1)), "{error}");
        assert!(refused(3, 2).contains("k/0 twice"));
        assert_eq!(registers.changes("", 0).unwrap().version, 0);
    }
}
