//! Who asks: the ids of a kernel request, and the supplementary groups, which the kernel does not send.
//!
//! Groups are read from `/proc/<thread>/status` for users other than root and remembered for [`KEPT`]. A
//! process that changed its groups may be judged by its old ones that long.

use bearing_types::{Credentials, Gid, Uid};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the groups of a thread are believed.
const KEPT: Duration = Duration::from_secs(1);
/// Threads remembered; when there are more, all are read anew.
const THREADS_MAX: usize = 1024;

/// A thread under one identity.
type Asker = (u32, Uid, Gid);

/// Remembers groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    known: Mutex<HashMap<Asker, (Instant, Vec<Gid>)>>,
}

impl Groups {
    /// The credentials of the thread that sent a request.
    pub fn credentials(&self, request: &fuser::Request) -> Credentials {
        let (thread, uid, gid) = (request.pid(), Uid(request.uid()), Gid(request.gid()));
        Credentials { uid, gid, groups: self.of((thread, uid, gid), Instant::now(), read_groups) }
    }

    fn of(&self, asker: Asker, now: Instant, read: impl FnOnce(u32) -> Vec<Gid>) -> Vec<Gid> {
        // Root passes every check; thread 0 is the kernel itself or a process outside our view of /proc.
        if asker.1 == Uid(0) || asker.0 == 0 {
            return Vec::new();
        }
        let mut known = self.known.lock().expect("no thread panics while it holds the groups");
        if let Some((read_at, groups)) = known.get(&asker)
            && now.duration_since(*read_at) < KEPT
        {
            return groups.clone();
        }
        if known.len() >= THREADS_MAX {
            known.clear();
        }
        let groups = read(asker.0);
        known.insert(asker, (now, groups.clone()));
        groups
    }
}

/// The groups of a thread; none when it is gone or hidden, so that it has only its primary group.
fn read_groups(thread: u32) -> Vec<Gid> {
    std::fs::read_to_string(format!("/proc/{thread}/status")).map(|status| parse(&status)).unwrap_or_default()
}

fn parse(status: &str) -> Vec<Gid> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).map(Gid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: Asker = (42, Uid(7), Gid(8));

    #[test]
    fn groups_are_found_in_the_status_of_a_process() {
        let status = "Name:\tsh\nUid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nNStgid:\t42\n";
        assert_eq!(parse(status), [Gid(4), Gid(24), Gid(1000)]);
        assert_eq!(parse("Groups:\t\n"), []);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn groups_are_read_once_a_second_for_each_identity() {
        let groups = Groups::default();
        let start = Instant::now();
        assert_eq!(groups.of(ASKER, start, |_| vec![Gid(1)]), [Gid(1)]);
        assert_eq!(groups.of(ASKER, start + KEPT / 2, |_| panic!("read too early")), [Gid(1)]);
        assert_eq!(groups.of((42, Uid(9), Gid(8)), start, |_| vec![Gid(3)]), [Gid(3)]);
        assert_eq!(groups.of(ASKER, start + KEPT, |_| vec![Gid(2)]), [Gid(2)]);
    }

    #[test]
    fn the_groups_of_root_and_of_the_kernel_are_never_read() {
        let groups = Groups::default();
        for asker in [(42, Uid(0), Gid(0)), (0, Uid(7), Gid(8))] {
            assert_eq!(groups.of(asker, Instant::now(), |_| panic!("read")), []);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let groups = Groups::default();
        for thread in 1..5000 {
            groups.of((thread, Uid(7), Gid(8)), Instant::now(), |_| Vec::new());
        }
        assert!(groups.known.lock().unwrap().len() <= THREADS_MAX);
    }
}
