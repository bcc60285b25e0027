//! Runs that do not know of each other, on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What each job gives, in the order of the jobs: which processor does what when does not matter.
pub fn each<J: Sync, T: Send>(jobs: &[J], run: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(jobs.len())));
    let work = || {
        while let Some((number, job)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(number).map(|job| (number, job))
        } {
            let result = run(job);
            done.lock().expect("nobody has panicked").push((number, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().expect("nobody has panicked");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
