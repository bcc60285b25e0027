//! Asks servers of a cluster on this machine what `status` needs: the coordinator for its registers, metadata servers for their sessions.

use anyhow::{Context, Result, anyhow, bail};
use bearing_env::{Clock, Destination, Endpoint, Secret, Transport, random_u64};
use bearing_placement::Tablet;
use bearing_proto::coordinator::{Ask, AskCall, TABLET_PREFIX, TellBody, Told, decode_register};
use bearing_proto::envelope::{self, Packing};
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
    let call = AskCall::List { prefix: TABLET_PREFIX.to_owned(), since: None };
    match ask(layout, cluster.coordinator, call, patience).context("ask the coordinator")? {
        TellBody::Registers(version, Some(registers)) => {
            let tablets =
                registers.iter().map(|register| postcard_tablet(&register.value)).collect::<Result<_>>()?;
            Ok((version, tablets))
        }
        other => bail!("the coordinator answered {other:?} to a listing"),
    }
}

fn postcard_tablet(bytes: &[u8]) -> Result<Tablet> {
    decode_register(bytes).map_err(|error| anyhow!("a tablet's register {error}"))
}

/// Asks a server, signing as servers do.
pub fn ask(layout: &Layout, server: SocketAddr, call: AskCall, patience: Duration) -> Result<TellBody> {
    let key = |path| Secret::read(path).map(|secret| Key::new(*secret.bytes()));
    let keys = ServerKeys::new(&key(&layout.cluster_key())?, key(&layout.enrolment_key())?);
    let mut endpoint = Endpoint::client()?;
    let id = random_u64();
    let mut packing = Packing::new();
    packing.push(&Message::Ask(Ask { id, call }), envelope::PACKET_BYTES_MAX);
    let packet = packing.seal(Sender::Server(OWN_ID), Some(keys.packets()), &[]);
    // By stream, because the answer may be long.
    let to = Destination::Address(server);
    endpoint.send(to, Transport::Stream, &packet).context("send")?;
    let deadline = Clock.mono().after(patience);
    let (mut incoming, mut failures) = (Vec::new(), Vec::new());
    while Clock.mono() < deadline {
        endpoint.receive(Some(deadline.since(Clock.mono())), &mut incoming).context("wait for an answer")?;
        for packet in incoming.drain(..) {
            let messages = match envelope::sender(&packet.bytes) {
                Ok(Sender::Nobody) => envelope::open(&packet.bytes, None),
                _ => envelope::open(&packet.bytes, Some(keys.packets())),
            };
            for message in messages.map(|packet| packet.messages)? {
                match message {
                    Message::Told(Told { id: answered, result }) if answered == id => {
                        return result.map_err(|error| anyhow!(error));
                    }
                    Message::Refused(refusal) => bail!("{server} refuses: {refusal:?}"),
                    _ => {}
                }
            }
        }
        endpoint.take_failures(&mut failures);
        if !failures.is_empty() {
            break;
        }
    }
    bail!("{server} does not answer")
}
