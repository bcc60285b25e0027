//! The addresses of positions: a cluster whose network carries requests has an IPv6 prefix of 64 bits, and
//! whatever owns a position is reached at `prefix :: position` (MetaFlow section 4, with the position in the
//! address instead of a hash in the port).

use bearing_types::Position;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

/// Requests that the network carries go to this UDP port.
pub const CARRIED_PORT: u16 = 9000;

/// A prefix of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(u64);

impl Prefix {
    /// The address of a position.
    pub fn address(self, position: Position) -> Ipv6Addr {
        Ipv6Addr::from(u128::from(self.0) << 64 | u128::from(position.0))
    }

    /// The same with the port of requests.
    pub fn socket_address(self, position: Position) -> SocketAddr {
        SocketAddr::V6(SocketAddrV6::new(self.address(position), CARRIED_PORT, 0, 0))
    }

    /// The position that has an address. `None`: it is of another prefix.
    pub fn position(self, address: Ipv6Addr) -> Option<Position> {
        let bits = u128::from(address);
        ((bits >> 64) as u64 == self.0).then_some(Position(bits as u64))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/64", self.address(Position(0)))
    }
}

/// What is no such prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPrefix(String);

impl fmt::Display for NoPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no IPv6 prefix of 64 bits, such as fd42:7:7:7::/64", self.0)
    }
}

impl std::error::Error for NoPrefix {}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Prefix, NoPrefix> {
        let address = text.strip_suffix("/64").and_then(|address| address.parse::<Ipv6Addr>().ok());
        let bits = address.map(u128::from).filter(|bits| *bits as u64 == 0);
        let usable = bits.filter(|bits| *bits != 0 && !Ipv6Addr::from(*bits).is_multicast());
        usable.map(|bits| Prefix((bits >> 64) as u64)).ok_or_else(|| NoPrefix(text.to_owned()))
    }
}

impl TryFrom<String> for Prefix {
    type Error = NoPrefix;

    fn try_from(text: String) -> Result<Prefix, NoPrefix> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> String {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_position_is_read_from_its_address(position: u64, other in 1u64..) {
            let prefix: Prefix = "fd42:7:7:7::/64".parse().unwrap();
            let address = prefix.address(Position(position));
            prop_assert_eq!(prefix.position(address), Some(Position(position)));
            let elsewhere = Ipv6Addr::from(u128::from(address) ^ u128::from(other) << 64);
            prop_assert_eq!(prefix.position(elsewhere), None);
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused_by_what_was_given() {
        for wrong in
            ["", "fd42::", "fd42::/48", "fd42::1/64", "::/64", "ff02::/64", "10.0.0.0/64", "fd42::/640"]
        {
            let refused = wrong.parse::<Prefix>().unwrap_err().to_string();
            assert!(refused.contains(&format!("{wrong:?}")), "{refused}");
        }
    }
}
