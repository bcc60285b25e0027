//! Asks servers of a cluster on this machine what `status` needs: the coordinator for its registers, metadata
//! servers for their sessions.

use anyhow::{Context, Result, anyhow, bail};
use bearing_env::{Clock, Destination, Endpoint, Secret, Transport, random_u64};
use bearing_placement::Tablet;
use bearing_proto::coordinator::{
    Ask, AskCall, RegisterChanges, TABLET_PREFIX, TellBody, Told, decode_register,
};
use bearing_proto::envelope::{self, Refusal, Stamp, Start};
use bearing_proto::freshness::{Next, Sending};
use bearing_proto::keys::{Key, ServerKeys};
use bearing_proto::{Message, Sender};
use bearing_server::cluster::{Cluster, Layout};
use bearing_types::ServerId;
use std::net::SocketAddr;
use std::time::Duration;

/// Nobody's id among servers: the command line's.
const OWN_ID: ServerId = ServerId(u32::MAX);

/// The tablets as the coordinator has them, with the version of the map.
pub fn tablets(layout: &Layout, cluster: &Cluster, patience: Duration) -> Result<(u64, Vec<Tablet>)> {
    let call = AskCall::Changes { prefix: TABLET_PREFIX.to_owned(), since: 0 };
    match ask_registers(layout, cluster, call, patience)? {
        TellBody::Registers(RegisterChanges { version, present, .. }) => {
            let tablets =
                present.iter().map(|register| postcard_tablet(&register.value)).collect::<Result<_>>()?;
            Ok((version, tablets))
        }
        other => bail!("the coordinator answered {other:?} to a listing"),
    }
}

/// Asks for registers, or changes them: through the coordinator, or through any metadata server if they are
/// in etcd.
pub fn ask_registers(
    layout: &Layout,
    cluster: &Cluster,
    call: AskCall,
    patience: Duration,
) -> Result<TellBody> {
    let mut last = Err(anyhow!("the cluster has no coordinator"));
    for server in cluster.registrars() {
        last = ask(layout, server, call.clone(), patience);
        if last.is_ok() {
            break;
        }
    }
    last.context(match cluster.coordinator {
        Some(_) => "ask the coordinator",
        None => "ask etcd through the metadata servers (if `bearing status` says that they serve, look at etcd's members)",
    })
}

/// The register of a tablet.
pub fn postcard_tablet(bytes: &[u8]) -> Result<Tablet> {
    decode_register(bytes).map_err(|error| anyhow!("a tablet's register {error}"))
}

/// Asks a server one thing, signing as servers do.
pub fn ask(layout: &Layout, server: SocketAddr, call: AskCall, patience: Duration) -> Result<TellBody> {
    let key = |path| Secret::read(path).map(|secret| Key::new(*secret.bytes()));
    let keys = ServerKeys::new(&key(&layout.cluster_key())?, key(&layout.enrolment_key())?);
    Asking {
        keys,
        start: Start(random_u64() | 1),
        sending: Sending::default(),
        endpoint: Endpoint::client()?,
        server,
        question: Ask { id: random_u64(), call },
    }
    .ask(patience)
}

/// Asks several servers the same at the same time. The answers are in their order.
pub fn each(
    layout: &Layout,
    servers: &[SocketAddr],
    call: &AskCall,
    patience: Duration,
) -> Vec<Result<TellBody>> {
    std::thread::scope(|scope| {
        let asking = |server: &SocketAddr| {
            let server = *server;
            scope.spawn(move || ask(layout, server, call.clone(), patience))
        };
        let threads: Vec<_> = servers.iter().map(asking).collect();
        threads.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
    })
}

struct Asking {
    keys: ServerKeys,
    start: Start,
    sending: Sending<SocketAddr>,
    endpoint: Endpoint,
    server: SocketAddr,
    question: Ask,
}

impl Asking {
    fn ask(mut self, patience: Duration) -> Result<TellBody> {
        // A server takes only packets that name its start: the greeting learns it.
        let greeting = self.sending.greet(self.server);
        self.send(greeting, None)?;
        let deadline = Clock.mono().after(patience);
        let (mut incoming, mut failures) = (Vec::new(), Vec::new());
        while Clock.mono() < deadline && failures.is_empty() {
            self.endpoint
                .receive(Some(deadline.since(Clock.mono())), &mut incoming)
                .context("wait for an answer")?;
            for packet in incoming.drain(..) {
                if let Some(answer) = self.take(&packet.bytes)? {
                    return Ok(answer);
                }
            }
            self.endpoint.take_failures(&mut failures);
        }
        bail!("{} does not answer", self.server)
    }

    fn send(&mut self, next: Next, message: Option<&Message>) -> Result<()> {
        let sender = Sender::Server(OWN_ID);
        let (version, counter, to) = (next.version, next.counter, next.to.0);
        let stamp = Stamp { version, sender, counter, from: self.start, to, ticket: &[] };
        let packet = envelope::seal(&stamp, Some(self.keys.packets()), message, &[]);
        // By stream, because the answer may be long.
        let to = Destination::Address(self.server);
        self.endpoint.send(to, Transport::Stream, &packet).context("send")
    }

    fn take(&mut self, bytes: &[u8]) -> Result<Option<TellBody>> {
        let packet = envelope::open(bytes, Some(self.keys.packets()))?;
        let header = packet.header;
        for message in packet.messages {
            match message {
                Message::Welcome { versions } if header.counter == 0 => {
                    self.sending.welcomed(self.server, header.to, header.from, versions);
                    if let Some(next) = self.sending.next(self.server) {
                        let question = Message::Ask(self.question.clone());
                        self.send(next, Some(&question))?;
                    }
                }
                Message::Told(Told { id, result }) if id == self.question.id => {
                    return result.map(Some).map_err(|error| anyhow!(error));
                }
                Message::Refused(Refusal::Unauthenticated) => {
                    bail!("{} refuses: the cluster key here is another one than its own", self.server)
                }
                Message::Refused(refusal) => bail!("{} refuses: {refusal:?}", self.server),
                _ => {}
            }
        }
        Ok(None)
    }
}
