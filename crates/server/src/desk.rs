//! The coordinator's registers on a thread of their own: whatever a question takes there, whoever asks it
//! again hears that it is being worked on, and no loop waits for it.

use crate::engine_thread::EngineThread;
use bearing_proto::coordinator::{Ask, Told};
use bearing_proto::questions::{Questions, Work};
use bearing_proto::registrar::Registrar;
use bearing_seams::{Coordinator, EngineResult};
use bearing_types::ServerId;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub struct Desk {
    thread: EngineThread<Work, Vec<(ServerId, Told)>>,
    /// The thread has one thing to do at a time: what comes meanwhile may be more urgent than what waits.
    busy: bool,
    questions: Questions,
    ready: Vec<(ServerId, Told)>,
    older: Arc<AtomicBool>,
}

struct Registry<C> {
    registers: C,
    registrar: Registrar,
    older: Arc<AtomicBool>,
}

impl Desk {
    /// Gives registers a thread; `wake` is called there whenever answers are ready.
    pub fn start<C: Coordinator + Send + 'static>(
        registers: C,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Desk> {
        let older = Arc::new(AtomicBool::new(false));
        let registry = Registry { registers, registrar: Registrar::default(), older: older.clone() };
        let thread = EngineThread::around("coordinator's registers", registry, carry_out, wake)?;
        Ok(Desk { thread, busy: false, questions: Questions::default(), ready: Vec::new(), older })
    }

    /// Takes a question.
    pub fn ask(&mut self, asker: ServerId, ask: Ask) {
        self.ready.extend(self.questions.take(asker, ask).map(|slow| (asker, slow)));
    }

    /// Somebody else has changed registers, or may have.
    pub fn changed(&mut self) {
        self.questions.changed();
    }

    /// Has what was asked worked on, and gives the answers that are ready.
    pub fn turn(&mut self) -> EngineResult<Vec<(ServerId, Told)>> {
        let mut answers = std::mem::take(&mut self.ready);
        if let Some(done) = self.thread.next()? {
            done.iter().for_each(|(asker, told)| self.questions.answered(*asker, told.id));
            answers.extend(done);
            self.busy = false;
        }
        if !self.busy
            && let Some(work) = self.questions.begin()
        {
            self.thread.add(work);
            self.thread.send();
            self.busy = true;
        }
        Ok(answers)
    }

    /// Somebody asked who knows newer registers than these.
    pub fn has_older(&self) -> bool {
        self.older.load(Ordering::Relaxed)
    }
}

fn carry_out<C: Coordinator>(registry: &mut Registry<C>, work: Work) -> Vec<(ServerId, Told)> {
    let Registry { registers, registrar, older } = registry;
    let answers = match work {
        Work::Answer(asker, ask) => {
            registrar.answer(registers, asker, ask).map(|told| (asker, told)).into_iter().collect()
        }
        Work::News => registrar.news(registers),
    };
    older.store(registrar.has_older(), Ordering::Relaxed);
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::coordinator::{AskCall, TellBody};
    use bearing_seams::{Changes, Entry, MemCoordinator, RegisterChange, Swap};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Each call waits until it is allowed.
    struct Slow {
        registers: MemCoordinator,
        allowed: Receiver<()>,
    }

    impl Coordinator for Slow {
        fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
            self.allowed.recv().unwrap();
            self.registers.read(key)
        }

        fn changes(&mut self, prefix: &str, since: u64) -> EngineResult<Changes> {
            self.allowed.recv().unwrap();
            self.registers.changes(prefix, since)
        }

        fn swap(&mut self, changes: &[RegisterChange]) -> EngineResult<Swap> {
            self.allowed.recv().unwrap();
            self.registers.swap(changes)
        }
    }

    fn desk() -> (Desk, Sender<()>, Receiver<()>) {
        let ((allow, allowed), (woke, wakes)) = (channel(), channel());
        let slow = Slow { registers: MemCoordinator::default(), allowed };
        (Desk::start(slow, move || _ = woke.send(())).unwrap(), allow, wakes)
    }

    fn read(id: u64) -> Ask {
        Ask { id, call: AskCall::Read { key: "k".into() } }
    }

    /// Sends and waits until something is answered.
    fn answers(desk: &mut Desk, wakes: &Receiver<()>) -> Vec<(u32, u64, TellBody)> {
        loop {
            let answers = desk.turn().unwrap();
            if !answers.is_empty() {
                return answers.into_iter().map(|(to, told)| (to.0, told.id, told.result.unwrap())).collect();
            }
            wakes.recv().unwrap();
        }
    }

    #[test]
    fn a_slow_engine_is_told_of_at_once_and_gets_no_question_twice() {
        let (mut desk, allow, wakes) = desk();
        desk.ask(ServerId(1), read(7));
        assert_eq!(desk.turn().unwrap(), []);
        for _ in 0..3 {
            desk.ask(ServerId(1), read(7));
            assert_eq!(answers(&mut desk, &wakes), [(1, 7, TellBody::Slow)]);
        }
        desk.ask(ServerId(2), read(7));
        desk.turn().unwrap();
        allow.send(()).unwrap();
        assert_eq!(answers(&mut desk, &wakes), [(1, 7, TellBody::Register(None))]);
        allow.send(()).unwrap();
        assert_eq!(answers(&mut desk, &wakes), [(2, 7, TellBody::Register(None))]);
        drop(allow);
    }

    #[test]
    fn a_swap_waits_for_one_call_at_most_however_often_registers_change() {
        let (mut desk, allow, wakes) = desk();
        let awaits = |id, since| Ask { id, call: AskCall::Await { prefix: String::new(), since } };
        allow.send(()).unwrap();
        desk.ask(ServerId(1), Ask { id: 1, call: AskCall::swap("k".into(), None, Some(vec![1])) });
        assert_eq!(answers(&mut desk, &wakes), [(1, 1, TellBody::Swapped(1))]);
        for id in 2..5 {
            desk.ask(ServerId(1), awaits(id, 1));
        }
        // Each change is heard of while an earlier one is looked at.
        for _ in 0..20 {
            desk.changed();
            desk.turn().unwrap();
        }
        desk.ask(ServerId(1), Ask { id: 9, call: AskCall::swap("k".into(), Some(1), Some(vec![2])) });
        desk.turn().unwrap();
        (0..2).for_each(|_| allow.send(()).unwrap());
        assert_eq!(answers(&mut desk, &wakes), [(1, 9, TellBody::Swapped(2))]);
        (0..9).for_each(|_| allow.send(()).unwrap());
    }

    #[test]
    fn a_swap_is_told_to_those_who_await_it_and_so_is_anothers() {
        let (mut desk, allow, wakes) = desk();
        (0..9).for_each(|_| allow.send(()).unwrap());
        desk.ask(ServerId(1), Ask { id: 1, call: AskCall::swap("k".into(), None, Some(vec![1])) });
        assert_eq!(answers(&mut desk, &wakes), [(1, 1, TellBody::Swapped(1))]);
        desk.ask(ServerId(2), Ask { id: 2, call: AskCall::Await { prefix: "k".into(), since: 1 } });
        desk.turn().unwrap();
        desk.ask(ServerId(1), Ask { id: 3, call: AskCall::swap("k".into(), Some(1), Some(vec![2])) });
        let mut heard = answers(&mut desk, &wakes);
        if heard.len() == 1 {
            heard.extend(answers(&mut desk, &wakes));
        }
        let heard: Vec<_> = heard.into_iter().map(|(to, id, _)| (to, id)).collect();
        assert_eq!(heard, [(1, 3), (2, 2)]);
        drop(allow);
    }
}
