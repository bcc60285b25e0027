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
/// Those for hosts that join have this one, ours do not.
pub const JOIN_ASKS: u64 = 1 << 62;
/// An unanswered question is asked again after so long at first. The pauses double.
const REPEAT: Duration = Duration::from_millis(200);
/// The longest pause. A coordinator that was started anew knows of no question: what is revoked is refused
/// within a second all the same.
const REPEAT_MAX: Duration = Duration::from_millis(800);
/// How often it is looked whether the entry may be written.
const LOOK: Duration = Duration::from_millis(20);
/// How long the coordinator may be silent before it is worth a line in the log.
const SILENCE: Duration = Duration::from_secs(3);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// This server's own entry: what it is, then to write it anew.
    Entry,
    /// Others' addresses.
    Servers,
    /// Which enrolments were revoked.
    Enrolments,
}

/// A question that is not answered yet.
#[derive(Debug)]
struct Question {
    subject: Subject,
    ask: Ask,
    due: Mono,
    pause: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Contacts {
    entry: ServerEntry,
    /// The number of the last question; repeats have the same.
    number: u64,
    open: Vec<Question>,
    /// Up to which version others' addresses are known; 0 at first.
    servers_seen: u64,
    enrolments_seen: u64,
    revoked: BTreeSet<EnrolmentName>,
    answered: bool,
    registered: bool,
    began: Option<Mono>,
    complained: bool,
    refused: Option<String>,
}

impl Contacts {
    /// The contacts of a server that was just started. Questions are numbered from `first`, by which those of
    /// its earlier lives are not meant.
    pub fn new(me: Daemon, first: u64) -> Contacts {
        let entry = ServerEntry { server: me.name.server(), kind: me.name.kind, address: me.address };
        let mut contacts = Contacts {
            entry,
            number: first & !(MACHINE_ASKS | JOIN_ASKS),
            open: Vec::new(),
            servers_seen: 0,
            enrolments_seen: 0,
            revoked: BTreeSet::new(),
            answered: false,
            registered: false,
            began: None,
            complained: false,
            refused: None,
        };
        contacts.ask(Subject::Entry, AskCall::Read { key: server_key(me.name.server()) });
        contacts
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
        self.open.iter().map(|question| question.due).min().unwrap_or(Mono::ZERO)
    }

    fn ask(&mut self, subject: Subject, call: AskCall) {
        self.number += 1;
        let ask = Ask { id: self.number, call };
        self.open.push(Question { subject, ask, due: Mono::ZERO, pause: REPEAT });
    }

    /// Asks what is due. This server's entry is written only once it is known to be the server that it says.
    pub fn turn(&mut self, now: Mono, is_known: bool, post: &mut Post) {
        self.complain(now);
        for question in &mut self.open {
            if now < question.due {
                continue;
            }
            if matches!(question.ask.call, AskCall::Swap { .. }) && !is_known {
                question.due = now.after(LOOK);
                continue;
            }
            post.to_server(COORDINATOR, &Message::Ask(question.ask.clone()), None);
            question.due = now.after(question.pause);
            question.pause = (question.pause * 2).min(REPEAT_MAX);
        }
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
        if id & (MACHINE_ASKS | JOIN_ASKS) != 0 {
            return false;
        }
        // However late: a coordinator that always takes longer than the pause is heard all the same.
        if let Some(at) = self.open.iter().position(|question| question.ask.id == *id) {
            self.answered = true;
            match result {
                Ok(TellBody::Slow) => {}
                Ok(body) => {
                    let subject = self.open.swap_remove(at).subject;
                    self.advance(subject, body, post);
                }
                Err(complaint) => tracing::warn!("the coordinator cannot answer: {complaint}"),
            }
        }
        true
    }

    fn advance(&mut self, subject: Subject, body: &TellBody, post: &mut Post) {
        match (subject, body) {
            (Subject::Entry, TellBody::Register(register)) => self.compare(register.as_ref()),
            (Subject::Entry, TellBody::Conflict { present, .. }) => self.compare(present.first()),
            (Subject::Entry, _) => self.registered(),
            (Subject::Enrolments, TellBody::Registers(RegisterChanges { version, present, .. })) => {
                self.enrolments_seen = *version;
                self.learn_enrolments(present, post);
                self.await_news(Subject::Enrolments);
            }
            (Subject::Servers, TellBody::Registers(RegisterChanges { version, present, .. })) => {
                self.servers_seen = *version;
                present.iter().for_each(|register| self.learn(register, post));
                self.await_news(Subject::Servers);
            }
            (Subject::Servers | Subject::Enrolments, _) => self.await_news(subject),
        }
    }

    fn compare(&mut self, register: Option<&Register>) {
        if register.is_some_and(|register| register.value == encode_register(&self.entry)) {
            return self.registered();
        }
        let expected = register.map(|register| register.version);
        let value = Some(encode_register(&self.entry));
        self.ask(Subject::Entry, AskCall::swap(server_key(self.entry.server), expected, value));
    }

    fn registered(&mut self) {
        self.registered = true;
        self.await_news(Subject::Servers);
        self.await_news(Subject::Enrolments);
    }

    fn await_news(&mut self, subject: Subject) {
        let (prefix, since) = match subject {
            Subject::Enrolments => (ENROLMENT_PREFIX, self.enrolments_seen),
            Subject::Servers | Subject::Entry => (SERVER_PREFIX, self.servers_seen),
        };
        self.ask(subject, AskCall::Await { prefix: prefix.to_owned(), since });
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

    fn all_asked(post: &mut Post) -> Vec<Ask> {
        let open = |packet: &[u8]| envelope::open(packet, Some(keys().packets())).unwrap().messages;
        let messages = post.take_sealed().into_iter().flat_map(|sealed| open(&sealed.packet));
        let ask = |message| match message {
            Message::Ask(ask) => ask,
            other => panic!("a question, not {other:?}"),
        };
        messages.map(ask).collect()
    }

    fn asked(post: &mut Post) -> Ask {
        let [ask] = &all_asked(post)[..] else { panic!("one question") };
        ask.clone()
    }

    fn listing_of<'a>(asks: &'a [Ask], listed: &str) -> &'a Ask {
        let is_of = |ask: &&Ask| matches!(&ask.call, AskCall::Await { prefix, .. } if *prefix == listed);
        asks.iter().find(is_of).expect("it is awaited")
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
        let mut contacts = Contacts::new(me(), 0);
        contacts.turn(Mono::ZERO, true, &mut post);
        let read = asked(&mut post);
        let key = server_key(me().name.server());
        assert_eq!(read.call, AskCall::Read { key: key.clone() });
        let old = Register { key: key.clone(), version: 4, value: b"elsewhere".to_vec() };
        tell(&mut contacts, &mut post, read.id, TellBody::Register(Some(old)));
        assert!(!contacts.is_registered());
        contacts.turn(Mono::ZERO, false, &mut post);
        assert_eq!(all_asked(&mut post), [], "it may be another server by the same name");
        contacts.turn(Mono::ZERO.after(LOOK), true, &mut post);
        let write = asked(&mut post);
        assert_eq!(write.call, AskCall::swap(key.clone(), Some(4), Some(encode_register(&me_entry()))));
        tell(&mut contacts, &mut post, write.id, TellBody::Swapped(5));
        assert!(contacts.is_registered());
        contacts.turn(Mono::ZERO, true, &mut post);
        let list = listing_of(&all_asked(&mut post), SERVER_PREFIX).clone();
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
        let mut contacts = Contacts::new(me(), 0);
        contacts.turn(Mono::ZERO, true, &mut post);
        let read = asked(&mut post);
        let own =
            Register { key: server_key(me().name.server()), version: 1, value: encode_register(&me_entry()) };
        tell(&mut contacts, &mut post, read.id, TellBody::Register(Some(own)));
        contacts.turn(Mono::ZERO, true, &mut post);
        let list = listing_of(&all_asked(&mut post), SERVER_PREFIX).clone();
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
    fn enrolments_are_awaited_all_the_time_and_asked_for_again_within_a_second() {
        let coordinator = (COORDINATOR, ([127, 0, 0, 1], 1).into());
        let mut post = Post::new(me().name.server(), keys(), [coordinator]).with_known_starts();
        let mut contacts = Contacts::new(me(), 0);
        contacts.turn(Mono::ZERO, true, &mut post);
        let read = asked(&mut post);
        let own =
            Register { key: server_key(me().name.server()), version: 1, value: encode_register(&me_entry()) };
        tell(&mut contacts, &mut post, read.id, TellBody::Register(Some(own)));
        let (mut now, mut asked_at, mut seen) = (Mono::ZERO, Vec::new(), 0);
        while asked_at.len() < 12 {
            now = contacts.next_wake().max(now);
            contacts.turn(now, true, &mut post);
            for ask in all_asked(&mut post) {
                let AskCall::Await { prefix, since } = &ask.call else { panic!("not {ask:?}") };
                if *prefix == ENROLMENT_PREFIX {
                    assert_eq!(*since, seen);
                    asked_at.push(now);
                    // Every third time something has changed; else it is known, and has not.
                    if asked_at.len() % 3 == 0 {
                        seen += 1;
                        tell(&mut contacts, &mut post, ask.id, changes(seen, vec![]));
                    } else {
                        tell(&mut contacts, &mut post, ask.id, TellBody::Slow);
                    }
                }
            }
        }
        let gaps: Vec<_> = asked_at.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(gaps.iter().all(|gap| *gap <= Duration::from_millis(800)), "{gaps:?}");
        assert!(gaps.contains(&Duration::ZERO), "the next change is awaited at once");
    }

    #[test]
    fn an_unanswered_question_is_repeated_an_answer_counts_once_and_foreign_ones_are_left() {
        let coordinator = (COORDINATOR, ([127, 0, 0, 1], 1).into());
        let mut post = Post::new(me().name.server(), keys(), [coordinator]).with_known_starts();
        let mut contacts = Contacts::new(me(), 0);
        contacts.turn(Mono::ZERO, true, &mut post);
        let first = asked(&mut post);
        contacts.turn(Mono::ZERO, true, &mut post);
        assert!(post.take_sealed().is_empty());
        contacts.turn(Mono::ZERO.after(REPEAT), true, &mut post);
        assert_eq!(asked(&mut post), first, "so that a late answer counts");
        let foreign = Message::Told(Told { id: MACHINE_ASKS | 7, result: Ok(TellBody::Swapped(1)) });
        assert!(!contacts.take(&foreign, &mut post));
        tell(&mut contacts, &mut post, first.id, TellBody::Register(None));
        contacts.turn(Mono::ZERO.after(REPEAT), true, &mut post);
        let write = asked(&mut post);
        assert_ne!(write.id, first.id);
        // To the question that was sent again.
        tell(&mut contacts, &mut post, first.id, TellBody::Register(None));
        tell(&mut contacts, &mut post, write.id, TellBody::Swapped(2));
        assert!(contacts.is_registered());
    }
}
