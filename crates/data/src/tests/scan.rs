//! Scans find exactly the whole frames.

use super::bench::{frame, newer_frame};
use crate::scan::{Found, Scan};

/// Scans a log with reads of a window's size.
fn scan(log: &[u8], scan_bytes: u32) -> Found {
    let mut scan = Scan::new(log.len() as u64, scan_bytes);
    for _ in 0..10_000 {
        let (offset, length) = scan.want();
        let start = (offset as usize).min(log.len());
        let end = (start + length as usize).min(log.len());
        match scan.take(&log[start..end]) {
            Found::More => {}
            found => return found,
        }
    }
    panic!("the scan does not end");
}

/// Frames of many sizes, and where each ends.
fn frames() -> (Vec<u8>, Vec<u64>) {
    let sizes = [0, 1, 300, 65_536, 5, 200_000, 64_000, 1_000, 64_500, 300_001, 7, 0];
    let mut log = Vec::new();
    let ends = sizes.iter().enumerate().map(|(salt, size)| {
        log.extend(frame(salt as u64, *size));
        log.len() as u64
    });
    let ends = ends.collect();
    (log, ends)
}

#[test]
fn an_undamaged_log_is_whole() {
    let (log, _) = frames();
    for window in [0, 65_536, 131_072, 1 << 20] {
        assert_eq!(scan(&log, window), Found::End(log.len() as u64));
    }
    assert_eq!(scan(&[], 1 << 20), Found::End(0));
}

#[test]
fn a_log_cut_anywhere_ends_with_its_last_whole_frame() {
    let (log, ends) = frames();
    for cut in (0..log.len()).step_by(997).chain(ends.iter().map(|end| *end as usize - 1)) {
        let expected = ends.iter().copied().rfind(|end| *end <= cut as u64).unwrap_or(0);
        assert_eq!(scan(&log[..cut], 65_536), Found::End(expected), "cut at {cut}");
    }
}

#[test]
fn a_damaged_byte_ends_the_log_before_its_frame() {
    let (log, ends) = frames();
    for at in (0..log.len()).step_by(1999) {
        let mut damaged = log.clone();
        damaged[at] ^= 4;
        let before = ends.iter().copied().rfind(|end| *end <= at as u64).unwrap_or(0);
        let found = scan(&damaged, 65_536);
        // The few zeros that fill a frame up to a multiple of 8 are nobody's.
        assert!(found == Found::End(before) || found == Found::End(log.len() as u64), "{at}: {found:?}");
    }
}

#[test]
fn a_newer_frame_is_told_from_damage() {
    let mut log = frame(1, 10);
    let at = log.len();
    log.extend(newer_frame());
    assert_eq!(scan(&log, 65_536), Found::Newer);
    log[at + 5] ^= 1;
    assert_eq!(scan(&log, 65_536), Found::End(at as u64), "torn");
}
