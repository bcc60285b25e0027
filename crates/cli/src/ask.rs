//! Asks servers of a cluster on this machine what `status` needs: the coordinator for its registers, metadata
//! servers for their sessions.

use anyhow::{Context, Result, anyhow, bail};
use bearing_env::{Clock, Destination, Endpoint, Secret, Transport, random_u64};
use bearing_placement::Tablet;
use bearing_proto::client::{ServerEntry, ServerKind};
use bearing_proto::coordinator::{
    Ask, AskCall, RegisterChanges, SERVER_PREFIX, TABLET_PREFIX, TellBody, Told, decode_register,
};
use bearing_proto::envelope::{self, Refusal, Stamp, Start};
use bearing_proto::freshness::{Next, Sending};
use bearing_proto::keys::{Key, ServerKeys};
use bearing_proto::{Message, Sender};
use bearing_server::cluster::{Cluster, DaemonName, Layout, Member};
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

/// The cluster with the servers that are registered now; as its file has it if nobody says.
pub fn current(layout: &Layout, cluster: &Cluster, patience: Duration) -> Cluster {
    let call = AskCall::Changes { prefix: SERVER_PREFIX.to_owned(), since: 0 };
    let Ok(TellBody::Registers(RegisterChanges { present, .. })) =
        ask_registers(layout, cluster, call, patience)
    else {
        return cluster.clone();
    };
    let entries = present.iter().filter_map(|register| decode_register::<ServerEntry>(&register.value).ok());
    let (mut metadata, mut data) = (Vec::new(), Vec::new());
    for entry in entries {
        let member = Member { number: DaemonName::of(entry.server).number, address: entry.address };
        match entry.kind {
            ServerKind::Metadata => metadata.push(member),
            ServerKind::Data => data.push(member),
            ServerKind::Coordinator | ServerKind::Flow => {}
        }
    }
    Cluster { metadata, data, ..cluster.clone() }
}

/// Which of these servers answer a greeting.
pub fn who_answers(layout: &Layout, servers: &[SocketAddr], patience: Duration) -> Vec<bool> {
    std::thread::scope(|scope| {
        let greet = |server: &SocketAddr| {
            let server = *server;
            scope.spawn(move || Asking::new(layout, server, None)?.ask(patience).map(drop))
        };
        let threads: Vec<_> = servers.iter().map(greet).collect();
        threads.into_iter().map(|thread| thread.join().expect("asking does not panic").is_ok()).collect()
    })
}

/// The register of a tablet.
pub fn postcard_tablet(bytes: &[u8]) -> Result<Tablet> {
    decode_register(bytes).map_err(|error| anyhow!("a tablet's register {error}"))
}

/// Asks a server one thing, signing as servers do.
pub fn ask(layout: &Layout, server: SocketAddr, call: AskCall, patience: Duration) -> Result<TellBody> {
    let question = Ask { id: random_u64(), call };
    let told = Asking::new(layout, server, Some(question))?.ask(patience)?;
    told.context("a question is answered")
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
    /// None: only whether it answers.
    question: Option<Ask>,
}

/// What came of a packet.
enum Heard {
    Nothing,
    Welcome,
    Told(TellBody),
}

impl Asking {
    fn new(layout: &Layout, server: SocketAddr, question: Option<Ask>) -> Result<Asking> {
        let key = |path| Secret::read(path).map(|secret| Key::new(*secret.bytes()));
        let keys = ServerKeys::new(&key(&layout.cluster_key())?, key(&layout.enrolment_key())?);
        let (start, sending) = (Start(random_u64() | 1), Sending::default());
        Ok(Asking { keys, start, sending, endpoint: Endpoint::client()?, server, question })
    }

    /// The answer, or nothing if only a greeting was to be answered.
    fn ask(mut self, patience: Duration) -> Result<Option<TellBody>> {
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
                match self.take(&packet.bytes)? {
                    Heard::Told(answer) => return Ok(Some(answer)),
                    Heard::Welcome if self.question.is_none() => return Ok(None),
                    Heard::Welcome | Heard::Nothing => {}
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

    fn take(&mut self, bytes: &[u8]) -> Result<Heard> {
        let packet = envelope::open(bytes, Some(self.keys.packets()))?;
        let header = packet.header;
        for message in packet.messages {
            match message {
                Message::Welcome { versions } if header.counter == 0 => {
                    self.sending.welcomed(self.server, header.to, header.from, versions);
                    let next = self.sending.next(self.server);
                    if let (Some(next), Some(question)) = (next, self.question.clone()) {
                        self.send(next, Some(&Message::Ask(question)))?;
                    }
                    return Ok(Heard::Welcome);
                }
                Message::Told(Told { id, result })
                    if self.question.as_ref().is_some_and(|question| question.id == id) =>
                {
                    return result.map(Heard::Told).map_err(|error| anyhow!(error));
                }
                Message::Refused(Refusal::Unauthenticated) => {
                    bail!("{} refuses: the cluster key here is another one than its own", self.server)
                }
                Message::Refused(refusal) => bail!("{} refuses: {refusal:?}", self.server),
                _ => {}
            }
        }
        Ok(Heard::Nothing)
    }
}
