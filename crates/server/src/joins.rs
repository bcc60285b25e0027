//! Hosts that join: a metadata server takes their tokens, has their servers registered, and tells them what a
//! server has to know.
//!
//! A token is an enrolment that is revoked by the very swap that registers the servers: so it is good once,
//! whichever servers it is shown to. Who was answered is answered the same again.

use crate::cluster::{COORDINATOR, Cluster, DaemonName, Member};
use crate::config::DaemonConfig;
use crate::contacts::JOIN_ASKS;
use crate::members::Members;
use crate::post::Post;
use bearing_env::handshake::Sealing;
use bearing_env::{Secret, random_u64};
use bearing_proto::Message;
use bearing_proto::client::{ServerEntry, ServerKind};
use bearing_proto::coordinator::{
    Ask, AskCall, EnrolmentRecord, Register, RegisterChanges, SERVERS_PREFIX, TellBody, Told,
    decode_register, encode_register, enrolment_key, server_key,
};
use bearing_proto::enrolment::EnrolmentName;
use bearing_proto::join::{EtcdAccess, Join, Joined, SERVERS_MAX, TOKEN_LIFE, Welcome};
use bearing_proto::keys::{Key, joining_key};
use bearing_seams::RegisterChange;
use bearing_types::{Mono, Now, SessionId};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// So many hosts at a time; of more, the first is forgotten.
const JOINS_MAX: usize = 64;
/// A question to the coordinator is asked again after so long.
const REPEAT: Duration = Duration::from_millis(400);

/// A host that joins.
struct Joining {
    session: SessionId,
    key: Key,
    token: EnrolmentName,
    join: Join,
    step: Step,
    due: Mono,
}

enum Step {
    /// Is the token good?
    Token(u64),
    /// Which servers are there?
    Servers {
        ask: u64,
        token: Register,
    },
    /// Take the token, register the servers.
    Swap {
        ask: u64,
        call: AskCall,
        entries: Vec<ServerEntry>,
    },
    Answered(Joined),
}

/// See the module.
pub struct Joins {
    number: u64,
    joins: Vec<Joining>,
    /// All servers that were listed last, for `cluster.toml`.
    listed: Members,
}

impl Joins {
    /// Nobody joins yet.
    pub fn new() -> Joins {
        Joins { number: random_u64() >> 2 | JOIN_ASKS, joins: Vec::new(), listed: Members::default() }
    }

    /// When [`Joins::turn`] is due.
    pub fn next_wake(&self) -> Option<Mono> {
        let open = self.joins.iter().filter(|joining| !matches!(joining.step, Step::Answered(_)));
        open.map(|joining| joining.due).min()
    }

    /// Takes a question of a host that showed a token.
    pub fn take(&mut self, session: SessionId, join: Join, post: &mut Post) {
        if let Some(known) = self.joins.iter().find(|joining| joining.session == session) {
            if let Step::Answered(joined) = &known.step {
                post.to_session(session, &Message::Joined(joined.clone()), None);
            }
            return;
        }
        let Some((token, secret)) = post.token_of(session) else { return };
        let key = joining_key(secret);
        let token = token.clone();
        if self.joins.len() >= JOINS_MAX {
            self.joins.remove(0);
        }
        let step = Step::Token(self.next_number());
        self.joins.push(Joining { session, key, token, join, step, due: Mono::ZERO });
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Asks what is due.
    pub fn turn(&mut self, now: Mono, post: &mut Post) {
        for joining in &mut self.joins {
            let (id, call) = match &joining.step {
                Step::Token(ask) => (*ask, AskCall::Read { key: enrolment_key(&joining.token) }),
                Step::Servers { ask, .. } => {
                    (*ask, AskCall::Changes { prefix: SERVERS_PREFIX.to_owned(), since: 0 })
                }
                Step::Swap { ask, call, .. } => (*ask, call.clone()),
                Step::Answered(_) => continue,
            };
            if now >= joining.due {
                joining.due = now.after(REPEAT);
                post.to_server(COORDINATOR, &Message::Ask(Ask { id, call }), None);
            }
        }
    }

    /// Takes an answer of the coordinator; says whether it was one to these questions.
    pub fn on_told(&mut self, now: Now, told: &Told, config: &DaemonConfig, post: &mut Post) -> bool {
        let asked_in = |step: &Step| match step {
            Step::Token(ask) | Step::Servers { ask, .. } | Step::Swap { ask, .. } => Some(*ask),
            Step::Answered(_) => None,
        };
        let Some(at) = self.joins.iter().position(|joining| asked_in(&joining.step) == Some(told.id)) else {
            return told.id & crate::contacts::MACHINE_ASKS == 0 && told.id & JOIN_ASKS != 0;
        };
        let Ok(body) = &told.result else { return true };
        if *body == TellBody::Slow {
            return true;
        }
        let next = self.next(at, body, now, config);
        let joining = &mut self.joins[at];
        joining.due = Mono::ZERO;
        joining.step = next.unwrap_or_else(|complaint| {
            Step::Answered(Joined { id: joining.join.id, result: Err(complaint) })
        });
        if let Step::Answered(joined) = &joining.step {
            match &joined.result {
                Ok(_) => {
                    tracing::info!("a host joins with {}: it has {}", joining.token, named(&joining.join))
                }
                Err(complaint) => tracing::warn!("a host does not join with {}: {complaint}", joining.token),
            }
            post.to_session(joining.session, &Message::Joined(joined.clone()), None);
        }
        true
    }

    fn next(&mut self, at: usize, body: &TellBody, now: Now, config: &DaemonConfig) -> Result<Step, String> {
        let number = self.next_number();
        let joining = &self.joins[at];
        match (&joining.step, body) {
            (Step::Token(_), TellBody::Register(register)) => {
                let token = register.clone().ok_or("the cluster knows no such token")?;
                let record: EnrolmentRecord =
                    decode_register(&token.value).map_err(|error| format!("the token's register {error}"))?;
                if record.revoked.is_some() {
                    return Err("the token was used before; make another with `bearing token`".to_owned());
                }
                if now.wall > record.made.after(TOKEN_LIFE) {
                    let hours = TOKEN_LIFE.as_secs() / 3600;
                    return Err(format!(
                        "the token is older than {hours} h; make another with `bearing token`"
                    ));
                }
                Ok(Step::Servers { ask: number, token })
            }
            (Step::Servers { token, .. }, TellBody::Registers(RegisterChanges { present, .. })) => {
                let listed = Members::read(present).map_err(|error| error.to_string())?;
                let entries = allot(&listed, &joining.join)?;
                let mut record: EnrolmentRecord =
                    decode_register(&token.value).map_err(|error| error.to_string())?;
                record.revoked = Some(now.wall);
                let used = RegisterChange::new(
                    token.key.clone(),
                    Some(token.version),
                    Some(encode_register(&record)),
                );
                let register = |entry: &ServerEntry| {
                    RegisterChange::new(server_key(entry.server), None, Some(encode_register(entry)))
                };
                let changes = [used].into_iter().chain(entries.iter().map(register)).collect();
                self.listed = listed;
                Ok(Step::Swap { ask: number, call: AskCall::Swap { changes }, entries })
            }
            (Step::Swap { entries, .. }, TellBody::Swapped(_)) => {
                self.welcome(joining, entries.clone(), config)
            }
            // Somebody else joined meanwhile, or an earlier answer was lost.
            (Step::Swap { entries, .. }, TellBody::Conflict { present, .. }) => {
                let is_mine = |entry: &ServerEntry| {
                    let key = server_key(entry.server);
                    present.iter().any(|other| other.key == key && other.value == encode_register(entry))
                };
                match entries.iter().all(is_mine) && !entries.is_empty() {
                    true => self.welcome(joining, entries.clone(), config),
                    false => Ok(Step::Token(number)),
                }
            }
            (_, other) => Err(format!("the coordinator answered {other:?}")),
        }
    }

    fn welcome(
        &self,
        joining: &Joining,
        servers: Vec<ServerEntry>,
        config: &DaemonConfig,
    ) -> Result<Step, String> {
        let key =
            |path: &Path| Secret::read(path).map(|secret| *secret.bytes()).map_err(|error| error.to_string());
        let members = |kind| -> Vec<Member> {
            let all = self.listed.servers.iter().chain(&servers).filter(|entry| entry.kind == kind);
            all.map(|entry| Member { number: DaemonName::of(entry.server).number, address: entry.address })
                .collect()
        };
        let cluster = Cluster {
            metadata: members(ServerKind::Metadata),
            data: members(ServerKind::Data),
            ..config.cluster.clone()
        };
        let welcome = Welcome {
            cluster: toml::to_string(&cluster).map_err(|error| error.to_string())?,
            cluster_key: key(&config.layout.cluster_key())?,
            enrolment_key: key(&config.layout.enrolment_key())?,
            etcd: etcd_access(config)?,
            servers,
        };
        let sealed = Sealing::new(&joining.key).seal(&welcome.encode());
        Ok(Step::Answered(Joined { id: joining.join.id, result: Ok(sealed) }))
    }
}

fn named(join: &Join) -> String {
    let addresses = join.metadata.iter().chain(&join.data).map(SocketAddr::to_string);
    addresses.collect::<Vec<_>>().join(" ")
}

fn etcd_access(config: &DaemonConfig) -> Result<Option<EtcdAccess>, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let Some(members) = &config.etcd else { return Ok(None) };
    let tls = members.tls.as_ref();
    let identity = tls.and_then(|tls| tls.identity.as_ref());
    Ok(Some(EtcdAccess {
        endpoints: members.endpoints.clone(),
        authority: tls.map(|tls| read(&tls.authority)).transpose()?,
        identity: identity
            .map(|(certificate, key)| Ok::<_, String>((read(certificate)?, read(key)?)))
            .transpose()?,
    }))
}

/// Numbers for the servers of a host: after those that there are.
fn allot(members: &Members, join: &Join) -> Result<Vec<ServerEntry>, String> {
    let listed = &members.servers;
    if join.metadata.is_empty() && join.data.is_empty() {
        return Err("it brings no server; give --metadata or --data".to_owned());
    }
    if join.metadata.len() + join.data.len() > SERVERS_MAX.min(bearing_proto::coordinator::SWAP_MAX - 1) {
        return Err(format!("it brings more than {SERVERS_MAX} servers at once"));
    }
    // Servers send from where they listen.
    let family = |address: &SocketAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let all = join.metadata.iter().chain(&join.data);
    if let Some((ours, theirs)) =
        all.zip(listed.iter().cycle()).find(|(ours, theirs)| ours.is_ipv4() != theirs.address.is_ipv4())
    {
        let (name, known) = (DaemonName::of(theirs.server), theirs.address);
        return Err(format!(
            "{ours} is an address of {}, and {name} is reached at {known}: one cannot reach the other; give an address of {}",
            family(ours),
            family(&known)
        ));
    }
    let mut taken: BTreeMap<SocketAddr, String> =
        listed.iter().map(|entry| (entry.address, DaemonName::of(entry.server).to_string())).collect();
    let mut entries = Vec::new();
    for (kind, addresses) in [(ServerKind::Metadata, &join.metadata), (ServerKind::Data, &join.data)] {
        for (number, address) in (members.next_number(kind)..).zip(addresses) {
            let name = DaemonName { kind, number };
            if number >= crate::cluster::SERVERS_MAX {
                return Err(format!(
                    "there would be more than {} servers of a kind",
                    crate::cluster::SERVERS_MAX
                ));
            }
            if let Some(other) = taken.insert(*address, name.to_string()) {
                return Err(format!("{address} is {other}'s already; give another --address or --port-base"));
            }
            entries.push(ServerEntry { server: name.server(), kind, address: *address });
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::coordinator::DrainRecord;
    use bearing_types::Wall;

    fn entry(kind: ServerKind, number: u32, address: &str) -> ServerEntry {
        let server = DaemonName { kind, number }.server();
        ServerEntry { server, kind, address: address.parse().unwrap() }
    }

    fn join(metadata: &[&str], data: &[&str]) -> Join {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Join { id: 1, metadata: parse(metadata), data: parse(data) }
    }

    #[test]
    fn new_servers_are_numbered_after_those_of_their_kind_and_no_number_comes_back() {
        let servers = vec![
            entry(ServerKind::Metadata, 1, "10.0.0.1:1"),
            entry(ServerKind::Metadata, 4, "10.0.0.1:2"),
            entry(ServerKind::Data, 1, "10.0.0.1:3"),
        ];
        let removed = DaemonName { kind: ServerKind::Data, number: 2 }.server();
        let drains = vec![DrainRecord { server: removed, since: Wall(1), removed: Some(Wall(2)) }];
        let listed = Members { servers, drains };
        let allotted = allot(&listed, &join(&["10.0.0.2:1", "10.0.0.2:2"], &["10.0.0.2:3"])).unwrap();
        let expected = [
            entry(ServerKind::Metadata, 5, "10.0.0.2:1"),
            entry(ServerKind::Metadata, 6, "10.0.0.2:2"),
            entry(ServerKind::Data, 3, "10.0.0.2:3"),
        ];
        assert_eq!(allotted, expected);
    }

    #[test]
    fn an_address_of_another_server_and_no_server_at_all_are_refused() {
        let servers = vec![entry(ServerKind::Data, 2, "10.0.0.1:3")];
        let listed = Members { servers, drains: Vec::new() };
        let error = allot(&listed, &join(&["10.0.0.1:3"], &[])).unwrap_err();
        assert!(error.contains("10.0.0.1:3 is data-2's already"), "{error}");
        let error = allot(&listed, &join(&["10.0.0.2:1"], &["10.0.0.2:1"])).unwrap_err();
        assert!(error.contains("is metadata-1's already"), "{error}");
        assert!(allot(&listed, &join(&[], &[])).unwrap_err().contains("--metadata or --data"));
        let error = allot(&listed, &join(&["[fd00::2]:1"], &[])).unwrap_err();
        assert!(error.contains("[fd00::2]:1 is an address of IPv6, and data-2"), "{error}");
    }
}
