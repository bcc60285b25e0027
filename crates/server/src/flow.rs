//! The flow server's daemon: the adviser between its socket and the data servers.

use crate::StartError;
use crate::cluster::DaemonName;
use crate::config::DaemonConfig;
use crate::metrics::{self, Page, Requests};
use crate::post::Post;
use crate::shell::{self, Driver};
use crate::topology_file;
use bearing_env::{Clock, random_u64};
use bearing_flow::{Adviser, Options, Replanning, Said, Say};
use bearing_proto::client::ServerKind;
use bearing_proto::kinds::FlowKind;
use bearing_proto::{Message, Sender};
use bearing_types::{Mono, Now, ServerId, Squash};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How often each data server is asked what it has sent, while anything is read. The paper says 1 s in one
/// place and 3 s in another (section IV.B, VI).
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the flow server until it is told to stop.
pub fn run_flow(config: DaemonConfig) -> Result<(), StartError> {
    shell::run(config, |config, _, _| {
        let limits = &config.flow;
        let network = limits
            .topology
            .as_ref()
            .map(|file| topology_file::read_network(&config.directory.join(file)))
            .transpose()?;
        match &network {
            Some(network) => tracing::info!(
                "the network has {} hosts, {} of them with addresses",
                network.described.hosts.len(),
                network.addresses.len()
            ),
            None => tracing::info!("no topology file is given: data servers' counters alone decide"),
        }
        let options = Options {
            selection: limits.selection,
            poll_interval: POLL_INTERVAL,
            replanning: Replanning::Off,
            seed: random_u64(),
        };
        let adviser = Adviser::new(Clock.mono(), network, options)
            .map_err(|error| StartError::Refused(format!("the topology cannot be used: {error}")))?;
        Ok(Counsel {
            adviser,
            said: Vec::new(),
            out: Vec::new(),
            heard: (Sender::Nobody, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            servers: BTreeMap::new(),
            questions: Requests::new(FlowKind::ALL.iter().map(|kind| kind.name()).collect()),
        })
    })
}

struct Counsel {
    adviser: Adviser,
    said: Vec<Said>,
    out: Vec<Say>,
    /// Who sent what is taken next, and from where.
    heard: (Sender, IpAddr),
    servers: BTreeMap<ServerId, IpAddr>,
    questions: Requests,
}

impl Driver for Counsel {
    fn hear(&mut self, sender: Sender, from: IpAddr) {
        self.heard = (sender, from);
    }

    fn take(&mut self, sender: Sender, _squash: Squash, messages: Vec<Message>, _attachment: Vec<u8>) {
        let from = if self.heard.0 == sender { self.heard.1 } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        for message in messages {
            match (message, sender) {
                (Message::Flow(request), _) => {
                    let asked = (metrics::number_of(sender), request.id);
                    self.questions.begin(Clock.mono(), asked, request.call.kind() as usize);
                    self.said.push(Said::Asked(sender, from, request));
                }
                (Message::DataReply(reply), Sender::Server(server)) => {
                    self.said.push(Said::Counters(server, reply));
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self, now: Now, post: &mut Post) -> Result<(), StartError> {
        let is_data = |server: &ServerId| DaemonName::of(*server).kind == ServerKind::Data;
        let servers: BTreeMap<ServerId, IpAddr> =
            post.addresses().filter(|(server, _)| is_data(server)).map(|(id, at)| (id, at.ip())).collect();
        if servers != self.servers {
            self.servers.clone_from(&servers);
            self.adviser.step(now.mono, Said::Servers(servers), &mut self.out);
        }
        for said in self.said.drain(..) {
            self.adviser.step(now.mono, said, &mut self.out);
        }
        if self.adviser.next_wake().is_some_and(|wake| wake <= now.mono) {
            self.adviser.step(now.mono, Said::Tick, &mut self.out);
        }
        for say in self.out.drain(..) {
            match say {
                Say::Ask(server, request) => post.to_server(server, &Message::Data(request), None),
                Say::Answer(to, reply) => {
                    self.questions.end(Clock.mono(), (metrics::number_of(to), reply.id));
                    post.answer(to, &Message::FlowReply(reply), None);
                }
            }
        }
        Ok(())
    }

    fn next_wake(&self) -> Option<Mono> {
        self.adviser.next_wake()
    }

    fn is_serving(&self) -> bool {
        true
    }

    fn show(&mut self, _now: Mono, page: &mut Page) {
        self.questions.show(page, &metrics::FLOW_QUESTIONS, &metrics::FLOW_QUESTION_SECONDS);
        page.level(&metrics::FLOWS, [], self.adviser.flows() as f64);
    }

    // What it believes carries no times of day.
    fn set_clock_off(&mut self, _off: bool) {}

    fn stop(&mut self) -> Result<(), StartError> {
        Ok(())
    }
}
