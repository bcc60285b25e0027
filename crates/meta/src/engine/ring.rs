//! This server on the ring of the metadata servers (RDHT-MDSC, section 3.3): neighbours ping each other, link
//! themselves anew when one fails, and repair their fingers.
//!
//! The ring orders candidates, nothing else: who owns a tablet and who is a member of it is said by
//! registers, and taken over by leases (`engine/claims.rs`). So whatever the ring's messages say, lost, late
//! or wrong, costs a copy on another server than the next one at worst.
//!
//! The order is fixed: serve first, relink afterwards. While this server is about to take a tablet or to
//! serve one, nobody's silence is a failure to the ring: it pings and answers, and links nothing anew.

use crate::engine::machine::MetaServer;
use crate::engine::ring_state::RingView;
use crate::event::{Command, Note};
use bearing_lookup::{Command as Said, Message};
use bearing_proto::client::ServerKind;
use bearing_proto::ring::RingMessage;
use bearing_types::{Now, ServerId};

impl MetaServer {
    /// What it knows of the ring; nothing before it is let in.
    pub fn ring(&self) -> Option<RingView> {
        self.ring.view()
    }

    /// The other metadata servers in the order of the ring: first those that follow this one as far as it
    /// knows, then those that it knows nothing of or takes for gone.
    pub(crate) fn successors(&self) -> Vec<ServerId> {
        let others = self.others();
        let mut successors = self.ring.successors();
        successors.retain(|server| others.contains(server));
        let unknown = others.into_iter().filter(|server| !successors.contains(server));
        successors.iter().copied().chain(unknown).collect()
    }

    /// The other metadata servers by the coordinator's list, as they would follow this one if all were there.
    pub(crate) fn others(&self) -> Vec<ServerId> {
        let metadata = self.servers.values().filter(|entry| entry.kind == ServerKind::Metadata);
        let mut others: Vec<ServerId> =
            metadata.map(|entry| entry.server).filter(|server| *server != self.id).collect();
        others.sort_unstable_by_key(|server| (*server < self.id, *server));
        others
    }

    /// The same once it knows them, and is the one that it says it is.
    pub fn listed_others(&self) -> Option<Vec<ServerId>> {
        self.knows_the_ring().then(|| self.others())
    }

    /// Whether it may be on the ring: it knows the servers, and is the one that it says it is.
    fn knows_the_ring(&self) -> bool {
        self.startup.version != 0 && self.disk.is_ours()
    }

    /// What time brings to the ring.
    pub(crate) fn tend_ring(&mut self, now: Now, out: &mut Vec<Command>) {
        if !self.knows_the_ring() || !self.ring.is_due(now.mono) {
            return;
        }
        let others = self.others();
        let serves = self.claims.is_empty() && self.adoptions.is_empty();
        let mut said = Vec::new();
        let is_linked_anew = self.ring.pass(now.mono, &others, serves, &self.config, &mut said);
        say(said, out);
        if is_linked_anew {
            out.push(Command::Note(Note::Step("the ring is linked anew")));
        }
    }

    /// A message of another server of the ring. What names a server that is in no list is dropped: it may be
    /// new, then the next list has it, and such messages are sent again.
    pub(crate) fn on_ring(
        &mut self,
        now: Now,
        from: ServerId,
        message: &RingMessage,
        out: &mut Vec<Command>,
    ) {
        let listed = |server: &ServerId| {
            let entry = self.servers.get(server);
            *server == self.id || entry.is_some_and(|entry| entry.kind == ServerKind::Metadata)
        };
        let named = message.servers();
        if !self.knows_the_ring() || from == self.id || !named.iter().chain([&from]).all(listed) {
            return;
        }
        let mut said = Vec::new();
        let is_let_in = self.ring.take(now.mono, from, message, &mut said);
        say(said, out);
        if is_let_in {
            out.push(Command::Note(Note::Step("a place on the ring is taken")));
        }
    }
}

/// Sends what the ring's machine says. Nobody's way to anything is asked of it: it gives no other commands.
fn say(said: Vec<Said>, out: &mut Vec<Command>) {
    for said in said {
        if let Said::Send(to, Message::Finger(message)) = said {
            out.push(Command::Ring(to, RingMessage::from(&message)));
        }
    }
}
