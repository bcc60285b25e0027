//! How far this server's wall clock is from those of other servers, measured with small questions and their
//! answers.
//!
//! An answer says the other's time at some moment between our question and its arrival: half the round trip
//! is the error, and answers that took long are left. Nobody's clock is the right one. A server is *off* when
//! its clock is certainly further than allowed from those of most of the servers that it hears; with nobody
//! to hear it cannot know, and goes on. Must not know what is refused while the clock is off.

use crate::post::Post;
use bearing_proto::clock::ClockMessage;
use bearing_proto::{Message, Sender};
use bearing_types::{Mono, Now, ServerId, Wall};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often others are asked.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// While nobody was heard: who has just started knows soon whether it may serve.
const ASK_FIRST_EVERY: Duration = Duration::from_millis(500);
/// At most so many are asked at a time, all of them in turn.
const ASKED_MAX: usize = 16;
/// An answer that took longer says too little.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(200);
/// A server that was not heard of for so long counts no more: some rounds, and lost answers, of the largest
/// clusters.
const HEARD_FOR: Duration = Duration::from_secs(60);

/// What one answer said.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// How far the other's clock is ahead of ours, in nanoseconds.
    ahead: i64,
    /// The measurement may be wrong by so much.
    error: Duration,
    at: Mono,
}

/// How this server's clock is, as far as it can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Servers heard.
    pub heard: usize,
    /// Of these, servers whose clocks are certainly further from ours than allowed.
    pub far: usize,
    /// By how much ours is ahead of the middle one of the heard, in milliseconds.
    pub ahead_ms: i64,
}

impl Verdict {
    /// Whether most of the servers heard are far away.
    pub fn is_off(self) -> bool {
        self.far * 2 > self.heard
    }

    /// The time by most other servers, if this one's clock is off: sessions do not end because of it.
    pub fn by_others(self, now: Now) -> Now {
        let ahead_ms = if self.is_off() { self.ahead_ms } else { 0 };
        Now { wall: Wall(now.wall.0.saturating_sub(ahead_ms.saturating_mul(1_000_000))), ..now }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Clocks {
    skew_max: Duration,
    number: u64,
    /// The question's id under way to each server, and when it was sent.
    asked: BTreeMap<ServerId, (u64, Mono)>,
    measured: BTreeMap<ServerId, Measured>,
    last_asked: Option<ServerId>,
    due: Mono,
}

impl Clocks {
    /// Nothing is known yet. `first_id` was used by no earlier life of this server.
    pub fn new(skew_max: Duration, first_id: u64) -> Clocks {
        Clocks {
            skew_max,
            number: first_id,
            asked: BTreeMap::new(),
            measured: BTreeMap::new(),
            last_asked: None,
            due: Mono::ZERO,
        }
    }

    /// When [`Clocks::turn`] is due.
    pub fn next_wake(&self) -> Mono {
        self.due
    }

    /// Asks the next servers if it is time; says whether it was.
    pub fn turn(&mut self, now: Now, post: &mut Post) -> bool {
        if now.mono < self.due {
            return false;
        }
        let every = if self.measured.is_empty() { ASK_FIRST_EVERY } else { ASK_EVERY };
        self.due = now.mono.after(every);
        let others: Vec<ServerId> = post.others().collect();
        self.measured
            .retain(|server, measured| others.contains(server) && now.mono.since(measured.at) < HEARD_FOR);
        let after = others.iter().position(|server| Some(*server) > self.last_asked).unwrap_or(0);
        for server in others.iter().cycle().skip(after).take(others.len().min(ASKED_MAX)) {
            self.number = self.number.wrapping_add(1);
            self.asked.insert(*server, (self.number, now.mono));
            self.last_asked = Some(*server);
            post.to_server(*server, &Message::Clock(ClockMessage::Ask { id: self.number }), None);
        }
        true
    }

    /// Takes a message; says whether it was one about clocks.
    pub fn take(&mut self, now: Now, sender: Sender, message: &Message, post: &mut Post) -> bool {
        let Message::Clock(message) = message else { return false };
        // Clients' clocks are nobody's business.
        let Sender::Server(server) = sender else { return true };
        match *message {
            ClockMessage::Ask { id } => {
                let told = ClockMessage::Told { id, wall: now.wall };
                post.to_server(server, &Message::Clock(told), None);
            }
            ClockMessage::Told { id, wall } => {
                let sent = self.asked.get(&server).filter(|(asked, _)| *asked == id).map(|(_, sent)| *sent);
                let round_trip = sent.map(|sent| now.mono.since(sent));
                if let Some(round_trip) = round_trip.filter(|round_trip| *round_trip <= ROUND_TRIP_MAX) {
                    let error = round_trip / 2;
                    let ahead = wall.after(error).0.saturating_sub(now.wall.0);
                    self.measured.insert(server, Measured { ahead, error, at: now.mono });
                    self.asked.remove(&server);
                }
            }
        }
        true
    }

    /// How this server's clock is; `None` while nobody is heard.
    pub fn verdict(&self, now: Mono) -> Option<Verdict> {
        let heard = self.measured.values().filter(|measured| now.since(measured.at) < HEARD_FOR);
        let mut heard: Vec<&Measured> = heard.collect();
        heard.sort_by_key(|measured| measured.ahead);
        let middle = heard.get(heard.len() / 2)?;
        let far = |measured: &&&Measured| {
            Duration::from_nanos(measured.ahead.unsigned_abs()) > self.skew_max + measured.error
        };
        let far = heard.iter().filter(far).count();
        Some(Verdict { heard: heard.len(), far, ahead_ms: -(middle.ahead / 1_000_000) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::envelope;
    use bearing_proto::keys::{Key, ServerKeys};
    use bearing_types::Wall;

    const SKEW_MAX: Duration = Duration::from_millis(250);
    const ME: ServerId = ServerId(1);

    fn keys() -> ServerKeys {
        ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]))
    }

    fn post(servers: u32) -> Post {
        let address = |number: u32| ([127, 0, 0, 1], 1000 + number as u16).into();
        let servers = (1..=servers).map(|number| (ServerId(number), address(number)));
        Post::new(ME, keys(), servers).with_known_starts()
    }

    fn at(ms: u64) -> Now {
        Now { mono: Mono(ms * 1_000_000), wall: Wall(1_000_000_000_000 + ms as i64 * 1_000_000) }
    }

    fn questions(post: &mut Post) -> Vec<u64> {
        let sealed = post.take_sealed();
        let ids = sealed
            .iter()
            .flat_map(|sealed| envelope::open(&sealed.packet, Some(keys().packets())).unwrap().messages);
        ids.map(|message| match message {
            Message::Clock(ClockMessage::Ask { id }) => id,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// A server whose peers are ahead of it by so many milliseconds, each answer under way for so long.
    fn measured(ahead_ms: &[i64], one_way_ms: u64) -> Clocks {
        let mut post = post(1 + ahead_ms.len() as u32);
        let mut clocks = Clocks::new(SKEW_MAX, 77);
        assert!(clocks.turn(at(0), &mut post));
        let ids = questions(&mut post);
        assert_eq!(ids.len(), ahead_ms.len(), "all others are asked, not itself");
        for (number, (id, ahead)) in ids.iter().zip(ahead_ms).enumerate() {
            let wall = Wall(at(one_way_ms).wall.0 + ahead * 1_000_000);
            let told = Message::Clock(ClockMessage::Told { id: *id, wall });
            let server = ServerId(2 + number as u32);
            assert!(clocks.take(at(2 * one_way_ms), Sender::Server(server), &told, &mut post));
        }
        clocks
    }

    fn verdict(ahead_ms: &[i64], one_way_ms: u64) -> Option<Verdict> {
        measured(ahead_ms, one_way_ms).verdict(at(1_000).mono)
    }

    #[test]
    fn an_offset_is_measured_at_the_middle_of_the_round_trip() {
        assert_eq!(verdict(&[120], 40), Some(Verdict { heard: 1, far: 0, ahead_ms: -120 }));
        assert_eq!(verdict(&[-3_000], 1), Some(Verdict { heard: 1, far: 1, ahead_ms: 3_000 }));
    }

    #[test]
    fn who_is_off_goes_by_the_time_of_the_others_and_who_is_not_by_its_own() {
        let by_others = |ahead: &[i64]| verdict(ahead, 1).map(|verdict| verdict.by_others(at(5_000)).wall);
        assert_eq!(by_others(&[-3_600_000, -3_600_010, 0]), Some(Wall(at(5_000).wall.0 - 3_600_000_000_000)));
        assert_eq!(by_others(&[3_600_000]), Some(Wall(at(5_000).wall.0 + 3_600_000_000_000)));
        assert_eq!(by_others(&[200, 100]), Some(at(5_000).wall));
    }

    #[test]
    fn a_server_is_off_when_most_of_those_it_hears_are_certainly_too_far_away() {
        let off = |ahead: &[i64]| verdict(ahead, 1).map(Verdict::is_off);
        assert_eq!(off(&[900, 900, 0]), Some(true));
        assert_eq!(off(&[900, -900, 0]), Some(true));
        assert_eq!(off(&[900, 0]), Some(false), "one of two is not most");
        assert_eq!(off(&[900, 0, 0]), Some(false), "it is the other that is off");
        assert_eq!(off(&[900]), Some(true));
        assert_eq!(off(&[249, -249, 250]), Some(false));
        assert_eq!(off(&[]), None, "with nobody to hear it cannot know");
    }

    #[test]
    fn what_could_be_an_error_of_measuring_is_not_held_against_a_clock() {
        assert!(!verdict(&[300], 60).unwrap().is_off());
        assert!(verdict(&[320], 60).unwrap().is_off());
        assert_eq!(verdict(&[9_000], 101), None, "an answer that took too long says nothing");
    }

    #[test]
    fn answers_to_other_questions_and_of_clients_count_for_nothing() {
        let (mut clocks, mut post) = (measured(&[0], 1), post(2));
        for (sender, id) in [(Sender::Server(ServerId(2)), 78), (Sender::Server(ServerId(2)), 5)] {
            let told = Message::Clock(ClockMessage::Told { id, wall: Wall(0) });
            assert!(clocks.take(at(3), sender, &told, &mut post));
        }
        let asked = Message::Clock(ClockMessage::Ask { id: 1 });
        assert!(clocks.take(at(3), Sender::Client(bearing_types::SessionId(1)), &asked, &mut post));
        assert!(post.take_sealed().is_empty());
        assert_eq!(clocks.verdict(at(4).mono), Some(Verdict { heard: 1, far: 0, ahead_ms: 0 }));
    }

    #[test]
    fn a_server_that_is_silent_counts_no_more_and_all_are_asked_in_turn() {
        let clocks = measured(&[900], 1);
        assert!(clocks.verdict(at(59_000).mono).is_some());
        assert_eq!(clocks.verdict(at(61_000).mono), None);
        let (mut clocks, mut post) = (Clocks::new(SKEW_MAX, 0), post(41));
        let mut asked = std::collections::BTreeSet::new();
        for round in 0..3 {
            clocks.turn(at(round * 2_000), &mut post);
            assert_eq!(questions(&mut post).len(), ASKED_MAX);
            asked.extend(clocks.asked.keys().copied());
        }
        assert_eq!(asked.len(), 40);
    }
}
