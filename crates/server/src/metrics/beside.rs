//! What the loop need not be asked for: the process as the kernel knows it, and how much files hold.

use crate::metrics::{self, Metric, Page};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files' blocks are counted in these.
const BLOCK_BYTES: u64 = 512;

/// All of it, as far as it can be read.
pub fn page(places: &[(&'static Metric, PathBuf)]) -> Page {
    let mut page = Page::default();
    for (metric, place) in places {
        page.level(metric, [], bytes_in(place) as f64);
    }
    show_process(&mut page);
    page
}

/// What a file, or the files in a directory and below, take of the disk. Files come and go meanwhile.
fn bytes_in(place: &Path) -> u64 {
    let (mut bytes, mut left) = (0, vec![place.to_owned()]);
    while let Some(path) = left.pop() {
        match fs::symlink_metadata(&path) {
            Ok(facts) if facts.is_dir() => {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                left.extend(entries.map(|entry| entry.path()));
            }
            Ok(facts) => bytes += facts.blocks() * BLOCK_BYTES,
            Err(_) => {}
        }
    }
    bytes
}

/// Under the names that every client library of Prometheus uses.
fn show_process(page: &mut Page) -> Option<()> {
    // SAFETY: sysconf takes plain numbers.
    let constant = |name| unsafe { libc::sysconf(name) } as f64;
    let (tick, page_bytes) = (1.0 / constant(libc::_SC_CLK_TCK), constant(libc::_SC_PAGESIZE));
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in brackets and may hold anything; fields are counted from it.
    let fields: Vec<f64> =
        stat.rsplit_once(')')?.1.split(' ').map(|field| field.parse().unwrap_or(0.0)).collect();
    page.seconds(&metrics::PROCESS_CPU, [], (fields.get(12)? + fields.get(13)?) * tick);
    page.level(&metrics::PROCESS_RESIDENT, [], fields.get(22)? * page_bytes);
    let booted = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = booted.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    page.level(&metrics::PROCESS_START, [], booted + fields.get(20)? * tick);
    page.level(&metrics::PROCESS_FILES, [], fs::read_dir("/proc/self/fd").ok()?.count() as f64);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_those_of_a_directory_and_below_are_counted_and_a_missing_one_holds_nothing() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("below")).unwrap();
        fs::write(place.path().join("below/file"), vec![1; 100_000]).unwrap();
        assert!(bytes_in(place.path()) >= 100_000);
        assert_eq!(bytes_in(&place.path().join("below/file")), bytes_in(place.path()));
        assert_eq!(bytes_in(&place.path().join("none")), 0);
    }

    #[test]
    fn a_process_runs_since_after_the_machine_was_started_and_takes_memory() {
        let mut page = Page::default();
        show_process(&mut page).unwrap();
        let text = page.text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
            line.parse().unwrap()
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - value("process_start_time_seconds")).abs() < 86_400.0, "{text}");
        assert!(value("process_resident_memory_bytes") > 1e6, "{text}");
        assert!(value("process_open_fds") >= 3.0, "{text}");
    }
}
