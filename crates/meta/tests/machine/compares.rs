//! Copies of tablets are compared as of one entry, and operators are told how tablets are.

use crate::cluster::{self, ALICE, Cluster};
use bearing_meta::Event;
use bearing_proto::tablets::{Compared, Digest, OwnerPhase, OwnerView, TabletRole, TabletView};
use bearing_seams::{Change, KeyRange, Store};
use bearing_types::{LogIndex, ServerId, TabletSerial};
use std::collections::BTreeMap;
use std::time::Duration;

fn cluster() -> Cluster {
    let mut cluster = Cluster::with_copies(5, 3);
    cluster.open_session(ALICE);
    cluster
}

/// What every server tells of its tablets.
fn told(cluster: &Cluster) -> Vec<(ServerId, TabletView)> {
    let tablets = cluster.hosts.iter().flat_map(|(id, host)| {
        host.machine.tablets(cluster.now.mono).tablets.into_iter().map(|tablet| (*id, tablet))
    });
    tablets.collect()
}

/// What the owners of tablets tell of them.
fn owned(cluster: &Cluster) -> BTreeMap<TabletSerial, (ServerId, OwnerView)> {
    let owned = told(cluster).into_iter().filter_map(|(id, tablet)| match tablet.role {
        TabletRole::Owner(owner) => Some((tablet.serial, (id, *owner))),
        TabletRole::Copy { .. } => None,
    });
    owned.collect()
}

/// Has all tablets compared.
fn begin(cluster: &mut Cluster) {
    for (serial, (owner, _)) in owned(cluster) {
        cluster.send(owner, Event::Compare(vec![serial]));
    }
}

/// The digests of all members of all tablets, as of the entries that the owners logged for that.
fn digests(cluster: &Cluster) -> BTreeMap<TabletSerial, BTreeMap<ServerId, Digest>> {
    let at: BTreeMap<TabletSerial, Option<LogIndex>> =
        owned(cluster).into_iter().map(|(serial, (_, owner))| (serial, owner.compare_at)).collect();
    let mut digests: BTreeMap<TabletSerial, BTreeMap<ServerId, Digest>> = BTreeMap::new();
    for (id, tablet) in told(cluster) {
        if let Some(Compared { index, digest: Ok(digest) }) = tablet.compared
            && at[&tablet.serial] == Some(index)
        {
            digests.entry(tablet.serial).or_default().insert(id, digest);
        }
    }
    digests
}

#[test]
fn members_compare_what_they_have_as_of_one_entry_while_the_tablet_is_changed() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    for number in 0..200 {
        if number % 50 == 25 {
            begin(&mut cluster);
        }
        cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
        if number % 7 == 0 {
            cluster.pass(Duration::from_millis(5));
        }
    }
    cluster.pass(Duration::from_millis(100));
    let digests = digests(&cluster);
    assert_eq!(digests.len(), owned(&cluster).len());
    assert!(
        digests.values().map(|members| members.values().map(|digest| digest.pairs).max()).max()
            > Some(Some(20))
    );
    for (serial, members) in digests {
        assert_eq!(members.len(), 3, "{serial}");
        let first = members.values().next().unwrap();
        assert!(members.values().all(|digest| digest == first), "{serial}: {members:?}");
    }
}

#[test]
fn a_member_whose_store_has_another_value_has_another_digest() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    for number in 0..40 {
        cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
    }
    cluster.pass(Duration::from_millis(50));
    let register = cluster.register_of(home);
    let (serial, wrong) = (register.serial, register.members[1]);
    let store = &mut cluster.hosts.get_mut(&wrong).unwrap().store;
    let all = KeyRange { start: Vec::new(), end: None };
    let (key, mut value) = store.range(serial, &all, 1000).unwrap().swap_remove(0);
    *value.last_mut().unwrap() ^= 1;
    let applied = store.applied(serial).unwrap().unwrap();
    store.apply(serial, applied, &[Change { key, value: Some(value) }]).unwrap();
    begin(&mut cluster);
    cluster.pass(Duration::from_millis(100));
    for (compared, members) in digests(&cluster) {
        assert_eq!(members.len(), 3);
        let owner = members[&owned(&cluster)[&compared].0];
        for (server, digest) in members {
            assert_eq!(digest != owner, (compared, server) == (serial, wrong), "{compared} on {server}");
        }
    }
}

#[test]
fn a_comparison_that_a_new_epoch_finds_uncommitted_goes_on_under_it() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    cluster.create(ALICE, &root, "f").unwrap();
    let register = cluster.register_of(home);
    cluster.hold_syncs = true;
    cluster.send(register.owner, Event::Compare(vec![register.serial]));
    cluster.kill(register.members[1]);
    cluster.release_syncs();
    cluster.pass(Duration::from_secs(2));
    let (owner, told) = owned(&cluster).remove(&register.serial).unwrap();
    assert!(owner == register.owner && cluster.register_of(home).epoch > register.epoch);
    assert!(told.compare_at.is_some());
    let members = digests(&cluster).remove(&register.serial).unwrap();
    assert!(
        members.contains_key(&register.owner) && members.contains_key(&register.members[2]),
        "{members:?}"
    );
    // It may be asked for again.
    begin(&mut cluster);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(digests(&cluster)[&register.serial].len(), 3);
    assert!(owned(&cluster)[&register.serial].1.compare_at > told.compare_at);
}

#[test]
fn operators_are_told_of_members_leases_takeovers_and_of_copies_that_are_made_again() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    for number in 0..100 {
        cluster.create(ALICE, &root, &format!("f{number}")).unwrap();
    }
    cluster.pass(Duration::from_millis(100));
    for (serial, (_, owner)) in owned(&cluster) {
        assert_eq!((owner.phase, owner.learner, owner.taken), (OwnerPhase::Serving, None, None), "{serial}");
        assert!(owner.members.iter().all(|member| member.relies && member.lag == 0), "{owner:?}");
        assert_eq!(owner.members.len(), 2);
    }
    let serial = cluster.register_of(home).serial;
    let (dead, ..) = cluster.owner(home);
    cluster.kill(dead);
    let mut lacking = BTreeMap::new();
    for _ in 0..1000 {
        cluster.pass(Duration::from_millis(5));
        for (id, host) in &cluster.hosts {
            let restoring = host.machine.tablets(cluster.now.mono).restoring;
            let most = lacking.entry(*id).or_insert(0);
            *most = restoring.lacking.max(*most);
        }
    }
    let (heir, told) = owned(&cluster).remove(&serial).unwrap();
    let taken = told.taken.expect("it was taken over");
    assert_eq!(taken.from, dead);
    assert!(taken.after_us < 1_000_000, "{taken:?}");
    assert!(lacking[&heir] > 0, "it lacked copies for a while");
    let restoring = cluster.hosts[&heir].machine.tablets(cluster.now.mono).restoring;
    assert_eq!((restoring.lacking, restoring.left_bytes), (0, Some(0)));
    let owner = &owned(&cluster)[&serial].1;
    assert!(owner.members.len() == 2 && owner.members.iter().all(|member| member.relies), "{owner:?}");
}

#[test]
fn what_a_member_lacks_is_told_in_entries_and_bytes() {
    let mut cluster = cluster();
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    cluster.pass(Duration::from_millis(50));
    cluster.hold_syncs = true;
    let position = cluster::position(&root, "late");
    let who = cluster::root_user();
    let (name, new) = (cluster::name("late"), cluster::regular(0o644));
    cluster.send_call(ALICE, position, bearing_proto::client::Call::Create { grant: root, who, name, new });
    let lags: u64 =
        owned(&cluster).values().flat_map(|(_, owner)| &owner.members).map(|member| member.lag).sum();
    let bytes: u64 =
        owned(&cluster).values().flat_map(|(_, owner)| &owner.members).map(|member| member.lag_bytes).sum();
    assert!(lags >= 2 && bytes > 100, "{lags} entries, {bytes} bytes");
    cluster.release_syncs();
    cluster.pass(Duration::from_millis(50));
    let owner = &owned(&cluster)[&cluster.register_of(home).serial].1;
    assert!(owner.members.iter().all(|member| member.lag == 0));
}
