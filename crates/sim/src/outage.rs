//! Servers that are away for longer than any timer, processes and disks that do nothing, a coordinator that
//! is slow; what has to hold meanwhile, and how soon all is well again afterwards.

use crate::clock::{Instantly, MILLISECOND, SECOND};
use crate::cluster::{COORDINATOR_HOST, Role};
use crate::complaint::Promise;
use crate::nemesis::Act;
use crate::network::HostId;
use crate::sim::{Sim, index_of};
use crate::world::Happening;
use bearing_client::{Operation, Ticket};
use bearing_types::Block;

/// A session lives so long unrenewed.
const SESSION_LIFE: u64 = 30 * SECOND;
/// Whoever is down or stopped for longer cannot be expected to answer in time.
const LONG: u64 = 5 * SECOND;
/// When nothing is wrong any more, every tablet is served within this time.
const SERVED_WITHIN: u64 = 5 * SECOND;
/// And has all its copies within this time. Bandwidth is no limit here: tablets are small.
const RESTORED_WITHIN: u64 = 5 * SECOND;
/// How often it is looked whether all is within its bounds.
const LOOK_EVERY: u64 = SECOND;
/// So many questions may lie before one at the coordinator, about.
const QUESTIONS_QUEUED: u64 = 10;
/// What cannot be done to a stopped process is tried again after this time.
const PUT_OFF: u64 = 50 * MILLISECOND;

impl Sim {
    /// Kills a client's host and starts it at once, with a new session.
    pub fn restart_client(&mut self, number: usize) {
        let host = self.clients[number].host;
        self.crash(host);
        self.start(host);
    }

    /// A host is down for so long, whatever else happens to it.
    pub(crate) fn outage(&mut self, host: HostId, spell: u64) {
        let now = self.world.now().0;
        // One at a time is what a cluster without copies of its metadata can be asked to bear, and one very
        // long one takes long enough.
        let spell = if self.out_until.is_empty() { spell } else { spell % (10 * SECOND) };
        if matches!(self.hosts.role(host), Role::Metadata(_)) && spell > SESSION_LIFE {
            self.world.counts.add("fault: a metadata server is down for longer than a session lives");
        }
        self.excuse(spell);
        self.out_until.insert(host, now + spell);
        self.crash(host);
        self.world.after(spell, Happening::Act(Act::Start(host)));
    }

    /// A host comes up again, unless it is to be away for longer.
    pub(crate) fn start_unless_out(&mut self, host: HostId) {
        if self.out_until.get(&host).is_none_or(|until| self.world.now().0 >= *until) {
            self.start(host);
        }
    }

    /// A process or a disk does nothing for so long.
    pub(crate) fn freeze(&mut self, host: HostId, disk_only: bool, spell: u64) {
        if !self.world.is_up(host) {
            return;
        }
        if !disk_only && spell > SESSION_LIFE {
            self.world.counts.add("fault: a process is stopped for longer than a session lives");
        }
        self.excuse(spell);
        self.world.freeze(host, disk_only);
        self.world.after(spell, Happening::Act(Act::Thaw(host)));
    }

    /// A tablet, drawn by this number, is taken over by a member that has less of it than another one.
    pub(crate) fn overtake(&mut self, number: u64, spell: u64, after: u64, downtime: u64) {
        let members = |tablet| (self.ledger.owner_of(tablet), self.ledger.members_of(tablet));
        let tablets = self.ledger.tablets().map(members).filter(|(_, members)| members.len() > 2);
        let tablets: Vec<_> = tablets.collect();
        let Some((Some(owner), members)) = tablets.get(number as usize % tablets.len().max(1)) else {
            return;
        };
        let mut others: Vec<HostId> = members.iter().copied().filter(|member| member != owner).collect();
        if number >> 63 == 1 {
            others.reverse();
        }
        let [second, third] = others[..] else { return };
        self.act(Act::Cut(vec![(*owner, second)], spell));
        self.world.after(after, Happening::Act(Act::Crash(third, downtime)));
    }

    /// The owner of a tablet, drawn by this number, reaches neither the coordinator nor a member that starts.
    pub(crate) fn unheard(&mut self, number: u64, downtime: u64, spell: u64) {
        let served = |tablet| Some((self.ledger.owner_of(tablet)?, self.ledger.members_of(tablet)));
        let tablets: Vec<_> = self.ledger.tablets().filter_map(served).collect();
        let Some((owner, members)) = tablets.get(number as usize % tablets.len().max(1)) else { return };
        let others: Vec<HostId> = members.iter().copied().filter(|member| member != owner).collect();
        let Some(member) = others.get((number >> 32) as usize % others.len().max(1)) else { return };
        let (owner, member) = (*owner, *member);
        let unheard = [COORDINATOR_HOST, member].into_iter().flat_map(|far| [(owner, far), (far, owner)]);
        self.act(Act::Cut(unheard.collect(), spell));
        self.act(Act::Crash(member, downtime));
    }

    /// Each question takes the coordinator so long, for a spell; or answers of it are lost.
    pub(crate) fn dawdle(&mut self, takes: u64, loses: bool, spell: u64) {
        self.excuse(spell + QUESTIONS_QUEUED * takes);
        (self.coordinator.takes, self.coordinator.loses) = (takes, loses);
        self.world.after(spell, Happening::Act(Act::Hasten));
    }

    /// Somebody puts an older copy of the coordinator's registers back, and sees the mistake after so long.
    pub(crate) fn put_older_registers_back(&mut self, number: u64, spell: u64) {
        let wrong_disk = self.metadata.iter().any(crate::meta_host::MetaHost::has_wrong_disk);
        if !wrong_disk && self.coordinator.put_older_back(number) {
            self.world.counts.add("fault: the coordinator's registers are older");
            (self.world.older_registers, self.world.had_older_registers) = (true, true);
            self.metadata.iter_mut().for_each(|host| host.met_older_registers = true);
            self.excuse(spell + LONG);
            self.world.after(spell, Happening::Act(Act::NewestRegisters));
        }
    }

    /// The newest are there again: servers that refused the others are started.
    pub(crate) fn put_newest_registers_back(&mut self) {
        if !self.coordinator.put_newest_back() {
            return;
        }
        self.world.older_registers = false;
        let refused =
            self.hosts.metadata().filter(|host| self.metadata[index_of(*host, 1)].waits_for_registers);
        let refused: Vec<HostId> = refused.collect();
        for host in refused {
            self.crash(host);
            self.start_unless_out(host);
        }
    }

    /// For so long nobody can be expected to get through.
    pub(crate) fn excuse(&mut self, spell: u64) {
        if spell > LONG {
            self.excused = self.excused.max(Instantly(self.world.now().0 + spell));
        }
    }

    /// Whether something is tried again later, because a stopped process cannot do it now.
    pub(crate) fn put_off(&mut self, act: &Act) -> bool {
        let host = match act {
            Act::Crowd(host, ..) | Act::Uncrowd(host) | Act::Clock(host, _) => *host,
            _ => return false,
        };
        if self.world.is_frozen(host) {
            self.world.after(PUT_OFF, Happening::Act(act.clone()));
        }
        self.world.is_frozen(host)
    }

    /// Everybody is there again, and does what there is to do.
    pub(crate) fn end_outages(&mut self) {
        self.out_until.clear();
        self.excused = self.world.now();
        (self.coordinator.takes, self.coordinator.loses) = (0, false);
        self.put_newest_registers_back();
        self.replace_lost();
        let hosts: Vec<HostId> = self.hosts.all().collect();
        hosts.into_iter().for_each(|host| self.world.thaw(host));
    }

    /// The first client is asked for something.
    pub(crate) fn begin(&mut self, operation: Operation) -> Ticket {
        let Sim { clients, world, recorder, .. } = self;
        clients[0].ask(world, recorder, operation)
    }

    /// So is another one, and nobody waits for the answer.
    pub(crate) fn begin_at(&mut self, client: usize, operation: Operation) {
        let Sim { clients, world, recorder, .. } = self;
        clients[client].ask(world, recorder, operation);
    }

    /// Whether every tablet is served.
    pub(crate) fn all_served(&self) -> bool {
        let served: usize = self.metadata.iter().map(|host| host.serving().len()).sum();
        served == self.ledger.tablets().count()
    }

    /// Nothing is wrong any more: soon every tablet is served.
    pub(crate) fn expect_service(&mut self) {
        let end = self.world.now().0 + SERVED_WITHIN;
        self.run_until(end, |sim| sim.all_served());
        if !self.all_served() && self.ledger.complaints.is_empty() {
            let what =
                format!("{} s after all faults were over a tablet is not served", SERVED_WITHIN / SECOND);
            self.ledger.blame(&self.world, Promise::InTime, what);
        }
    }

    /// Nothing is wrong any more: a while later every tablet has as many copies as it is to have.
    pub(crate) fn expect_copies(&mut self) {
        let end = self.peace.0 + RESTORED_WITHIN;
        self.run_until(end, |sim| sim.lacking_copies().is_none());
        if let Some(lacking) = self.lacking_copies().filter(|_| self.ledger.complaints.is_empty()) {
            let seconds = RESTORED_WITHIN / SECOND;
            let what = format!("{seconds} s after all faults were over {lacking} has not all its copies");
            self.ledger.blame(&self.world, Promise::InTime, what);
        }
    }

    fn lacking_copies(&self) -> Option<Block> {
        let copies = usize::from(self.world.copies);
        self.ledger.tablets().find(|tablet| self.ledger.members_of(*tablet).len() < copies)
    }

    /// Whatever is kept for others stays within its limits, at all times.
    pub(crate) fn look_at_bounds(&mut self) {
        let now = self.world.now().0;
        if now < self.bounds_looked + LOOK_EVERY {
            return;
        }
        self.bounds_looked = now;
        let hosts: Vec<HostId> = self.hosts.metadata().collect();
        for host in hosts {
            for bound in self.metadata[index_of(host, 1)].bounds() {
                if bound.count > bound.count_max {
                    let what =
                        format!("{host:?} has {} {}, more than {}", bound.count, bound.name, bound.count_max);
                    self.ledger.blame(&self.world, Promise::Bounded, what);
                }
            }
        }
    }
}
