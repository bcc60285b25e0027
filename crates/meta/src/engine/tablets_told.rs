//! What an operator is told of the tablets that are here.

use crate::engine::machine::MetaServer;
use crate::engine::restore::BYTES_PER_SECOND;
use crate::replication::{Copy, Learner, Log};
use crate::tablet::Phase;
use bearing_proto::tablets::{
    LearnerView, MemberView, OwnerPhase, OwnerView, Restoring, TABLETS_TOLD_MAX, TabletRole, TabletView,
    TabletsView,
};
use bearing_types::{Block, Mono, TabletSerial};
use std::collections::BTreeMap;

impl MetaServer {
    /// The tablets that this server owns, is about to own or holds for others, for an operator.
    pub fn tablets(&self, now: Mono) -> TabletsView {
        let blocks = self.startup.registers.values().map(|(_, assigned)| (assigned.serial, assigned.block));
        let blocks: BTreeMap<TabletSerial, Block> = blocks.collect();
        let served = self.tablets.values().map(|tablet| {
            let phase = match &tablet.phase {
                Phase::Serving => OwnerPhase::Serving,
                Phase::Leaving(leaving) => OwnerPhase::Leaving(leaving.to),
            };
            self.tablet_told(&tablet.log, Some(tablet.block), self.owner_told(now, &tablet.log, phase))
        });
        let adopted = self.adoptions.values().map(|adoption| {
            let role = self.owner_told(now, &adoption.log, OwnerPhase::Adopting);
            self.tablet_told(&adoption.log, Some(adoption.block), role)
        });
        let held = self
            .copies
            .iter()
            .map(|(serial, copy)| self.tablet_told(&copy.log, blocks.get(serial).copied(), copy_told(copy)));
        let mut tablets: Vec<TabletView> = served.chain(adopted).chain(held).collect();
        tablets.sort_by_key(|tablet| tablet.serial);
        let left_out = tablets.len().saturating_sub(TABLETS_TOLD_MAX) as u64;
        tablets.truncate(TABLETS_TOLD_MAX);
        TabletsView { tablets, left_out, restoring: self.restoring(now), chunks: self.chunk_tally() }
    }

    fn tablet_told(&self, log: &Log, block: Option<Block>, role: TabletRole) -> TabletView {
        TabletView {
            serial: log.serial(),
            block,
            epoch: log.epoch(),
            committed: log.committed(),
            last: log.last(),
            role,
            compared: self.compares.digest(log.serial()).cloned(),
            comparing: self.compares.computing(log.serial()),
        }
    }

    fn owner_told(&self, now: Mono, log: &Log, phase: OwnerPhase) -> TabletRole {
        let members = log.members.told_of(&self.pairs, now, &self.config);
        let members = members.map(|(server, synced, relies)| {
            let (lag, lag_bytes) = log.behind(synced);
            MemberView { server, lag, lag_bytes, relies }
        });
        let tablet = self.starts.get(&log.serial()).and_then(|start| self.tablets.get(start));
        TabletRole::Owner(Box::new(OwnerView {
            phase,
            members: members.collect(),
            learner: log.learner.as_ref().map(learner_told),
            taken: self.takeovers.of(log.serial()),
            compare_at: self.compares.logged(log.serial()),
            checkpoint: tablet.and_then(|tablet| tablet.checkpoint.whole),
        }))
    }

    fn restoring(&self, now: Mono) -> Restoring {
        let since = self.restore.since_lacking(now, self.counters.restored_bytes);
        let (since, sent_bytes) = since.unwrap_or_default();
        Restoring {
            lacking: self.lacking().count() as u32,
            sent_bytes,
            since_ms: since.as_millis() as u64,
            left_bytes: self.bytes_left(),
            bytes_per_second_max: BYTES_PER_SECOND,
        }
    }

    /// About how much is to be sent until all tablets of this server's have the copies that they should. A
    /// tablet is as large as its last digest says, or else as those that were sent are on average.
    fn bytes_left(&self) -> Option<u64> {
        let mut left = 0;
        for assigned in self.lacking() {
            let digest =
                self.compares.digest(assigned.serial).and_then(|compared| compared.digest.as_ref().ok());
            let bytes = digest.map(|digest| digest.bytes).or(self.restore.bytes_expected())?;
            let copies = self.copies_wanted().saturating_sub(assigned.members.len()) as u64;
            let tablet = self.tablets.get(&assigned.block.start());
            let learner = tablet.and_then(|tablet| tablet.log.learner.as_ref());
            let sent = learner.map_or(0, |learner| match learner.has_snapshot() {
                true => bytes,
                false => learner.progress().1.min(bytes),
            });
            left += (bytes * copies).saturating_sub(sent);
        }
        Some(left)
    }
}

fn copy_told(copy: &Copy) -> TabletRole {
    let arriving = copy.arrival.as_ref().filter(|arrival| !arrival.is_there());
    TabletRole::Copy {
        owner: copy.sender().map(|(owner, _)| owner),
        arriving: arriving.map(|arrival| arrival.held().parts),
    }
}

fn learner_told(learner: &Learner) -> LearnerView {
    let (parts, sent_bytes) = learner.progress();
    let (server, has_snapshot, tail) = (learner.server, learner.has_snapshot(), learner.tail_len() as u64);
    LearnerView { server, parts, sent_bytes, has_snapshot, tail }
}
