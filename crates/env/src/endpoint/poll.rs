//! Waiting for many descriptors, and being woken from another thread: epoll and eventfd.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Descriptors that became ready per wait, at most; the rest comes with the next.
pub const EVENTS_MAX: usize = 128;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Read,
    /// Something to read, or room to write.
    ReadAndWrite,
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The token it was registered under.
    pub token: u64,
    /// There is something to read, or an error to find by reading.
    pub read: bool,
    /// There is room to write, or an error to find by writing.
    pub write: bool,
}

/// A set of descriptors to wait for. Level-triggered: what is not taken now is reported again.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Poll {
    /// An empty set.
    pub fn new() -> io::Result<Poll> {
        // SAFETY: the call takes no pointers; on success the descriptor is new and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Poll { epoll })
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: &impl AsRawFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let events = match interest {
            Interest::Read => libc::EPOLLIN,
            Interest::ReadAndWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: both descriptors are open (borrowed here), and `event` outlives the call.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })?;
        Ok(())
    }

    /// Adds a descriptor under a token. Closing it takes it out again.
    pub fn add(&self, fd: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes what is waited for.
    pub fn change(&self, fd: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Waits until something is ready or the time is over (`None`: for ever), and gathers what is. An
    /// interrupting signal ends the wait.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // SAFETY: `events` has room for EVENTS_MAX entries and outlives the call.
        let result = check(unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                milliseconds(timeout),
            )
        });
        let count = match result {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        ready.extend(events[..count].iter().map(|event| {
            let bits = event.events as libc::c_int;
            let broken = bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
            let (read, write) = (bits & libc::EPOLLIN != 0, bits & libc::EPOLLOUT != 0);
            Ready { token: event.u64, read: read || broken, write: write || broken }
        }));
        Ok(())
    }
}

/// The timeout for epoll, rounded up: rounding down would spin through the last millisecond before a timer.
fn milliseconds(timeout: Option<Duration>) -> libc::c_int {
    match timeout {
        None => -1,
        Some(timeout) => timeout.as_nanos().div_ceil(1_000_000).min(libc::c_int::MAX as u128) as libc::c_int,
    }
}

/// Ends a wait in [`super::Endpoint::receive`] from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// A waker that nobody waits for yet.
    pub(super) fn new() -> io::Result<Waker> {
        // SAFETY: the call takes no pointers; on success the descriptor is new and nobody else's.
        let event =
            unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(Waker { event: Arc::new(event) })
    }

    /// The descriptor that becomes readable.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.event
    }

    /// Makes the present or the next wait end at once.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` holds the 8 bytes that are written. The result does not matter: the only failure of a
        // non-blocking eventfd is a counter that is at its maximum, and then the wait ends anyway.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes all wakes so far.
    pub(super) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: `count` has room for the 8 bytes of the counter. A failure means that there was nothing to
        // take.
        unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
