//! Locks: taken, given back, asked about, waited for. Who may lock a file is the kernel's to say: it has it
//! open.

use crate::decide::rules::file_locks;
use crate::mutant::Mutant;
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LockView, WaitId};
use bearing_types::{Code, FileType, HeldLock, Lock, LockOwner, LockRange, LockSpace, SessionId};

pub(super) fn take(view: &mut View, handle: Handle, lock: Lock, wait: Option<WaitId>) -> Decide<Body> {
    let wish = wish(view, handle, lock)?;
    let mut locks = file_locks::held(view, handle.node)?;
    let stands = locks.conflicts(&wish).next().is_some() && !view.config.planted(Mutant::LockTwice);
    let now = view.now.mono;
    let blocked =
        stands || view.waits.is_kept_for_another(handle.node, &locks, &wish, wait, (now, view.config));
    let Some(wait) = wait.filter(|_| blocked) else {
        return match blocked {
            true => Err(Stop::Refuse(Code::Locked)),
            false => give(view, handle, wish, wait, &mut locks),
        };
    };
    if view.waits.would_deadlock(handle.node, &wish) {
        view.waits.stop(handle.node, wish.session, wait);
        return Err(Stop::Refuse(Code::Deadlock));
    }
    view.waits.wait(handle.node, wish, wait, now);
    Err(Stop::Refuse(Code::Locked))
}

fn give(
    view: &mut View,
    handle: Handle,
    wish: HeldLock,
    wait: Option<WaitId>,
    locks: &mut bearing_types::FileLocks,
) -> Decide<Body> {
    if locks.is_full() {
        return Err(Stop::Refuse(Code::NoLocks));
    }
    if let Some(wait) = wait {
        view.waits.stop(handle.node, wish.session, wait);
    }
    locks.set(wish);
    file_locks::put(view, handle.node, std::mem::take(locks));
    Ok(Body::Done)
}

pub(super) fn give_back(
    view: &mut View,
    handle: Handle,
    owner: LockOwner,
    space: LockSpace,
    range: LockRange,
) -> Decide<Body> {
    let session = asker(view)?;
    view.require(handle.home)?;
    check(range)?;
    // The node may be gone, and its locks with it: nothing is left to be given back.
    let mut locks = file_locks::held(view, handle.node)?;
    let (was_full, had) = (locks.is_full(), locks.iter().count());
    if locks.clear(session, owner, space, range) {
        if was_full && locks.iter().count() > had {
            // It cuts one in two.
            return Err(Stop::Refuse(Code::NoLocks));
        }
        file_locks::put(view, handle.node, locks);
    }
    Ok(Body::Done)
}

pub(super) fn test(view: &mut View, handle: Handle, lock: Lock) -> Decide<Body> {
    let wish = wish(view, handle, lock)?;
    let locks = file_locks::held(view, handle.node)?;
    Ok(Body::Lock(locks.conflicts(&wish).next().map(|held| shown(view, handle, &wish, held))))
}

/// A lock as another session sees it: by a number that tells the holders of one file apart, but not who they
/// are.
fn shown(view: &View, handle: Handle, wish: &HeldLock, held: &HeldLock) -> LockView {
    let HeldLock { session, lock } = *held;
    let parts = [b"lock holder", &handle.node.0.to_le_bytes()[..], &session.0.to_le_bytes()];
    let mac = view.keys.grants().sign(&parts);
    let [a, b, c, d, e, f, g, h, ..] = mac.0;
    let holder = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let own = session == wish.session;
    // Numbers of processes mean nothing on other machines.
    LockView { holder, lock: if own { lock } else { Lock { owner: LockOwner(0), pid: 0, ..lock } } }
}

pub(super) fn stop_waiting(view: &mut View, handle: Handle, wait: WaitId) -> Decide<Body> {
    let session = asker(view)?;
    view.require(handle.home)?;
    view.waits.stop(handle.node, session, wait);
    Ok(Body::Done)
}

fn wish(view: &mut View, handle: Handle, lock: Lock) -> Decide<HeldLock> {
    let session = asker(view)?;
    let record = view.node_at(handle)?;
    if record.attributes.file_type != FileType::Regular {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    check(lock.range)?;
    Ok(HeldLock { session, lock })
}

fn asker(view: &View) -> Decide<SessionId> {
    view.session.ok_or(Stop::Refuse(Code::SessionEnded))
}

fn check(range: LockRange) -> Result<(), Code> {
    if range.start <= range.last { Ok(()) } else { Err(Code::InvalidArgument) }
}
