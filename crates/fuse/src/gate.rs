//! No answer may tell the kernel what an invalidation has just made it forget.
//!
//! A request that got its answer before a recall may reply after the kernel was invalidated; the kernel would
//! then keep what nobody would ever recall again. So every request notes how many invalidations there have
//! been. If there was one since, its reply gives the kernel nothing to keep. An invalidation waits until
//! replies that are being written are written, which takes microseconds; it never waits for a server, so
//! nothing here can wait in a circle.
//!
//! An answer says how long it holds from when it was given. Its reply may have to wait for others, in a
//! listing for the slowest of many, so the reply takes off how long the request took.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    invalidations: AtomicU64,
    replying: RwLock<()>,
}

/// Whether what an answer says can still be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Its leases hold. What remains of them was said so long ago at most.
    Whole(Duration),
    /// They may have been recalled. It was true when it was asked for.
    Gone,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    seen: u64,
    began: Instant,
}

impl Gate {
    /// A request begins. To be called before it asks anything.
    pub fn enter(&self) -> Turn<'_> {
        Turn { gate: self, seen: self.invalidations.load(Ordering::SeqCst), began: Instant::now() }
    }

    /// An invalidation begins. On return, replies of requests that began before are either with the kernel or
    /// will give it nothing to keep.
    pub fn invalidate(&self) {
        self.invalidations.fetch_add(1, Ordering::SeqCst);
        drop(self.replying.write().expect("no thread panics while it replies"));
    }
}

impl Turn<'_> {
    /// Replies: `reply` learns how far the answer can be trusted, and must send it before it returns.
    pub fn tell(self, reply: impl FnOnce(Trust)) {
        let _replying = self.gate.replying.read().expect("no thread panics while it replies");
        let is_whole = self.gate.invalidations.load(Ordering::SeqCst) == self.seen;
        reply(if is_whole { Trust::Whole(self.began.elapsed()) } else { Trust::Gone });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn an_answer_older_than_an_invalidation_is_not_trusted() {
        let gate = Gate::default();
        let (early, late) = (gate.enter(), gate.enter());
        early.tell(|trust| assert!(matches!(trust, Trust::Whole(_))));
        gate.invalidate();
        late.tell(|trust| assert_eq!(trust, Trust::Gone));
        gate.enter().tell(|trust| assert!(matches!(trust, Trust::Whole(_))));
    }

    #[test]
    fn an_invalidation_waits_for_replies_that_are_being_written_and_not_for_requests() {
        let gate = Gate::default();
        let (asking, replying) = (gate.enter(), gate.enter());
        let is_written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut invalidation = None;
            replying.tell(|trust| {
                assert!(matches!(trust, Trust::Whole(_)));
                invalidation = Some(scope.spawn(|| {
                    gate.invalidate();
                    assert!(is_written.load(Ordering::SeqCst));
                }));
                while gate.invalidations.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                is_written.store(true, Ordering::SeqCst);
            });
            invalidation.unwrap().join().unwrap();
        });
        asking.tell(|trust| assert_eq!(trust, Trust::Gone));
    }
}
