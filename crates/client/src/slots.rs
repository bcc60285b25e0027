//! Things in numbered slots, chained in the order of their use: a use costs no memory, and a thing is named by a number of four bytes.
//!
//! Slots lie in pages of equal size: one array would be copied as it grows, while nobody else gets on, and leave half of its memory behind.

use std::ops::{Index, IndexMut};

/// The number of a slot. It stays the same until the thing is taken out.
pub(crate) type Place = u32;

/// No slot.
pub(crate) const NOWHERE: Place = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    pages: Vec<Vec<Slot<T>>>,
    count: usize,
    /// The first free slot; free ones are chained by `newer`.
    free: Place,
    oldest: Place,
    newest: Place,
}

const PAGE_SLOTS: usize = 1 << 9;

#[derive(Debug)]
pub(crate) struct Slot<T> {
    /// None if it is free.
    thing: Option<T>,
    older: Place,
    newer: Place,
}

impl<T> Slots<T> {
    pub fn new() -> Slots<T> {
        Slots { pages: Vec::new(), count: 0, free: NOWHERE, oldest: NOWHERE, newest: NOWHERE }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// How many slots there are, free ones included.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.pages.iter().map(Vec::len).sum()
    }

    /// The place of what was used least recently.
    pub fn oldest(&self) -> Option<Place> {
        (self.oldest != NOWHERE).then_some(self.oldest)
    }

    /// Puts a thing in, which counts as used now.
    pub fn add(&mut self, thing: T) -> Place {
        let place = match self.free {
            NOWHERE => self.new_slot(),
            free => {
                self.free = self.slot(free).newer;
                free
            }
        };
        self.slot_mut(place).thing = Some(thing);
        self.count += 1;
        self.chain_newest(place);
        place
    }

    /// Takes a thing out. When it was the last one, the pages go too.
    pub fn take(&mut self, place: Place) -> T {
        self.unchain(place);
        let free = std::mem::replace(&mut self.free, place);
        self.count -= 1;
        let slot = self.slot_mut(place);
        slot.newer = free;
        let thing = slot.thing.take().expect("a place is that of a thing");
        if self.count == 0 && self.pages.len() > 1 {
            *self = Slots::new();
        }
        thing
    }

    /// A thing is used now.
    pub fn used(&mut self, place: Place) {
        if place != self.newest {
            self.unchain(place);
            self.chain_newest(place);
        }
    }

    /// All things, in an order that says nothing but is the same in every run.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().filter_map(|slot| slot.thing.as_ref())
    }

    /// All things, to be changed; in the same order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten().filter_map(|slot| slot.thing.as_mut())
    }

    fn new_slot(&mut self) -> Place {
        if self.pages.last().is_none_or(|page| page.len() == PAGE_SLOTS) {
            // The first grows by itself: most tables stay small.
            let slots = if self.pages.is_empty() { 0 } else { PAGE_SLOTS };
            self.pages.push(Vec::with_capacity(slots));
        }
        let page = self.pages.len() - 1;
        let slots = &mut self.pages[page];
        slots.push(Slot { thing: None, older: NOWHERE, newer: NOWHERE });
        (page * PAGE_SLOTS + slots.len() - 1) as Place
    }

    fn slot(&self, place: Place) -> &Slot<T> {
        &self.pages[place as usize / PAGE_SLOTS][place as usize % PAGE_SLOTS]
    }

    fn slot_mut(&mut self, place: Place) -> &mut Slot<T> {
        &mut self.pages[place as usize / PAGE_SLOTS][place as usize % PAGE_SLOTS]
    }

    fn chain_newest(&mut self, place: Place) {
        let before = std::mem::replace(&mut self.newest, place);
        let slot = self.slot_mut(place);
        (slot.older, slot.newer) = (before, NOWHERE);
        match before {
            NOWHERE => self.oldest = place,
            before => self.slot_mut(before).newer = place,
        }
    }

    fn unchain(&mut self, place: Place) {
        let Slot { older, newer, .. } = *self.slot(place);
        match older {
            NOWHERE => self.oldest = newer,
            older => self.slot_mut(older).newer = newer,
        }
        match newer {
            NOWHERE => self.newest = older,
            newer => self.slot_mut(newer).older = older,
        }
    }
}

impl<T> Index<Place> for Slots<T> {
    type Output = T;

    fn index(&self, place: Place) -> &T {
        self.slot(place).thing.as_ref().expect("a place is that of a thing")
    }
}

impl<T> IndexMut<Place> for Slots<T> {
    fn index_mut(&mut self, place: Place) -> &mut T {
        self.slot_mut(place).thing.as_mut().expect("a place is that of a thing")
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
        slots.used(places[1]);
        // In the order of use: the old ones but the second, the new ones, the second.
        let mut order: Vec<usize> = (2..count).filter(|thing| thing % 3 != 0).collect();
        order.extend(gone.iter().map(|thing| thing + count));
        order.push(1);
        let seen: Vec<usize> = std::iter::from_fn(|| slots.oldest().map(|place| slots.take(place))).collect();
        assert_eq!(seen, order);
        assert_eq!(slots.slots(), 0, "what was needed once is not kept for ever");
    }
}
