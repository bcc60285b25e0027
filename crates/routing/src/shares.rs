//! Max-min fair shares, exact: what flows get that all want as much as they can have.
//!
//! Progressive filling: all rates rise together; where a link is full, its flows stop. Invariants: no hop
//! carries more than its capacity; every flow either has what it wants or crosses a full hop on which nobody
//! has more. A change is settled among the flows that it can reach by way of shared hops, and no others are
//! touched. This module must not know estimates or sizes.

use crate::rate::Rate;
use crate::topology::Hop;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// A flow, by whatever number its owner gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

#[derive(Clone, Debug)]
struct Flow {
    hops: Vec<Hop>,
    demand: Rate,
    rate: Rate,
}

#[derive(Clone, Debug)]
struct Carrier {
    capacity: Rate,
    flows: Vec<FlowId>,
}

/// Flows over a network, and what each gets.
#[derive(Clone, Debug)]
pub struct Shares {
    hops: Vec<Carrier>,
    flows: BTreeMap<FlowId, Flow>,
    /// Hops whose flows have changed since the last settling.
    unsettled: Vec<Hop>,
}

impl Shares {
    /// Over hops with these capacities, by index. Nothing flows.
    pub fn new(capacities: impl IntoIterator<Item = Rate>) -> Shares {
        let carrier = |capacity| Carrier { capacity, flows: Vec::new() };
        Shares {
            hops: capacities.into_iter().map(carrier).collect(),
            flows: BTreeMap::new(),
            unsettled: Vec::new(),
        }
    }

    /// A flow over these hops that wants at most so much. Replaces one of the same number.
    pub fn add(&mut self, id: FlowId, hops: Vec<Hop>, demand: Rate) {
        self.remove(id);
        for hop in &hops {
            self.hops[hop.index()].flows.push(id);
        }
        self.unsettled.extend(&hops);
        let rate = if hops.is_empty() { demand } else { Rate::ZERO };
        self.flows.insert(id, Flow { hops, demand, rate });
    }

    /// A flow is over. Tells whether there was one.
    pub fn remove(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.flows.remove(&id) else { return false };
        for hop in &flow.hops {
            self.hops[hop.index()].flows.retain(|other| *other != id);
        }
        self.unsettled.extend(flow.hops);
        true
    }

    /// A hop carries so much from now on.
    pub fn set_capacity(&mut self, hop: Hop, capacity: Rate) {
        self.hops[hop.index()].capacity = capacity;
        self.unsettled.push(hop);
    }

    /// What a flow has since the last settling.
    pub fn rate(&self, id: FlowId) -> Rate {
        self.flows.get(&id).map_or(Rate::ZERO, |flow| flow.rate)
    }

    /// All flows and what they have.
    pub fn iter(&self) -> impl Iterator<Item = (FlowId, Rate)> + '_ {
        self.flows.iter().map(|(id, flow)| (*id, flow.rate))
    }

    /// Gives all flows that a change can have reached what they get now. Tells which these were.
    pub fn settle(&mut self) -> Vec<FlowId> {
        let (mut hops, mut flows) = (std::mem::take(&mut self.unsettled), Vec::new());
        let mut seen_hops = vec![false; self.hops.len()];
        let mut seen_flows = std::collections::BTreeSet::new();
        let mut reached = Vec::new();
        while let Some(hop) = hops.pop() {
            if std::mem::replace(&mut seen_hops[hop.index()], true) {
                continue;
            }
            reached.push(hop);
            for id in &self.hops[hop.index()].flows {
                if seen_flows.insert(*id) {
                    flows.push(*id);
                    hops.extend(&self.flows[id].hops);
                }
            }
        }
        flows.sort();
        self.fill(&flows, &reached);
        flows
    }

    /// Progressive filling of flows that share no hop with others.
    fn fill(&mut self, flows: &[FlowId], hops: &[Hop]) {
        let mut left: BTreeMap<Hop, Left> = hops
            .iter()
            .map(|hop| {
                let carrier = &self.hops[hop.index()];
                (*hop, Left { capacity: carrier.capacity.bytes(), flows: carrier.flows.len() as f64 })
            })
            .filter(|(_, left)| left.flows > 0.0)
            .collect();
        let mut next: BinaryHeap<Reverse<Stop>> = BinaryHeap::new();
        next.extend(left.iter().map(|(hop, left)| Reverse(Stop(left.level(), Cause::Full(*hop)))));
        let demands = flows.iter().filter(|id| self.flows[id].demand < Rate::UNBOUNDED);
        next.extend(demands.map(|id| Reverse(Stop(self.flows[id].demand.bytes(), Cause::Wants(*id)))));
        let mut open: std::collections::BTreeSet<FlowId> = flows.iter().copied().collect();
        while let Some(Reverse(Stop(level, cause))) = next.pop() {
            let stopped: Vec<FlowId> = match cause {
                Cause::Wants(id) => open.contains(&id).then_some(id).into_iter().collect(),
                Cause::Full(hop) => {
                    let actual = left[&hop].level();
                    if left[&hop].flows < 0.5 {
                        continue;
                    }
                    // Flows that stopped elsewhere have left more to the others.
                    if actual > level {
                        next.push(Reverse(Stop(actual, cause)));
                        continue;
                    }
                    self.hops[hop.index()].flows.iter().filter(|id| open.contains(id)).copied().collect()
                }
            };
            for id in stopped {
                open.remove(&id);
                let flow = self.flows.get_mut(&id).expect("an open flow");
                flow.rate = Rate::of(level);
                for hop in &flow.hops {
                    if let Some(left) = left.get_mut(hop) {
                        left.capacity = (left.capacity - level).max(0.0);
                        left.flows -= 1.0;
                    }
                }
            }
        }
    }
}

/// What is left of a hop while its flows rise.
#[derive(Clone, Copy, Debug)]
struct Left {
    capacity: f64,
    flows: f64,
}

impl Left {
    fn level(self) -> f64 {
        if self.flows < 0.5 { f64::MAX } else { self.capacity / self.flows }
    }
}

/// At which rate flows stop rising, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stop(f64, Cause);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Wants(FlowId),
    Full(Hop),
}

impl Eq for Stop {}

impl Ord for Stop {
    fn cmp(&self, other: &Stop) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Stop {
    fn partial_cmp(&self, other: &Stop) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hop(index: u32) -> Hop {
        Hop::numbered(index)
    }

    /// Rates rise by as much as the tightest hop or demand allows, all together, again and again.
    fn slow(capacities: &[f64], flows: &[(Vec<u32>, f64)]) -> Vec<f64> {
        let (mut rates, mut open) = (vec![0.0; flows.len()], vec![true; flows.len()]);
        while open.contains(&true) {
            let crossing = |hop: usize| {
                let on = |index: &usize| flows[*index].0.contains(&(hop as u32));
                (0..flows.len()).filter(on).collect::<Vec<_>>()
            };
            let step_of = |hop: usize| {
                let all = crossing(hop);
                let rising = all.iter().filter(|index| open[**index]).count();
                let used: f64 = all.iter().map(|index| rates[*index]).sum();
                if rising == 0 { f64::MAX } else { ((capacities[hop] - used) / rising as f64).max(0.0) }
            };
            let wanted =
                (0..flows.len()).filter(|index| open[*index]).map(|index| flows[index].1 - rates[index]);
            let step = (0..capacities.len()).map(step_of).chain(wanted).fold(f64::MAX, f64::min);
            for index in 0..flows.len() {
                rates[index] += if open[index] { step } else { 0.0 };
            }
            let full: Vec<usize> = (0..capacities.len())
                .filter(|hop| {
                    let used: f64 = crossing(*hop).iter().map(|index| rates[*index]).sum();
                    used >= capacities[*hop] * (1.0 - 1e-9)
                })
                .collect();
            for index in 0..flows.len() {
                let stops = flows[index].0.iter().any(|hop| full.contains(&(*hop as usize)));
                open[index] &= !(stops || rates[index] >= flows[index].1 * (1.0 - 1e-9));
            }
        }
        rates
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-6 * one.abs().max(other.abs()).max(1.0)
    }

    #[test]
    fn cases_worked_by_hand() {
        let rates = |capacities: &[f64], flows: &[(&[u32], f64)]| {
            let mut shares = Shares::new(capacities.iter().map(|capacity| Rate::of(*capacity)));
            for (id, (hops, demand)) in (0..).zip(flows) {
                shares.add(FlowId(id), hops.iter().map(|index| hop(*index)).collect(), Rate::of(*demand));
            }
            shares.settle();
            shares.iter().map(|(_, rate)| rate.bytes()).collect::<Vec<_>>()
        };
        let all = f64::MAX;
        // One link shared by three; the two that want little leave the rest.
        assert_eq!(rates(&[10.0], &[(&[0], all), (&[0], all)]), [5.0, 5.0]);
        assert_eq!(rates(&[10.0], &[(&[0], 2.0), (&[0], 2.0), (&[0], all)]), [2.0, 2.0, 6.0]);
        // The line network: a long flow and a short one on each link.
        assert_eq!(rates(&[10.0, 10.0], &[(&[0, 1], all), (&[0], all), (&[1], all)]), [5.0, 5.0, 5.0]);
        // A parking lot: who stops early leaves more to the others.
        assert_eq!(
            rates(&[6.0, 12.0], &[(&[0, 1], all), (&[0], all), (&[0], all), (&[1], all)]),
            [2.0, 2.0, 2.0, 10.0]
        );
        // Within a host nothing is shared.
        assert_eq!(rates(&[1.0], &[(&[], 7.0), (&[0], all)]), [7.0, 1.0]);
    }

    fn cases() -> impl Strategy<Value = (Vec<f64>, Vec<(Vec<u32>, f64)>)> {
        let capacities = proptest::collection::vec((1u32..100).prop_map(f64::from), 1..8);
        capacities.prop_flat_map(|capacities| {
            let hops = proptest::collection::btree_set(0..capacities.len() as u32, 1..5);
            let demand = prop_oneof![Just(f64::MAX), (1u32..60).prop_map(f64::from)];
            let flow = (hops.prop_map(|hops| hops.into_iter().collect()), demand);
            (Just(capacities), proptest::collection::vec(flow, 1..20))
        })
    }

    proptest! {
        #[test]
        fn shares_are_those_of_the_slow_way_after_every_change(
            (capacities, flows) in cases(),
            removed in proptest::collection::vec(0usize..20, 0..8),
        ) {
            let mut shares = Shares::new(capacities.iter().map(|capacity| Rate::of(*capacity)));
            let mut present: BTreeMap<FlowId, (Vec<u32>, f64)> = BTreeMap::new();
            let adds = flows.iter().enumerate().map(|(id, flow)| (id as u64, Some(flow.clone())));
            let changes = adds.chain(removed.iter().map(|id| (*id as u64, None)));
            for (id, flow) in changes {
                match flow {
                    Some((hops, demand)) => {
                        present.insert(FlowId(id), (hops.clone(), demand));
                        shares.add(FlowId(id), hops.into_iter().map(hop).collect(), Rate::of(demand));
                    }
                    None => {
                        prop_assert_eq!(shares.remove(FlowId(id)), present.remove(&FlowId(id)).is_some());
                    }
                }
                shares.settle();
                let listed: Vec<(Vec<u32>, f64)> = present.values().cloned().collect();
                let expected = slow(&capacities, &listed);
                for ((id, rate), expected) in shares.iter().zip(expected) {
                    prop_assert!(near(rate.bytes(), expected), "{id:?}: {rate:?}, expected {expected}");
                }
                check_max_min(&shares)?;
            }
        }
    }

    /// The definition: nothing is overfull, and who wants more crosses a full hop where nobody has more.
    fn check_max_min(shares: &Shares) -> Result<(), TestCaseError> {
        let used = |hop: &Carrier| hop.flows.iter().map(|id| shares.flows[id].rate.bytes()).sum::<f64>();
        for hop in &shares.hops {
            prop_assert!(used(hop) <= hop.capacity.bytes() * (1.0 + 1e-9));
        }
        for flow in shares.flows.values() {
            let is_bottleneck = |hop: &Hop| {
                let hop = &shares.hops[hop.index()];
                let most = hop.flows.iter().map(|id| shares.flows[id].rate.bytes()).fold(0.0, f64::max);
                used(hop) >= hop.capacity.bytes() * (1.0 - 1e-9) && near(most, flow.rate.bytes())
            };
            let has_all = near(flow.rate.bytes(), flow.demand.bytes());
            prop_assert!(has_all || flow.hops.iter().any(is_bottleneck));
        }
        Ok(())
    }
}
