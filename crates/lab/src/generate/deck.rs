//! What is asked, dealt like cards: a deck has each kind as often as a mix says, and is dealt to its end
//! before it is shuffled again. So the shares of every whole deck are exact, which drawing by weights would
//! not give.

use bearing_workload::{Mix, MixKind, Seeded};

/// What a card asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Attributes of whatever is popular.
    Lookup,
    /// Attributes of a file that is open.
    LookupOpen,
    List,
    Open,
    Close,
    Create,
    MakeDirectory,
    Update,
    Remove,
    Rename,
}

/// How often each kind is in a deck.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cards {
    /// As in a mix that clusters are measured with too.
    Mix(&'static Mix),
    /// As counted.
    Counts(&'static [(Ask, u64)]),
}

impl Cards {
    fn counts(self) -> Vec<(Ask, u64)> {
        match self {
            Cards::Mix(mix) => {
                mix.parts.iter().map(|(kind, weight)| (asked(*kind), (*weight).into())).collect()
            }
            Cards::Counts(counts) => counts.to_vec(),
        }
    }
}

fn asked(kind: MixKind) -> Ask {
    match kind {
        MixKind::Create => Ask::Create,
        MixKind::Stat => Ask::Lookup,
        // A further block is a larger file: that is what metadata servers are told of it.
        MixKind::Update | MixKind::Append => Ask::Update,
        MixKind::List => Ask::List,
        MixKind::Open => Ask::Open,
        MixKind::Remove => Ask::Remove,
        MixKind::Rename => Ask::Rename,
        MixKind::MakeDirectory => Ask::MakeDirectory,
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Deck {
    full: Vec<(Ask, u64)>,
    left: Vec<u64>,
    left_total: u64,
}

impl Deck {
    pub(super) fn new(cards: Cards) -> Deck {
        let mut full = cards.counts();
        // The most frequent ones are found first.
        full.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut deck = Deck { left: vec![0; full.len()], full, left_total: 0 };
        deck.shuffle();
        deck
    }

    /// Whether it ever asks for this.
    pub(super) fn has(&self, ask: Ask) -> bool {
        self.full.iter().any(|(known, count)| *known == ask && *count > 0)
    }

    fn shuffle(&mut self) {
        for (left, (_, count)) in self.left.iter_mut().zip(&self.full) {
            *left = *count;
        }
        self.left_total = self.left.iter().sum();
    }

    /// The next card.
    pub(super) fn deal(&mut self, rng: &mut Seeded) -> Ask {
        if self.left_total == 0 {
            self.shuffle();
        }
        let mut drawn = rng.below(self.left_total);
        self.left_total -= 1;
        for (left, (ask, _)) in self.left.iter_mut().zip(&self.full) {
            match drawn.checked_sub(*left) {
                Some(beyond) => drawn = beyond,
                None => {
                    *left -= 1;
                    return *ask;
                }
            }
        }
        unreachable!("the drawn card is one of those left")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_decks_have_exactly_the_shares_of_the_mix_in_an_order_of_the_seed() {
        for mix in Mix::ALL {
            let deal = |seed| {
                let (mut deck, mut rng) = (Deck::new(Cards::Mix(mix)), Seeded::new(seed));
                (0..20_000).map(|_| deck.deal(&mut rng)).collect::<Vec<_>>()
            };
            let dealt = deal(3);
            for half in dealt.chunks(10_000) {
                for (kind, _) in mix.parts {
                    let ask = asked(*kind);
                    let weights = mix.parts.iter().filter(|(kind, _)| asked(*kind) == ask);
                    let expected: u32 = weights.map(|(_, weight)| weight).sum();
                    assert_eq!(half.iter().filter(|dealt| **dealt == ask).count(), expected as usize);
                }
            }
            assert!(dealt != deal(4) && dealt[..10_000] != dealt[10_000..], "{}", mix.name);
        }
    }
}
