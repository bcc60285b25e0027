//! A server's dealings with the coordinator that are nobody's policy: its own entry is there, others'
//! addresses are known, and which enrolments were revoked.
//!
//! A server that comes up under another address than before tells so here. Questions are repeated until they
//! are answered; their numbers lack the top bit, which those of the machine beside have.

use crate::cluster::{COORDINATOR, Daemon};
use crate::post::Post;
use bearing_proto::Message;
use bearing_proto::client::ServerEntry;
use bearing_proto::coordinator::{
    Ask, AskCall, ENROLMENT_PREFIX, EnrolmentRecord, Register, RegisterChanges, SERVER_PREFIX, TellBody,
    Told, decode_register, encode_register, enrolment_of_key, server_key,
};
use bearing_proto::enrolment::EnrolmentName;
use bearing_types::Mono;
use std::collections::BTreeSet;
use std::time::Duration;

/// The machine's questions have this bit, ours do not.
pub const MACHINE_ASKS: u64 = 1 << 63;
/// An unanswered question is asked again after so long.
const REPEAT: Duration = Duration::from_millis(200);
/// How often others' addresses and the revoked enrolments are asked for, in turn: what is revoked is refused
/// within a second.
const POLL: Duration = Duration::from_millis(300);
/// How long the coordinator may be silent before it is worth a line in the log.
const SILENCE: Duration = Duration::from_secs(3);

/// What is to be found out or done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What the coordinator has of this server.
    ReadEntry,
    /// Write it anew over this version.
    WriteEntry(Option<u64>),
    /// Others' addresses.
    ListServers,
    /// Which enrolments were revoked.
    ListEnrolments,
}

/// See the module.
#[derive(Debug)]
pub struct Contacts {
    entry: ServerEntry,
    step: Step,
    /// The number of the last question, which its repeats have too.
    number: u64,
    /// Whether it is not answered yet.
    open: bool,
    /// Up to which version others' addresses are known; 0 at first.
    servers_seen: u64,
    enrolments_seen: u64,
    revoked: BTreeSet<EnrolmentName>,
    due: Mono,
    answered: bool,
    registered: bool,
    began: Option<Mono>,
    complained: bool,
    refused: Option<String>,
}

impl Contacts {
    /// The contacts of a server that was just started.
    pub fn new(me: Daemon) -> Contacts {
        Contacts {
            entry: ServerEntry { server: me.name.server(), kind: me.name.kind, address: me.address },
            step: Step::ReadEntry,
            number: 0,
            open: false,
            servers_seen: 0,
            enrolments_seen: 0,
            revoked: BTreeSet::new(),
            due: Mono::ZERO,
            answered: false,
            registered: false,
            began: None,
            complained: false,
            refused: None,
        }
    }

    /// Whether the coordinator has this server's present address.
    pub fn is_registered(&self) -> bool {
        self.registered
    }

    /// Whether the coordinator ever answered.
    pub fn was_answered(&self) -> bool {
        self.answered
    }

    /// Why this server cannot go on with what the coordinator holds.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// When [`Contacts::turn`] is due.
    pub fn next_wake(&self) -> Mono {
        self.due
    }

    /// Asks what is due.
    pub fn turn(&mut self, now: Mono, post: &mut Post) {
        self.complain(now);
        if now < self.due {
            return;
        }
        self.number += u64::from(!self.open);
        self.open = true;
        let key = server_key(self.entry.server);
        let call = match self.step {
            Step::ReadEntry => AskCall::Read { key },
            Step::WriteEntry(expected) => AskCall::swap(key, expected, Some(encode_register(&self.entry))),
            Step::ListServers => {
                AskCall::Changes { prefix: SERVER_PREFIX.to_owned(), since: self.servers_seen }
            }
            Step::ListEnrolments => {
                AskCall::Changes { prefix: ENROLMENT_PREFIX.to_owned(), since: self.enrolments_seen }
            }
        };
        post.to_server(COORDINATOR, &Message::Ask(Ask { id: self.number, call }), &[]);
        // The answer to a listing sets no earlier time: the next one is due after the poll.
        let is_listing = matches!(self.step, Step::ListServers | Step::ListEnrolments);
        self.due = now.after(if is_listing { POLL } else { REPEAT });
    }

    /// Says once that the coordinator is awaited.
    fn complain(&mut self, now: Mono) {
        let began = *self.began.get_or_insert(now);
        if !self.answered && !self.complained && now.since(began) > SILENCE {
            self.complained = true;
            tracing::warn!("the coordinator does not answer; waiting for it");
        }
    }

    /// Takes an answer; says whether it was one to these questions.
    pub fn take(&mut self, message: &Message, post: &mut Post) -> bool {
        let Message::Told(Told { id, result }) = message else { return false };
        if id & MACHINE_ASKS != 0 {
            return false;
        }
        // However late: a coordinator that always takes longer than the pause is heard all the same.
        if *id == self.number && self.open {
            self.answered = true;
            match result {
                Ok(body) => {
                    self.open = false;
                    self.advance(body, post);
                }
                Err(complaint) => tracing::warn!("the coordinator cannot answer: {complaint}"),
            }
        }
        true
    }

    fn advance(&mut self, body: &TellBody, post: &mut Post) {
        match (self.step, body) {
            (Step::ReadEntry, TellBody::Register(register)) => self.compare(register.as_ref()),
            (_, TellBody::Conflict { present, .. }) => self.compare(present.first()),
            (_, TellBody::Swapped(_)) => self.registered(),
            (Step::ListEnrolments, TellBody::Registers(RegisterChanges { version, present, .. })) => {
                self.enrolments_seen = *version;
                self.step = Step::ListServers;
                self.learn_enrolments(present, post);
            }
            (_, TellBody::Registers(RegisterChanges { version, present, .. })) => {
                self.servers_seen = *version;
                self.step = Step::ListEnrolments;
                for register in present {
                    self.learn(register, post);
                }
            }
            (Step::WriteEntry(_) | Step::ListServers | Step::ListEnrolments, TellBody::Register(_))
            | (_, TellBody::Sessions(_) | TellBody::Tablets(_)) => {}
        }
    }

    fn compare(&mut self, register: Option<&Register>) {
        if register.is_some_and(|register| register.value == encode_register(&self.entry)) {
            return self.registered();
        }
        self.step = Step::WriteEntry(register.map(|register| register.version));
        self.due = Mono::ZERO;
    }

    fn registered(&mut self) {
        self.registered = true;
        self.step = Step::ListServers;
        self.due = Mono::ZERO;
    }

    fn learn_enrolments(&mut self, registers: &[Register], post: &mut Post) {
        for register in registers {
            match decode_register::<EnrolmentRecord>(&register.value) {
                Ok(record) if record.revoked.is_some() => {
                    // For ever: nobody removes such a register.
                    self.revoked.extend(enrolment_of_key(&register.key));
                }
                Ok(_) => {}
                Err(error) => {
                    self.refused = Some(format!("the coordinator's register {} {error}", register.key));
                }
            }
        }
        if !registers.is_empty() {
            post.set_revoked(self.revoked.clone());
        }
    }

    fn learn(&mut self, register: &Register, post: &mut Post) {
        match decode_register::<ServerEntry>(&register.value) {
            Ok(entry) => post.learn_server(entry.server, entry.address),
            Err(error) => self.refused = Some(format!("the coordinator's register {} {error}", register.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::DaemonName;
    use bearing_proto::client::ServerKind;
    use bearing_proto::envelope;
    use bearing_proto::keys::{Key, ServerKeys};

    fn keys() -> ServerKeys {
        ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]))
    }

    fn me() -> Daemon {
        let name = DaemonName { kind: ServerKind::Data, number: 1 };
        Daemon { name, address: ([127, 0, 0, 1], 7).into() }
    }

    fn me_entry() -> ServerEntry {
        ServerEntry { server: me().name.server(), kind: me().name.kind, address: me().address }
    }

    fn asked(post: &mut Post) -> Ask {
        let sealed = post.take_sealed();
        let opened = envelope::open(&sealed[0].packet, Some(keys().packets())).unwrap();
        match &opened.messages[..] {
            [Message::Ask(ask)] => ask.clone(),
            other => panic!("one question, not {other:?}"),
        }
    }

    fn changes(version: u64, present: Vec<Register>) -> TellBody {
        TellBody::Registers(RegisterChanges { version, whole: false, present, absent: Vec::new() })
    }

    fn tell(contacts: &mut Contacts, post: &mut Post, id: u64, body: TellBody) {
        assert!(contacts.take(&Message::Told(Told { id, result: Ok(body) }), post));
    }

    #[test]
    fn a_new_address_is_written_over_the_old_entry_and_others_are_learnt() {
        let coordinator = (COORDINATOR, ([127, 0, 0, 1], 1).into());
        let mut post = Post::new(me().name.server(), keys(), [coordinator]).with_known_starts();
        let mut contacts = Contacts::new(me());
        contacts.turn(Mono::ZERO, &mut post);
        let read = asked(&mut post);
        let key = server_key(me().name.server());
        assert_eq!(read.call, AskCall::Read { key: key.clone() });
        let old = Register { key: key.clone(), version: 4, value: b"elsewhere".to_vec() };
        tell(&mut contacts, &mut post, read.id, TellBody::Register(Some(old)));
        assert!(!contacts.is_registered());
        contacts.turn(Mono::ZERO, &mut post);
        let write = asked(&mut post);
        assert_eq!(write.call, AskCall::swap(key.clone(), Some(4), Some(encode_register(&me_entry()))));
        tell(&mut contacts, &mut post, write.id, TellBody::Swapped(5));
        assert!(contacts.is_registered());
        contacts.turn(Mono::ZERO, &mut post);
        let list = asked(&mut post);
        let other = ServerEntry {
            server: bearing_types::ServerId(3),
            kind: ServerKind::Metadata,
            address: ([127, 0, 0, 1], 9).into(),
        };
        let register = Register { key: server_key(other.server), version: 2, value: encode_register(&other) };
        tell(&mut contacts, &mut post, list.id, changes(5, vec![register]));
        assert_eq!(post.server_at(other.address), Some(other.server));
    }

    #[test]
    fn a_newer_entry_of_another_server_stops_this_one_naming_both_versions() {
        let coordinator = (COORDINATOR, ([127, 0, 0, 1], 1).into());
        let mut post = Post::new(me().name.server(), keys(), [coordinator]).with_known_starts();
        let mut contacts = Contacts::new(me());
        contacts.turn(Mono::ZERO, &mut post);
        let read = asked(&mut post);
        let own =
            Register { key: server_key(me().name.server()), version: 1, value: encode_register(&me_entry()) };
        tell(&mut contacts, &mut post, read.id, TellBody::Register(Some(own)));
        contacts.turn(Mono::ZERO, &mut post);
        let list = asked(&mut post);
        let mut value = encode_register(&me_entry());
        value[0] = 3;
        let newer = Register { key: "server/00000009".into(), version: 2, value };
        tell(&mut contacts, &mut post, list.id, changes(2, vec![newer]));
        let refused = contacts.refused().unwrap();
        for part in ["server/00000009", "version 3", "version 2"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn a_server_hears_of_a_revoked_enrolment_within_a_second() {
        let coordinator = (COORDINATOR, ([127, 0, 0, 1], 1).into());
        let mut post = Post::new(me().name.server(), keys(), [coordinator]).with_known_starts();
        let mut contacts = Contacts::new(me());
        let (mut now, mut asked_at) = (Mono::ZERO, Vec::new());
        let own =
            Register { key: server_key(me().name.server()), version: 1, value: encode_register(&me_entry()) };
        while asked_at.len() < 10 {
            now = contacts.next_wake().max(now);
            contacts.turn(now, &mut post);
            let ask = asked(&mut post);
            let body = match &ask.call {
                AskCall::Changes { prefix, .. } => {
                    if *prefix == ENROLMENT_PREFIX {
                        asked_at.push(now);
                    }
                    changes(7, vec![])
                }
                _ => TellBody::Register(Some(own.clone())),
            };
            tell(&mut contacts, &mut post, ask.id, body);
        }
        let gaps: Vec<_> = asked_at.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        // The way there and back has the rest.
        assert!(gaps.iter().all(|gap| *gap <= Duration::from_millis(800)), "{gaps:?}");
    }

    #[test]
    fn an_unanswered_question_is_repeated_an_answer_counts_once_and_foreign_ones_are_left() {
        let coordinator = (COORDINATOR, ([127, 0, 0, 1], 1).into());
        let mut post = Post::new(me().name.server(), keys(), [coordinator]).with_known_starts();
        let mut contacts = Contacts::new(me());
        contacts.turn(Mono::ZERO, &mut post);
        let first = asked(&mut post);
        contacts.turn(Mono::ZERO, &mut post);
        assert!(post.take_sealed().is_empty());
        contacts.turn(Mono::ZERO.after(REPEAT), &mut post);
        assert_eq!(asked(&mut post), first, "so that a late answer counts");
        let foreign = Message::Told(Told { id: MACHINE_ASKS | 7, result: Ok(TellBody::Swapped(1)) });
        assert!(!contacts.take(&foreign, &mut post));
        tell(&mut contacts, &mut post, first.id, TellBody::Register(None));
        contacts.turn(Mono::ZERO.after(REPEAT), &mut post);
        let write = asked(&mut post);
        assert_ne!(write.id, first.id);
        // To the question that was sent again.
        tell(&mut contacts, &mut post, first.id, TellBody::Register(None));
        tell(&mut contacts, &mut post, write.id, TellBody::Swapped(2));
        assert!(contacts.is_registered());
    }
}
