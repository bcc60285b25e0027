//! Walking a tree, or doing a list of things, many at the same time: whoever works on one waits for servers
//! most of the time.
//!
//! A directory comes before all that is in it, and once again after. The first error ends everything; what is
//! being done then is finished.

use super::walk::{Entry, Event, Order, listing, start_of};
use anyhow::{Error, Result};
use bearing_mount::session::Session;
use bearing_types::FileType;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Threads. Each may hold a part of a file.
const WORKERS: usize = 16;
/// Entries that wait for a worker, directories not counted; above, whoever lists them does them.
const WAITING_MAX: usize = 4096;

/// A directory that is being walked.
struct Branch {
    directory: Entry,
    above: Option<Arc<Branch>>,
    /// Entries that are not done, and one while it is being listed.
    left: AtomicUsize,
}

struct Task {
    entry: Entry,
    above: Option<Arc<Branch>>,
}

#[derive(Default)]
struct Waiting {
    /// Last in, first out: so few directories are begun at a time.
    tasks: Vec<Task>,
    busy: usize,
    failed: Option<Error>,
}

struct Crew<'a, V> {
    session: &'a Session,
    visit: V,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Walks from a path on, like [`super::walk::walk`]. What is in a directory comes in any order.
pub fn walk_together(
    session: &Session,
    path: &[u8],
    visit: impl Fn(Event) -> Result<()> + Sync,
) -> Result<()> {
    let start = Task { entry: start_of(session, path)?, above: None };
    let waiting = Mutex::new(Waiting { tasks: vec![start], ..Waiting::default() });
    let crew = Crew { session, visit, waiting, changed: Condvar::new() };
    std::thread::scope(|scope| {
        (0..WORKERS).for_each(|_| drop(scope.spawn(|| crew.work())));
    });
    let waiting = crew.waiting.into_inner().expect("no thread panicked");
    waiting.failed.map_or(Ok(()), Err)
}

impl<V: Fn(Event) -> Result<()> + Sync> Crew<'_, V> {
    fn work(&self) {
        while let Some(task) = self.next() {
            let done = self.carry_out(task);
            let mut waiting = self.lock();
            waiting.busy -= 1;
            if let Err(error) = done {
                waiting.failed.get_or_insert(error);
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no thread panics while it holds the list")
    }

    fn next(&self) -> Option<Task> {
        let mut waiting = self.lock();
        loop {
            if waiting.failed.is_some() {
                return None;
            }
            if let Some(task) = waiting.tasks.pop() {
                waiting.busy += 1;
                return Some(task);
            }
            if waiting.busy == 0 {
                return None;
            }
            waiting = self.changed.wait(waiting).expect("no thread panics while it holds the list");
        }
    }

    fn carry_out(&self, Task { entry, above }: Task) -> Result<()> {
        (self.visit)(Event::Enter(&entry))?;
        if entry.file_type != FileType::Directory {
            return self.done(above);
        }
        let entries = listing(self.session, &entry, Order::AsListed, true)?;
        let branch = Arc::new(Branch { directory: entry, above, left: AtomicUsize::new(1) });
        for listed in entries {
            if self.lock().failed.is_some() {
                return Ok(());
            }
            let entry = branch.directory.child(&listed?);
            branch.left.fetch_add(1, Ordering::SeqCst);
            if let Some(task) = self.hand_on(Task { entry, above: Some(branch.clone()) }) {
                self.carry_out(task)?;
            }
        }
        self.done(Some(branch))
    }

    /// Leaves a task to whoever comes first. Gives it back if too many wait: it is no directory then, so this
    /// goes no deeper.
    fn hand_on(&self, task: Task) -> Option<Task> {
        let mut waiting = self.lock();
        if waiting.tasks.len() >= WAITING_MAX && task.entry.file_type != FileType::Directory {
            return Some(task);
        }
        waiting.tasks.push(task);
        self.changed.notify_one();
        None
    }

    /// An entry of a directory is done; so may the directory be, and those above it.
    fn done(&self, mut above: Option<Arc<Branch>>) -> Result<()> {
        while let Some(branch) = above.filter(|branch| branch.left.fetch_sub(1, Ordering::SeqCst) == 1) {
            (self.visit)(Event::Leave(&branch.directory))?;
            above = branch.above.clone();
        }
        Ok(())
    }
}

/// Does something with each item, many at the same time. Items are taken as fast as they are done.
pub fn each_together<T: Send>(
    items: impl Iterator<Item = Result<T>>,
    work: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let (sender, receiver) = sync_channel::<T>(WORKERS);
    let (receiver, failed) = (Mutex::new(Some(receiver)), Mutex::new(None));
    let next = || {
        let receiver = receiver.lock().expect("no thread panics while it takes an item");
        receiver.as_ref().and_then(|receiver| receiver.recv().ok())
    };
    let fail = |error: Error| {
        failed.lock().expect("storing does not panic").get_or_insert(error);
        // Nothing more is taken: whoever hands out items hears of it.
        receiver.lock().expect("no thread panics while it takes an item").take();
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item).unwrap_or_else(&fail);
                }
            });
        }
        for item in items {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    failed.lock().expect("storing does not panic").get_or_insert(error);
                    break;
                }
            };
            if sender.send(item).is_err() {
                break;
            }
        }
        drop(sender);
    });
    failed.into_inner().expect("no thread panicked").map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_mount::memory::MemoryTree;
    use bearing_types::{Credentials, Mode};
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn with_tree(directories: usize, files: usize) -> Session {
        let tree = Arc::new(MemoryTree::new(Duration::ZERO));
        let session = Session::new(tree, Credentials::ROOT).unwrap();
        for directory in 0..directories {
            let path = format!("/top/{directory}/deep");
            session.make_directories(path.as_bytes(), Mode::new(0o755)).unwrap();
            for file in 0..files {
                session.write_file(format!("{path}/{file}").as_bytes(), Mode::new(0o644), b"x").unwrap();
            }
        }
        session
    }

    #[test]
    fn everything_is_met_once_and_a_directory_before_and_after_what_is_in_it() {
        let session = with_tree(7, 40);
        let (met, clock) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(0));
        walk_together(&session, b"/top", |event| {
            let (entry, is_left) = match event {
                Event::Enter(entry) => (entry, false),
                Event::Leave(entry) => (entry, true),
            };
            let at = clock.fetch_add(1, Ordering::SeqCst);
            assert!(met.lock().unwrap().insert((entry.path.clone(), is_left), at).is_none());
            Ok(())
        })
        .unwrap();
        let met = met.into_inner().unwrap();
        assert_eq!(met.len(), 7 * 40 + 2 * (1 + 7 + 7));
        for ((path, is_left), at) in &met {
            let above = path.rsplitn(2, |byte| *byte == b'/').nth(1).unwrap().to_vec();
            if let (Some(enter), Some(leave)) = (met.get(&(above.clone(), false)), met.get(&(above, true))) {
                assert!(enter < at && at < leave, "{path:?} {is_left}");
            }
        }
    }

    #[test]
    fn a_tree_is_removed_while_it_is_walked() {
        // More entries than may wait.
        let session = with_tree(2, 3000);
        walk_together(&session, b"/top", |event| match event {
            Event::Enter(entry) if entry.file_type == FileType::Directory => Ok(()),
            Event::Enter(entry) => Ok(session.remove(&entry.path)?),
            Event::Leave(entry) => Ok(session.remove_directory(&entry.path)?),
        })
        .unwrap();
        assert_eq!(session.list(b"/").unwrap().count(), 0);
    }

    #[test]
    fn the_first_error_ends_it() {
        let session = with_tree(7, 40);
        let failed = walk_together(&session, b"/top", |event| match event {
            Event::Enter(entry) if entry.path.ends_with(b"/7") => anyhow::bail!("seven"),
            _ => Ok(()),
        });
        assert_eq!(failed.unwrap_err().to_string(), "seven");
        let endless = (0..).map(Ok);
        let failed = each_together(endless, |number| {
            anyhow::ensure!(number != 70, "seventy");
            Ok(())
        });
        assert_eq!(failed.unwrap_err().to_string(), "seventy");
    }

    #[test]
    fn each_item_is_taken_once() {
        let sum = AtomicUsize::new(0);
        each_together((0..1000).map(Ok), |number| {
            sum.fetch_add(number, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
        assert_eq!(sum.into_inner(), 499_500);
    }
}
