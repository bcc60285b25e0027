//! Scans find exactly the whole frames.

use super::bench::{frame, newer_frame};
use crate::scan::{DeepScan, DeepScanStep, Found, Scan};
use bearing_proto::data::DAMAGED_RANGES_MAX;
use std::ops::Range;

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

/// Scans a log with reads of a window's size.
fn deep_scan(log: &[u8], scan_bytes: u32) -> DeepScanStep {
    let mut deep_scan = DeepScan::new(log.len() as u64, scan_bytes);
    for _ in 0..10_000 {
        let (offset, length) = deep_scan.want();
        let start = (offset as usize).min(log.len());
        let end = (start + length as usize).min(log.len());
        match deep_scan.take(&log[start..end]) {
            DeepScanStep::More => {}
            deep_scanned => return deep_scanned,
        }
    }
    panic!("the deep_scan does not end");
}

#[test]
fn a_deep_scan_finds_every_whole_frame_behind_a_damaged_one() {
    let (log, ends) = frames();
    for at in (0..log.len()).step_by(1499) {
        let mut damaged = log.clone();
        damaged[at] ^= 4;
        let whole = DeepScanStep::End(log.len() as u64, Vec::new());
        let start = ends.iter().copied().rfind(|end| *end <= at as u64).unwrap_or(0);
        let end = ends.iter().copied().find(|end| *end > at as u64).unwrap();
        let expected = match end == log.len() as u64 {
            true => DeepScanStep::End(start, Vec::new()),
            false => DeepScanStep::End(log.len() as u64, std::iter::once(start..end).collect()),
        };
        for window in [65_536, 1 << 20] {
            let found = deep_scan(&damaged, window);
            assert!(found == expected || found == whole, "{at}: {found:?}, not {expected:?}");
        }
    }
}

#[test]
fn a_deep_scan_takes_no_frame_within_a_damaged_frame_for_one_of_the_log_unless_its_header_is_gone() {
    let mut outer = Vec::new();
    bearing_proto::frame::encode(
        &super::bench::owner(1),
        &[vec![7; 800], frame(2, 100)].concat(),
        &mut outer,
    );
    let (inner_end, length) = (outer.len() as u64, outer.len() as u64 * 2);
    outer.extend(outer.clone());
    outer[300] ^= 1;
    let damaged = std::iter::once(0..inner_end).collect();
    assert_eq!(deep_scan(&outer, 65_536), DeepScanStep::End(length, damaged));
}

/// A header as of a payload of so many bytes, with none of them. Anybody can write that into a file.
fn bare_header(payload_bytes: usize) -> Vec<u8> {
    let whole = frame(3, payload_bytes);
    let length = whole.len() - payload_bytes.next_multiple_of(8);
    whole[..length].to_vec()
}

/// A log that begins with a frame of this content, whose header is damaged, and where the whole frames behind
/// it begin.
fn behind_damage(content: &[u8], behind: usize) -> (Vec<u8>, u64) {
    let mut log = Vec::new();
    bearing_proto::frame::encode(&super::bench::owner(1), content, &mut log);
    log[20] ^= 1;
    let start = log.len() as u64;
    for salt in 0..behind {
        log.extend(frame(salt as u64, 100_000));
    }
    (log, start)
}

#[test]
fn a_deep_scan_takes_no_length_from_a_header_that_it_found_behind_damage() {
    for (payload, behind) in [(4 << 20, 60), (4 << 20, 2), (100_000, 2), (70_000, 2)] {
        for before in [0, 800, 70_000] {
            let content = [vec![7; before], bare_header(payload), vec![8; 800]].concat();
            let (log, start) = behind_damage(&content, behind);
            let expected = DeepScanStep::End(log.len() as u64, std::iter::once(0..start).collect());
            for window in [65_536, 1 << 20] {
                assert_eq!(deep_scan(&log, window), expected, "{payload} bytes claimed, {behind} frames");
            }
        }
    }
}

/// As in a copy of another chunk's log, which was written in pieces of any length.
#[test]
fn a_deep_scan_takes_no_length_from_a_torn_frame_behind_whole_ones_within_a_damaged_one() {
    let inner = [frame(4, 100), frame(5, 300_000)].concat();
    let (log, start) = behind_damage(&inner[..100_000], 5);
    let whole = frame(4, 100).len() as u64;
    let content = start - 100_000;
    let DeepScanStep::End(end, damaged) = deep_scan(&log, 65_536) else { panic!("no end") };
    assert_eq!(end, log.len() as u64);
    assert_eq!(damaged, [0..content, content + whole..start]);
}

#[test]
fn a_deep_scan_does_not_stop_for_what_looks_newer_behind_damage_and_does_not_cut_it_off() {
    for inner in [newer_frame(), [frame(1, 10), newer_frame()].concat()] {
        let (log, start) = behind_damage(&inner, 2);
        let DeepScanStep::End(end, damaged) = deep_scan(&log, 65_536) else { panic!("no end") };
        assert_eq!((end, damaged.last().map(|last| last.end)), (log.len() as u64, Some(start)));
        let (alone, length) = behind_damage(&inner, 0);
        let DeepScanStep::End(end, _) = deep_scan(&alone, 65_536) else { panic!("no end") };
        assert_eq!(end, length, "it may be a frame of a newer version");
    }
}

#[test]
fn a_deep_scan_passes_over_the_rest_of_a_frame_that_cannot_be_read() {
    let mut log = frame(1, 10);
    let from = log.len() as u64;
    let content = [vec![7; 200_000], frame(2, 100), vec![7; 100]].concat();
    bearing_proto::frame::encode(&super::bench::owner(1), &content, &mut log);
    let to = log.len() as u64;
    log.extend(frame(3, 100));
    let (deep_scanned, _) = deep_scan_past(&log, 100_000..100_001);
    assert_eq!(deep_scanned, DeepScanStep::End(log.len() as u64, std::iter::once(from..to).collect()));
}

/// A deep scan of a log of which these bytes cannot be read, and how many reads it took.
fn deep_scan_past(log: &[u8], unreadable: Range<usize>) -> (DeepScanStep, usize) {
    let mut deep_scan = DeepScan::new(log.len() as u64, 1 << 20);
    for reads in 1.. {
        let (offset, length) = deep_scan.want();
        let (start, end) = (offset as usize, (offset as usize + length as usize).min(log.len()));
        let fails = unreadable.start < end && start < unreadable.end;
        match if fails { deep_scan.pass_over() } else { deep_scan.take(&log[start..end]) } {
            DeepScanStep::More => {}
            deep_scanned => return (deep_scanned, reads),
        }
    }
    unreachable!("it ends")
}

#[test]
fn a_sector_that_cannot_be_read_costs_the_frames_in_it_and_no_others() {
    for payload in [40, 700, 3000, 10_000, 200_000] {
        let one = frame(1, payload);
        let count = (3 << 20) / one.len();
        let mut log = Vec::new();
        (0..count).for_each(|salt| log.extend(frame(salt as u64, payload)));
        for sector in [0, 1, 255, 256, 300, 511] {
            let bad = sector * 4096..(sector + 1) * 4096;
            let first = bad.start / one.len() * one.len();
            let last = bad.end.div_ceil(one.len()) * one.len();
            let (deep_scanned, _) = deep_scan_past(&log, bad.clone());
            let DeepScanStep::End(end, damaged) = deep_scanned else { panic!("no end") };
            let expected: Vec<_> = std::iter::once(first as u64..last as u64).collect();
            assert_eq!((end, damaged), (log.len() as u64, expected), "{payload} bytes, sector {sector}");
        }
    }
}

#[test]
fn a_log_that_cannot_be_read_at_all_is_not_tried_sector_by_sector() {
    let log = frame(1, 3000).repeat(20_000);
    let (deep_scanned, reads) = deep_scan_past(&log, 0..log.len());
    let all = std::iter::once(0..log.len() as u64).collect();
    assert_eq!(deep_scanned, DeepScanStep::End(log.len() as u64, all));
    assert!(reads < 300, "{reads} reads");
}

#[test]
fn a_deep_scan_tells_of_so_many_damaged_ranges_and_then_of_one_that_covers_the_rest() {
    let (one, count) = (frame(1, 40), 2 * DAMAGED_RANGES_MAX + 72);
    let mut log = one.repeat(count);
    for number in (1..count - 1).step_by(2) {
        log[number * one.len() + 90] ^= 1;
    }
    let DeepScanStep::End(end, damaged) = deep_scan(&log, 65_536) else { panic!("no end") };
    assert_eq!((end, damaged.len()), (log.len() as u64, DAMAGED_RANGES_MAX));
    let (last, one) = (DAMAGED_RANGES_MAX as u64 * 2 - 1, one.len() as u64);
    assert_eq!(damaged.last(), Some(&(last * one..(count as u64 - 2) * one)));
}

#[test]
fn a_deep_scan_of_noise_ends_and_finds_nothing() {
    let noise: Vec<u8> = (0..300_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    assert_eq!(deep_scan(&noise, 65_536), DeepScanStep::End(0, Vec::new()));
    let heads = b"BXTF\x01\x00\x60\x00".repeat(20_000);
    assert_eq!(deep_scan(&heads, 65_536), DeepScanStep::End(0, Vec::new()));
}
