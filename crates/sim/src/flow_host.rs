//! The flow server's host. It keeps nothing: after a crash it knows what data servers tell it.

use crate::cluster::{FLOW, Hosts, Role};
use crate::network::{HostId, Way};
use crate::post::Post;
use crate::world::{Happening, World};
use bearing_flow::{Adviser, Options, Replanning, Said, Say};
use bearing_proto::flow::{FlowBody, FlowCall, FlowReply};
use bearing_proto::{Message, Sender};
use bearing_routing::SELECTIONS;
use bearing_types::ServerId;
use bearing_workload::Seeded;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// See the module.
pub struct FlowHost {
    host: HostId,
    hosts: Hosts,
    adviser: Option<Adviser>,
    post: Post,
    rng: Seeded,
    wake_at: Option<crate::clock::Instantly>,
}

/// Where a host is, as far as addresses say it.
pub fn address_of(host: HostId) -> IpAddr {
    IpAddr::from([10, 0, 0, host.0])
}

impl FlowHost {
    /// A host that is down.
    pub fn new(host: HostId, hosts: Hosts, rng: Seeded) -> FlowHost {
        assert_eq!(hosts.role(host), Role::Flow);
        let post = Post::new(host, Sender::Server(FLOW));
        FlowHost { host, hosts, adviser: None, post, rng, wake_at: None }
    }

    /// Starts with nothing.
    pub fn start(&mut self, world: &mut World) {
        world.toggle(self.host);
        let options = Options {
            selection: SELECTIONS[0],
            poll_interval: Duration::from_millis(200),
            replanning: Replanning::Off,
            seed: self.rng.next(),
        };
        let now = world.clock_of(self.host).mono;
        let mut adviser =
            Adviser::new(now, None, options).expect("a network of nobody's making is a network");
        let servers: BTreeMap<ServerId, IpAddr> = self
            .hosts
            .data()
            .filter_map(|host| Some((self.hosts.entry(host)?.server, address_of(host))))
            .collect();
        adviser.step(now, Said::Servers(servers), &mut Vec::new());
        self.adviser = Some(adviser);
    }

    /// The host dies with all that it believed.
    pub fn crash(&mut self, world: &mut World) {
        world.toggle(self.host);
        self.adviser = None;
        self.post = Post::new(self.host, Sender::Server(FLOW));
        self.wake_at = None;
    }

    /// A packet arrived.
    pub fn arrive(&mut self, world: &mut World, from: HostId, way: Way, bytes: &[u8]) {
        let Some(packet) = self.post.open(world, way, bytes) else { return };
        for message in packet.messages {
            match (message, packet.sender) {
                (Message::Flow(request), sender) => {
                    if matches!(request.call, FlowCall::Ended { .. }) {
                        world.counts.add("flow: reads ended");
                    }
                    self.step(world, Said::Asked(sender, address_of(from), request));
                }
                (Message::DataReply(reply), Sender::Server(server)) => {
                    self.step(world, Said::Counters(server, reply));
                }
                _ => {}
            }
        }
        self.finish_step(world);
    }

    /// The machine wanted to be woken now.
    pub fn wake(&mut self, world: &mut World) {
        if self.wake_at == Some(world.now()) {
            self.wake_at = None;
            self.step(world, Said::Tick);
            self.finish_step(world);
        }
    }

    fn step(&mut self, world: &mut World, said: Said) {
        let now = world.clock_of(self.host).mono;
        let mut out = Vec::new();
        let Some(adviser) = &mut self.adviser else { return };
        let before = adviser.flows();
        adviser.step(now, said.clone(), &mut out);
        if matches!(said, Said::Counters(..)) && adviser.flows() > before {
            world.counts.add("flow: flows taken up from counters");
        }
        for say in out {
            match say {
                Say::Ask(server, request) => {
                    let Some(host) = self.hosts.host_of(server) else { continue };
                    let message = Message::Data(request);
                    self.post.send(world, host, Sender::Server(server), Way::Datagram, &message, &[]);
                }
                Say::Answer(to, reply) => {
                    if let FlowReply { result: Ok(FlowBody::Plan { parts }), .. } = &reply {
                        world.counts.add(match parts.len() {
                            1 => "flow: reads planned from one replica",
                            _ => "flow: reads planned from several replicas",
                        });
                    }
                    let Some(host) = world.host_of_sender(self.hosts, to) else { continue };
                    self.post.answer(world, host, to, &Message::FlowReply(reply), &[]);
                }
            }
        }
    }

    fn finish_step(&mut self, world: &mut World) {
        self.post.flush(world);
        let Some(due) = self.adviser.as_ref().and_then(Adviser::next_wake) else { return };
        let at = world.when(self.host, due);
        if self.wake_at.is_none_or(|set| at < set) {
            self.wake_at = Some(at);
            let life = world.life(self.host);
            world.at(at, Happening::Wake(self.host, life));
        }
    }
}
