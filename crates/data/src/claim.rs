//! Before a data server serves: whether its disk is the one that it was registered with. It is asked once, at
//! the start; until the coordinator has answered, nobody gets an answer from this server.

use bearing_proto::coordinator::{Ask, AskCall, Register, TellBody, Told, decode_register, encode_register};
use bearing_proto::disk::{DiskRecord, Judgement, disk_key, judge};
use bearing_types::{DiskId, Mono, ServerId};
use std::time::Duration;

/// An unanswered question is asked again after so long.
const REPEAT: Duration = Duration::from_millis(200);

/// What came of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Nothing yet.
    Nothing,
    /// Give the disk this id, stably, and then call [`Claim::is_labelled`].
    SetDisk(DiskId),
    /// It is the registered disk: serve.
    Ours,
    /// It is not, or nobody can tell: serve nothing. In words.
    Refused(String),
}

/// See the module.
#[derive(Debug)]
pub struct Claim {
    server: ServerId,
    disk: Option<DiskId>,
    fresh: DiskId,
    /// Whether the register is known to be absent, so that it may be written.
    absent: bool,
    /// Of the question that is open. It keeps it when it is asked again: however late an answer comes, it
    /// counts.
    number: u64,
    due: Mono,
}

impl Claim {
    /// Of a server whose chunks' directory has this id. `fresh` is an id that no disk has; questions are
    /// numbered from `first`.
    pub fn new(server: ServerId, disk: Option<DiskId>, fresh: DiskId, first: u64) -> Claim {
        Claim { server, disk, fresh, absent: false, number: first, due: Mono::ZERO }
    }

    /// When [`Claim::ask`] is due.
    pub fn next_wake(&self) -> Mono {
        self.due
    }

    /// What is to be asked now.
    pub fn ask(&mut self, now: Mono) -> Option<Ask> {
        if now < self.due {
            return None;
        }
        self.due = now.after(REPEAT);
        let key = disk_key(self.server);
        let call = match self.disk.filter(|_| self.absent) {
            Some(disk) => AskCall::swap(key, None, Some(encode_register(&DiskRecord { disk }))),
            None => AskCall::Read { key },
        };
        Some(Ask { id: self.number, call })
    }

    /// Takes an answer, if it is to the question that is open.
    pub fn take(&mut self, told: &Told) -> Claimed {
        if told.id != self.number || told.result == Ok(TellBody::Slow) {
            return Claimed::Nothing;
        }
        self.number += 1;
        match &told.result {
            Ok(TellBody::Swapped(_)) => Claimed::Ours,
            Ok(TellBody::Register(register)) => self.compare(register.as_ref()),
            Ok(TellBody::Conflict { present, .. }) => self.compare(present.first()),
            Ok(
                TellBody::Registers(_)
                | TellBody::Sessions(_)
                | TellBody::Tablets(_)
                | TellBody::Metrics(_)
                | TellBody::Holders(_)
                | TellBody::Slow,
            )
            | Err(_) => Claimed::Nothing,
        }
    }

    fn compare(&mut self, register: Option<&Register>) -> Claimed {
        let decode = |register: &Register| decode_register::<DiskRecord>(&register.value);
        let registered = match register.map(decode).transpose() {
            Ok(record) => record.map(|record| record.disk),
            Err(error) => {
                return Claimed::Refused(format!(
                    "the coordinator's register {} {error}",
                    disk_key(self.server)
                ));
            }
        };
        self.absent = registered.is_none();
        match judge(registered, &[("the directory of chunks", self.disk)], self.fresh) {
            Judgement::Registered => Claimed::Ours,
            Judgement::Adopt(disk) if self.disk.is_none() => Claimed::SetDisk(disk),
            Judgement::Adopt(_) => {
                self.due = Mono::ZERO;
                Claimed::Nothing
            }
            Judgement::Refuse(wrong) => Claimed::Refused(wrong.to_string()),
        }
    }

    /// The disk has this id now.
    pub fn is_labelled(&mut self, disk: DiskId) {
        self.disk = Some(disk);
        self.due = Mono::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ServerId = ServerId(100);
    const FRESH: DiskId = DiskId(9);
    const OTHER: DiskId = DiskId(8);

    fn register(disk: DiskId) -> Option<Register> {
        Some(Register { key: disk_key(SERVER), version: 1, value: encode_register(&DiskRecord { disk }) })
    }

    fn conflict(disk: DiskId) -> TellBody {
        TellBody::Conflict { present: register(disk).into_iter().collect(), absent: Vec::new() }
    }

    fn answer(claim: &mut Claim, at: u64, body: TellBody) -> (AskCall, Claimed) {
        let ask = claim.ask(Mono(at)).expect("it asks");
        let claimed = claim.take(&Told { id: ask.id, result: Ok(body) });
        (ask.call, claimed)
    }

    fn claim(disk: Option<DiskId>) -> Claim {
        Claim::new(SERVER, disk, FRESH, 0)
    }

    #[test]
    fn a_first_start_gives_the_disk_an_id_then_registers_it() {
        let mut claim = claim(None);
        assert_eq!(answer(&mut claim, 1, TellBody::Register(None)).1, Claimed::SetDisk(FRESH));
        claim.is_labelled(FRESH);
        let (asked, claimed) = answer(&mut claim, 2, TellBody::Swapped(3));
        let value = Some(encode_register(&DiskRecord { disk: FRESH }));
        assert_eq!(asked, AskCall::swap(disk_key(SERVER), None, value));
        assert_eq!(claimed, Claimed::Ours);
    }

    #[test]
    fn a_disk_with_an_id_and_no_register_is_registered_also_when_the_answer_to_that_is_lost() {
        let mut claim = claim(Some(OTHER));
        assert_eq!(answer(&mut claim, 1, TellBody::Register(None)).1, Claimed::Nothing);
        let lost = claim.ask(Mono(2)).expect("it writes the register");
        assert!(matches!(lost.call, AskCall::Swap { .. }));
        assert_eq!(claim.ask(Mono(3)), None);
        let again = answer(&mut claim, 1_000_000_000, conflict(OTHER));
        assert_eq!(again.1, Claimed::Ours);
        let late = Told { id: lost.id, result: Ok(conflict(FRESH)) };
        assert_eq!(claim.take(&late), Claimed::Nothing, "an older question");
    }

    #[test]
    fn an_answer_to_the_open_question_counts_however_late_it_comes() {
        let mut claim = claim(Some(OTHER));
        let first = claim.ask(Mono(1)).expect("it asks");
        let again = claim.ask(Mono(1_000_000_000)).expect("it asks again");
        assert_eq!(first, again);
        let late = Told { id: first.id, result: Ok(TellBody::Register(register(OTHER))) };
        assert_eq!(claim.take(&late), Claimed::Ours);
    }

    #[test]
    fn another_disk_and_one_without_an_id_are_refused_naming_both() {
        for found in [None, Some(FRESH)] {
            let mut claim = claim(found);
            let Claimed::Refused(said) = answer(&mut claim, 1, TellBody::Register(register(OTHER))).1 else {
                panic!("{found:?} is refused")
            };
            assert!(
                said.contains("not the disk that was registered") && said.contains(&OTHER.to_string()),
                "{said}"
            );
        }
    }
}
