//! A read that is fetched from several replicas at once, piece by piece.
//!
//! Mayflower section IV.C: each stream fetches its part in pieces, and who has finished goes on with what is
//! left of the others, also with what is left of the piece that is under way. Invariant: every byte is given
//! to exactly one stream at a time, and all bytes are fetched in the end as long as one stream lives. This
//! module must not know rates or servers.

use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug, Default)]
struct Stream {
    /// Pieces that nobody has begun, from the front.
    queue: VecDeque<Range<u64>>,
    /// What is being fetched.
    current: Option<Range<u64>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pieces {
    streams: Vec<Stream>,
    /// Less than this is not worth a request of its own.
    least: u64,
}

impl Pieces {
    /// A read whose streams begin with consecutive parts of these sizes, in pieces of `piece` bytes (more
    /// than 0). What is left of a piece under way is divided when it is at least twice `least`.
    pub fn new(parts: impl IntoIterator<Item = u64>, piece: u64, least: u64) -> Pieces {
        let mut start = 0;
        let streams = parts.into_iter().map(|bytes| {
            let end = start + bytes;
            let mut queue = VecDeque::new();
            while start < end {
                let next = end.min(start + piece.max(1));
                queue.push_back(start..next);
                start = next;
            }
            Stream { queue, current: None }
        });
        Pieces { streams: streams.collect(), least: least.max(1) }
    }

    /// One more stream, which begins with nothing of its own. Its number.
    pub fn add_stream(&mut self) -> usize {
        self.streams.push(Stream::default());
        self.streams.len() - 1
    }

    /// What a stream fetches next, now that it has all it was given; `fetched` tells how many bytes of its
    /// piece each stream has. `None` if nothing is left for it.
    pub fn next(&mut self, stream: usize, fetched: impl Fn(usize) -> u64) -> Option<Range<u64>> {
        self.streams[stream].current = None;
        let next = self.streams[stream]
            .queue
            .pop_front()
            .or_else(|| self.steal_piece())
            .or_else(|| self.steal_rest(stream, fetched))?;
        self.streams[stream].current = Some(next.clone());
        Some(next)
    }

    /// The next piece of who has most of them: what one stream begins with is fetched in its order, whoever
    /// helps.
    fn steal_piece(&mut self) -> Option<Range<u64>> {
        let richest = self.streams.iter_mut().max_by_key(|stream| stream.queue.len())?;
        richest.queue.pop_front()
    }

    /// Where the next piece begins that nobody has begun, if there is one.
    pub fn first_left(&self) -> Option<u64> {
        self.streams.iter().filter_map(|stream| stream.queue.front()).map(|piece| piece.start).min()
    }

    /// A stream has all of its piece, and may not go on at once.
    pub fn finish(&mut self, stream: usize) {
        self.streams[stream].current = None;
    }

    /// The second half of what is left of the piece of which most is left.
    fn steal_rest(&mut self, thief: usize, fetched: impl Fn(usize) -> u64) -> Option<Range<u64>> {
        let left = |(index, stream): (usize, &Stream)| {
            let current = stream.current.as_ref().filter(|_| index != thief)?;
            let begin = current.start.saturating_add(fetched(index)).min(current.end);
            Some((current.end - begin, index, begin))
        };
        let (bytes, index, begin) = self.streams.iter().enumerate().filter_map(left).max()?;
        if bytes < self.least.saturating_mul(2) {
            return None;
        }
        let current = self.streams[index].current.as_mut()?;
        let stolen = begin + bytes.div_ceil(2)..current.end;
        current.end = stolen.start;
        Some(stolen)
    }

    /// What a stream is fetching: others may have shortened it.
    pub fn current(&self, stream: usize) -> Option<Range<u64>> {
        self.streams[stream].current.clone()
    }

    /// A stream has failed after so many bytes of its piece: the others fetch what it has not. Tells whether
    /// there was anything left of it.
    pub fn fail(&mut self, stream: usize, fetched: u64) -> bool {
        let failed = std::mem::take(&mut self.streams[stream]);
        let rest =
            failed.current.map(|current| current.start.saturating_add(fetched).min(current.end)..current.end);
        let left: Vec<Range<u64>> =
            rest.into_iter().chain(failed.queue).filter(|piece| !piece.is_empty()).collect();
        let any = !left.is_empty();
        // Whoever is free takes pieces from any queue, so it does not matter whose they are.
        self.streams[stream].queue = left.into();
        any
    }

    /// Whether nothing is left to begin and nothing is under way.
    pub fn is_done(&self) -> bool {
        self.streams.iter().all(|stream| stream.queue.is_empty() && stream.current.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_is_free_takes_the_next_pieces_of_the_other_then_half_of_the_rest() {
        let mut pieces = Pieces::new([30, 100], 32, 4);
        let none = |_| 0;
        assert_eq!((pieces.next(0, none), pieces.next(1, none)), (Some(0..30), Some(30..62)));
        assert_eq!(pieces.first_left(), Some(62));
        assert_eq!(pieces.next(0, none), Some(62..94));
        assert_eq!(pieces.next(0, none), Some(94..126));
        assert_eq!(pieces.next(0, none), Some(126..130));
        // The other has 10 of its 32 bytes: of the 22 left, the second half.
        assert_eq!(pieces.next(0, |_| 10), Some(51..62));
        assert_eq!(pieces.current(1), Some(30..51));
        // Of less than twice 4 bytes nothing is taken.
        assert_eq!(pieces.next(0, |_| 14), None);
        assert!(!pieces.is_done());
        assert_eq!(pieces.next(1, none), None);
        assert!(pieces.is_done());
    }

    #[test]
    fn what_a_stream_leaves_that_failed_is_fetched_by_others() {
        let mut pieces = Pieces::new([64, 64], 32, 1);
        assert_eq!((pieces.next(0, |_| 0), pieces.next(1, |_| 0)), (Some(0..32), Some(64..96)));
        assert!(pieces.fail(1, 10));
        assert_eq!(pieces.next(0, |_| 0), Some(32..64));
        let rest: Vec<_> = std::iter::from_fn(|| pieces.next(0, |_| 0)).collect();
        assert_eq!(rest, [74..96, 96..128]);
        assert!(pieces.is_done() && !pieces.fail(0, 0));
    }

    proptest! {
        #[test]
        fn every_byte_is_fetched_once(
            parts in proptest::collection::vec(0u64..500, 1..4),
            piece in 1u64..200,
            least in 1u64..40,
            speeds in proptest::collection::vec(1u64..30, 3),
            failing in proptest::option::of((0usize..3, 0u64..40)),
        ) {
            let total: u64 = parts.iter().sum();
            let mut pieces = Pieces::new(parts.clone(), piece, least);
            let mut fetched = vec![0u64; total as usize];
            let mut progress = vec![0u64; parts.len()];
            let mut alive = vec![true; parts.len()];
            let mut busy = vec![false; parts.len()];
            for round in 0u64.. {
                if let Some((stream, when)) = failing
                    && stream > 0 && stream < parts.len() && when == round
                {
                    pieces.fail(stream, progress[stream]);
                    (alive[stream], busy[stream], progress[stream]) = (false, false, 0);
                }
                for stream in 0..parts.len() {
                    if alive[stream] && !busy[stream] {
                        let seen = progress.clone();
                        busy[stream] = pieces.next(stream, |other| seen[other]).is_some();
                        progress[stream] = 0;
                    }
                }
                if !busy.contains(&true) {
                    break;
                }
                for stream in (0..parts.len()).filter(|stream| alive[*stream] && busy[*stream]).collect::<Vec<_>>() {
                    let current = pieces.current(stream).unwrap();
                    for _ in 0..speeds[stream] {
                        if current.start + progress[stream] < current.end {
                            fetched[(current.start + progress[stream]) as usize] += 1;
                            progress[stream] += 1;
                        }
                    }
                    busy[stream] = current.start + progress[stream] < current.end;
                }
            }
            prop_assert!(pieces.is_done());
            prop_assert!(fetched.iter().all(|times| *times == 1), "{fetched:?}");
        }
    }
}
