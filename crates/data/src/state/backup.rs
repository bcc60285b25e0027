//! What a server that follows a primary knows of the chunk: frames that came early, and those not known to be
//! acknowledged by all.

use super::core::{Asker, Cx};
use crate::Config;
use crate::event::Payload;
use bearing_proto::data::DataError;
use bearing_types::{Mono, ServerId};
use std::collections::{BTreeMap, VecDeque};

/// A frame that was given to the log and is not known to be acknowledged by all.
#[derive(Debug)]
pub(crate) struct Recent {
    pub offset: u64,
    pub end: u64,
    pub crc: u32,
    /// The primary, while it waits.
    pub asker: Option<Asker>,
}

/// A frame that came early.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub asker: Asker,
    pub crc: u32,
    pub bytes: Payload,
}

/// What a chunk's backup keeps.
#[derive(Debug)]
pub(crate) struct Backup {
    pub primary: ServerId,
    pub recent: VecDeque<Recent>,
    pub waiting: BTreeMap<u64, Waiting>,
    pub waiting_bytes: u64,
    pub gap_since: Option<Mono>,
    /// All below is stable here.
    pub synced: u64,
    /// Waiting for the sync that runs, and for the next one.
    pub syncing: Vec<Asker>,
    pub syncs: Vec<Asker>,
}

impl Backup {
    pub fn new(primary: ServerId) -> Backup {
        Backup {
            primary,
            recent: VecDeque::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            gap_since: None,
            synced: 0,
            syncing: Vec::new(),
            syncs: Vec::new(),
        }
    }

    /// Answers and forgets the frames that came early.
    pub fn refuse_waiting(&mut self, cx: &mut Cx<'_>, why: DataError) {
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            cx.reply(waiting.asker, Err(why));
        }
        self.waiting_bytes = 0;
        self.gap_since = None;
    }

    pub fn close(mut self, cx: &mut Cx<'_>, why: DataError) {
        self.refuse_waiting(cx, why);
        let askers = self.recent.iter().filter_map(|recent| recent.asker);
        for asker in askers.chain(self.syncing).chain(self.syncs) {
            cx.reply(asker, Err(why));
        }
    }

    pub fn wake(&self, config: &Config) -> Option<Mono> {
        self.gap_since.map(|since| since.after(config.gap_timeout))
    }
}
