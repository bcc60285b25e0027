//! Flow entries in the words of Open vSwitch (`ovs-ofctl`), for one switch whose ports lead to servers.
//!
//! An entry matches requests alone: UDP to an address of the cluster's prefix and the port of requests. It
//! rewrites the Ethernet address, for the server that takes the prefix for its own did not say so to anybody.
//! Entries of ours are known by their cookie; all others are left alone.

use crate::table::{FlowEntry, Output};
use bearing_routing::Port;
use bearing_types::Block;
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// What says that an entry is ours.
pub const COOKIE: u64 = 0xbea2;
/// Added to the number of a prefix's bits: longer prefixes come first, and ours before what the switch does
/// with the rest.
const PRIORITY_BASE: u16 = 100;
/// Bits of the cluster's prefix.
const PREFIX_BITS: u8 = 64;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Mac, String> {
        let complaint = || format!("{text:?} is no Ethernet address, such as 02:00:00:00:00:01");
        let bytes: Result<Vec<u8>, _> = text
            .split(':')
            .map(|part| if part.len() == 2 { u8::from_str_radix(part, 16).ok() } else { None })
            .map(|byte| byte.ok_or_else(complaint))
            .collect();
        bytes?.try_into().map(Mac).map_err(|_| complaint())
    }
}

/// An entry of a switch that leads to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The server's port.
    pub port: Port,
    /// Its Ethernet address there.
    pub mac: Mac,
}

/// Where and what a switch matches.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    /// The address of position 0.
    pub prefix: Ipv6Addr,
    /// The UDP port of requests.
    pub port: u16,
}

impl Requests {
    /// The entry as `ovs-ofctl` takes it.
    pub fn entry(&self, block: Block, way: Way) -> String {
        format!(
            "cookie={COOKIE:#x},{},actions=set_field:{}->eth_dst,output:{}",
            self.matches(block),
            way.mac,
            way.port.0
        )
    }

    fn matches(&self, block: Block) -> String {
        let address = Ipv6Addr::from(u128::from(self.prefix) | u128::from(block.start().0));
        let bits = block.prefix_bits();
        format!(
            "priority={},udp6,ipv6_dst={address}/{},udp_dst={}",
            PRIORITY_BASE + u16::from(bits),
            PREFIX_BITS + bits,
            self.port
        )
    }

    /// The commands of a bundle that has a switch forward like `wanted`: what is added and changed first,
    /// longest prefix first, then what is deleted, shortest first. Entries that stay are not named.
    pub fn bundle(&self, present: &BTreeMap<Block, Way>, wanted: &BTreeMap<Block, Way>) -> Vec<String> {
        let by_length = |blocks: Vec<Block>| {
            let mut blocks = blocks;
            blocks.sort_by_key(|block| (block.prefix_bits(), *block));
            blocks
        };
        let news: Vec<Block> = wanted
            .iter()
            .filter(|(block, way)| present.get(block) != Some(way))
            .map(|(block, _)| *block)
            .collect();
        let gone: Vec<Block> = present.keys().filter(|block| !wanted.contains_key(block)).copied().collect();
        // To add an entry that is there replaces it.
        let added = by_length(news)
            .into_iter()
            .rev()
            .map(|block| format!("add {}", self.entry(block, wanted[&block])));
        let deleted = by_length(gone)
            .into_iter()
            .map(|block| format!("delete_strict cookie={COOKIE:#x}/-1,{}", self.matches(block)));
        added.chain(deleted).collect()
    }

    /// The entries in a dump (`ovs-ofctl --no-stats dump-flows`) that match requests. Refused: a line among
    /// them that says something else than we write.
    pub fn parse_dump(&self, dump: &str) -> Result<BTreeMap<Block, Way>, String> {
        let lines = dump.lines().map(str::trim).filter(|line| line.contains("udp6"));
        lines
            .map(|line| {
                self.parse(line).ok_or_else(|| format!("the switch has an entry that is not ours: {line}"))
            })
            .collect()
    }

    fn parse(&self, line: &str) -> Option<(Block, Way)> {
        let (matches, actions) = line.split_once(" actions=")?;
        let destination = matches.split([',', ' ']).find_map(|part| part.strip_prefix("ipv6_dst="))?;
        let (address, bits) = destination.split_once('/').unwrap_or((destination, "128"));
        let (address, bits) = (u128::from(address.parse::<Ipv6Addr>().ok()?), bits.parse::<u8>().ok()?);
        let block = Block::around(bearing_types::Position(address as u64), bits.checked_sub(PREFIX_BITS)?);
        let (mac, port) = actions.strip_prefix("set_field:")?.split_once("->eth_dst,output:")?;
        // Ports that have a name are told by it in quotes.
        let way = Way { port: Port(port.parse().ok()?), mac: mac.parse().ok()? };
        let ours = address >> 64 == u128::from(self.prefix) >> 64
            && matches.contains(&format!("priority={},", PRIORITY_BASE + u16::from(block.prefix_bits())))
            && matches.contains(&format!("tp_dst={}", self.port));
        ours.then_some((block, way))
    }
}

/// Entries of a table by block, for servers at these ports.
pub fn ways(entries: &[FlowEntry], macs: &BTreeMap<Port, Mac>) -> BTreeMap<Block, Way> {
    let way = |entry: &FlowEntry| match entry.output {
        Output::Port(port) => Some((entry.block, Way { port, mac: *macs.get(&port)? })),
        Output::Up => None,
    };
    entries.iter().filter_map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed;
    use crate::testing::pieces;
    use proptest::prelude::*;

    const REQUESTS: Requests = Requests { prefix: Ipv6Addr::new(0xfd42, 7, 7, 7, 0, 0, 0, 0), port: 9000 };

    fn table(pieces: &crate::Pieces) -> BTreeMap<Block, Way> {
        let macs = (0..=u16::MAX).map(|port| (Port(port), Mac([2, 0, 0, 0, (port >> 8) as u8, port as u8])));
        ways(&compressed(pieces), &macs.collect())
    }

    /// As a switch prints what it was given.
    fn dumped(line: &str) -> String {
        let (matches, actions) = line.split_once(",actions=").unwrap();
        format!(" {} actions={actions}\n", matches.replace("udp_dst", "tp_dst").replacen(',', ", ", 1))
    }

    proptest! {
        #[test]
        fn a_switch_that_is_given_a_bundle_has_what_was_wanted(before in pieces(), after in pieces()) {
            let (before, after) = (table(&before), table(&after));
            let mut switch: BTreeMap<String, String> = BTreeMap::new();
            for (present, wanted) in [(&BTreeMap::new(), &before), (&before, &after)] {
                for command in REQUESTS.bundle(present, wanted) {
                    match command.split_once(' ').unwrap() {
                        ("add", entry) => {
                            let (_, rest) = entry.split_once(',').unwrap();
                            let (matches, _) = rest.split_once(",actions").unwrap();
                            switch.insert(matches.to_owned(), dumped(entry));
                        }
                        (_, entry) => {
                            prop_assert!(switch.remove(entry.split_once(',').unwrap().1).is_some());
                        }
                    }
                }
                let dump: String = switch.values().cloned().collect();
                prop_assert_eq!(&REQUESTS.parse_dump(&dump).unwrap(), wanted);
            }
        }
    }

    #[test]
    fn what_is_not_ours_is_named() {
        let foreign = " priority=164,udp6,ipv6_dst=fd00::/64,tp_dst=9000 actions=drop\n";
        assert!(REQUESTS.parse_dump(foreign).unwrap_err().contains("fd00::/64"));
        assert_eq!(REQUESTS.parse_dump(" priority=0 actions=NORMAL\n"), Ok(BTreeMap::new()));
    }

    #[test]
    fn ethernet_addresses_are_read_as_they_are_written() {
        let mac = Mac([2, 0xff, 0, 1, 2, 3]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:0g", "2:0:0:0:0:1", "02:00:00:00:00:01:02"] {
            assert!(wrong.parse::<Mac>().unwrap_err().contains("02:00:00:00:00:01"), "{wrong}");
        }
    }
}
