//! Tries to seal one chunk that follow each other, are given up and recorded, while servers restart and
//! messages are late, lost and doubled.

use super::bench::*;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_seams::{ChunkLog, CrashFault};
use bearing_types::Epoch;
use proptest::prelude::*;

const FENCE: Epoch = Epoch(5);
const SERVERS: usize = 2;

type Fenced = (usize, u64, bool);

/// What happens next; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Act {
    /// The server stops and comes back; what was not synced is gone.
    Restart(usize),
    /// A metadata server begins to seal.
    Begin,
    /// A message arrives, once or not for the last time.
    Deliver(usize, bool),
    /// What the last try has heard decides; it is recorded, or its owner dies before that.
    Decide { recorded: bool },
    /// Whoever met a server that missed the seal has all told again.
    Remind,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => (0..SERVERS).prop_map(Act::Restart),
        1 => Just(Act::Begin),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(which, last)| Act::Deliver(which, last)),
        1 => any::<bool>().prop_map(|recorded| Act::Decide { recorded }),
        1 => Just(Act::Remind),
    ]
}

struct World {
    servers: Vec<Bench>,
    /// The server was fenced or sealed before its first restart: it had all that was ever acknowledged.
    steady: Vec<Option<bool>>,
    acknowledged: u64,
    synced: u64,
    /// To which server, for which try, what.
    messages: Vec<(usize, usize, DataCall)>,
    tries: usize,
    heard: Vec<Fenced>,
    recorded: Option<u64>,
}

impl World {
    /// Servers that have so many frames of one size, of which so many are synced.
    fn new(frames: [usize; SERVERS], synced: usize) -> World {
        let (bytes, acknowledged) = (frame(1, 100), *frames.iter().min().unwrap());
        let synced = synced.min(acknowledged);
        let server = |count: &usize| {
            let mut bench = Bench::new();
            for number in 0..*count {
                bench.append_alone(&bytes);
                if number + 1 == synced {
                    bench.log.sync(CHUNK).unwrap();
                }
            }
            bench
        };
        let one = bytes.len() as u64;
        World {
            servers: frames.iter().map(server).collect(),
            steady: vec![None; SERVERS],
            acknowledged: acknowledged as u64 * one,
            synced: synced as u64 * one,
            messages: Vec::new(),
            tries: 0,
            heard: Vec::new(),
            recorded: None,
        }
    }

    fn tell_all(&mut self, call: &DataCall) {
        self.messages.extend((0..SERVERS).map(|server| (server, self.tries, call.clone())));
    }

    fn run(&mut self, act: &Act) {
        match act {
            Act::Restart(server) => self.restart(*server),
            Act::Begin if self.recorded.is_none() => {
                self.tries += 1;
                self.heard.clear();
                self.tell_all(&DataCall::Fence { epoch: FENCE });
            }
            Act::Deliver(which, last) if !self.messages.is_empty() => {
                let which = which % self.messages.len();
                let (server, of_try, call) = self.messages[which].clone();
                if *last {
                    self.messages.remove(which);
                }
                self.deliver(server, of_try, call);
            }
            Act::Decide { recorded } if self.recorded.is_none() && chosen(&self.heard).is_some() => {
                let length = chosen(&self.heard).unwrap();
                self.tell_all(&DataCall::Seal { epoch: FENCE, length });
                if *recorded {
                    self.record(length);
                }
                self.heard.clear();
            }
            Act::Remind => {
                if let Some(length) = self.recorded {
                    self.tell_all(&DataCall::Seal { epoch: FENCE, length });
                }
            }
            Act::Begin | Act::Deliver(..) | Act::Decide { .. } => {}
        }
    }

    fn restart(&mut self, server: usize) {
        let mut bench = std::mem::replace(&mut self.servers[server], Bench::new());
        bench.log.crash(&mut CrashFault::losing_all());
        self.servers[server] = bench.restarted();
        self.steady[server].get_or_insert(false);
    }

    fn deliver(&mut self, server: usize, of_try: usize, call: DataCall) {
        let result = self.servers[server].result(META, call.clone(), &[]);
        self.steady[server].get_or_insert(true);
        match (call, result) {
            (DataCall::Fence { .. }, Ok(DataBody::Fenced { length, restarted, damaged }))
                if of_try == self.tries =>
            {
                assert!(damaged.is_empty());
                assert!(!restarted || self.steady[server] == Some(false));
                self.heard.retain(|(known, ..)| *known != server);
                self.heard.push((server, length, restarted));
            }
            (DataCall::Seal { length, .. }, Ok(DataBody::Done)) => assert!(self.held(server) >= length),
            (DataCall::Fence { .. }, Err(DataError::NoChunk)) if of_try == self.tries => {
                self.heard.retain(|(known, ..)| *known != server);
                self.heard.push((server, 0, true));
            }
            // What is empty here looks like a grave.
            (_, Ok(_) | Err(DataError::Corrupt | DataError::NoChunk)) => {}
            (call, other) => panic!("{call:?}: {other:?}"),
        }
    }

    fn record(&mut self, length: u64) {
        self.recorded = Some(length);
        assert!(length >= self.synced, "what was synced lies below");
        if self.heard.iter().any(|(server, ..)| self.steady[*server] == Some(true)) {
            assert!(length >= self.acknowledged, "a server that had it all was heard");
        }
        let held: Vec<u64> = self.heard.iter().map(|(_, length, _)| *length).collect();
        assert!(held.iter().all(|held| *held <= length), "{held:?}: of nothing that is whole is given up");
        for (server, told, _) in &self.heard {
            assert!(self.servers[*server].log.chunks().unwrap()[0].length >= *told);
        }
    }

    fn held(&mut self, server: usize) -> u64 {
        self.servers[server].log.chunks().unwrap()[0].length
    }

    /// Some server holds what is recorded, and whoever told more than that did not lose it.
    fn check(&mut self) {
        let Some(recorded) = self.recorded else { return };
        let held: Vec<u64> = (0..SERVERS).map(|server| self.held(server)).collect();
        assert!(held.iter().any(|held| *held >= recorded), "{held:?} of {recorded}");
    }
}

/// As the metadata server chooses (`ops/chunk.rs` there): who restarted does not decide without the others.
fn chosen(heard: &[Fenced]) -> Option<u64> {
    let steady = heard.iter().any(|(_, _, restarted)| !restarted);
    let decides = steady || heard.len() == SERVERS;
    decides.then(|| heard.iter().map(|(_, length, _)| *length).max()).flatten()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_is_recorded_covers_what_was_acknowledged_and_is_never_cut(
        frames in [1..4usize, 1..4],
        synced in 0..4usize,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let mut world = World::new(frames, synced);
        for act in &acts {
            world.run(act);
            world.check();
        }
    }
}
