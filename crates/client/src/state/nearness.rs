//! How near a server is, as far as addresses say it: on this host, in the same small network, in the same
//! large one, or farther off. Subnets are how operators draw racks and rooms; nothing finer than that is
//! read from an address.

use std::net::IpAddr;

/// Smaller is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nearness {
    Host,
    /// The first 24 bits are ours, or 64 of IPv6.
    Subnet,
    /// The first 16 bits are ours, or 48 of IPv6.
    Site,
    Far,
}

/// How near an address is to the nearest of our own.
pub(crate) fn nearness(own: &[IpAddr], other: IpAddr) -> Nearness {
    let near = |own: &IpAddr| {
        let (one, two, bits) = match (own.to_canonical(), other.to_canonical()) {
            (IpAddr::V4(one), IpAddr::V4(two)) => {
                (u128::from(one.to_bits()) << 96, u128::from(two.to_bits()) << 96, [24, 16])
            }
            (IpAddr::V6(one), IpAddr::V6(two)) => (one.to_bits(), two.to_bits(), [64, 48]),
            _ => return Nearness::Far,
        };
        let same = (one ^ two).leading_zeros();
        match same {
            128 => Nearness::Host,
            _ if same >= bits[0] => Nearness::Subnet,
            _ if same >= bits[1] => Nearness::Site,
            _ => Nearness::Far,
        }
    };
    own.iter().map(near).min().unwrap_or(Nearness::Far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_of_our_addresses_counts() {
        let own: Vec<IpAddr> = ["10.1.2.3", "fd00:1:2:3::4"].iter().map(|ip| ip.parse().unwrap()).collect();
        for (other, expected) in [
            ("10.1.2.3", Nearness::Host),
            ("::ffff:10.1.2.3", Nearness::Host),
            ("10.1.2.200", Nearness::Subnet),
            ("10.1.99.1", Nearness::Site),
            ("10.2.2.3", Nearness::Far),
            ("fd00:1:2:3::99", Nearness::Subnet),
            ("fd00:1:2:4::4", Nearness::Site),
            ("fd00:9::1", Nearness::Far),
        ] {
            assert_eq!(nearness(&own, other.parse().unwrap()), expected, "{other}");
        }
        assert_eq!(nearness(&[], own[0]), Nearness::Far);
    }
}
