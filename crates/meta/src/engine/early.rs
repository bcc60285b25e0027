//! Requests that are early: for a tablet that this server has a copy of, while its owner is silent, or that
//! it owns and does not serve yet. Clients send a request here too when the owner does not answer. It waits
//! until it is known who serves the tablet: so it is answered as soon as that is so, and not when the client
//! tries again.

use crate::engine::machine::MetaServer;
use crate::event::Command;
use bearing_proto::client::Request;
use bearing_types::{Mono, Now, Position, SessionId};
use std::time::Duration;

/// For so long: clients send again meanwhile.
const WAIT: Duration = Duration::from_millis(500);
/// So many beacons in a row may be late before an owner counts as silent here.
const BEACONS: u32 = 3;

impl MetaServer {
    /// Whether a request, that came at this time, waits here: its tablet is not served here, and may soon be,
    /// or be known to be elsewhere.
    pub(crate) fn may_wait(&self, now: Now, since: Mono, session: SessionId, position: Position) -> bool {
        let over = now.mono.since(since) >= WAIT;
        !over && self.may_know_soon(now, position) && self.early.has_room(session)
    }

    pub(crate) fn wait_for_owner(&mut self, since: Mono, session: SessionId, request: Request) {
        // One that was sent again waits as long as the first of its copies.
        let place = (session, request.sequence);
        let since = self.early.waiting.get(&place).map_or(since, |(first, _)| since.min(*first));
        self.early.waiting.insert(place, (since, request));
    }

    fn may_know_soon(&self, now: Now, position: Position) -> bool {
        let Some(located) = self.map.locate(position) else { return false };
        if located.owner == self.id {
            return true;
        }
        let Some((_, assigned)) = self.startup.registers.get(&located.block.start()) else { return false };
        let held = self.copies.contains_key(&assigned.serial) && assigned.members.contains(&self.id);
        let limit = self.config.beacon_interval * BEACONS;
        held && self.pairs.grace_left(now.mono, assigned.owner, limit, limit).is_zero()
    }

    /// Takes up those that waited, if more is known, or one has waited for long enough.
    pub(crate) fn take_early(&mut self, now: Now, out: &mut Vec<Command>) {
        let news = std::mem::take(&mut self.early.news);
        let over = self.early.waiting.values().any(|(since, _)| now.mono.since(*since) >= WAIT);
        if news || over {
            for ((session, _), (since, request)) in std::mem::take(&mut self.early.waiting) {
                self.take_request(now, since, session, request, out);
            }
        }
    }
}
