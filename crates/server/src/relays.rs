//! Requests on their way over servers that do not own what they ask for.

use crate::post::{Post, Relayed};
use bearing_lookup::Trail;
use bearing_meta::{Hop, Relays};
use bearing_proto::relay::Relay;
use bearing_proto::{Message, Sender};
use bearing_types::{Mono, Now, SessionId, Squash};

/// Passes on what others own of a client's messages. What is left is for the metadata machine.
pub fn pass_on(
    relays: &mut Relays,
    now: Mono,
    session: SessionId,
    messages: &mut Vec<Message>,
    post: &mut Post,
) {
    messages.retain(|message| {
        let Message::Request(request) = message else { return true };
        let hop = relays.next_hop(now, request, 0, Trail::default());
        !hop.is_some_and(|hop| post.relay(hop, session, request))
    });
}

/// Takes what other servers passed on out of their messages: passes it on in turn, or gives it as its client
/// would have sent it.
pub fn take(
    relays: &mut Relays,
    now: Now,
    messages: &mut Vec<Message>,
    post: &mut Post,
) -> Vec<(Sender, Squash, Message)> {
    let mut taken = Vec::new();
    messages.retain_mut(|message| {
        let Message::Relay(relay) = message else { return true };
        taken.extend(take_one(relays, now, relay, post));
        false
    });
    taken
}

fn take_one(
    relays: &mut Relays,
    now: Now,
    relay: &Relay,
    post: &mut Post,
) -> Option<(Sender, Squash, Message)> {
    let (level, entry) = relay.trail;
    match relays.next_hop(now.mono, &relay.request, relay.hops, Trail { level, entry }) {
        Some(Hop { server, hops, trail: Trail { level, entry } }) => {
            let relay = Relay { hops, trail: (level, entry), ..relay.clone() };
            post.to_server(server, &Message::Relay(relay), &[]);
            None
        }
        None => {
            let Relayed { session, squash } = post.admit_relayed(now.wall, relay)?;
            Some((Sender::Client(session), squash, Message::Request(relay.request.clone())))
        }
    }
}
