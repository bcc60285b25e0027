//! Delegated directories (`decide/ops/delegate.rs`, `decide/ops/delegated.rs`): who holds them, and how they
//! are called back.
//!
//! Invariants: a directory is delegated exactly while its record says so, whoever owns the tablet meanwhile;
//! nobody else's look into it is decided before that record is gone; the record goes with the steps after
//! which the client gives the directory back, or when the client's lease on it is over: the client has
//! dropped by then what it had not sent, and what it sends later is refused.

use crate::decide::JobWork;
use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use crate::record::{Delegated, Holder, Key, Record};
use bearing_proto::client::{Call, LeaseKey};
use bearing_types::{NodeId, Now, Position, SessionId};
use std::collections::{BTreeMap, BTreeSet};

impl MetaServer {
    /// Somebody looks into a directory that is delegated to somebody else.
    pub(crate) fn call_back(&mut self, now: Now, start: Position, directory: NodeId, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Some(holder) = tablet.delegations.holder(directory).map(|holder| holder.session) else { return };
        tablet.leases.call_back(directory, now.mono);
        let holders = tablet.leases.holders(&[LeaseKey::Delegation(directory)], None, now.mono);
        let holds: BTreeMap<_, _> = holders.into_iter().filter(|(session, _)| *session == holder).collect();
        if !holds.is_empty() {
            let wishes = tablet.leases.recall(holds, now.mono, &self.config);
            out.push(Command::Note(Note::Step("delegation called back")));
            return self.send_recalls(start, wishes, out);
        }
        let ends = |work: &JobWork| matches!(work, JobWork::EndDelegation(other, _) if *other == directory);
        if !self.jobs.values().any(|job| job.tablet == start && ends(&job.work)) {
            self.new_job(start, JobWork::EndDelegation(directory, holder), now);
        }
    }

    /// A session that is sent away from a delegation, or answered with one, is noted with the decision.
    pub(crate) fn note_delegations(
        &mut self,
        now: Now,
        start: Position,
        batch: &BTreeMap<Key, Option<Record>>,
        out: &mut Vec<Command>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let mut joined = BTreeSet::new();
        for (key, record) in batch {
            match (key, record) {
                (Key::Delegation(directory), Some(Record::Delegation(delegated))) => {
                    let holder = delegated.holder;
                    tablet.delegations.delegate(*directory, Delegated::clone(delegated));
                    joined.insert(holder);
                    tablet.leases.delegate(*directory, holder.session, now.mono, &self.config);
                    out.push(Command::Note(Note::Step("delegated")));
                }
                (Key::Delegation(directory), None) => {
                    tablet.delegations.end(*directory);
                    tablet.leases.undelegate(*directory, now.mono, &self.config);
                    out.push(Command::Note(Note::Step("delegation over")));
                }
                _ => {}
            }
        }
        // The holder counts one lease for all that it has in a tablet, from the last that it got.
        for (directory, holder) in tablet.delegations.iter().filter(|(_, holder)| joined.contains(holder)) {
            tablet.leases.delegate(directory, holder.session, now.mono, &self.config);
        }
    }

    /// Steps renew all delegations that their session has in the tablet.
    pub(crate) fn renew_delegations(&mut self, now: Now, start: Position, session: SessionId, call: &Call) {
        let (Call::Delegated { incarnation, over, .. }, Some(tablet)) = (call, self.tablets.get_mut(&start))
        else {
            return;
        };
        if *over {
            tablet.sessions.give_up(session, *incarnation);
        }
        let mine = Holder { session, incarnation: *incarnation };
        for directory in tablet.delegations.of(mine) {
            tablet.leases.delegate(directory, session, now.mono, &self.config);
        }
    }
}
