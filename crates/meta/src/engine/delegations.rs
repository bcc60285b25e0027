//! Delegated directories (`decide/ops/delegate.rs`, `decide/ops/delegated.rs`): who holds them, and how they
//! are called back.
//!
//! Invariants: a directory is delegated exactly while its record says so, whoever owns the tablet meanwhile;
//! nobody else's look into it is answered before it is stable that the record is gone; the record goes with
//! the steps after which the client gives the directory back, or when the client's lease on it is over: what
//! the client sends later is refused.

use crate::decide::JobWork;
use crate::engine::machine::MetaServer;
use crate::event::{Command, Note};
use crate::record::{Delegated, Holder, Key, Record};
use bearing_proto::client::{Call, LeaseKey};
use bearing_types::{NodeId, Now, Position, SessionId};
use std::collections::BTreeMap;

impl MetaServer {
    /// Somebody looks into a directory that is delegated to somebody else.
    pub(crate) fn call_back(&mut self, now: Now, start: Position, directory: NodeId, out: &mut Vec<Command>) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        let Some(holder) = tablet.delegations.holder(directory).map(|holder| holder.session) else { return };
        if tablet.log.members.lack_some() {
            // Its holder cannot give it back now, and does not lose it for that.
            return;
        }
        tablet.delegations.call_back(directory, now.mono);
        if tablet.delegations.is_used(directory, now.mono) {
            let holds = BTreeMap::from([(holder, vec![LeaseKey::Delegation(directory)])]);
            let wishes = tablet.leases.recall(holds, now.mono, &self.config);
            tablet.leases.take_turns(&wishes, now.mono);
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
        let index = tablet.log.next();
        let mut over = Vec::new();
        for (key, record) in batch {
            match (key, record) {
                (Key::Delegation(directory), Some(Record::Delegation(delegated))) => {
                    let delegated = Delegated::clone(delegated);
                    tablet.delegations.delegate(*directory, delegated, now.mono, &self.config);
                    out.push(Command::Note(Note::Step("delegated")));
                }
                (Key::Delegation(directory), None) => {
                    tablet.delegations.end(*directory, index);
                    tablet.leases.undelegated(*directory, now.mono, &self.config);
                    out.push(Command::Note(Note::Step("delegation over")));
                    over.push(LeaseKey::Delegation(*directory));
                }
                _ => {}
            }
        }
        self.wake_parked(start, &over);
    }

    /// Steps that are put off renew as well, but for a holder that others have waited for too long: their
    /// session does what it can.
    pub(crate) fn renew_put_off(&mut self, now: Now, start: Position, session: SessionId, call: &Call) {
        let (Call::Delegated { incarnation, over: false, .. }, Some(tablet)) =
            (call, self.tablets.get_mut(&start))
        else {
            return;
        };
        let mine = Holder { session, incarnation: *incarnation };
        if !tablet.delegations.is_overdue(mine, now.mono, &self.config) {
            tablet.delegations.renew(mine, now.mono, &self.config);
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
        tablet.delegations.renew(mine, now.mono, &self.config);
    }
}
