//! Things in numbered slots, of which one that was not used lately can be asked for: a thing is named by a
//! number of four bytes, and a use sets one bit.
//!
//! Slots lie in pages of equal size: one array would be copied as it grows, while nobody else gets on, and
//! leave half of its memory behind.

use std::ops::{Index, IndexMut};

/// The number of a slot. It stays the same until the thing is taken out.
pub(crate) type Place = u32;

/// No slot.
pub(crate) const NOWHERE: Place = Place::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    pages: Vec<Page<T>>,
    count: usize,
    free: Vec<Place>,
    /// Where the search for something unused goes on (the hand of the clock, in "second chance").
    hand: usize,
}

const PAGE_WORDS: usize = 8;
const PAGE_SLOTS: usize = PAGE_WORDS * 64;

#[derive(Debug)]
struct Page<T> {
    things: Vec<Option<T>>,
    /// A bit for each slot: it is taken.
    taken: [u64; PAGE_WORDS],
    /// It was used since the hand passed.
    used: [u64; PAGE_WORDS],
}

impl<T> Slots<T> {
    /// No things yet.
    pub fn new() -> Slots<T> {
        Slots { pages: Vec::new(), count: 0, free: Vec::new(), hand: 0 }
    }

    /// How many things there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many slots there are, free ones included.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.pages.iter().map(|page| page.things.len()).sum()
    }

    /// Puts a thing in.
    pub fn add(&mut self, thing: T) -> Place {
        let place = self.free.pop().unwrap_or_else(|| self.new_slot());
        let (page, word, bit) = self.at(place);
        page.things[place as usize % PAGE_SLOTS] = Some(thing);
        page.taken[word] |= bit;
        page.used[word] &= !bit;
        self.count += 1;
        place
    }

    /// Takes a thing out. When it was the last one, the pages go too.
    pub fn take(&mut self, place: Place) -> T {
        let (page, word, bit) = self.at(place);
        page.taken[word] &= !bit;
        let thing = page.things[place as usize % PAGE_SLOTS].take().expect("a place is that of a thing");
        self.count -= 1;
        self.free.push(place);
        if self.is_empty() && self.pages.len() > 1 {
            *self = Slots::new();
        }
        thing
    }

    /// A thing is used now.
    pub fn used(&mut self, place: Place) {
        let (page, word, bit) = self.at(place);
        page.used[word] |= bit;
    }

    /// The next thing that was not used since the hand passed it. Those that were used are passed, and may be
    /// met in the next round.
    pub fn idle(&mut self) -> Option<Place> {
        if self.is_empty() {
            return None;
        }
        let words = self.pages.len() * PAGE_WORDS;
        // After one round nothing counts as used any more, so the second ends.
        loop {
            let (word, ahead) = (self.hand / 64 % words, u64::MAX << (self.hand % 64));
            let page = &mut self.pages[word / PAGE_WORDS];
            let unused = page.taken[word % PAGE_WORDS] & !page.used[word % PAGE_WORDS] & ahead;
            if unused != 0 {
                let place = word * 64 + unused.trailing_zeros() as usize;
                // What lies before it was passed.
                page.used[word % PAGE_WORDS] &= !(ahead & ((unused & unused.wrapping_neg()) - 1));
                self.hand = place + 1;
                return Some(place as Place);
            }
            page.used[word % PAGE_WORDS] &= !ahead;
            self.hand = (word + 1) % words * 64;
        }
    }

    /// All things, in an order that says nothing but is the same in every run.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| &page.things).flatten()
    }

    /// All things, to be changed; in the same order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flat_map(|page| &mut page.things).flatten()
    }

    fn new_slot(&mut self) -> Place {
        if self.pages.last().is_none_or(|page| page.things.len() == PAGE_SLOTS) {
            // The first grows by itself: most tables stay small.
            let things = Vec::with_capacity(if self.pages.is_empty() { 0 } else { PAGE_SLOTS });
            self.pages.push(Page { things, taken: [0; PAGE_WORDS], used: [0; PAGE_WORDS] });
        }
        let page = self.pages.len() - 1;
        let things = &mut self.pages[page].things;
        things.push(None);
        (page * PAGE_SLOTS + things.len() - 1) as Place
    }

    /// A slot's page, and the word and bit that tell of it.
    fn at(&mut self, place: Place) -> (&mut Page<T>, usize, u64) {
        let place = place as usize;
        (&mut self.pages[place / PAGE_SLOTS], place / 64 % PAGE_WORDS, 1 << (place % 64))
    }
}

impl<T> Index<Place> for Slots<T> {
    type Output = T;

    fn index(&self, place: Place) -> &T {
        let page = &self.pages[place as usize / PAGE_SLOTS];
        page.things[place as usize % PAGE_SLOTS].as_ref().expect("a place is that of a thing")
    }
}

impl<T> IndexMut<Place> for Slots<T> {
    fn index_mut(&mut self, place: Place) -> &mut T {
        let page = &mut self.pages[place as usize / PAGE_SLOTS];
        page.things[place as usize % PAGE_SLOTS].as_mut().expect("a place is that of a thing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_across_pages_and_are_used_again() {
        let mut slots = Slots::new();
        let count = 3 * PAGE_SLOTS;
        let places: Vec<Place> = (0..count).map(|thing| slots.add(thing)).collect();
        assert!(places.iter().enumerate().all(|(thing, place)| slots[*place] == thing));
        // Every third goes, and others come in their places.
        let gone: Vec<usize> = places.iter().step_by(3).map(|place| slots.take(*place)).collect();
        assert_eq!((gone.len(), slots.len()), (count / 3, count - count / 3));
        gone.iter().for_each(|thing| _ = slots.add(thing + count));
        assert_eq!((slots.len(), slots.slots()), (count, count));
        let mut seen: Vec<usize> = slots.iter().copied().collect();
        seen.sort_unstable();
        let expected =
            (0..count).filter(|thing| thing % 3 != 0).chain(gone.iter().map(|thing| thing + count));
        assert_eq!(seen, expected.collect::<Vec<_>>());
        places.iter().for_each(|place| _ = slots.take(*place));
        assert_eq!((slots.slots(), slots.idle()), (0, None), "what was needed once is not kept for ever");
    }

    #[test]
    fn what_is_unused_is_met_once_in_a_round_and_what_was_used_in_the_next() {
        let mut slots = Slots::new();
        let places: Vec<Place> = (0..1200).map(|thing| slots.add(thing)).collect();
        let used = |place: &&Place| place.is_multiple_of(5);
        places.iter().filter(used).for_each(|place| slots.used(*place));
        let first: Vec<Place> = (0..960).map(|_| slots.idle().unwrap()).collect();
        assert_eq!(first, places.iter().filter(|place| !used(place)).copied().collect::<Vec<_>>());
        // The hand has passed all but the last that was used; those that it met may be met again.
        let second: Vec<Place> = (0..1200).map(|_| slots.idle().unwrap()).collect();
        assert_eq!(second, places);
        // All are used: one goes nevertheless, and in turns.
        for place in places.iter().take(3) {
            places.iter().for_each(|place| slots.used(*place));
            assert_eq!(slots.idle(), Some(*place));
        }
        // What is free is never met.
        (0..1200).filter(|place| *place != 700).for_each(|place| _ = slots.take(place));
        slots.used(700);
        assert_eq!((slots.idle(), slots.idle()), (Some(700), Some(700)));
    }
}
