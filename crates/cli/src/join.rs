//! `token` and `join`: a host comes to a cluster by a one-time token, and nobody copies files.

use crate::ask;
use crate::failure::{Unreachable, Usage};
use crate::init::{Host, say_how_to_start};
use crate::target::Directory;
use crate::voice::say;
use anyhow::{Context, Result, anyhow, bail};
use bearing_env::handshake::{Initiator, Outcome, Sealing};
use bearing_env::{Clock, Destination, Endpoint, Incoming, Secret, Transport, random_u64};
use bearing_proto::coordinator::{AskCall, EnrolmentRecord, TellBody, encode_register, enrolment_key};
use bearing_proto::enrolment::{Enrolment, EnrolmentName};
use bearing_proto::envelope::{self, Stamp, Start, Versions};
use bearing_proto::freshness::Sending;
use bearing_proto::hello::HelloRefusal;
use bearing_proto::join::{Join, Joined, TOKEN_PREFIX, Token, Welcome};
use bearing_proto::keys::{Key, ServerKeys, joining_key};
use bearing_proto::ticket::Agreed;
use bearing_proto::{Message, Sender};
use bearing_server::cluster::{Cluster, Layout};
use bearing_server::{init, joined};
use bearing_types::{Mono, Squash};
use clap::Args;
use std::net::SocketAddr;
use std::time::Duration;

/// How long each server is asked.
const PATIENCE: Duration = Duration::from_secs(5);
/// What was not answered by then is sent again.
const AGAIN: Duration = Duration::from_millis(500);

const TOKEN_EXAMPLES: &str = "\
Examples:
  bearing token --dir /var/lib/bearing
  bearing join 'bearing-join-1:...' --dir /var/lib/bearing --address 10.0.0.2   on the new host

A token is good for one `bearing join`, for 24 hours. Whoever has it gets the keys of the cluster by it.";

/// `token`.
#[derive(Args, Clone, Debug)]
#[command(after_help = TOKEN_EXAMPLES)]
pub struct MakeToken {
    /// Where the cluster lies
    #[command(flatten)]
    pub directory: Directory,
}

/// `join`.
#[derive(Args, Clone, Debug)]
#[command(after_help = TOKEN_EXAMPLES)]
pub struct JoinHost {
    /// The token, made by `bearing token` on a host of the cluster
    pub token: String,
    /// Where the cluster is to lie on this host
    #[command(flatten)]
    pub directory: Directory,
    /// The servers of this host
    #[command(flatten)]
    pub host: Host,
}

/// Runs `token`.
pub fn make_token(flags: &MakeToken) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = Cluster::read(&layout.cluster_file())?;
    let name = EnrolmentName::new(&format!("{TOKEN_PREFIX}{:016x}", random_u64()));
    let name = name.context("draw the name of a token")?;
    let record = EnrolmentRecord { squash: Squash::None, made: Clock.now().wall, revoked: None };
    let call = AskCall::swap(enrolment_key(&name), None, Some(encode_register(&record)));
    match ask::ask_registers(&layout, &cluster, call, PATIENCE) {
        Ok(TellBody::Swapped(_)) => {}
        Ok(other) => bail!("the coordinator answered {other:?} to a new token"),
        Err(error) => {
            return Err(Unreachable(format!("{error:#}; the cluster has to run to make a token")).into());
        }
    }
    let key = |path| Secret::read(path).map(|secret| Key::new(*secret.bytes()));
    let keys = ServerKeys::new(&key(&layout.cluster_key())?, key(&layout.enrolment_key())?);
    let secret = keys.enrolment(&name, Squash::None);
    let enrolment = Enrolment { name, squash: Squash::None, secret };
    let servers = ask::current(&layout, &cluster, PATIENCE).metadata_addresses();
    Ok(say!("{}", Token { enrolment, servers }.to_text())?)
}

/// Runs `join`.
pub fn join(flags: &JoinHost) -> Result<()> {
    let token = Token::parse(&flags.token)
        .map_err(|error| anyhow!(Usage(format!("this is no token: {error}; `bearing token` makes one"))))?;
    let layout = flags.directory.layout()?;
    joined::check_free(&layout)?;
    let Host { address, listen, port_base, metadata, data } = flags.host;
    // That they are free here is known before the token is used. The first is a coordinator's.
    let first = port_base.saturating_add(1);
    let addresses = init::choose_addresses(address, (metadata + data) as usize, Some(first))?;
    let (metadata, data) = addresses.split_at(metadata as usize);
    let join = Join { id: random_u64(), metadata: metadata.to_vec(), data: data.to_vec() };
    let welcome = ask_each(&token, &join)?;
    finish(&layout, &welcome, listen)
}

fn finish(layout: &Layout, welcome: &Welcome, listen: Option<std::net::IpAddr>) -> Result<()> {
    let names = joined::write(layout, welcome, listen)?;
    let said: Vec<String> = names.iter().map(ToString::to_string).collect();
    say!("this host has joined with {}; its files are in {}", said.join(", "), layout.root().display())?;
    say_how_to_start(layout, &names)
}

fn ask_each(token: &Token, join: &Join) -> Result<Welcome> {
    let mut last = anyhow!(Usage("the token names no server".to_owned()));
    for server in &token.servers {
        match Asking::new(*server)?.ask(token, join) {
            Ok(welcome) => return Ok(welcome),
            Err(Failure::Refused(why)) => bail!("{server} does not let this host join: {why}"),
            Err(Failure::Silent(error)) => last = anyhow!(Unreachable(format!("{error:#}"))),
        }
    }
    Err(last)
}

enum Failure {
    /// Another server would say the same.
    Refused(String),
    /// Another one may answer.
    Silent(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Silent(error)
    }
}

struct Asking {
    endpoint: Endpoint,
    server: SocketAddr,
    deadline: Mono,
}

impl Asking {
    fn new(server: SocketAddr) -> Result<Asking> {
        Ok(Asking { endpoint: Endpoint::client()?, server, deadline: Clock.mono().after(PATIENCE) })
    }

    /// Sends, and gives what comes within a while.
    fn exchange(&mut self, transport: Transport, packet: &[u8]) -> Result<Vec<Incoming>> {
        self.endpoint.send(Destination::Address(self.server), transport, packet).context("send")?;
        self.endpoint.flush().context("send")?;
        let (mut incoming, until) = (Vec::new(), Clock.mono().after(AGAIN).min(self.deadline));
        while incoming.is_empty() && Clock.mono() < until {
            self.endpoint
                .receive(Some(until.since(Clock.mono())), &mut incoming)
                .context("wait for an answer")?;
        }
        Ok(incoming)
    }

    fn ask(mut self, token: &Token, join: &Join) -> Result<Welcome, Failure> {
        let agreed = self.shake_hands(&token.enrolment)?;
        let key = Key::new(agreed.secret);
        let mut sending = Sending::default();
        sending.learn(self.server, agreed.start, agreed.version);
        while Clock.mono() < self.deadline {
            let next = sending.next(self.server).context("stamp a packet")?;
            let (version, counter, to) = (next.version, next.counter, next.to.0);
            let sender = Sender::Client(agreed.session);
            let stamp = Stamp { version, sender, counter, from: Start::NONE, to, ticket: &agreed.ticket };
            let packet = envelope::seal(&stamp, Some(&key), Some(&Message::Join(join.clone())), &[]);
            // By stream, because the answer may be long.
            for incoming in self.exchange(Transport::Stream, &packet)? {
                let Ok(packet) = envelope::open(&incoming.bytes, Some(&key)) else { continue };
                for message in packet.messages {
                    match message {
                        Message::Joined(Joined { id, result }) if id == join.id => {
                            return open(&key, result);
                        }
                        Message::Refused(refusal) => return Err(Failure::Refused(format!("{refusal:?}"))),
                        _ => {}
                    }
                }
            }
        }
        Err(anyhow!("{} does not answer", self.server).into())
    }

    fn shake_hands(&mut self, enrolment: &Enrolment) -> Result<Agreed, Failure> {
        let mut cookie = None;
        while Clock.mono() < self.deadline {
            let mut initiator = Initiator::new(enrolment, Versions::SPOKEN, cookie);
            let hello = initiator.hello().to_vec();
            for incoming in self.exchange(Transport::Datagram, &hello)? {
                match initiator.take(&incoming.bytes) {
                    Outcome::Nothing => {}
                    Outcome::Agreed(agreed) => return Ok(*agreed),
                    Outcome::Cookie(given) => cookie = Some(given),
                    Outcome::Refused(HelloRefusal::Secret, _) => {
                        return Err(Failure::Refused("the token is one of another cluster".to_owned()));
                    }
                    Outcome::Refused(HelloRefusal::Revoked, _) => {
                        let used = "the token was used before; make another with `bearing token`";
                        return Err(Failure::Refused(used.to_owned()));
                    }
                    Outcome::Refused(HelloRefusal::Version, versions) => {
                        return Err(Failure::Refused(format!(
                            "it speaks protocol version {versions}, this program {}; use the same release",
                            Versions::SPOKEN
                        )));
                    }
                }
            }
        }
        Err(anyhow!("{} does not answer", self.server).into())
    }
}

fn open(key: &Key, result: Result<Vec<u8>, String>) -> Result<Welcome, Failure> {
    let sealed = result.map_err(Failure::Refused)?;
    let opened = Sealing::new(&joining_key(key)).open(&sealed);
    let welcome = opened.and_then(|bytes| Welcome::decode(&bytes));
    Ok(welcome.context("read the cluster's answer")?)
}
