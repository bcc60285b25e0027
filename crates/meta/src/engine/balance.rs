//! Tablets are evened out over the servers, and a server that leaves is emptied: what `placement::Balance`
//! wants of this server's own tablets, and when.
//!
//! Nobody else decides over a tablet than its owner, and all owners want the same, as far as they know the
//! same registers. Where they do not, a swap conflicts, or what was done too much is undone: never is a
//! tablet in two hands. Copies that are lacking come first.

use crate::engine::machine::MetaServer;
use bearing_placement::Balance;
use bearing_placement::Tablet as Assigned;
use bearing_proto::client::ServerKind;
use bearing_types::{Now, ServerId};

impl MetaServer {
    /// The registers changed.
    pub(crate) fn weigh(&mut self, now: Now) {
        let registers = || self.startup.registers.values().map(|(_, assigned)| assigned);
        let metadata = self.servers.values().filter(|entry| entry.kind == ServerKind::Metadata);
        let active = metadata.map(|entry| entry.server);
        let balance =
            Balance::new(registers(), active.filter(|server| !self.startup.draining.contains(server)));
        let copies = self.copies_wanted().min(balance.active_count());
        let lacking = registers().any(|assigned| assigned.members.len() < copies);
        self.balance = balance;
        self.restore.note_restless(now.mono, lacking);
    }

    fn lives(&self, now: Now, server: ServerId) -> bool {
        self.pairs.has_lease(now.mono, server, self.config.server_lease_ttl)
    }

    fn is_able(&self, now: Now, server: ServerId) -> bool {
        self.balance.is_active(server) && self.restore.may_learn(server, now.mono) && self.lives(now, server)
    }

    /// Nobody waits for a tablet only because counts are evened out: while it moves nobody serves it, for as
    /// long as the coordinator takes.
    fn may_even_out(&self, now: Now) -> bool {
        self.restore.is_at_rest(now.mono, &self.config) && self.startup.is_prompt(now.mono)
    }

    /// Whether another server may get tablets to serve.
    pub(crate) fn may_own(&self, now: Now, server: ServerId) -> bool {
        server != self.id && self.is_able(now, server) && !self.pairs.is_clock_off(server)
    }

    /// Who shall own a tablet of this server's now, if not this one.
    pub(crate) fn next_owner_wanted(&self, now: Now, assigned: &Assigned) -> Option<ServerId> {
        let able = |server: &ServerId| self.may_own(now, *server);
        // What was wanted before this server got it is no wish any more.
        let wanted = self.balance.owner_of(assigned.serial).filter(able);
        let leaves = !self.balance.is_active(self.id);
        if !leaves && !self.clock_off {
            return wanted.filter(|_| self.may_even_out(now));
        }
        // Who leaves, or serves nothing, does not wait for one that is away.
        let found = wanted.or_else(|| assigned.members.iter().copied().find(able));
        found.or_else(|| if leaves { self.successors().into_iter().find(able) } else { None })
    }

    /// A server that shall get a copy of a tablet of this server's now, which has as many as it should or
    /// fewer.
    pub(crate) fn next_learner_wanted<'a>(
        &self,
        now: Now,
        assigned: &Assigned,
        successors: impl Fn() -> &'a [ServerId],
    ) -> Option<ServerId> {
        let copies = self.copies_wanted();
        let leaves = |member: &ServerId| *member != self.id && !self.balance.is_active(*member);
        let lacks = assigned.members.len() < copies || assigned.members.iter().any(leaves);
        let due = || self.balance.is_active(self.id) && self.may_even_out(now);
        if !lacks && !due() {
            return None;
        }
        let able = |server: &ServerId| !assigned.members.contains(server) && self.is_able(now, *server);
        let kept = self.balance.copies_of(self.id, copies);
        let others = || if lacks { successors() } else { &[] };
        kept.into_iter().find(able).or_else(|| others().iter().copied().find(able))
    }

    /// The member of a tablet of this server's that is one too many.
    pub(crate) fn member_left_out(&self, assigned: &Assigned, successors: &[ServerId]) -> Option<ServerId> {
        let kept = self.balance.copies_of(self.id, self.copies_wanted());
        let others = assigned.members.iter().copied().filter(|member| *member != self.id);
        let nearness = |server: &ServerId| {
            let place = successors.iter().position(|other| other == server);
            (!kept.contains(server), place.unwrap_or(usize::MAX))
        };
        others.max_by_key(nearness)
    }

    /// Other servers that are to be heard of because they may get tablets, or copies of them.
    pub(crate) fn takers(&self) -> impl Iterator<Item = ServerId> + '_ {
        let owned = self.startup.registers.values().map(|(_, assigned)| assigned);
        let owned = owned.filter(|assigned| assigned.owner == self.id);
        let owners = owned.filter_map(|assigned| self.balance.owner_of(assigned.serial));
        let others = owners.filter(|server| *server != self.id);
        others.chain(self.balance.copies_of(self.id, self.copies_wanted()))
    }
}
