//! Where servers and readers are in the network.
//!
//! A host may have several data servers, each with a disk of its own, and readers. So each host of the
//! network is a switch here, with a place for its readers and one for each server, by links that nothing
//! fills. Without a description of the network every host hangs on one switch by a link of the same rate:
//! then only what flows from a host, and what its disks give, tells hosts apart.

use bearing_routing::{Description, End, Hop, Place, Rate, SwitchId, Topology, TopologyError};
use bearing_types::ServerId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What a host's link is taken to carry when nobody has said it: 10 Gb/s. Only ratios count.
const HOST_BITS: u64 = 10_000_000_000;
/// What is never full.
const NEVER_FULL_BITS: u64 = 1_000_000_000_000_000;
/// The switch of a network that nobody has described.
const SWITCH: &str = "network";
/// Readers whose hosts have no data server, in such a network.
const ELSEWHERE: &str = "elsewhere";

/// A network as an operator describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Hosts, switches and links.
    pub described: Description,
    /// By address: the name of its host.
    pub addresses: BTreeMap<IpAddr, String>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    pub(crate) topology: Arc<Topology>,
    servers: BTreeMap<ServerId, Place>,
    readers: BTreeMap<IpAddr, Place>,
    /// Where readers are whose address is nobody's.
    elsewhere: Option<Place>,
    /// Of hosts that have one link only: the way out of them.
    uplinks: BTreeMap<IpAddr, Hop>,
}

impl Sites {
    /// The network with these data servers. Servers at an address that no host of a described network has
    /// are left out.
    pub(crate) fn new(
        network: Option<&Network>,
        servers: &BTreeMap<ServerId, IpAddr>,
    ) -> Result<Sites, TopologyError> {
        let undescribed = match network {
            Some(_) => None,
            None => Some(star(servers.values().copied().collect())),
        };
        let Network { described, addresses } = network.or(undescribed.as_ref()).expect("one of both");
        let never_full = Rate::bits(NEVER_FULL_BITS);
        let mut made = Description {
            switches: described.switches.iter().chain(&described.hosts).cloned().collect(),
            hosts: Vec::new(),
            links: described.links.clone(),
        };
        let mut plug = |name: String, host: &String| {
            made.links.push((name.clone(), host.clone(), never_full));
            made.hosts.push(name);
            Place(made.hosts.len() as u32 - 1)
        };
        let readers: BTreeMap<&String, Place> =
            described.hosts.iter().map(|host| (host, plug(format!("{host}: readers"), host))).collect();
        let at = |address: &IpAddr| addresses.get(address);
        let servers = servers
            .iter()
            .filter_map(|(server, address)| {
                at(address).map(|host| (*server, plug(format!("{host}: {server}"), host)))
            })
            .collect();
        let topology = Topology::new(&made)?;
        let uplink = |host: &String| {
            let index = described.hosts.iter().position(|name| name == host)?;
            let end = End::Switch(SwitchId((described.switches.len() + index) as u32));
            let is_link = |hop: &Hop| matches!(topology.target(*hop), End::Switch(_));
            let mut links = topology.hops_from(end).filter(is_link);
            links.next().filter(|_| links.next().is_none())
        };
        Ok(Sites {
            uplinks: addresses.iter().filter_map(|(ip, host)| Some((*ip, uplink(host)?))).collect(),
            topology: Arc::new(topology),
            servers,
            elsewhere: network.is_none().then(|| readers[&ELSEWHERE.to_owned()]),
            readers: addresses
                .iter()
                .filter_map(|(address, host)| Some((*address, *readers.get(host)?)))
                .collect(),
        })
    }

    /// Where a data server is.
    pub(crate) fn server(&self, server: ServerId) -> Option<Place> {
        self.servers.get(&server).copied()
    }

    /// Which data server is at a place.
    pub(crate) fn server_at(&self, place: Place) -> Option<ServerId> {
        self.servers.iter().find(|(_, at)| **at == place).map(|(server, _)| *server)
    }

    /// All of them.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (ServerId, Place)> + '_ {
        self.servers.iter().map(|(server, place)| (*server, *place))
    }

    /// The only link of a host, out of it.
    pub(crate) fn uplink(&self, address: IpAddr) -> Option<Hop> {
        self.uplinks.get(&address).copied()
    }

    /// Where readers at an address are.
    pub(crate) fn reader(&self, address: IpAddr) -> Option<Place> {
        self.readers.get(&address).copied().or(self.elsewhere)
    }
}

/// The network that is taken for one that nobody has described.
fn star(hosts: BTreeSet<IpAddr>) -> Network {
    let rate = Rate::bits(HOST_BITS);
    let mut links: Vec<(String, String, Rate)> =
        hosts.iter().map(|host| (host.to_string(), SWITCH.to_owned(), rate)).collect();
    links.push((ELSEWHERE.to_owned(), SWITCH.to_owned(), Rate::bits(NEVER_FULL_BITS)));
    let names = hosts.iter().map(IpAddr::to_string).chain([ELSEWHERE.to_owned()]);
    Network {
        described: Description { switches: vec![SWITCH.to_owned()], hosts: names.collect(), links },
        addresses: hosts.iter().map(|host| (*host, host.to_string())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_routing::Paths;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn without_a_description_readers_are_nearest_to_servers_of_their_own_host() {
        let servers = BTreeMap::from([(ServerId(1), ip(1)), (ServerId(2), ip(1)), (ServerId(3), ip(2))]);
        let sites = Sites::new(None, &servers).unwrap();
        let mut paths = Paths::new(sites.topology.clone());
        let mut hops = |server, reader| {
            let place = sites.server(ServerId(server)).unwrap();
            paths.between(place, sites.reader(reader).unwrap()).length().unwrap()
        };
        assert_eq!([hops(1, ip(1)), hops(2, ip(1)), hops(3, ip(1)), hops(3, ip(9))], [2, 2, 4, 4]);
        assert_eq!(sites.server_at(sites.server(ServerId(2)).unwrap()), Some(ServerId(2)));
        assert!(Sites::new(None, &BTreeMap::new()).unwrap().reader(ip(1)).is_some());
    }

    #[test]
    fn who_is_not_in_a_described_network_is_nowhere() {
        let described = Description {
            switches: vec!["core".into()],
            hosts: vec!["a".into(), "b".into()],
            links: ["a", "b"].map(|host| (host.into(), "core".into(), Rate::bits(1_000))).into(),
        };
        let addresses = BTreeMap::from([(ip(1), "a".into()), (ip(2), "b".into())]);
        let network = Network { described, addresses };
        let servers = BTreeMap::from([(ServerId(1), ip(1)), (ServerId(2), ip(7))]);
        let sites = Sites::new(Some(&network), &servers).unwrap();
        assert_eq!(sites.servers().map(|(server, _)| server).collect::<Vec<_>>(), [ServerId(1)]);
        assert!(sites.reader(ip(2)).is_some() && sites.reader(ip(7)).is_none());
    }
}
