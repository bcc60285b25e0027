//! What a flow server believes about the flows of a network: paths, rates, and what each has still to carry.
//!
//! Mayflower section IV.B. A new flow gets on each hop the max-min share of one who wants everything, where
//! the others want what they have; the smallest of these is its rate. Those on its path get their share
//! beside one who wants that much. Flows elsewhere are not looked at: what that gets wrong is put right by
//! measured bytes, so errors do not add up. Beyond the paper they can be exact: then every change is followed
//! through the whole network, and rates are not those measured. Invariants: rates are finite and not
//! negative; what is reported of unknown flows changes nothing. This module must not know replicas.

use crate::paths::{Path, Route};
use crate::rate::Rate;
use crate::shares::{FlowId, Shares};
use crate::topology::{Hop, LinkId, Place, Topology};
use bearing_types::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long estimates of a new flow, and of those on its path, are not replaced by measured rates: flows need
/// a while to converge (section IV.B, "update-freeze").
const FREEZE: Duration = Duration::from_secs(1);
/// Flows of which reports say that nothing moves, or which by their rate are over, are forgotten after so
/// long, if nobody tells their end.
const SILENT: Duration = Duration::from_secs(10);
/// Others of which nothing is heard.
const LOST: Duration = Duration::from_secs(120);
/// What a flow of unknown size carries, until sizes of others have been seen.
const UNKNOWN_BYTES: f64 = (64 << 20) as f64;
/// The weight of one more size in their mean.
const MEAN_WEIGHT: f64 = 0.05;
/// More flows than this are not kept: the oldest is forgotten. 64 hosts with 1,000 flows are published.
pub const FLOWS_MAX: usize = 65_536;

/// What limits flows: a hop, or the disk of a data server, by number; disks follow the hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Carrier(u32);

/// What is believed of a flow.
#[derive(Clone, Debug)]
struct Flow {
    id: FlowId,
    carriers: Vec<Carrier>,
    /// Bytes, at `as_of`.
    remaining: f64,
    as_of: Mono,
    size: Option<u64>,
    /// The last report: when, and how many bytes had been carried by then.
    reported: (Mono, u64),
    frozen_until: Mono,
    /// When it last moved, or began.
    moved: Mono,
}

impl Flow {
    /// What it has still to carry, if it had this rate since it was last looked at.
    fn remaining_at(&self, now: Mono, rate: f64) -> f64 {
        (self.remaining - rate * now.since(self.as_of).as_secs_f64()).max(0.0)
    }
}

/// Up to which rate flows of a carrier are served beside one more.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// Computed when there had been so many changes.
    changes: u64,
    demand: f64,
    /// `None` if all get what they want.
    level: Option<f64>,
}

/// What a further flow would get and do to others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// What it would get.
    pub rate: Rate,
    /// By how many seconds, in sum, others would end later.
    pub impact: f64,
    /// What flows of the same read would lose.
    pub own_loss: Rate,
}

/// A flow that is not there for a while.
#[derive(Debug)]
pub struct Lifted {
    slot: Option<u32>,
    rate: f64,
}

impl Lifted {
    /// The rate that it had and will have.
    pub fn rate(&self) -> Rate {
        Rate::of(self.rate)
    }
}

/// How rates were before a flow was tried.
#[derive(Debug)]
pub struct Undo {
    id: FlowId,
    rates: Vec<(u32, f64)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Estimates {
    hops: u32,
    capacities: Vec<f64>,
    /// By carrier: the slots of its flows.
    on: Vec<Vec<u32>>,
    slots: Vec<Option<Flow>>,
    /// By slot: bytes a second. Apart from the flows, as nothing is read as often.
    rates: Vec<f64>,
    /// By carrier: what was computed last, for one who wants all and for one who wants what the path gives.
    levels: [Vec<Level>; 2],
    /// Counts changes of flows and rates: what was computed before the last one is void.
    changes: u64,
    free: Vec<u32>,
    by_id: BTreeMap<FlowId, u32>,
    next: u64,
    mean_bytes: f64,
    /// Reports of flows that nobody has told of.
    unknown_reports: u64,
    /// By slot: the rate it would have, while a price is made; see `stamps`.
    reduced: Vec<f64>,
    /// By slot: the number of the price that `reduced` is of.
    stamps: Vec<u64>,
    stamp: u64,
    touched: Vec<u32>,
    /// The shares that rates are, if they are exact.
    exact: Option<Shares>,
}

/// The flow that is not there but in a price.
const TRIAL: FlowId = FlowId(u64::MAX);

impl Estimates {
    /// As [`Estimates::new`], but exact.
    pub fn exact(topology: &Topology) -> Estimates {
        let estimates = Estimates::new(topology);
        let exact = Some(Shares::new(estimates.capacities.iter().map(|bytes| Rate::of(*bytes))));
        Estimates { exact, ..estimates }
    }

    /// What a change has done to the shares is what flows have. Which these are, and what they had.
    fn follow(&mut self, now: Mono) -> Vec<(u32, f64)> {
        let Some(shares) = &mut self.exact else { return Vec::new() };
        let changed: Vec<(FlowId, f64)> =
            shares.settle().into_iter().map(|id| (id, shares.rate(id).bytes())).collect();
        let mut before = Vec::with_capacity(changed.len());
        for (id, rate) in changed {
            if let Some(slot) = self.by_id.get(&id).copied() {
                before.push((slot, self.rates[slot as usize]));
                self.set_rate(now, slot, rate);
            }
        }
        before
    }

    fn exact_price(&mut self, now: Mono, carriers: &[Carrier], own: &[FlowId]) -> Option<Price> {
        let shares = self.exact.as_mut()?;
        shares.add(TRIAL, hops_of(carriers), Rate::UNBOUNDED);
        let changed = shares.settle();
        let mut price = Price { rate: shares.rate(TRIAL), impact: 0.0, own_loss: Rate::ZERO };
        let (mut loss, shares) = (0.0, self.exact.as_ref()?);
        for id in changed.into_iter().filter(|id| *id != TRIAL) {
            let Some(slot) = self.by_id.get(&id).copied() else { continue };
            let (before, after) = (self.rates[slot as usize], shares.rate(id).bytes().max(1.0));
            if own.contains(&id) {
                loss += before - after;
            } else if before > 0.0 {
                let remaining = self.flow(slot).remaining_at(now, before);
                price.impact += remaining / after - remaining / before;
            }
        }
        price.own_loss = Rate::of(loss);
        let shares = self.exact.as_mut()?;
        shares.remove(TRIAL);
        shares.settle();
        Some(price)
    }

    /// Of a network in which nothing flows, and whose disks are faster than its links.
    pub fn new(topology: &Topology) -> Estimates {
        let hops = topology.hops();
        let links = (0..hops as u32).map(|hop| topology.capacity(LinkId(hop / 2)).bytes());
        let disks = (0..topology.places()).map(|_| f64::MAX);
        let capacities: Vec<f64> = links.chain(disks).collect();
        Estimates {
            hops: hops as u32,
            on: vec![Vec::new(); capacities.len()],
            levels: [(); 2].map(|()| vec![Level { changes: 0, demand: 0.0, level: None }; capacities.len()]),
            changes: 1,
            rates: Vec::new(),
            capacities,
            slots: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            next: 0,
            mean_bytes: UNKNOWN_BYTES,
            unknown_reports: 0,
            reduced: Vec::new(),
            stamps: Vec::new(),
            stamp: 0,
            touched: Vec::new(),
            exact: None,
        }
    }

    /// What a flow from a data server by a route crosses.
    pub fn carriers(&self, source: Place, route: Route<'_>) -> Vec<Carrier> {
        let mut carriers = vec![self.disk(source)];
        carriers.extend(route.hops().map(|hop| Carrier(hop.index() as u32)));
        carriers
    }

    /// What a flow from a host by a path crosses, as far as the path is in this network. Not the disk: what
    /// others send need not come from it.
    pub fn carriers_of(&self, path: &Path) -> Vec<Carrier> {
        let hops = path.0.iter().map(|hop| Carrier(hop.index() as u32));
        hops.filter(|carrier| carrier.0 < self.hops).collect()
    }

    fn disk(&self, place: Place) -> Carrier {
        Carrier(self.hops + place.0)
    }

    /// What a data server's disk gives in all. Measured, or not known (`None`).
    pub fn set_disk(&mut self, place: Place, rate: Option<Rate>) {
        let disk = self.disk(place).0 as usize;
        self.capacities[disk] = rate.map_or(f64::MAX, |rate| rate.bytes().max(1.0));
        self.changes += 1;
        if let Some(shares) = &mut self.exact {
            shares.set_capacity(Hop::numbered(disk as u32), Rate::of(self.capacities[disk]));
        }
    }

    /// How many flows there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// How many reports were about unknown flows.
    pub fn unknown_reports(&self) -> u64 {
        self.unknown_reports
    }

    fn flow(&self, slot: u32) -> &Flow {
        self.slots[slot as usize].as_ref().expect("a slot that a carrier names is taken")
    }

    fn flow_mut(&mut self, slot: u32) -> &mut Flow {
        self.slots[slot as usize].as_mut().expect("a slot that a carrier names is taken")
    }

    /// Another rate from now on.
    fn set_rate(&mut self, now: Mono, slot: u32, rate: f64) {
        let before = std::mem::replace(&mut self.rates[slot as usize], rate);
        let flow = self.flow_mut(slot);
        flow.remaining = flow.remaining_at(now, before);
        flow.as_of = now;
        self.changes += 1;
    }

    /// The estimated rate of a flow.
    pub fn rate(&self, id: FlowId) -> Option<Rate> {
        self.by_id.get(&id).map(|slot| Rate::of(self.rates[*slot as usize]))
    }

    /// Bytes that a flow has still to carry, as far as is known.
    pub fn remaining(&self, now: Mono, id: FlowId) -> Option<f64> {
        let slot = *self.by_id.get(&id)?;
        Some(self.flow(slot).remaining_at(now, self.rates[slot as usize]))
    }

    /// All flows by number, with their hops.
    pub fn flows(&self) -> impl Iterator<Item = (FlowId, Rate, Vec<Hop>)> + '_ {
        self.by_id.iter().map(|(id, slot)| {
            let flow = self.flow(*slot);
            let hops = flow.carriers.iter().filter(|carrier| carrier.0 < self.hops);
            (
                *id,
                Rate::of(self.rates[*slot as usize]),
                hops.map(|carrier| Hop::numbered(carrier.0)).collect(),
            )
        })
    }

    /// The sum of estimates over a hop.
    pub fn load(&self, hop: Hop) -> Rate {
        Rate::of(self.on[hop.index()].iter().map(|slot| self.rates[*slot as usize]).sum())
    }

    /// How many flows cross any of these.
    pub fn sharing(&self, carriers: &[Carrier]) -> usize {
        let slots: BTreeSet<u32> =
            carriers.iter().flat_map(|carrier| &self.on[carrier.0 as usize]).copied().collect();
        slots.len()
    }

    /// As [`Estimates::computed_level`], which it asks only if something has changed. `which` keeps questions
    /// apart that alternate.
    fn level(&mut self, which: usize, carrier: Carrier, demand: f64) -> Option<f64> {
        let known = self.levels[which][carrier.0 as usize];
        if known.changes == self.changes && known.demand == demand {
            return known.level;
        }
        let level = self.computed_level(carrier, demand);
        self.levels[which][carrier.0 as usize] = Level { changes: self.changes, demand, level };
        level
    }

    /// The level up to which flows of a carrier are served if one more wants `demand` there, or `None` if all
    /// get what they want.
    fn computed_level(&self, carrier: Carrier, demand: f64) -> Option<f64> {
        let capacity = self.capacities[carrier.0 as usize];
        let rates = || self.on[carrier.0 as usize].iter().map(|slot| self.rates[*slot as usize]);
        let (sum, count) = rates().fold((demand, 1.0), |(sum, count), rate| (sum + rate, count + 1.0));
        if sum <= capacity {
            return None;
        }
        let mut level = capacity / count;
        loop {
            let under = |(sum, above): (f64, f64), rate: f64| {
                if rate <= level { (sum + rate, above) } else { (sum, above + 1.0) }
            };
            let (sum, above) = rates().chain([demand]).fold((0.0, 0.0), under);
            let risen = if above > 0.0 { (capacity - sum) / above } else { level };
            if risen <= level * (1.0 + 1e-12) {
                return Some(level);
            }
            level = risen;
        }
    }

    /// What a flow over these carriers would get, and do to others; `own` are flows of the same read, whose
    /// losses are no impact on others.
    pub fn price(&mut self, now: Mono, carriers: &[Carrier], own: &[FlowId]) -> Price {
        if let Some(price) = self.exact_price(now, carriers, own) {
            return price;
        }
        let rate = carriers
            .iter()
            .map(|carrier| {
                let capacity = self.capacities[carrier.0 as usize];
                self.level(0, *carrier, capacity).unwrap_or(capacity)
            })
            .fold(f64::MAX, f64::min);
        self.reduce(carriers, rate);
        let (mut impact, mut own_loss) = (0.0, 0.0);
        for slot in &self.touched {
            let (rate, reduced) = (self.rates[*slot as usize], self.reduced[*slot as usize]);
            let flow = self.flow(*slot);
            if own.contains(&flow.id) {
                own_loss += rate - reduced;
            } else {
                let remaining = flow.remaining_at(now, rate);
                impact += remaining / reduced - remaining / rate;
            }
        }
        Price { rate: Rate::of(rate), impact, own_loss: Rate::of(own_loss) }
    }

    /// Notes in `touched` and `reduced` which flows get less beside one of this rate.
    fn reduce(&mut self, carriers: &[Carrier], rate: f64) {
        self.stamp += 1;
        self.touched.clear();
        for carrier in carriers {
            let Some(level) = self.level(1, *carrier, rate).map(|level| level.max(1.0)) else { continue };
            for slot in &self.on[carrier.0 as usize] {
                let index = *slot as usize;
                if self.rates[index] <= level {
                    continue;
                }
                if self.stamps[index] == self.stamp {
                    self.reduced[index] = self.reduced[index].min(level);
                } else {
                    (self.stamps[index], self.reduced[index]) = (self.stamp, level);
                    self.touched.push(*slot);
                }
            }
        }
    }

    /// Adds a flow of this rate, and gives others what they have beside it. It can be undone as long as
    /// nothing else was changed.
    pub fn attempt(
        &mut self,
        now: Mono,
        carriers: Vec<Carrier>,
        size: Option<u64>,
        rate: Rate,
    ) -> (FlowId, Undo) {
        let id = FlowId(self.next);
        self.next += 1;
        if let Some(shares) = &mut self.exact {
            shares.add(id, hops_of(&carriers), Rate::UNBOUNDED);
            self.insert(now, id, carriers, size, rate.bytes());
            let rates = self.follow(now);
            return (id, Undo { id, rates });
        }
        self.reduce(&carriers, rate.bytes());
        let touched = std::mem::take(&mut self.touched);
        let mut rates = Vec::with_capacity(touched.len());
        for slot in &touched {
            rates.push((*slot, self.rates[*slot as usize]));
            self.set_rate(now, *slot, self.reduced[*slot as usize]);
        }
        self.touched = touched;
        self.insert(now, id, carriers, size, rate.bytes());
        (id, Undo { id, rates })
    }

    /// Takes the last attempt back.
    pub fn undo(&mut self, undo: Undo) {
        let slot = self.by_id.get(&undo.id).copied();
        self.take_out(undo.id);
        if let Some(shares) = &mut self.exact {
            shares.settle();
        }
        for (slot, rate) in undo.rates.into_iter().filter(|(other, _)| Some(*other) != slot) {
            self.rates[slot as usize] = rate;
        }
    }

    /// Prices are made as if a flow were not there, until it is put back. Unknown ones are as nothing.
    pub fn lift(&mut self, id: FlowId) -> Lifted {
        let slot = self.by_id.get(&id).copied();
        let rate = slot.map_or(0.0, |slot| std::mem::take(&mut self.rates[slot as usize]));
        if let Some(shares) = &mut self.exact {
            shares.remove(id);
            shares.settle();
        }
        self.changes += 1;
        Lifted { slot, rate }
    }

    /// The flow that was lifted has its rate again.
    pub fn put_back(&mut self, lifted: Lifted) {
        if let Some(slot) = lifted.slot {
            self.rates[slot as usize] = lifted.rate;
            let (id, hops) = (self.flow(slot).id, hops_of(&self.flow(slot).carriers));
            if let Some(shares) = &mut self.exact {
                shares.add(id, hops, Rate::UNBOUNDED);
                shares.settle();
            }
        }
        self.changes += 1;
    }

    /// Whether measured rates of a flow do not count yet.
    pub fn is_frozen(&self, now: Mono, id: FlowId) -> bool {
        self.by_id.get(&id).is_some_and(|slot| now < self.flow(*slot).frozen_until)
    }

    /// Keeps the estimates of a flow and of all on its path for a while.
    pub fn freeze(&mut self, now: Mono, id: FlowId) {
        let Some(slot) = self.by_id.get(&id) else { return };
        let flow = self.flow(*slot);
        let on_path: Vec<u32> =
            flow.carriers.iter().flat_map(|carrier| &self.on[carrier.0 as usize]).copied().collect();
        for slot in on_path {
            self.flow_mut(slot).frozen_until = now.after(FREEZE);
        }
    }

    /// How much a flow is to carry, from now on.
    pub fn resize(&mut self, now: Mono, id: FlowId, bytes: u64) {
        let Some(slot) = self.by_id.get(&id).copied() else { return };
        let flow = self.flow_mut(slot);
        let carried = flow.reported.1.min(bytes);
        (flow.size, flow.remaining, flow.as_of) = (Some(bytes), (bytes - carried) as f64, now);
    }

    fn insert(&mut self, now: Mono, id: FlowId, carriers: Vec<Carrier>, size: Option<u64>, rate: f64) {
        if self.by_id.len() >= FLOWS_MAX
            && let Some((oldest, _)) = self.by_id.first_key_value()
        {
            self.take_out(*oldest);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.rates.push(0.0);
            self.reduced.push(0.0);
            self.stamps.push(0);
            self.slots.len() as u32 - 1
        });
        for carrier in &carriers {
            self.on[carrier.0 as usize].push(slot);
        }
        let remaining = size.map_or(self.mean_bytes, |size| size as f64);
        let (reported, frozen_until) = ((now, 0), now);
        self.slots[slot as usize] =
            Some(Flow { id, carriers, remaining, as_of: now, size, reported, frozen_until, moved: now });
        self.by_id.insert(id, slot);
        self.rates[slot as usize] = rate;
        self.changes += 1;
    }

    fn take_out(&mut self, id: FlowId) -> Option<Flow> {
        let slot = self.by_id.remove(&id)?;
        let flow = self.slots[slot as usize].take()?;
        for carrier in &flow.carriers {
            self.on[carrier.0 as usize].retain(|other| *other != slot);
        }
        if let Some(shares) = &mut self.exact {
            shares.remove(id);
        }
        self.free.push(slot);
        self.changes += 1;
        Some(flow)
    }

    /// A flow has ended: those on its path share what it leaves, beside the others, who keep what they have.
    /// Tells whether it was known.
    pub fn end(&mut self, now: Mono, id: FlowId) -> bool {
        let Some(ended) = self.take_out(id) else { return false };
        if let Some(size) = ended.size {
            self.mean_bytes += MEAN_WEIGHT * (size as f64 - self.mean_bytes);
        }
        if self.exact.is_some() {
            self.follow(now);
            return true;
        }
        let mut rising: Vec<u32> = Vec::new();
        for carrier in &ended.carriers {
            rising.extend(&self.on[carrier.0 as usize]);
        }
        rising.sort_unstable();
        rising.dedup();
        self.raise(now, &rising);
        true
    }

    /// Progressive filling among these flows, above what they have; all others keep what they have.
    fn raise(&mut self, now: Mono, rising: &[u32]) {
        let mut left: BTreeMap<Carrier, (f64, u32)> = BTreeMap::new();
        for carrier in rising.iter().flat_map(|slot| &self.flow(*slot).carriers) {
            let load =
                || self.on[carrier.0 as usize].iter().map(|slot| self.rates[*slot as usize]).sum::<f64>();
            let spare = || (self.capacities[carrier.0 as usize] - load()).max(0.0);
            left.entry(*carrier).or_insert_with(|| (spare(), 0)).1 += 1;
        }
        let mut open: Vec<u32> = rising.to_vec();
        while !open.is_empty() {
            let step = |(spare, count): &(f64, u32)| spare / f64::from(*count);
            let full = left
                .iter()
                .filter(|(_, left)| left.1 > 0)
                .min_by(|one, other| step(one.1).total_cmp(&step(other.1)));
            let Some((full, level)) = full.map(|(carrier, left)| (*carrier, step(left))) else { break };
            for slot in &open {
                self.set_rate(now, *slot, self.rates[*slot as usize] + level);
                for carrier in &self.flow(*slot).carriers {
                    if let Some(left) = left.get_mut(carrier) {
                        left.0 = (left.0 - level).max(0.0);
                    }
                }
            }
            let (stopped, further): (Vec<u32>, Vec<u32>) =
                open.iter().partition(|slot| self.flow(**slot).carriers.contains(&full));
            for carrier in stopped.iter().flat_map(|slot| &self.flow(*slot).carriers) {
                if let Some(left) = left.get_mut(carrier) {
                    left.1 -= 1;
                }
            }
            open = further;
        }
    }

    /// A flow has carried so many bytes in all. Its rate since the last report counts unless it is frozen;
    /// what remains is known anew in any case.
    pub fn report(&mut self, now: Mono, id: FlowId, carried: u64) {
        let Some(slot) = self.by_id.get(&id).copied() else {
            self.unknown_reports += 1;
            return;
        };
        let (mean, is_exact) = (self.mean_bytes, self.exact.is_some());
        let flow = self.flow_mut(slot);
        let (last, before) = flow.reported;
        // Reports that were overtaken say nothing new.
        if carried < before || now <= last {
            return;
        }
        if carried > before {
            flow.moved = now;
        }
        let measured = (now >= flow.frozen_until && !is_exact)
            .then(|| Rate::measured(carried - before, now.since(last).as_nanos() as u64));
        flow.reported = (now, carried);
        flow.remaining = flow.size.map_or(mean, |size| size.saturating_sub(carried) as f64);
        flow.as_of = now;
        if let Some(measured) = measured {
            self.rates[slot as usize] = measured.bytes();
            self.changes += 1;
        }
    }

    /// Forgets flows of which nothing has moved for long, and which by their rates should have ended. Tells
    /// which.
    pub fn expire(&mut self, now: Mono) -> Vec<FlowId> {
        let is_over = |slot: u32| {
            let flow = self.flow(slot);
            let silent = now.since(flow.moved);
            let is_done = flow.remaining_at(now, self.rates[slot as usize]) <= 0.0
                || now.since(flow.reported.0) < SILENT;
            silent >= LOST || (silent >= SILENT && is_done)
        };
        let over: Vec<FlowId> =
            self.by_id.iter().filter(|(_, slot)| is_over(**slot)).map(|(id, _)| *id).collect();
        for id in &over {
            self.end(now, *id);
        }
        over
    }
}

fn hops_of(carriers: &[Carrier]) -> Vec<Hop> {
    carriers.iter().map(|carrier| Hop::numbered(carrier.0)).collect()
}

#[cfg(test)]
mod tests;
