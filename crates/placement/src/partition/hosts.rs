//! Which servers stand at which places of a topology.

use super::contract::PartitionError;
use bearing_routing::{Place, SwitchTree};
use bearing_types::ServerId;
use std::collections::BTreeMap;

/// Which server is plugged in where. A server has one place, a place one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    servers: BTreeMap<Place, ServerId>,
    places: BTreeMap<ServerId, Place>,
}

impl Hosts {
    /// The servers at the first places, in the order given.
    pub fn in_order(topology: &SwitchTree, servers: &[ServerId]) -> Result<Hosts, PartitionError> {
        if servers.len() > topology.places() as usize {
            return Err(PartitionError::NoPlace(topology.places() as usize, servers.len()));
        }
        let mut hosts = Hosts::default();
        for (place, server) in (0..).map(Place).zip(servers) {
            hosts.plug(topology, *server, place)?;
        }
        Ok(hosts)
    }

    /// Puts a server at a free place of the topology.
    pub fn plug(
        &mut self,
        topology: &SwitchTree,
        server: ServerId,
        place: Place,
    ) -> Result<(), PartitionError> {
        if self.places.contains_key(&server) {
            return Err(PartitionError::Known(server));
        }
        if place.0 >= topology.places() {
            return Err(PartitionError::UnknownPlace(place, topology.places()));
        }
        if let Some(other) = self.server(place) {
            return Err(PartitionError::TakenPlace(place, other));
        }
        self.servers.insert(place, server);
        self.places.insert(server, place);
        Ok(())
    }

    /// Takes a server away; tells where it was.
    pub fn unplug(&mut self, server: ServerId) -> Option<Place> {
        let place = self.places.remove(&server)?;
        self.servers.remove(&place);
        Some(place)
    }

    /// The first free place.
    pub fn free(&self, topology: &SwitchTree) -> Option<Place> {
        let taken = (0..).zip(self.servers.keys()).take_while(|(number, place)| place.0 == *number).count();
        Some(Place(taken as u32)).filter(|place| place.0 < topology.places())
    }

    /// Where a server is.
    pub fn place(&self, server: ServerId) -> Option<Place> {
        self.places.get(&server).copied()
    }

    /// Who is at a place.
    pub fn server(&self, place: Place) -> Option<ServerId> {
        self.servers.get(&place).copied()
    }

    /// All servers, in the order of their places.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Place, ServerId)> + '_ {
        self.servers.iter().map(|(place, server)| (*place, *server))
    }

    /// How many servers are plugged in.
    pub fn count(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_routing::Shape;

    #[test]
    fn more_servers_than_places_are_refused_with_the_numbers() {
        let topology = Shape::two_tiers(2, 2).unwrap().switch_tree().unwrap();
        let servers: Vec<_> = (1..=5).map(ServerId).collect();
        assert_eq!(Hosts::in_order(&topology, &servers), Err(PartitionError::NoPlace(4, 5)));
        let mut hosts = Hosts::in_order(&topology, &servers[..3]).unwrap();
        assert_eq!(hosts.free(&topology), Some(Place(3)));
        assert_eq!(hosts.unplug(ServerId(2)), Some(Place(1)));
        assert_eq!((hosts.free(&topology), hosts.server(Place(1)), hosts.count()), (Some(Place(1)), None, 2));
        assert_eq!(hosts.plug(&topology, ServerId(1), Place(1)), Err(PartitionError::Known(ServerId(1))));
    }

    #[test]
    fn a_place_that_is_taken_or_does_not_exist_is_refused_as_what_it_is() {
        let topology = Shape::two_tiers(2, 2).unwrap().switch_tree().unwrap();
        let mut hosts = Hosts::in_order(&topology, &[1, 2].map(ServerId)).unwrap();
        let before = hosts.clone();
        let mut refusal = |place| hosts.plug(&topology, ServerId(9), Place(place)).unwrap_err().to_string();
        assert_eq!(refusal(1), "place 1 is taken by server s2; give a free one");
        assert_eq!(refusal(4), "the topology has no place 4; give 0 to 3");
        assert_eq!(hosts, before);
        assert_eq!(hosts.plug(&topology, ServerId(9), Place(3)), Ok(()));
    }
}
