//! Things in slots of one array, chained in the order of their use: a use costs no memory, and a thing is named by a number of four bytes.

use std::ops::{Index, IndexMut};

/// The number of a slot. It stays the same until the thing is taken out.
pub(crate) type Place = u32;

/// No slot.
pub(crate) const NOWHERE: Place = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    count: usize,
    /// The first free slot; free ones are chained by `newer`.
    free: Place,
    oldest: Place,
    newest: Place,
}

#[derive(Debug)]
struct Slot<T> {
    /// None if it is free.
    thing: Option<T>,
    older: Place,
    newer: Place,
}

impl<T> Slots<T> {
    pub fn new() -> Slots<T> {
        Slots { slots: Vec::new(), count: 0, free: NOWHERE, oldest: NOWHERE, newest: NOWHERE }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// How many slots there are, free ones included.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The place of what was used least recently.
    pub fn oldest(&self) -> Option<Place> {
        (self.oldest != NOWHERE).then_some(self.oldest)
    }

    /// Puts a thing in, which counts as used now.
    pub fn add(&mut self, thing: T) -> Place {
        let place = match self.free {
            NOWHERE => {
                self.slots.push(Slot { thing: None, older: NOWHERE, newer: NOWHERE });
                (self.slots.len() - 1) as Place
            }
            free => {
                self.free = self.slots[free as usize].newer;
                free
            }
        };
        self.slots[place as usize].thing = Some(thing);
        self.count += 1;
        self.chain_newest(place);
        place
    }

    /// Takes a thing out.
    pub fn take(&mut self, place: Place) -> T {
        self.unchain(place);
        let slot = &mut self.slots[place as usize];
        slot.newer = std::mem::replace(&mut self.free, place);
        self.count -= 1;
        slot.thing.take().expect("a place is that of a thing")
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
        self.slots.iter().filter_map(|slot| slot.thing.as_ref())
    }

    /// All things, to be changed; in the same order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.thing.as_mut())
    }

    fn chain_newest(&mut self, place: Place) {
        let before = std::mem::replace(&mut self.newest, place);
        let slot = &mut self.slots[place as usize];
        (slot.older, slot.newer) = (before, NOWHERE);
        match before {
            NOWHERE => self.oldest = place,
            before => self.slots[before as usize].newer = place,
        }
    }

    fn unchain(&mut self, place: Place) {
        let Slot { older, newer, .. } = self.slots[place as usize];
        match older {
            NOWHERE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NOWHERE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
    }
}

impl<T> Index<Place> for Slots<T> {
    type Output = T;

    fn index(&self, place: Place) -> &T {
        self.slots[place as usize].thing.as_ref().expect("a place is that of a thing")
    }
}

impl<T> IndexMut<Place> for Slots<T> {
    fn index_mut(&mut self, place: Place) -> &mut T {
        self.slots[place as usize].thing.as_mut().expect("a place is that of a thing")
    }
}
