//! What is known of the coordinator's registers, and what is on its way (see `engine/startup.rs`).

use crate::config::Config;
use crate::event::Command;
use crate::words::Asking;
use bearing_placement::Tablet as Assigned;
use bearing_proto::coordinator::{Ask, AskCall};
use bearing_types::{Block, DiskId, Epoch, Mono, Now, Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A coordinator that answers within this time is prompt.
const PROMPT: Duration = Duration::from_millis(500);

/// The machine's questions to the coordinator have this bit, those of its shell do not.
pub(crate) const FIRST_ASK: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
pub(crate) enum AskKind {
    /// What changed. What is known is compared with what is served even if nothing did.
    Changes,
    /// The next change.
    News,
    /// A swap for tablets that are claimed.
    Claims,
    Disk,
}

/// A question that is not answered yet. It is sent again under its number, and any answer to it counts,
/// however late it comes.
#[derive(Debug)]
pub(crate) struct Open {
    pub kind: AskKind,
    pub call: AskCall,
    pub asked: Option<Asking>,
}

impl Open {
    /// How long it has been worked on. Who awaits news waits for others.
    fn waited(&self, now: Mono) -> Option<Duration> {
        let is_news = matches!(self.kind, AskKind::News);
        self.asked.filter(|_| !is_news).map(|asked| now.since(asked.first))
    }
}

/// What is known of the registers, and what is on its way.
#[derive(Debug)]
pub(crate) struct Startup {
    pub asks: BTreeMap<u64, Open>,
    pub next_ask: u64,
    /// Up to which version the registers are known; 0: not at all.
    pub version: u64,
    /// The coordinator's are older than what is known here.
    pub older: bool,
    /// A swap met a register of this version: what is claimed before that is known would meet it again.
    pub met: u64,
    pub wanted: bool,
    /// So long took the last question that waited for nothing but the coordinator.
    took: Duration,
    pub listed: Option<Mono>,
    pub registers: BTreeMap<Position, (u64, Assigned)>,
    /// The disk that is registered as this server's.
    pub disk: Option<DiskId>,
    /// Servers that leave.
    pub draining: BTreeSet<ServerId>,
}

impl Startup {
    pub fn new() -> Startup {
        Startup {
            asks: BTreeMap::new(),
            next_ask: FIRST_ASK,
            version: 0,
            older: false,
            met: 0,
            wanted: true,
            took: Duration::ZERO,
            listed: None,
            registers: BTreeMap::new(),
            disk: None,
            draining: BTreeSet::new(),
        }
    }

    /// Whether anything may be claimed by what is known.
    pub fn may_claim(&self) -> bool {
        !self.older && self.version >= self.met
    }

    /// A question is answered.
    pub fn answered(&mut self, now: Mono, open: &Open) {
        if let Some(waited) = open.waited(now) {
            self.took = waited;
        }
    }

    /// Whether the coordinator takes no time to speak of.
    pub fn is_prompt(&self, now: Mono) -> bool {
        let waited = self.asks.values().filter_map(|open| open.waited(now));
        waited.fold(self.took, Duration::max) <= PROMPT
    }

    /// The map turned out to be old.
    pub fn want_map(&mut self) {
        self.wanted = true;
    }

    /// A tablet's register, as it was read. One that was taken since is known under a later version.
    pub fn put_tablet(&mut self, version: u64, tablet: Assigned) {
        let start = tablet.block.start();
        if self.registers.get(&start).is_none_or(|(known, _)| *known < version) {
            self.registers.insert(start, (version, tablet));
        }
    }

    /// A tablet's register is gone.
    pub fn remove_tablet(&mut self, block: Block) {
        let start = block.start();
        if self.registers.get(&start).is_some_and(|(_, tablet)| tablet.block == block) {
            self.registers.remove(&start);
        }
    }

    /// Who owns which tablet under which epoch, by their starts.
    pub fn owners(&self) -> Vec<(Position, ServerId, Epoch)> {
        let registers = self.registers.iter();
        registers.map(|(start, (_, tablet))| (*start, tablet.owner, tablet.epoch)).collect()
    }

    /// The tablets that are registered as a server's.
    pub fn registered_to(&self, server: ServerId) -> impl Iterator<Item = Assigned> + '_ {
        self.registers
            .values()
            .map(|(_, tablet)| tablet)
            .filter(move |tablet| tablet.owner == server)
            .cloned()
    }

    /// Asks; gives the number of the question.
    pub fn ask(&mut self, now: Now, kind: AskKind, call: AskCall, out: &mut Vec<Command>) -> u64 {
        let id = self.next_ask;
        self.next_ask += 1;
        let asked = Some(Asking::new(now.mono));
        self.asks.insert(id, Open { kind, call: call.clone(), asked });
        out.push(Command::Ask(Ask { id, call }));
        id
    }

    /// How many questions are not answered.
    pub fn open(&self) -> usize {
        self.asks.len()
    }

    /// The planted bug. Gives the numbers of questions whose answers count for nothing from now on.
    pub fn forget_late(&mut self, now: Now, config: &Config) -> Vec<u64> {
        let late = |open: &Open| {
            open.asked.is_some_and(|asked| now.mono.since(asked.first) >= config.coordinator_resend_interval)
        };
        let forgotten: Vec<u64> =
            self.asks.iter().filter(|(_, open)| late(open)).map(|(id, _)| *id).collect();
        self.wanted |= !forgotten.is_empty();
        self.asks.retain(|_, open| !late(open));
        forgotten
    }

    /// Sends again what is not answered.
    pub fn ask_again(&mut self, now: Now, config: &Config, out: &mut Vec<Command>) {
        let (pause, pause_max) = (config.coordinator_resend_interval, config.coordinator_resend_interval_max);
        for (id, open) in &mut self.asks {
            if open.asked.is_none_or(|asked| asked.is_due(now.mono, pause, pause_max)) {
                Asking::again(&mut open.asked, now.mono);
                out.push(Command::Ask(Ask { id: *id, call: open.call.clone() }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{Epoch, LogIndex, TabletSerial, Wall};

    fn tablet(block: Block) -> Assigned {
        let serial = TabletSerial::of_first(block).unwrap();
        let (owner, members) = (ServerId(1), vec![ServerId(1)]);
        Assigned { block, serial, epoch: Epoch(1), owner, members, learner: None, committed: LogIndex::ZERO }
    }

    #[test]
    fn a_split_and_a_merge_leave_the_tablets_that_there_are() {
        let mut startup = Startup::new();
        let blocks = |startup: &Startup| -> Vec<Block> {
            startup.registers.values().map(|(_, tablet)| tablet.block).collect()
        };
        let (low, high) = Block::RING.halves().unwrap();
        startup.put_tablet(1, tablet(Block::RING));
        startup.remove_tablet(Block::RING);
        startup.put_tablet(2, tablet(low));
        startup.put_tablet(2, tablet(high));
        // What was replaced is gone already.
        startup.remove_tablet(Block::RING);
        assert_eq!(blocks(&startup), [low, high]);
        startup.remove_tablet(low);
        startup.remove_tablet(high);
        startup.put_tablet(3, tablet(Block::RING));
        assert_eq!(blocks(&startup), [Block::RING]);
    }

    #[test]
    fn a_coordinator_is_prompt_again_when_it_answered_promptly_and_news_take_it_no_time() {
        let (mut startup, mut out) = (Startup::new(), Vec::new());
        let at = |ms: u64| Now { mono: Mono(ms * 1_000_000), wall: Wall(0) };
        let call = || AskCall::Changes { prefix: String::new(), since: 0 };
        startup.ask(at(0), AskKind::News, call(), &mut out);
        assert!(startup.is_prompt(at(9_000).mono));
        let mut asked = |startup: &mut Startup, from, to| {
            let id = startup.ask(at(from), AskKind::Changes, call(), &mut out);
            let prompt = startup.is_prompt(at(to).mono);
            let open = startup.asks.remove(&id).unwrap();
            startup.answered(at(to).mono, &open);
            prompt
        };
        assert!(!asked(&mut startup, 10_000, 12_000));
        assert!(!startup.is_prompt(at(60_000).mono), "nobody has tried");
        assert!(!asked(&mut startup, 60_000, 60_100));
        assert!(startup.is_prompt(at(60_100).mono));
    }

    #[test]
    fn an_older_answer_does_not_undo_what_was_taken_since() {
        let mut startup = Startup::new();
        startup.put_tablet(7, Assigned { epoch: Epoch(2), ..tablet(Block::RING) });
        startup.put_tablet(5, tablet(Block::RING));
        assert_eq!(startup.registers[&Position(0)].1.epoch, Epoch(2));
    }
}
