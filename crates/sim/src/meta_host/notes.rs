//! What a metadata server notes, and what of it breaks a promise.

use crate::clock::MILLISECOND;
use crate::complaint::Promise;
use crate::ledger::Ledger;
use crate::meta_host::MetaHost;
use crate::nemesis::Act;
use crate::world::{Happening, World};
use bearing_meta::{Failing, Note};

impl MetaHost {
    pub(super) fn note(&mut self, world: &mut World, ledger: &mut Ledger, note: Note) {
        world.tell(|| format!("{}: {note:?}", self.server));
        match note {
            Note::Serving(tablet, epoch) => {
                world.counts.add("meta: tablets taken");
                // A member with an older disk may have learnt all of it anew.
                let learnt = world.copies > 1 && self.disks.has_less();
                if let Some(wrong) = self.disks.wrong().filter(|_| !learnt) {
                    let what = format!("{} serves {tablet} from {wrong}", self.server);
                    ledger.blame(world, Promise::RightDisk, what);
                }
                ledger.serving(world, self.host, tablet, epoch);
            }
            Note::Counting(tablet, epoch, server) => {
                let host = self.hosts.host_of(server);
                host.into_iter().for_each(|host| ledger.counts(tablet, epoch, host));
            }
            Note::TakingOver(..) => world.counts.add("meta: tablets claimed of a silent server"),
            Note::SwappedOut(_, _, Failing::Silent(..)) => {
                world.counts.add("meta: silent members swapped out")
            }
            Note::SwappedOut(_, _, Failing::Stuck(_)) => world.counts.add("meta: stuck members swapped out"),
            Note::SwappedOut(_, _, Failing::Lost) => {
                world.counts.add("meta: members that lost entries swapped out")
            }
            Note::Yielded(tablet, _, refused) => ledger.yielded(world, tablet, refused),
            Note::Left(_) => world.counts.add("meta: tablets left"),
            // A person has to do something first, as with a disk.
            Note::Unreadable(_) | Note::WrongDisk(_) if world.older_registers => {
                world.counts.add("meta: refused registers that are older");
                (self.machine, self.waits_for_registers) = (None, true);
            }
            // Somebody has put the newest back while it started: it is started again.
            Note::Unreadable(_) | Note::WrongDisk(_) if self.met_older_registers => {
                world.counts.add("meta: refused registers that are older");
                self.dying = Some("it read registers that are older".to_owned());
            }
            Note::OlderRegisters => {
                world.counts.add("meta: went on with newer registers than the coordinator had");
                if !world.had_older_registers {
                    let what = format!("{} says that the coordinator's registers are older", self.server);
                    ledger.blame(world, Promise::RightDisk, what);
                }
            }
            Note::Failed(reason) | Note::Unreadable(reason) => {
                world.counts.add("meta: stopped after a failure");
                // No fault of a disk that is drawn.
                if !reason.starts_with("sync the tablet log") {
                    let what = format!("{} stops: {reason}", self.server);
                    ledger.blame(world, Promise::NoPanic, what);
                }
                self.dying = Some(format!("it failed: {reason}"));
            }
            Note::WrongDisk(reason) => {
                world.counts.add("meta: refused a disk that is not the right one");
                if self.disks.wrong().is_none() && !self.started_spoilt && self.spoilt.is_none() {
                    let what = format!("{} refuses its own disk: {reason}", self.server);
                    ledger.blame(world, Promise::RightDisk, what);
                }
                self.machine = None;
            }
            Note::Headroom(_) | Note::Taken(..) => {}
            Note::Overtaken => {
                let what = format!("{} carries a request out before one that has waited longer", self.server);
                ledger.blame(world, Promise::FirstServed, what);
            }
            Note::DamagedStore(what) => {
                world.counts.add("meta: met a record that cannot be read");
                if world.copies == 1 {
                    ledger.blame(world, Promise::Readable, format!("{}: {what}", self.server));
                }
            }
            Note::Damaged(what) => {
                let what = format!("{} says its records are damaged: {what}", self.server);
                ledger.blame(world, Promise::Readable, what);
            }
            Note::Step(name) => {
                if name == "entries are void" {
                    self.voiding = self.gathered.last().map(|(number, _)| *number);
                }
                if !self.crash_points.meet(&mut world.counts, &mut self.rng, "", name) {
                    return;
                }
                // What a step means for others they know a moment later, and who led to it may die of it too.
                let soon = self.rng.below(5 * MILLISECOND);
                let downtime = self.rng.between(20, 900) * MILLISECOND;
                match self.rng.below(3) {
                    0 => world.after(soon, Happening::Act(Act::Crash(self.host, downtime))),
                    1 => world.after(soon, Happening::Act(Act::Crash(self.heard_last, downtime))),
                    _ => self.dying = Some(format!("a crash at {name:?}")),
                }
            }
        }
    }
}
