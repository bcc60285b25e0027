//! Directories that are delegated and grow so large that an answer does not show them.

use crate::cluster::delegations::{delegated, finds, give_back, look, waits};
use crate::cluster::{ALICE, BOB, Cluster, root_user};
use bearing_meta::Config;
use bearing_placement::Scheme;
use bearing_proto::client::{Body, Call, Handle};
use bearing_proto::delegation::DelegationView;
use bearing_types::{Code, SessionId};

const MOST: usize = 4;

fn ask(
    cluster: &mut Cluster,
    session: SessionId,
    directory: Handle,
    (incarnation, joins): (u64, bool),
) -> Result<DelegationView, Code> {
    let call = Call::Delegate { directory, who: root_user(), incarnation, joins };
    match cluster.call(session, directory.home, call)? {
        Body::Delegation(lent) => Ok(*lent),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_that_grew_too_large_is_lent_to_its_holder_again_without_being_shown() {
    let config = Config { delegated_entries_max: MOST, ..Config::standard() };
    let mut cluster = Cluster::with_config(1, Scheme::AnglecutHashed, config);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let root = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &root, "d").unwrap();
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    let first = ask(&mut cluster, ALICE, directory, (1, false)).unwrap();
    assert!(first.directories[0].whole);
    // Its home decides for a while, at its holder's request.
    for number in 0..=MOST {
        cluster.create(ALICE, &grant, &format!("f{number}")).unwrap();
    }
    let again = ask(&mut cluster, ALICE, directory, (1, true)).unwrap();
    let [shown] = &again.directories[..] else { panic!("{again:?}") };
    assert!(!shown.whole && shown.entries.is_empty());
    assert_eq!(
        shown.view.node.attributes.size,
        cluster.directory(ALICE, directory).unwrap().node.attributes.size
    );
    assert_eq!(
        ask(&mut cluster, ALICE, directory, (2, false)).err(),
        Some(Code::Unsupported),
        "it joins nothing"
    );
    cluster.obedient = false;
    assert!(waits(look(&mut cluster, directory, "f1")), "nobody else is let near");
    cluster.call(ALICE, directory.home, delegated(vec![], again.ids, vec![directory.node])).unwrap();
    give_back(&mut cluster);
    assert_eq!(finds(look(&mut cluster, directory, "f1")), Ok(true));
    assert_eq!(ask(&mut cluster, ALICE, directory, (3, false)).err(), Some(Code::Unsupported));
}
