//! The part of `check` that compares the copies of tablets: each owner logs an entry at which all members say
//! what they have, by a digest of all their records, while everything goes on. Copies are the same if they
//! had the same as of the same entry.
//!
//! A tablet that gets another owner or other members meanwhile is begun anew. Servers take this from who has
//! the cluster's key only, since each digest reads a whole tablet. This module must not know what is in a
//! tablet.

use crate::ask;
use crate::tablets::{Phase, Tablets, number, view};
use anyhow::Result;
use bearing_env::{Clock, Secret};
use bearing_proto::coordinator::{AskCall, COMPARED_MAX};
use bearing_proto::tablets::{Compared, Digest, TabletRole, TabletView, TabletsView};
use bearing_server::cluster::{Cluster, Layout};
use bearing_types::{LogIndex, ServerId, TabletSerial};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a server may take for an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks at what servers have computed.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Servers that compute, and finish nothing for so long, are given up: a gigabyte takes some seconds.
const STUCK_AFTER: Duration = Duration::from_secs(120);
/// Members that do not compute what they owe for so long were started again, or came later: begun anew.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// So often a tablet is begun, while its members change.
const TRIES_MAX: u32 = 8;
/// Tablets compared at a time: as many of one owner may be under way.
const ROUND: usize = COMPARED_MAX / 4;

/// What was seen of copies.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Tablets whose copies were compared, the copies, and the records of one copy of each.
    pub tablets_compared: u64,
    pub tablet_copies_compared: u64,
    pub records_compared: u64,
    pub record_bytes_compared: u64,
    /// Tablets of which copies differ.
    pub tablets_differing: u64,
    /// Tablets with more than one copy that could not be compared.
    pub tablets_not_compared: u64,
    /// Tablets with one copy only.
    pub tablets_alone: u64,
    /// Why none was looked at, if so.
    pub copies_not_looked_at: Option<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Copies {
    pub counts: Counts,
    /// What is wrong, with the tablet.
    pub findings: Vec<(String, String)>,
}

/// Compares all copies, as far as this program may: it needs the cluster's directory and its key.
pub fn compare(layout: Option<Layout>) -> Result<Copies> {
    let not_looked_at = |why: String| {
        let counts = Counts { copies_not_looked_at: Some(why), ..Counts::default() };
        Ok(Copies { counts, findings: Vec::new() })
    };
    let Some(layout) = layout else {
        return not_looked_at("that needs the cluster's directory, with its key".to_owned());
    };
    if let Err(error) = Secret::read(&layout.cluster_key()) {
        return not_looked_at(format!("that needs the cluster's key: {error}"));
    }
    let cluster = ask::current(&layout, &Cluster::read(&layout.cluster_file())?, ANSWER_PATIENCE);
    let mut comparing = Comparing { layout: &layout, cluster: &cluster, copies: Copies::default() };
    comparing.all()?;
    Ok(comparing.copies)
}

/// A tablet that is compared.
#[derive(Clone, Debug)]
struct Tablet {
    serial: TabletSerial,
    block: String,
    owner: ServerId,
    tries: u32,
}

/// What is known of a tablet's digests.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// All that are to be had.
    All(LogIndex, BTreeMap<ServerId, Result<Digest, String>>),
    /// Some, and who owes others, and of these who computes them.
    Some(usize, Owing),
    /// The owner does not own it any more, or does not have it compared.
    Lost(String),
}

/// Members without a digest, and of these those that compute it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owing {
    all: BTreeSet<ServerId>,
    computing: BTreeSet<ServerId>,
}

struct Comparing<'a> {
    layout: &'a Layout,
    cluster: &'a Cluster,
    copies: Copies,
}

impl Comparing<'_> {
    fn all(&mut self) -> Result<()> {
        let (tablets, complaint) = Tablets::ask(self.layout, self.cluster, ANSWER_PATIENCE);
        if tablets.tablets.is_empty() {
            let why =
                complaint.map_or("no server says who owns what".to_owned(), |error| format!("{error:#}"));
            anyhow::bail!("copies of tablets cannot be compared: {why}");
        }
        let (alone, shared): (Vec<_>, Vec<_>) =
            tablets.tablets.iter().partition(|tablet| tablet.members.len() < 2);
        self.copies.counts.tablets_alone = alone.len() as u64;
        let tablet = |state: &crate::tablets::TabletState| Tablet {
            serial: TabletSerial(state.serial),
            block: state.block.clone(),
            owner: ServerId(state.owner),
            tries: 0,
        };
        let tablets: Vec<Tablet> = shared.into_iter().map(tablet).collect();
        tablets.chunks(ROUND).for_each(|round| self.round(round.to_vec()));
        Ok(())
    }

    /// Until each of these tablets is compared, or given up.
    fn round(&mut self, tablets: Vec<Tablet>) {
        let mut left = tablets;
        while !left.is_empty() {
            let begun = self.begin(&left);
            let again = self.wait(left, begun);
            left = self.find_again(again);
        }
    }

    /// Has the owners of tablets log an entry for each. Those that do not answer are found out later.
    fn begin(&self, tablets: &[Tablet]) -> BTreeMap<ServerId, Result<TabletsView, String>> {
        let mut owners: BTreeMap<ServerId, Vec<TabletSerial>> = BTreeMap::new();
        for tablet in tablets {
            owners.entry(tablet.owner).or_default().push(tablet.serial);
        }
        std::thread::scope(|scope| {
            let asking = owners.into_iter().filter_map(|(owner, tablets)| {
                let (address, call) = (self.address(owner)?, AskCall::Compare { tablets });
                let ask = move || ask::ask(self.layout, address, call, ANSWER_PATIENCE).and_then(view);
                Some((owner, scope.spawn(ask)))
            });
            let asking: Vec<_> = asking.collect();
            let told = asking.into_iter().map(|(owner, thread)| {
                let told = thread.join().expect("asking does not panic");
                (owner, told.map_err(|error| format!("{error:#}")))
            });
            told.collect()
        })
    }

    fn address(&self, server: ServerId) -> Option<SocketAddr> {
        let mut members = self.cluster.metadata.iter();
        members.find(|member| member.number == number(server)).map(|member| member.address)
    }

    /// Waits for digests. Gives back the tablets that are to be begun anew, with the reason.
    fn wait(
        &mut self,
        tablets: Vec<Tablet>,
        begun: BTreeMap<ServerId, Result<TabletsView, String>>,
    ) -> Vec<(Tablet, String)> {
        let (mut again, mut left) = (Vec::new(), tablets);
        let (mut told, mut news) = (begun, ((0, 0), Clock.mono()));
        loop {
            let mut count = 0;
            let mut waiting = Vec::new();
            for tablet in left {
                match known(&tablet, &told) {
                    Known::All(index, digests) => self.judge(&tablet, index, &digests),
                    Known::Lost(why) => again.push((tablet, why)),
                    Known::Some(digests, owing) => {
                        count += digests;
                        waiting.push((tablet, owing));
                    }
                }
            }
            let state = (waiting.len(), count);
            if state != news.0 {
                news = (state, Clock.mono());
            }
            let computes = waiting.iter().any(|(_, owing): &(Tablet, Owing)| !owing.computing.is_empty());
            let patience = if computes { STUCK_AFTER } else { LOST_AFTER };
            if Clock.mono().since(news.1) >= patience {
                again.extend(waiting.into_iter().map(|(tablet, owing)| {
                    let tries = if computes { TRIES_MAX } else { tablet.tries };
                    let why = format!("{} had no digest within {patience:?}", names(&owing.all));
                    (Tablet { tries, ..tablet }, why)
                }));
                return again;
            }
            if waiting.is_empty() {
                return again;
            }
            left = waiting.into_iter().map(|(tablet, _)| tablet).collect();
            std::thread::sleep(LOOK_PAUSE);
            told = self.look();
        }
    }

    fn look(&self) -> BTreeMap<ServerId, Result<TabletsView, String>> {
        let addresses: Vec<SocketAddr> = self.cluster.metadata.iter().map(|member| member.address).collect();
        let told = ask::each(self.layout, &addresses, &AskCall::Tablets, ANSWER_PATIENCE);
        let numbers = self.cluster.metadata.iter().map(|member| ServerId(member.number));
        let told = told.into_iter().map(|told| told.and_then(view).map_err(|error| format!("{error:#}")));
        numbers.zip(told).collect()
    }

    /// Who owns tablets by now; gives up those that were begun too often.
    fn find_again(&mut self, tablets: Vec<(Tablet, String)>) -> Vec<Tablet> {
        if tablets.is_empty() {
            return Vec::new();
        }
        // A takeover takes a moment.
        std::thread::sleep(LOOK_PAUSE * 6);
        let (present, _) = Tablets::ask(self.layout, self.cluster, ANSWER_PATIENCE);
        let mut left = Vec::new();
        for (mut tablet, why) in tablets {
            let found = present.tablets.iter().find(|state| state.serial == tablet.serial.0);
            tablet.tries += 1;
            if tablet.tries > TRIES_MAX {
                self.copies.counts.tablets_not_compared += 1;
                self.copies.findings.push((tablet.block, format!("its copies could not be compared: {why}")));
                continue;
            }
            match found {
                Some(state) if state.phase == Phase::Serving && state.members.len() < 2 => {
                    self.copies.counts.tablets_alone += 1;
                }
                Some(state) => {
                    tablet.owner = ServerId(state.owner);
                    left.push(tablet);
                }
                None => left.push(tablet),
            }
        }
        left
    }

    fn judge(
        &mut self,
        tablet: &Tablet,
        index: LogIndex,
        digests: &BTreeMap<ServerId, Result<Digest, String>>,
    ) {
        let counts = &mut self.copies.counts;
        counts.tablets_compared += 1;
        counts.tablet_copies_compared += digests.len() as u64;
        if let Some(Ok(digest)) = digests.get(&tablet.owner) {
            counts.records_compared += digest.pairs;
            counts.record_bytes_compared += digest.bytes;
        }
        if let Some(what) = difference(index, digests) {
            counts.tablets_differing += 1;
            self.copies.findings.push((tablet.block.clone(), what));
        }
    }
}

/// What is known of a tablet, by what servers told last.
fn known(tablet: &Tablet, told: &BTreeMap<ServerId, Result<TabletsView, String>>) -> Known {
    let owner = match told.get(&tablet.owner) {
        Some(Ok(owner)) => owner,
        Some(Err(why)) => {
            return Known::Lost(format!("its owner metadata-{} is silent: {why}", number(tablet.owner)));
        }
        None => return Known::Lost(format!("nobody knows where metadata-{} is", number(tablet.owner))),
    };
    let Some(TabletRole::Owner(owner)) = of_tablet(owner, tablet.serial).map(|view| &view.role) else {
        return Known::Lost(format!("metadata-{} does not own it any more", number(tablet.owner)));
    };
    let Some(index) = owner.compare_at else {
        return Known::Lost(format!("metadata-{} does not serve it yet", number(tablet.owner)));
    };
    let learner = owner.learner.as_ref().map(|learner| learner.server);
    let others = owner.members.iter().map(|member| member.server).filter(|server| Some(*server) != learner);
    let (mut digests, mut owing) = (BTreeMap::new(), Owing::default());
    for member in std::iter::once(tablet.owner).chain(others) {
        // One that does not answer owes it too: its owner soon does without it.
        let told = told.get(&member).and_then(|told| told.as_ref().ok());
        let view = told.and_then(|told| of_tablet(told, tablet.serial));
        if let Some(digest) = view.and_then(|view| digest_at(view, index)) {
            digests.insert(member, digest);
            continue;
        }
        owing.all.insert(member);
        if view.is_some_and(|view| view.comparing == Some(index)) {
            owing.computing.insert(member);
        }
    }
    match owing.all.is_empty() {
        true => Known::All(index, digests),
        false => Known::Some(digests.len(), owing),
    }
}

fn of_tablet(view: &TabletsView, serial: TabletSerial) -> Option<&TabletView> {
    view.tablets.iter().find(|tablet| tablet.serial == serial)
}

fn digest_at(view: &TabletView, index: LogIndex) -> Option<Result<Digest, String>> {
    let Compared { index: at, digest } = view.compared.as_ref()?;
    (*at == index).then(|| digest.clone())
}

fn names(servers: &BTreeSet<ServerId>) -> String {
    servers.iter().map(|server| format!("metadata-{}", number(*server))).collect::<Vec<_>>().join(", ")
}

/// How copies differ; `None` if they do not. Each group of equal ones is told, the largest first: with three
/// copies the odd one out is the wrong one, most likely.
fn difference(index: LogIndex, digests: &BTreeMap<ServerId, Result<Digest, String>>) -> Option<String> {
    let mut groups: Vec<(&Result<Digest, String>, BTreeSet<ServerId>)> = Vec::new();
    for (server, digest) in digests {
        match groups.iter_mut().find(|(other, _)| *other == digest) {
            Some((_, servers)) => drop(servers.insert(*server)),
            None => groups.push((digest, BTreeSet::from([*server]))),
        }
    }
    if groups.len() == 1 && groups[0].0.is_ok() {
        return None;
    }
    groups.sort_by_key(|(_, servers)| std::cmp::Reverse(servers.len()));
    let words = groups.iter().map(|(digest, servers)| match digest {
        Ok(Digest { pairs, bytes, hash }) => {
            let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            let has = if servers.len() == 1 { "has" } else { "have" };
            format!("{} {has} {pairs} records, {bytes} bytes, digest {hash}...", names(servers))
        }
        Err(why) => format!("{} cannot read its own: {why}", names(servers)),
    });
    let words = words.collect::<Vec<_>>().join("; ");
    Some(format!("its copies differ as of entry {index}: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::tablets::{MemberView, OwnerPhase, OwnerView};
    use bearing_types::Epoch;

    const SERIAL: TabletSerial = TabletSerial(5);

    fn digest(of: u8) -> Digest {
        Digest { pairs: u64::from(of), bytes: 100, hash: [of; 16] }
    }

    fn view(role: TabletRole, compared: Option<(u64, u8)>) -> Result<TabletsView, String> {
        let compared =
            compared.map(|(index, of)| Compared { index: LogIndex(index), digest: Ok(digest(of)) });
        let tablet = TabletView {
            serial: SERIAL,
            block: None,
            epoch: Epoch(1),
            committed: LogIndex(9),
            last: LogIndex(9),
            role,
            compared,
            comparing: Some(LogIndex(8)),
        };
        Ok(TabletsView { tablets: vec![tablet], ..TabletsView::default() })
    }

    fn owner(compare_at: Option<u64>) -> TabletRole {
        let member = |server| MemberView { server: ServerId(server), lag: 0, lag_bytes: 0, relies: true };
        TabletRole::Owner(Box::new(OwnerView {
            phase: OwnerPhase::Serving,
            members: vec![member(2), member(3)],
            learner: None,
            taken: None,
            compare_at: compare_at.map(LogIndex),
            checkpoint: None,
        }))
    }

    const COPY: TabletRole = TabletRole::Copy { owner: None, arriving: None };

    #[test]
    fn a_tablet_is_compared_when_all_members_have_said_what_they_have_as_of_the_same_entry() {
        let tablet = Tablet { serial: SERIAL, block: "b".into(), owner: ServerId(1), tries: 0 };
        let servers = [1, 2, 3].map(ServerId);
        let told = |views: [Result<TabletsView, String>; 3]| servers.into_iter().zip(views).collect();
        let all =
            told([view(owner(Some(8)), Some((8, 1))), view(COPY, Some((8, 1))), view(COPY, Some((8, 2)))]);
        let Known::All(LogIndex(8), digests) = known(&tablet, &all) else { panic!("all is known") };
        let what = difference(LogIndex(8), &digests).unwrap();
        assert!(
            what.contains("metadata-1, metadata-2 have 1 records")
                && what.contains("metadata-3 has 2 records"),
            "{what}"
        );
        let older =
            told([view(owner(Some(8)), Some((8, 1))), view(COPY, Some((7, 1))), Err("silent".into())]);
        let (owing, computing) = (BTreeSet::from([servers[1], servers[2]]), BTreeSet::from([servers[1]]));
        assert_eq!(known(&tablet, &older), Known::Some(1, Owing { all: owing, computing }));
        for lost in [Err("silent".into()), view(owner(None), None), view(COPY, None)] {
            let told = told([lost, view(COPY, None), view(COPY, None)]);
            assert!(matches!(known(&tablet, &told), Known::Lost(_)));
        }
    }

    #[test]
    fn copies_that_are_the_same_and_read_are_no_finding() {
        let same = BTreeMap::from([(ServerId(1), Ok(digest(1))), (ServerId(2), Ok(digest(1)))]);
        assert_eq!(difference(LogIndex(1), &same), None);
        let unread =
            BTreeMap::from([(ServerId(1), Err("damage".to_owned())), (ServerId(2), Err("damage".into()))]);
        assert!(difference(LogIndex(1), &unread).is_some_and(|what| what.contains("cannot read")));
    }
}
