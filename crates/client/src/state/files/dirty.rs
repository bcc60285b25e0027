//! Written bytes that are not stored yet: ordered runs that never overlap.

use bearing_proto::frame::PAYLOAD_BYTES_MAX;
use std::collections::BTreeMap;
use std::ops::Range;

/// Runs that touch become one buffer up to this size. Larger ones are kept as they came, which costs no copy.
const JOINED_BYTES_MAX: usize = 32 << 10;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    runs: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

/// Runs that go together into frames: without a gap, as many as fit one; or one that is larger.
struct Group {
    range: Range<u64>,
}

impl Group {
    fn pieces(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let (step, end) = (u64::from(PAYLOAD_BYTES_MAX), self.range.end);
        self.range.clone().step_by(step as usize).map(move |from| from..end.min(from + step))
    }
}

impl Runs {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The first byte of the first run.
    pub fn start(&self) -> Option<u64> {
        self.runs.first_key_value().map(|(start, _)| *start)
    }

    /// The first byte after the last run.
    pub fn end(&self) -> Option<u64> {
        self.runs.last_key_value().map(|(start, run)| start + run.len() as u64)
    }

    /// Puts bytes over what was there.
    pub fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.cut(offset..offset + bytes.len() as u64);
        self.bytes += bytes.len();
        let before = self.runs.range_mut(..offset).next_back();
        let joined = before.filter(|(start, run)| {
            **start + run.len() as u64 == offset && run.len() + bytes.len() <= JOINED_BYTES_MAX
        });
        match joined {
            Some((_, run)) => run.extend_from_slice(&bytes),
            None => drop(self.runs.insert(offset, bytes)),
        }
    }

    /// Takes the first runs out: as many as make no more than `pieces_max` pieces, but at least one.
    pub fn take_first(&mut self, pieces_max: usize) -> Runs {
        let mut pieces = 0;
        let rest = self.groups().enumerate().find_map(|(index, group)| {
            pieces += group.pieces().count();
            (index > 0 && pieces > pieces_max).then_some(group.range.start)
        });
        let Some(rest) = rest else { return std::mem::take(self) };
        let rest = self.runs.split_off(&rest);
        let rest_bytes = rest.values().map(Vec::len).sum();
        let runs = std::mem::replace(&mut self.runs, rest);
        let bytes = std::mem::replace(&mut self.bytes, rest_bytes) - rest_bytes;
        Runs { runs, bytes }
    }

    /// Takes a range out.
    fn cut(&mut self, range: Range<u64>) {
        let before = self.runs.range(..range.start).next_back();
        let first = before
            .filter(|(start, run)| **start + run.len() as u64 > range.start)
            .map_or(range.start, |(start, _)| *start);
        let touched: Vec<u64> = self.runs.range(first..range.end).map(|(start, _)| *start).collect();
        for start in touched {
            let mut run = self.runs.remove(&start).expect("listed just now");
            let end = start + run.len() as u64;
            self.bytes -= run.len();
            if end > range.end {
                let rest = run.split_off((range.end - start) as usize);
                self.bytes += rest.len();
                self.runs.insert(range.end, rest);
            }
            if start < range.start {
                run.truncate((range.start - start) as usize);
                // Not the room of all that was cut.
                run.shrink_to_fit();
                self.bytes += run.len();
                self.runs.insert(start, run);
            }
        }
    }

    /// What lies in a range: each run's part, by its offset.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> + Clone {
        let before = self.runs.range(..range.start).next_back();
        let inside = self.runs.range(range.start..range.end.max(range.start));
        before.into_iter().chain(inside).filter_map(move |(start, run)| {
            let from = range.start.max(*start);
            let to = range.end.min(*start + run.len() as u64);
            (from < to).then(|| (from, &run[(from - start) as usize..(to - start) as usize]))
        })
    }

    fn groups(&self) -> impl Iterator<Item = Group> {
        let mut runs = self.runs.iter().map(|(start, run)| *start..start + run.len() as u64).peekable();
        std::iter::from_fn(move || {
            let mut range = runs.next()?;
            let fits = |range: &Range<u64>, next: &Range<u64>| {
                next.start == range.end && next.end - range.start <= u64::from(PAYLOAD_BYTES_MAX)
            };
            while let Some(next) = runs.next_if(|next| fits(&range, next)) {
                range.end = next.end;
            }
            Some(Group { range })
        })
    }

    /// The ranges of the runs, none longer than a frame's payload.
    pub fn pieces(&self) -> Vec<Range<u64>> {
        self.groups().flat_map(|group| group.pieces()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writes_that_follow_each_other_become_one_run() {
        let mut runs = Runs::default();
        for at in 0..10 {
            runs.write(at * 3, b"abc".to_vec());
        }
        assert_eq!(runs.pieces(), vec![0..30; 1]);
    }

    #[test]
    fn large_runs_are_not_joined_and_go_together_all_the_same() {
        let mut runs = Runs::default();
        let large = PAYLOAD_BYTES_MAX as usize / 4;
        for at in 0..6 {
            runs.write((at * large) as u64, vec![at as u8; large]);
        }
        assert_eq!(runs.runs.len(), 6);
        let (frame, end) = (u64::from(PAYLOAD_BYTES_MAX), (6 * large) as u64);
        assert_eq!(runs.pieces(), [0..frame, frame..end]);
        // One that does not fit any more is not cut.
        let mut uneven = Runs::default();
        uneven.write(0, vec![1; 3 * large]);
        uneven.write(3 * large as u64, vec![2; 3 * large]);
        assert_eq!(uneven.pieces(), [0..3 * large as u64, 3 * large as u64..end]);
        assert_eq!(
            (uneven.take_first(1).end(), uneven.start()),
            (Some(3 * large as u64), Some(3 * large as u64))
        );
    }

    #[test]
    fn a_long_run_is_cut_into_frames() {
        let mut runs = Runs::default();
        runs.write(5, vec![1; PAYLOAD_BYTES_MAX as usize + 1]);
        let step = u64::from(PAYLOAD_BYTES_MAX);
        assert_eq!(runs.pieces(), [5..5 + step, 5 + step..6 + step]);
    }

    #[test]
    fn the_first_runs_are_taken_whole_up_to_a_number_of_pieces() {
        let mut runs = Runs::default();
        let long = PAYLOAD_BYTES_MAX as usize + 1;
        for (at, length) in [(0, 3), (10, 4), (20, long)] {
            runs.write(at, vec![1; length]);
        }
        let first = runs.take_first(2);
        assert_eq!((first.bytes(), first.end(), runs.start(), runs.bytes()), (7, Some(14), Some(20), long));
        assert_eq!((runs.take_first(1).bytes(), runs.bytes(), runs.is_empty()), (long, 0, true));
    }

    proptest! {
        #[test]
        fn runs_say_what_a_plain_file_would(writes in proptest::collection::vec((0u64..300, 1usize..60, any::<u8>()), 0..40), from in 0u64..400, length in 0u64..200) {
            let mut runs = Runs::default();
            let mut oracle: Vec<Option<u8>> = vec![None; 400];
            for (offset, length, byte) in writes {
                runs.write(offset, vec![byte; length]);
                oracle[offset as usize..offset as usize + length].fill(Some(byte));
            }
            let mut seen = vec![None; 400];
            for (at, bytes) in runs.parts(0..400) {
                for (index, byte) in bytes.iter().enumerate() {
                    prop_assert!(seen[at as usize + index].replace(*byte).is_none(), "runs overlap");
                }
            }
            prop_assert_eq!(runs.bytes(), oracle.iter().flatten().count());
            prop_assert_eq!(runs.end().unwrap_or(0), oracle.iter().rposition(Option::is_some).map_or(0, |at| at as u64 + 1));
            let within: usize = runs.parts(from..from + length).map(|(at, bytes)| {
                assert!(at >= from && at + bytes.len() as u64 <= from + length);
                bytes.len()
            }).sum();
            let end = (from + length).min(400) as usize;
            prop_assert_eq!(within, oracle[(from as usize).min(end)..end].iter().flatten().count());
            prop_assert_eq!(seen, oracle);
        }
    }
}
