//! What flows through hosts' links that nobody has planned: all that their interfaces have carried, without
//! the flows that are known. Sinbad takes the load of links from hosts in the same way; here what is not ours
//! is one flow more on the link, of unknown size, which new ones have to share it with.

use crate::server::{Background, Command, Counted, Event, FlowServer, Request};
use crate::sites::Sites;
use bearing_proto::data::Carried;
use bearing_routing::{FlowId, Hop, Path, Place};
use bearing_types::Mono;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Less of a link than this share of its capacity is not worth a flow.
const SHARE_MIN: f64 = 0.03;
/// Packets' headers and what is sent again: a flow takes so much more of a link than it has bytes.
const OVERHEAD: f64 = 1.06;
/// Reports that follow each other sooner say too little.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What of one direction of a link is not ours.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    flow: FlowId,
    /// Bytes since it began.
    bytes: f64,
}

#[derive(Clone, Debug, Default)]
struct Host {
    heard: Option<(Mono, Carried)>,
    /// Out of the host, and into it.
    strangers: [Option<Stranger>; 2],
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers(BTreeMap<IpAddr, Host>);

impl Strangers {
    /// How many flows these are.
    pub(crate) fn count(&self) -> usize {
        self.0.values().flat_map(|host| host.strangers.iter().flatten()).count()
    }

    /// The network is another one: nothing is known of it.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// A host's interface has carried so much. `place` is of a server there.
    pub(crate) fn on_carried(
        &mut self,
        now: Mono,
        (address, place): (IpAddr, Place),
        carried: Carried,
        (sites, server): (&Sites, &mut FlowServer),
        out: &mut Vec<Command>,
    ) {
        let Some(uplink) = sites.uplink(address) else { return };
        let host = self.0.entry(address).or_default();
        let Some((began, known)) = host.heard else {
            host.heard = Some((now, carried));
            return;
        };
        let seconds = now.since(began).as_secs_f64();
        if now.since(began) < INTERVAL_MIN {
            return;
        }
        host.heard = Some((now, carried));
        let counts =
            [(uplink, carried.sent, known.sent), (uplink.reverse(), carried.received, known.received)];
        for (stranger, (hop, count, before)) in host.strangers.iter_mut().zip(counts) {
            // An interface that was made again counts from nothing.
            let Some(bytes) = count.checked_sub(before) else { continue };
            let ours = ours(server, hop, stranger.map(|stranger| stranger.flow)) * OVERHEAD;
            let rest = (bytes as f64 / seconds - ours).max(0.0);
            let capacity = sites.topology.capacity(hop.link()).bytes();
            if rest < capacity * SHARE_MIN {
                if let Some(over) = stranger.take() {
                    server.step(now, [Event::Ended(over.flow)], out);
                }
                continue;
            }
            let is_known = |stranger: &Stranger| server.estimates().rate(stranger.flow).is_some();
            // A new one began with the interval that it was measured in.
            *stranger = stranger.filter(is_known).or_else(|| begin(began, place, hop, server, out));
            if let Some(stranger) = stranger {
                stranger.bytes += rest * seconds;
                server.measured(now, Counted { flow: stranger.flow, bytes: stranger.bytes as u64 });
            }
        }
    }
}

/// The sum of what known flows have on a hop.
fn ours(server: &FlowServer, hop: Hop, but: Option<FlowId>) -> f64 {
    let estimates = server.estimates();
    let stranger = but.and_then(|flow| estimates.rate(flow)).map_or(0.0, |rate| rate.bytes());
    (estimates.load(hop).bytes() - stranger).max(0.0)
}

fn begin(
    now: Mono,
    place: Place,
    hop: Hop,
    server: &mut FlowServer,
    out: &mut Vec<Command>,
) -> Option<Stranger> {
    let noticed = Background { source: place, target: place, path: Path(vec![hop]), bytes: None };
    let before = out.len();
    server.step(now, [Event::Noticed(Request(0), noticed)], out);
    let numbered = out[before..].iter().position(|command| matches!(command, Command::Numbered(..)))?;
    match out.remove(before + numbered) {
        Command::Numbered(_, flow) => Some(Stranger { flow: flow?, bytes: 0.0 }),
        _ => None,
    }
}
