//! The formulas of G-HBA: how often filters mislead, what groups cost, which size is best.

use bearing_types::{ParameterError, within};

/// How often a filter with its best number of hashes says "perhaps" of what is not in it: 0.6185^(bits per
/// key) (G-HBA section 3.4). 0 to 1.
pub fn false_positive_rate(bits_per_key: f64) -> f64 {
    0.6185f64.powf(bits_per_key)
}

/// How often exactly one of `filters` filters answers for a key that is in none of them: theta * f0 * (1 -
/// f0)^(theta - 1) (G-HBA section 2.3, equation 1).
pub fn misleading_rate(filters: u32, bits_per_key: f64) -> f64 {
    let (theta, f0) = (f64::from(filters), false_positive_rate(bits_per_key));
    if filters == 0 { 0.0 } else { theta * f0 * (1.0 - f0).powf(theta - 1.0) }
}

/// Replicas that each member of a group of `members` holds when there are `servers`: (N - M')/M' (G-HBA
/// section 2.1).
pub fn replicas_each(servers: u32, members: u32) -> f64 {
    (f64::from(servers) - f64::from(members)) / f64::from(members)
}

/// What was measured of the levels with groups of one size (G-HBA table 2). Times in one unit of choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Share of queries that the LRU filters answer. 0 to 1.
    pub recent_rate: f64,
    /// Share of the others that the segment arrays of a whole group answer, taken together. (G-HBA calls it
    /// the rate of one member's array and then divides it by the members: it must be read as the group's.) 0
    /// to 1.
    pub group_rate: f64,
    /// Time to look into the LRU filters.
    pub recent: f64,
    /// Time to look into the segment array.
    pub segment: f64,
    /// Time of a multicast in the group.
    pub group: f64,
    /// Time of a multicast to all.
    pub all: f64,
}

impl Measured {
    fn check(&self) -> Result<(), ParameterError> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let time = |value: f64| value.is_finite() && value >= 0.0;
        within("recent_rate", self.recent_rate, share(self.recent_rate), "0 to 1")?;
        within("group_rate", self.group_rate, share(self.group_rate), "0 to 1")?;
        within("recent", self.recent, self.recent.is_finite() && self.recent > 0.0, "a time above 0")?;
        within("segment", self.segment, time(self.segment), "a time, 0 or more")?;
        within("group", self.group, time(self.group), "a time, 0 or more")?;
        within("all", self.all, time(self.all), "a time, 0 or more")
    }

    /// The mean latency of a query (G-HBA section 3.3, equation 4), in the unit of the times.
    pub fn latency(&self, members: u32) -> f64 {
        let missed = 1.0 - self.recent_rate;
        let elsewhere = 1.0 - self.group_rate / f64::from(members);
        let group = missed * elsewhere * self.group;
        self.recent + missed * self.segment + group + missed * elsewhere.powf(f64::from(members)) * self.all
    }
}

/// The group size up to `most` with the highest 1 / (latency * space) (G-HBA section 3.3, equation 2), the
/// smaller of equals. `measured` says what was measured with groups of a size.
///
/// It must depend on the size: with times that do not, or that grow no faster than the group, larger is
/// always better and `most` is the answer.
pub fn best_group_size(
    servers: u32,
    most: u32,
    measured: impl Fn(u32) -> Measured,
) -> Result<u32, ParameterError> {
    within("servers", servers, servers >= 2, "2 or more")?;
    within("most", most, (1..servers).contains(&most), "1 or more, fewer than the servers")?;
    let mut best = (1, f64::NEG_INFINITY);
    for members in 1..=most {
        let measured = measured(members);
        measured.check()?;
        let benefit = 1.0 / (measured.latency(members) * replicas_each(servers, members));
        if benefit > best.1 {
            best = (members, benefit);
        }
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::filter::{Bloom, Probe, Shape};
    use crate::query::FileKey;

    fn filters(count: u32, keys_each: u64, bits_per_key: f64) -> Vec<Bloom> {
        let shape = Shape::for_keys(keys_each, bits_per_key, 11).unwrap();
        let filter = |index: u32| {
            let mut filter = Bloom::new(shape).unwrap();
            (0..keys_each).for_each(|key| filter.insert(key_of(index, key)));
            filter
        };
        (0..count).map(filter).collect()
    }

    /// Keys as hashes are: spread over 64 bits.
    fn key_of(filter: u32, key: u64) -> FileKey {
        FileKey((u64::from(filter) << 40 | key).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn real_filters_mislead_as_often_as_the_formula_says() {
        // Within 10 % of the formula, and 8 bits a key are 6 hashes instead of the 5.55 of the formula.
        for (theta, bits) in [(1, 8.0), (10, 8.0), (40, 8.0), (10, 12.0)] {
            let filters = filters(theta, 2000, bits);
            let asked = 200_000;
            let alone = |key: &u64| {
                let probe = Probe::of(key_of(u32::MAX >> 8, *key), 11);
                filters.iter().filter(|filter| filter.may_hold_probe(probe)).count() == 1
            };
            let measured = (0..asked).filter(alone).count() as f64 / asked as f64;
            let formula = misleading_rate(theta, bits);
            assert!((measured / formula - 1.0).abs() < 0.1, "{theta} filters: {measured}, formula {formula}");
        }
        assert!((false_positive_rate(8.0) - 0.0214).abs() < 0.0001);
    }

    /// 70 % of the queries end at the LRU filters and a group knows 85 % of the others (published: over 80 %
    /// end at L1 and L2, over 90 % in the group). A multicast to all takes 0.1 ms a server; one in the group
    /// 0.06 ms times the square of its members: M answers, each behind the load that M members make.
    fn measured(servers: u32, members: u32) -> Measured {
        Measured {
            recent_rate: 0.7,
            group_rate: 0.85,
            recent: 0.01,
            segment: 0.05,
            group: 0.06 * f64::from(members).powi(2),
            all: 0.1 * f64::from(servers),
        }
    }

    /// The published sizes are reached where a multicast in the group grows with the square of its members
    /// and only groups up to half of the servers are considered. No times that grow no faster than the group
    /// give them: see the next test.
    #[test]
    fn the_best_sizes_are_the_published_ones_under_times_that_grow_with_the_square() {
        for (servers, best) in [(20, 5), (40, 6), (60, 7), (80, 8), (100, 9)] {
            let found = best_group_size(servers, servers / 2, |members| measured(servers, members));
            assert_eq!(found, Ok(best), "{servers} servers");
        }
    }

    #[test]
    fn with_times_that_do_not_depend_on_the_size_the_largest_group_is_best() {
        let flat = |_| Measured { group: 1.0, ..measured(100, 1) };
        assert_eq!(best_group_size(100, 50, flat), Ok(50));
        let growing = |members: u32| Measured { group: f64::from(members), ..measured(100, 1) };
        assert_eq!(best_group_size(100, 50, growing), Ok(50));
    }

    #[test]
    fn sizes_out_of_bounds_are_refused_with_the_bound() {
        let said = |servers, most| {
            best_group_size(servers, most, |members| measured(servers, members)).unwrap_err().to_string()
        };
        assert_eq!(said(20, 0), "most may not be 0; give 1 or more, fewer than the servers");
        assert_eq!(said(20, 20), "most may not be 20; give 1 or more, fewer than the servers");
        assert_eq!(said(1, 1), "servers may not be 1; give 2 or more");
        let wrong = |_| Measured { group_rate: 1.5, ..measured(20, 1) };
        assert_eq!(
            best_group_size(20, 5, wrong).unwrap_err().to_string(),
            "group_rate may not be 1.5; give 0 to 1"
        );
    }
}
