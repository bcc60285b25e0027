//! What flows through hosts' links that nobody has planned: all that their interfaces have carried, without
//! the flows that are known. Sinbad takes the load of links from hosts in the same way; here what is not ours
//! is flows of unknown size on the link, which new ones have to share it with.

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
/// How many flows that is taken to be: interfaces do not count them, and who fills a link rarely does so with
/// one. A new flow expects a fifth of a link that is full of them.
const FLOWS: usize = 4;
/// Reports that follow each other sooner say too little.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What of one direction of a link is not ours.
#[derive(Clone, Debug)]
struct Stranger {
    flows: [FlowId; FLOWS],
    /// Bytes of each since they began.
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
        FLOWS * self.0.values().flat_map(|host| host.strangers.iter().flatten()).count()
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
            let ours = ours(server, hop, stranger.as_ref()) * OVERHEAD;
            let rest = (bytes as f64 / seconds - ours).max(0.0);
            let capacity = sites.topology.capacity(hop.link()).bytes();
            if rest < capacity * SHARE_MIN {
                if let Some(over) = stranger.take() {
                    server.step(now, over.flows.map(Event::Ended), out);
                }
                continue;
            }
            // The flow server forgets the oldest when it has too many.
            let is_known = |flow: &FlowId| server.estimates().rate(*flow).is_some();
            if !stranger.as_ref().is_some_and(|stranger| stranger.flows.iter().all(is_known)) {
                let left = stranger.take().map(|stranger| stranger.flows.map(Event::Ended));
                server.step(now, left.into_iter().flatten(), out);
                // New ones began with the interval that they were measured in.
                *stranger = begin(began, place, hop, server, out);
            }
            if let Some(stranger) = stranger {
                stranger.bytes += rest * seconds / FLOWS as f64;
                for flow in stranger.flows {
                    server.measured(now, Counted { flow, bytes: stranger.bytes as u64 });
                }
            }
        }
    }
}

/// The sum of what known flows have on a hop, without these.
fn ours(server: &FlowServer, hop: Hop, but: Option<&Stranger>) -> f64 {
    let estimates = server.estimates();
    let strangers = but.iter().flat_map(|stranger| stranger.flows).filter_map(|flow| estimates.rate(flow));
    (estimates.load(hop).bytes() - strangers.map(|rate| rate.bytes()).sum::<f64>()).max(0.0)
}

fn begin(
    now: Mono,
    place: Place,
    hop: Hop,
    server: &mut FlowServer,
    out: &mut Vec<Command>,
) -> Option<Stranger> {
    let noticed = Background { source: place, target: place, path: Path(vec![hop]), bytes: None };
    let mut told = Vec::new();
    server.step(now, [(); FLOWS].map(|()| Event::Noticed(Request(0), noticed.clone())), &mut told);
    let mut flows = Vec::with_capacity(FLOWS);
    for command in told {
        match command {
            Command::Numbered(_, flow) => flows.extend(flow),
            other => out.push(other),
        }
    }
    Some(Stranger { flows: flows.try_into().ok()?, bytes: 0.0 })
}
