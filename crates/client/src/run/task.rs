//! Operations under way as futures, polled by the machine itself in the order in which they were woken.
//!
//! Invariants: a task waits only for a [`Promise`] that this machine keeps, so nothing happens between two
//! steps; tasks are polled first in, first out, so a run is a function of its events. No threads: the locks
//! are there because a machine may be stepped from several, one at a time, and are never waited for.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

/// An operation under way.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.try_lock().expect("a machine is stepped by one caller at a time")
}

#[derive(Default)]
struct Ready(Mutex<VecDeque<u64>>);

struct TaskWaker {
    task: u64,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        locked(&self.ready.0).push_back(self.task);
    }
}

/// All tasks of a machine.
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: BTreeMap<u64, (Task, Waker)>,
    ready: Arc<Ready>,
    next: u64,
}

impl Tasks {
    /// Takes a task in; it is polled soon.
    pub fn add(&mut self, task: Task) {
        let number = self.next;
        self.next += 1;
        let waker = Waker::from(Arc::new(TaskWaker { task: number, ready: Arc::clone(&self.ready) }));
        self.tasks.insert(number, (task, waker));
        locked(&self.ready.0).push_back(number);
    }

    /// Polls the task that was woken first. `false` when none is awake.
    pub fn poll_one(&mut self) -> bool {
        let Some(number) = locked(&self.ready.0).pop_front() else { return false };
        // A task may have been woken twice, and be over since.
        if let Some((task, waker)) = self.tasks.get_mut(&number)
            && task.as_mut().poll(&mut Context::from_waker(waker)).is_ready()
        {
            self.tasks.remove(&number);
        }
        true
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.tasks.len()
    }
}

enum Slot<T> {
    Empty,
    Waited(Waker),
    Kept(T),
}

/// The side that will say what the other waits for.
pub(crate) struct Promise<T>(Arc<Mutex<Slot<T>>>);

/// The side that waits.
pub(crate) struct Awaited<T>(Arc<Mutex<Slot<T>>>);

/// The two sides of one value to come.
pub(crate) fn promise<T>() -> (Promise<T>, Awaited<T>) {
    let slot = Arc::new(Mutex::new(Slot::Empty));
    (Promise(Arc::clone(&slot)), Awaited(slot))
}

impl<T> Promise<T> {
    /// Says it.
    pub fn keep(self, value: T) {
        let before = std::mem::replace(&mut *locked(&self.0), Slot::Kept(value));
        if let Slot::Waited(waker) = before {
            waker.wake();
        }
    }
}

impl<T> Future for Awaited<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = locked(&self.0);
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Kept(value) => Poll::Ready(value),
            Slot::Empty | Slot::Waited(_) => {
                *slot = Slot::Waited(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// What one task at a time may pass; the others wait in their order.
#[derive(Default)]
pub(crate) struct Gate {
    held: bool,
    waiting: VecDeque<Promise<()>>,
}

impl Gate {
    /// Enters, or gives what to wait for: when it is kept, the gate was handed over.
    pub fn enter(&mut self) -> Option<Awaited<()>> {
        if !self.held {
            self.held = true;
            return None;
        }
        let (promise, awaited) = promise();
        self.waiting.push_back(promise);
        Some(awaited)
    }

    /// Leaves it to the next.
    pub fn leave(&mut self) {
        assert!(self.held, "only who is inside can leave");
        match self.waiting.pop_front() {
            Some(next) => next.keep(()),
            None => self.held = false,
        }
    }

    /// Whether somebody is inside.
    pub fn is_held(&self) -> bool {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_lets_tasks_pass_one_by_one_in_their_order() {
        let gate = Arc::new(Mutex::new(Gate::default()));
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Tasks::default();
        let mut ends = Vec::new();
        for number in 0..3 {
            let (gate, log) = (Arc::clone(&gate), Arc::clone(&log));
            let (end, ended) = promise();
            ends.push(end);
            tasks.add(Box::pin(async move {
                let turn = locked(&gate).enter();
                if let Some(turn) = turn {
                    turn.await;
                }
                locked(&log).push(number);
                ended.await;
                locked(&gate).leave();
            }));
        }
        while tasks.poll_one() {}
        assert_eq!(*locked(&log), [0]);
        for end in ends {
            end.keep(());
            while tasks.poll_one() {}
        }
        assert_eq!(*locked(&log), [0, 1, 2]);
        assert_eq!(tasks.count(), 0);
        assert!(!locked(&gate).is_held());
    }
}
