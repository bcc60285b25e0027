//! Mixes of metadata operations that papers measured with.

use crate::Seeded;

/// What to do next, as far as a mix says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MixKind {
    /// Make a file.
    Create,
    /// Look a name up and read its attributes.
    Stat,
    /// Change attributes.
    Update,
    /// List a directory.
    List,
    /// Open a file and learn where its data are.
    Open,
    /// Remove a name.
    Remove,
    /// Move a name.
    Rename,
    /// Make a directory.
    MakeDirectory,
    /// Add data to a file.
    Append,
}

/// A mix: how often each kind comes, in parts of 10,000.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// What people call it.
    pub name: &'static str,
    /// Kinds with their weights.
    pub parts: &'static [(MixKind, u32)],
}

impl Mix {
    /// All of them.
    pub const ALL: [&'static Mix; 4] = [&Mix::MSN, &Mix::DEVTOOLS, &Mix::LIVEMAPS, &Mix::SPOTIFY];

    /// MSN storage server: create 8, lookup 90, update 2 % (AngleCut, section 6).
    pub const MSN: Mix =
        Mix { name: "msn", parts: &[(MixKind::Create, 800), (MixKind::Stat, 9000), (MixKind::Update, 200)] };

    /// Development Tools Release: create 11, lookup 82, update 7 % (AngleCut, section 6).
    pub const DEVTOOLS: Mix = Mix {
        name: "devtools",
        parts: &[(MixKind::Create, 1100), (MixKind::Stat, 8200), (MixKind::Update, 700)],
    };

    /// Live Maps back end: create 9, lookup 83, update 8 % (AngleCut, section 6).
    pub const LIVEMAPS: Mix = Mix {
        name: "livemaps",
        parts: &[(MixKind::Create, 900), (MixKind::Stat, 8300), (MixKind::Update, 800)],
    };

    /// Spotify's Hadoop cluster (HopsFS, FAST 2017, table 1), its kinds folded into ours: read 68.73, stat
    /// 17, list 9, add block 1.5, move 1.3, create 1.2, delete 0.75, set owner / permissions / replication
    /// 0.49, mkdirs 0.02 %.
    pub const SPOTIFY: Mix = Mix {
        name: "spotify",
        parts: &[
            (MixKind::Open, 6874),
            (MixKind::Stat, 1700),
            (MixKind::List, 900),
            (MixKind::Append, 150),
            (MixKind::Rename, 130),
            (MixKind::Create, 120),
            (MixKind::Remove, 75),
            (MixKind::Update, 49),
            (MixKind::MakeDirectory, 2),
        ],
    };

    /// The mix of a name.
    pub fn named(name: &str) -> Option<&'static Mix> {
        Mix::ALL.into_iter().find(|mix| mix.name == name)
    }

    /// The next kind.
    pub fn draw(&self, rng: &mut Seeded) -> MixKind {
        let mut drawn = rng.below(10_000) as u32;
        for (kind, weight) in self.parts {
            match drawn.checked_sub(*weight) {
                Some(left) => drawn = left,
                None => return *kind,
            }
        }
        unreachable!("the weights of {} do not add up to 10,000", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_adds_up_and_is_found_by_its_name() {
        for mix in Mix::ALL {
            assert_eq!(mix.parts.iter().map(|(_, weight)| weight).sum::<u32>(), 10_000, "{}", mix.name);
            assert_eq!(Mix::named(mix.name), Some(mix));
        }
        assert_eq!(Mix::named("nobody"), None);
    }

    #[test]
    fn draws_follow_the_weights() {
        let mut rng = Seeded::new(5);
        let creates = (0..20_000).filter(|_| Mix::MSN.draw(&mut rng) == MixKind::Create).count();
        assert!((1450..1750).contains(&creates), "{creates}");
    }
}
