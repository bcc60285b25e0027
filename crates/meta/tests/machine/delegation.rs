//! Delegated directories at the server: steps are done whole and once, and nobody else looks in before the
//! directory is given back.

use crate::cluster::delegations::{delegate, delegated, finds, look, waits};
use crate::cluster::{self, ALICE, BOB, Cluster, name, position, regular, root_user};
use bearing_meta::{Config, Event};
use bearing_placement::{Scheme, position_of_session};
use bearing_proto::client::{
    Answer, AttributeChange, Body, Call, Handle, LeaseKey, Recall, Recalled, RenameMode,
};
use bearing_proto::delegation::{Change, LentIds, Step, StepsDone};
use bearing_proto::grant::Grant;
use bearing_types::{Code, Mode, NodeId, Sequence, Wall};
use std::time::Duration;

/// Alice has made `d` in the root; both sessions are open.
fn with_directory() -> (Cluster, Handle) {
    let mut cluster = Cluster::new(3, Scheme::AnglecutHashed);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let grant = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &grant, "d").unwrap();
    // Recalls of delegations are answered by what the tests send.
    cluster.obedient = false;
    (cluster, directory)
}

/// Another directory of Alice's that lies in the same tablet.
fn beside(cluster: &mut Cluster, directory: Handle) -> Handle {
    let grant = cluster.root(ALICE).grant;
    let others: Vec<Handle> =
        (0..40).map(|number| cluster.mkdir(ALICE, &grant, &format!("e{number}")).unwrap()).collect();
    let beside = |other: &&Handle| cluster.owner(other.home) == cluster.owner(directory.home);
    *others.iter().find(beside).expect("one of many lies in the same tablet")
}

fn create(directory: Handle, text: &str, node: NodeId) -> Change {
    let new = regular(0o644);
    Change::Create { directory, who: root_user(), name: name(text), new, node }
}

fn make_directory(directory: Handle, text: &str, node: NodeId) -> Change {
    let (who, name) = (root_user(), name(text));
    Change::MakeDirectory { directory, who, name, mode: Mode::new(0o755), node }
}

fn batch(cluster: &Cluster, changes: Vec<Change>, ids: LentIds, returned: Vec<NodeId>) -> Call {
    let at = cluster.now.wall;
    let step = |(place, change)| Step { sequence: Sequence(1_000_000 + place as u64), at, change };
    let steps = changes.into_iter().enumerate().map(step).collect();
    delegated(steps, ids, returned)
}

fn send(cluster: &mut Cluster, directory: Handle, call: Call) -> Result<StepsDone, Code> {
    match cluster.call(ALICE, directory.home, call)? {
        Body::Steps(done) => Ok(done),
        other => panic!("{other:?}"),
    }
}

fn was_called_back(cluster: &Cluster, directory: Handle) -> bool {
    let key = LeaseKey::Delegation(directory.node);
    cluster.recalls.iter().any(|(session, recall)| *session == ALICE && recall.keys.contains(&key))
}

#[test]
fn whoever_looks_into_a_delegated_directory_waits_for_what_was_decided_in_it() {
    let (mut cluster, directory) = with_directory();
    let lent = delegate(&mut cluster, ALICE, directory);
    let ids = lent.ids;
    assert!(lent.directories[0].entries.is_empty());
    let steps = vec![create(directory, "f", ids.first), create(directory, "g", NodeId(ids.first.0 + 1))];
    let sent = batch(&cluster, steps, ids, vec![]);
    let done = send(&mut cluster, directory, sent).unwrap();
    assert_eq!(done.steps.iter().map(|step| step.made.is_some()).collect::<Vec<_>>(), [true, true]);
    assert!(waits(look(&mut cluster, directory, "f")));
    assert!(was_called_back(&cluster, directory));
    assert!(waits(look(&mut cluster, directory, "nothing")), "nor is it told what is not there");
    let last = vec![create(directory, "h", NodeId(ids.first.0 + 2))];
    let sent = batch(&cluster, last, ids, vec![directory.node]);
    send(&mut cluster, directory, sent).unwrap();
    for (text, there) in [("f", true), ("g", true), ("h", true), ("nothing", false)] {
        assert_eq!(finds(look(&mut cluster, directory, text)), Ok(there), "{text}");
    }
}

#[test]
fn a_silent_holder_loses_what_it_did_not_send_and_is_refused_later() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    cluster.pass(Duration::from_secs(9));
    assert!(waits(look(&mut cluster, directory, "f")));
    cluster.pass(Duration::from_secs(2));
    look(&mut cluster, directory, "f");
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
    let late = batch(&cluster, vec![create(directory, "f", ids.first)], ids, vec![]);
    assert_eq!(send(&mut cluster, directory, late).map(|_| ()), Err(Code::Stale));
    let renewal = batch(&cluster, vec![], ids, vec![]);
    let renewed = send(&mut cluster, directory, renewal).map(|_| ());
    assert_eq!(renewed, Err(Code::Stale), "what it remembers of the directory may be old");
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
}

#[test]
fn nobody_is_told_of_a_directory_before_it_is_stable_that_it_was_given_back() {
    let (mut cluster, directory) = with_directory();
    let other = beside(&mut cluster, directory);
    // His leases are covered from now on, and longer ones too.
    (0..20).for_each(|_| assert_eq!(finds(look(&mut cluster, other, "f")), Ok(false)));
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
    cluster.pass(Duration::from_secs(1));
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    cluster.hold_syncs = true;
    let back = batch(&cluster, vec![], ids, vec![directory.node]);
    assert!(cluster.answer_of(ALICE, directory.home, back).is_none());
    assert!(look(&mut cluster, directory, "f").is_none(), "another owner would take her steps yet");
    cluster.release_syncs();
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
}

#[test]
fn a_silent_holder_loses_all_that_was_lent_with_it_and_what_is_lent_later_renews_the_rest() {
    let (mut cluster, directory) = with_directory();
    let other = beside(&mut cluster, directory);
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    cluster.pass(Duration::from_secs(6));
    delegate(&mut cluster, ALICE, other);
    cluster.pass(Duration::from_secs(6));
    assert!(waits(look(&mut cluster, directory, "f")), "its holder counts from the later one");
    cluster.pass(Duration::from_secs(5));
    look(&mut cluster, directory, "f");
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
    let late = batch(&cluster, vec![create(other, "f", ids.first)], ids, vec![]);
    assert_eq!(send(&mut cluster, other, late).map(|_| ()), Err(Code::Stale));
    let joins = Call::Delegate { directory: other, who: root_user(), incarnation: 1, joins: true };
    assert_eq!(cluster.call(ALICE, other.home, joins), Err(Code::Stale), "it revives nothing");
    let renewal = batch(&cluster, vec![], ids, vec![]);
    let renewed = send(&mut cluster, directory, renewal).map(|_| ());
    assert_eq!(renewed, Err(Code::Stale), "what she remembers of the directory may be old");
    cluster.pass(SOON);
    let anew = Call::Delegate { directory: other, who: root_user(), incarnation: 2, joins: false };
    assert!(cluster.call(ALICE, other.home, anew).is_ok());
}

#[test]
fn a_directory_lent_beside_one_that_others_have_waited_for_too_long_does_not_renew_that() {
    let (mut cluster, directory) = with_directory();
    let other = beside(&mut cluster, directory);
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    assert!(waits(look(&mut cluster, directory, "f")));
    let since = cluster.now.mono;
    while cluster.now.mono.since(since) <= Config::standard().delegation_return_timeout {
        let nothing = batch(&cluster, vec![], ids, vec![]);
        send(&mut cluster, directory, nothing).unwrap();
        cluster.pass(Duration::from_secs(4));
        renew(&mut cluster, ALICE);
        renew(&mut cluster, BOB);
    }
    let joins = Call::Delegate { directory: other, who: root_user(), incarnation: 1, joins: true };
    assert_eq!(cluster.call(ALICE, other.home, joins), Err(Code::Stale));
}

fn renew(cluster: &mut Cluster, session: bearing_types::SessionId) {
    cluster.call(session, position_of_session(session), Call::RenewSession).unwrap();
}

fn attributes(cluster: &mut Cluster, session: bearing_types::SessionId, node: Handle) -> Option<Answer> {
    cluster.answer_of(session, node.home, Call::Attributes { node })
}

#[test]
fn what_is_in_a_directory_is_lent_with_it_and_whoever_asks_for_that_has_it_called_back() {
    let (mut cluster, directory) = with_directory();
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    let file = cluster.create(ALICE, &grant, "f").unwrap();
    let other = cluster.create(ALICE, &grant, "g").unwrap();
    let below = cluster.mkdir(ALICE, &grant, "below").unwrap();
    let linked = cluster.create(ALICE, &grant, "linked").unwrap();
    let root = cluster.root(ALICE).grant;
    cluster.link(ALICE, linked, &root, "second").unwrap();
    let lent = delegate(&mut cluster, ALICE, directory);
    let entries = &lent.directories[0].entries;
    let of = |node: Handle| entries.iter().find(|entry| entry.node == node).unwrap().lent;
    assert!(of(file).is_some() && of(other).is_some() && of(below).is_none());
    assert!(of(linked).is_none(), "it has a name elsewhere");
    assert_eq!(lent.directories[1].view.node.node, below);
    for (node, waits_for) in [(file, directory), (linked, linked), (below, below)] {
        cluster.recalls.clear();
        let look = match node == below {
            true => look(&mut cluster, below, "nothing"),
            false => attributes(&mut cluster, BOB, node),
        };
        assert_eq!(waits(look), node != linked);
        assert_eq!(was_called_back(&cluster, waits_for), node != linked);
    }
    let (who, mode) = (root_user(), RenameMode::Replace);
    let steps = vec![
        Change::Rename {
            source: directory,
            source_name: name("f"),
            target: directory,
            target_name: name("g"),
            who: who.clone(),
            mode,
            moved: file.node,
            replaced: Some(other.node),
            keep_open: false,
        },
        Change::RemoveDirectory { directory, who: who.clone(), name: name("below"), node: below.node },
        Change::Unlink { directory, who, name: name("g"), node: file.node, keep_open: false },
    ];
    let sent = batch(&cluster, steps, lent.ids, vec![directory.node]);
    send(&mut cluster, directory, sent).unwrap();
    for text in ["f", "g", "below"] {
        assert_eq!(finds(look(&mut cluster, directory, text)), Ok(false), "{text}");
    }
    assert_eq!(finds(look(&mut cluster, directory, "linked")), Ok(true));
}

#[test]
fn a_file_that_somebody_else_has_open_is_not_lent_with_its_directory() {
    let (mut cluster, directory) = with_directory();
    cluster.obedient = true;
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    let files = ["open", "closed"].map(|name| cluster.create(ALICE, &grant, name).unwrap());
    for node in files {
        let call =
            Call::Open { node, who: root_user(), read: true, write: false, truncate: false, execute: false };
        cluster.call(BOB, node.home, call).unwrap();
    }
    cluster.open.insert((BOB, files[0].node));
    let lent = delegate(&mut cluster, ALICE, directory);
    let entries = &lent.directories[0].entries;
    let lent = files.map(|file| entries.iter().find(|entry| entry.node == file).unwrap().lent.is_some());
    assert_eq!(lent, [false, true]);
}

#[test]
fn who_may_have_a_file_open_is_asked_before_its_directory_is_lent() {
    let (mut cluster, directory) = with_directory();
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    let node = cluster.create(ALICE, &grant, "closed").unwrap();
    let call =
        Call::Open { node, who: root_user(), read: true, write: false, truncate: false, execute: false };
    cluster.call(BOB, node.home, call).unwrap();
    // The lease is over; by itself the server would ask half a second later.
    cluster.pass(Duration::from_millis(700));
    assert!(cluster.open_state_queries.is_empty());
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    assert!(waits(cluster.answer_of(ALICE, directory.home, call)));
    assert!(
        cluster
            .open_state_queries
            .iter()
            .any(|(session, open_state_query)| *session == BOB && open_state_query.nodes == [node.node])
    );
    // Bob is silent: nobody waits for him for long, and his file is not lent.
    cluster.pass(Duration::from_millis(60));
    let entries = delegate(&mut cluster, ALICE, directory).directories.remove(0).entries;
    assert_eq!(entries[0].lent, None);
}

#[test]
fn who_may_have_many_files_open_is_asked_about_all_of_them_without_a_pause() {
    let config = Config { open_query_nodes_max: 2, ..Config::standard() };
    let mut cluster = Cluster::with_config(3, Scheme::AnglecutHashed, config);
    cluster.open_session(ALICE);
    cluster.open_session(BOB);
    let grant = cluster.root(ALICE).grant;
    let (directory, grant) = cluster.make(ALICE, &grant, "d");
    for text in ["1", "2", "3", "4", "5"] {
        let node = cluster.create(ALICE, &grant, text).unwrap();
        let call =
            Call::Open { node, who: root_user(), read: true, write: false, truncate: false, execute: false };
        cluster.call(BOB, node.home, call).unwrap();
    }
    cluster.obedient = false;
    cluster.pass(Duration::from_millis(700));
    cluster.obedient = true;
    // Each open-state query names two files, and its answer brings the next one.
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    assert_eq!(finds(cluster.answer_of(ALICE, directory.home, call)), Ok(true), "it waited for them");
    let sizes: Vec<usize> =
        cluster.open_state_queries.iter().map(|(_, open_state_query)| open_state_query.nodes.len()).collect();
    assert_eq!(sizes, [2, 2, 1]);
    let entries = delegate(&mut cluster, ALICE, directory).directories.remove(0).entries;
    assert!(entries.iter().all(|entry| entry.lent.is_some()));
}

#[test]
fn a_node_is_lent_also_after_its_server_restarted() {
    let (mut cluster, directory) = with_directory();
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    let file = cluster.create(ALICE, &grant, "f").unwrap();
    delegate(&mut cluster, ALICE, directory);
    let (owner, ..) = cluster.owner(directory.home);
    cluster.restart(owner);
    assert!(waits(attributes(&mut cluster, BOB, file)));
}

#[test]
fn what_a_batch_reads_is_loaded_at_once() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let (owner, ..) = cluster.owner(directory.home);
    let node = |n: u64| NodeId(ids.first.0 + n);
    let create_all = (0..100).map(|n| create(directory, &format!("f{n}"), node(n))).collect();
    let make_all = (100..200).map(|n| make_directory(directory, &format!("d{n}"), node(n))).collect();
    let (who, keep_open) = (root_user(), false);
    let unlink = |n: u64| {
        let (who, name) = (who.clone(), name(&format!("f{n}")));
        Change::Unlink { directory, who, name, node: node(n), keep_open }
    };
    let rmdir = |n: u64| {
        let (who, name) = (who.clone(), name(&format!("d{n}")));
        Change::RemoveDirectory { directory, who, name, node: node(n) }
    };
    let batches = [create_all, make_all, (0..100).map(unlink).collect(), (100..200).map(rmdir).collect()];
    for (number, steps) in batches.into_iter().enumerate() {
        // Nothing of what went before is at hand.
        cluster.restart(owner);
        let before = cluster.hosts[&owner].machine.counters();
        let sent = batch(&cluster, steps, ids, vec![]);
        send(&mut cluster, directory, sent).unwrap();
        let after = cluster.hosts[&owner].machine.counters();
        assert!(after.loads - before.loads <= 4, "batch {number}: {before:?} {after:?}");
        assert!(after.runs - before.runs <= 110, "batch {number}: {before:?} {after:?}");
    }
}

#[test]
fn a_batch_renews_and_an_empty_one_does_too() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    for _ in 0..3 {
        cluster.pass(Duration::from_secs(6));
        let nothing = batch(&cluster, vec![], ids, vec![]);
        send(&mut cluster, directory, nothing).unwrap();
    }
    let steps = batch(&cluster, vec![create(directory, "f", ids.first)], ids, vec![]);
    assert!(send(&mut cluster, directory, steps).is_ok());
}

#[test]
fn a_delegation_outlives_its_server_and_its_steps_are_taken_by_the_next_owner() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let (owner, ..) = cluster.owner(directory.home);
    cluster.restart(owner);
    assert!(waits(look(&mut cluster, directory, "f")), "the new owner knows of it");
    assert!(was_called_back(&cluster, directory));
    let steps = batch(&cluster, vec![create(directory, "f", ids.first)], ids, vec![directory.node]);
    send(&mut cluster, directory, steps).unwrap();
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(true));
}

#[test]
fn steps_are_done_whole_or_not_at_all_and_once() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let (first, second) = (ids.first, NodeId(ids.first.0 + 1));
    let wrong = vec![create(directory, "f", first), create(directory, "f", second)];
    let sent = batch(&cluster, wrong, ids, vec![]);
    assert_eq!(send(&mut cluster, directory, sent).map(|_| ()), Err(Code::Exists));
    let sent = batch(&cluster, vec![create(directory, "f", first)], ids, vec![directory.node]);
    let number = cluster.new_sequence();
    let done = cluster.call_as(ALICE, number, directory.home, sent.clone());
    assert!(done.is_ok(), "nothing of the batch before is there: {done:?}");
    assert_eq!(cluster.call_as(ALICE, number, directory.home, sent), done, "told again, not done again");
}

#[test]
fn ids_that_were_not_lent_to_the_session_or_are_used_are_refused() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let beyond = NodeId(ids.first.0 + u64::from(ids.count));
    for (node, shown) in
        [(beyond, ids), (beyond, LentIds { count: ids.count + 1, ..ids }), (directory.node, ids)]
    {
        let sent = batch(&cluster, vec![create(directory, "f", node)], shown, vec![]);
        assert_eq!(send(&mut cluster, directory, sent).map(|_| ()), Err(Code::InvalidArgument));
    }
}

#[test]
fn a_directory_made_in_a_delegated_one_is_delegated_from_birth_and_not_any_more_when_it_is_removed() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let (sub, file) = (ids.first, NodeId(ids.first.0 + 1));
    let home = cluster
        .seat_of(ALICE, directory)
        .child(sub, bearing_types::NameHash::of(cluster::NAME_KEY, &name("s")))
        .home;
    let inner = Handle { node: sub, home };
    let steps = vec![make_directory(directory, "s", sub), create(inner, "f", file)];
    let sent = batch(&cluster, steps, ids, vec![directory.node]);
    send(&mut cluster, directory, sent).unwrap();
    assert!(waits(look(&mut cluster, directory, "s")), "the lookup would tell what is in it");
    assert!(was_called_back(&cluster, inner));
    let change = |node, text: &str, directory| Change::Unlink {
        directory,
        who: root_user(),
        name: name(text),
        node,
        keep_open: false,
    };
    let sent = batch(&cluster, vec![change(file, "f", inner)], ids, vec![sub]);
    send(&mut cluster, directory, sent).unwrap();
    assert_eq!(finds(look(&mut cluster, directory, "s")), Ok(true));
    assert_eq!(finds(look(&mut cluster, inner, "f")), Ok(false));
}

#[test]
fn steps_that_a_client_gave_up_are_refused_though_the_directory_is_its_again() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let late = batch(&cluster, vec![create(directory, "f", ids.first)], ids, vec![]);
    let again = Call::Delegate { directory, who: root_user(), incarnation: 2, joins: false };
    cluster.call(ALICE, directory.home, again).unwrap();
    assert_eq!(send(&mut cluster, directory, late).map(|_| ()), Err(Code::Stale));
}

#[test]
fn steps_that_name_no_directory_are_refused_too_once_their_client_gave_them_up() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let made = batch(&cluster, vec![create(directory, "f", ids.first)], ids, vec![]);
    send(&mut cluster, directory, made).unwrap();
    let hash = bearing_types::NameHash::of(cluster::NAME_KEY, &name("f"));
    let home = cluster.seat_of(ALICE, directory).position_of(hash);
    let file = Handle { node: ids.first, home };
    let cut = AttributeChange { size: Some(700), ..AttributeChange::default() };
    let change = Change::SetAttributes { node: file, who: root_user(), change: cut };
    let late = batch(&cluster, vec![change], ids, vec![]);
    let given_up = batch(&cluster, vec![], ids, vec![directory.node]);
    send(&mut cluster, directory, given_up).unwrap();
    assert_eq!(send(&mut cluster, directory, late).map(|_| ()), Err(Code::Stale));
    match cluster.call(BOB, home, Call::Attributes { node: file }).unwrap() {
        Body::Node(view) => assert_eq!(view.attributes.size, 0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_who_change_a_directory_in_turn_do_not_get_it_delegated() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let refused = cluster.call(
        BOB,
        directory.home,
        Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false },
    );
    assert_eq!(refused.map(|_| ()), Err(Code::Unsupported));
    let sent = batch(&cluster, vec![], ids, vec![directory.node]);
    send(&mut cluster, directory, sent).unwrap();
    let soon = cluster.call(
        BOB,
        directory.home,
        Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false },
    );
    assert_eq!(soon.map(|_| ()), Err(Code::Unsupported), "it rests for a moment");
    cluster.pass(Duration::from_secs(2));
    delegate(&mut cluster, BOB, directory);
}

#[test]
fn a_directory_that_lies_in_several_tablets_is_not_delegated() {
    let mut cluster = Cluster::new(3, Scheme::Hash);
    cluster.open_session(ALICE);
    let root = cluster.root(ALICE).grant;
    let directory = cluster.mkdir(ALICE, &root, "d").unwrap();
    let refused = cluster.call(
        ALICE,
        directory.home,
        Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false },
    );
    assert_eq!(refused.map(|_| ()), Err(Code::Unsupported));
}

#[test]
fn a_session_that_is_over_holds_nothing() {
    let (mut cluster, directory) = with_directory();
    delegate(&mut cluster, ALICE, directory);
    cluster.call(ALICE, position_of_session(ALICE), Call::CloseSession).unwrap();
    cluster.pass(Duration::from_secs(11));
    look(&mut cluster, directory, "f");
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
}

#[test]
fn a_step_that_says_it_was_decided_in_the_future_is_of_now() {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let change = create(directory, "f", ids.first);
    let at = Wall(i64::MAX);
    let steps = vec![Step { sequence: Sequence(1_000_000), at, change }];
    send(&mut cluster, directory, delegated(steps, ids, vec![directory.node])).unwrap();
    let view = cluster.directory(BOB, directory).unwrap();
    assert!(view.node.attributes.modified <= cluster.now.wall);
}

/// Gives the directory back, but for the names, which the kernel keeps.
fn returning(cluster: &Cluster, changes: Vec<Change>, ids: LentIds, directory: Handle) -> Call {
    let mut returning = batch(cluster, changes, ids, vec![directory.node]);
    if let Call::Delegated { names_kept, .. } = &mut returning {
        *names_kept = true;
    }
    returning
}

/// Alice gives the directory back, with two files in it, and her kernel keeps the names.
fn names_kept() -> (Cluster, Handle, LentIds) {
    let (mut cluster, directory) = with_directory();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let made = ["f", "g"].iter().zip(ids.first.0..).map(|(text, id)| create(directory, text, NodeId(id)));
    cluster.call(ALICE, directory.home, returning(&cluster, made.collect(), ids, directory)).unwrap();
    cluster.recalls.clear();
    (cluster, directory, ids)
}

fn names_recalled(cluster: &Cluster, directory: Handle) -> bool {
    let key = LeaseKey::Names(directory.node);
    cluster.recalls.iter().any(|(session, recall)| *session == ALICE && recall.keys.contains(&key))
}

/// Bob changes something in the directory, once.
fn change(
    cluster: &mut Cluster,
    directory: Handle,
    text: &str,
    call: impl Fn(Grant) -> Call,
) -> Option<Answer> {
    let grant = cluster.directory(BOB, directory).unwrap().grant;
    let at = position(&grant, text);
    cluster.answer_of(BOB, at, call(grant))
}

#[test]
fn kept_names_are_recalled_before_somebody_else_takes_one_away_and_not_before_a_look_or_a_new_name() {
    let (mut cluster, directory, ids) = names_kept();
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(true));
    let new = regular(0o600);
    let make = |grant| Call::Create { grant, who: root_user(), name: name("h"), new: new.clone() };
    assert!(finds(change(&mut cluster, directory, "h", make)).is_ok());
    assert!(!names_recalled(&cluster, directory));
    let remove =
        |grant| Call::Unlink { grant, who: root_user(), name: name("f"), node: ids.first, keep_open: false };
    assert!(waits(change(&mut cluster, directory, "f", remove)));
    assert!(names_recalled(&cluster, directory));
    let (session, recall) = cluster.recalls.last().unwrap().clone();
    let Recall { tablet, epoch, number, .. } = recall;
    let answer = Recalled { tablet, epoch, number, finished_below: Sequence(u64::MAX), open: Vec::new() };
    let server = cluster.owner(directory.home).0;
    cluster.send(server, Event::Recalled(session, answer));
    assert_eq!(finds(change(&mut cluster, directory, "f", remove)), Ok(false), "what waited is done");
}

#[test]
fn kept_names_are_in_nobodys_way_for_longer_than_kernels_go_by_them_and_never_in_their_holders() {
    let (mut cluster, directory, ids) = names_kept();
    let grant = cluster.directory(ALICE, directory).unwrap().grant;
    cluster.unlink(ALICE, &grant, "g").unwrap();
    let remove =
        |grant| Call::Unlink { grant, who: root_user(), name: name("f"), node: ids.first, keep_open: false };
    assert!(waits(change(&mut cluster, directory, "f", remove)), "her own change left her the others");
    cluster.pass(Duration::from_millis(2_600));
    assert_eq!(finds(change(&mut cluster, directory, "f", remove)), Ok(false), "what waited is done");
}

#[test]
fn whoever_is_lent_a_directory_is_alone_with_its_names() {
    let (mut cluster, directory, _) = names_kept();
    cluster.pass(Duration::from_millis(100));
    let call = Call::Delegate { directory, who: root_user(), incarnation: 1, joins: false };
    assert!(waits(cluster.answer_of(BOB, directory.home, call)));
    assert!(names_recalled(&cluster, directory));
}

#[test]
fn what_is_given_up_is_lent_no_more_and_late_steps_and_questions_are_refused() {
    let (mut cluster, directory) = with_directory();
    let other = beside(&mut cluster, directory);
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let late = batch(&cluster, vec![create(directory, "f", ids.first)], ids, vec![]);
    // The client never took this one.
    delegate(&mut cluster, ALICE, other);
    let mut over = batch(&cluster, vec![], ids, vec![]);
    if let Call::Delegated { over, .. } = &mut over {
        *over = true;
    }
    send(&mut cluster, directory, over).unwrap();
    assert_eq!(send(&mut cluster, directory, late).map(|_| ()), Err(Code::Stale));
    cluster.pass(Duration::from_millis(100));
    let again = |incarnation| Call::Delegate { directory, who: root_user(), incarnation, joins: false };
    assert_eq!(cluster.call(ALICE, directory.home, again(1)), Err(Code::Stale));
    assert!(cluster.call(ALICE, directory.home, again(2)).is_ok());
    assert_eq!(finds(look(&mut cluster, other, "f")), Ok(false), "nobody has to be asked for it");
}

/// Alice has the directory delegated; its home is not the server that has her session.
fn lent_by_another_server() -> (Cluster, Handle) {
    let (mut cluster, directory) = with_directory_at_another_server();
    delegate(&mut cluster, ALICE, directory);
    (cluster, directory)
}

/// The home of the directory is not the server that has Alice's session.
fn with_directory_at_another_server() -> (Cluster, Handle) {
    let (mut cluster, first) = with_directory();
    let grant = cluster.root(ALICE).grant;
    let home = cluster.owner(position_of_session(ALICE)).0;
    let mut directory = first;
    for number in 0.. {
        if cluster.owner(directory.home).0 != home {
            break;
        }
        directory = cluster.mkdir(ALICE, &grant, &format!("further-{number}")).unwrap();
    }
    (cluster, directory)
}

fn close(cluster: &mut Cluster) {
    cluster.call(ALICE, position_of_session(ALICE), Call::CloseSession).unwrap();
}

/// As long as a server waits before it sends something again, and a directory is left alone after it was
/// given back.
const SOON: Duration = Duration::from_millis(100);

#[test]
fn the_end_of_a_session_gives_back_what_is_lent_to_it_by_any_server() {
    let (mut cluster, directory) = lent_by_another_server();
    close(&mut cluster);
    cluster.pass(SOON);
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
}

#[test]
fn a_session_that_ended_unheard_is_found_out_when_it_does_not_answer() {
    let (mut cluster, directory) = lent_by_another_server();
    cluster.hold_peers = true;
    close(&mut cluster);
    cluster.lose_peers();
    assert!(waits(look(&mut cluster, directory, "f")), "nobody knows yet that she is gone");
    cluster.pass(SOON * 2);
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
}

#[test]
fn a_session_that_ended_just_before_all_servers_restart_holds_nothing_up() {
    let (mut cluster, directory) = lent_by_another_server();
    cluster.hold_peers = true;
    close(&mut cluster);
    cluster.lose_peers();
    let servers: Vec<_> = cluster.hosts.keys().copied().collect();
    servers.into_iter().for_each(|server| cluster.restart(server));
    cluster.pass(SOON * 2);
    look(&mut cluster, directory, "f");
    cluster.pass(SOON);
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
}

#[test]
fn leases_of_a_session_that_ended_hold_no_change_up() {
    let (mut cluster, _) = with_directory();
    let [grant, bobs] = [ALICE, BOB].map(|session| cluster.root(session).grant);
    let names: Vec<String> = (0..12).map(|number| format!("file-{number}")).collect();
    for name in &names {
        cluster.create(BOB, &bobs, name).unwrap();
        // Often enough for a long lease.
        for _ in 0..10 {
            cluster.lookup(ALICE, &grant, name).unwrap();
        }
    }
    close(&mut cluster);
    cluster.pass(SOON);
    let before = cluster.now.mono;
    let grant = cluster.root(BOB).grant;
    for name in &names {
        cluster.unlink(BOB, &grant, name).unwrap();
    }
    assert!(cluster.now.mono.since(before) < Duration::from_secs(1), "no lease was waited for");
}

#[test]
fn what_is_lent_to_a_session_that_its_home_has_not_heard_of_is_its_own_until_its_lease_is_over() {
    let (mut cluster, directory) = lent_by_another_server();
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let mut renewed = cluster.now.mono;
    let refused = loop {
        cluster.pass(Duration::from_secs(2));
        renew(&mut cluster, BOB);
        let nothing = batch(&cluster, vec![], ids, vec![]);
        match send(&mut cluster, directory, nothing) {
            Ok(_) => renewed = cluster.now.mono,
            Err(code) => break code,
        }
    };
    assert_eq!(refused, Code::SessionEnded);
    assert!(waits(look(&mut cluster, directory, "f")), "she serves from it until her lease is over");
    cluster.pass(Duration::from_secs(6));
    assert!(waits(look(&mut cluster, directory, "f")));
    let over = Config::standard().delegation_ttl + SOON;
    cluster.pass(over.saturating_sub(cluster.now.mono.since(renewed)));
    look(&mut cluster, directory, "f");
    assert_eq!(finds(look(&mut cluster, directory, "f")), Ok(false));
}

#[test]
fn what_a_session_leases_that_its_home_has_not_heard_of_is_waited_for_until_its_lease_is_over() {
    let (mut cluster, directory) = with_directory_at_another_server();
    let [grant, bobs] = [ALICE, BOB].map(|session| cluster.directory(session, directory).unwrap().grant);
    let home = cluster.owner(position_of_session(ALICE)).0;
    let text = "f";
    let at = position(&grant, text);
    assert_ne!(cluster.owner(at).0, home, "an entry lies with its directory");
    let node = cluster.create(BOB, &bobs, text).unwrap();
    while cluster.lookup(ALICE, &grant, text).is_ok() {
        cluster.pass(Duration::from_millis(500));
        renew(&mut cluster, BOB);
    }
    let unlink = |cluster: &mut Cluster| {
        let grant = cluster.directory(BOB, directory).unwrap().grant;
        let (who, name) = (root_user(), name(text));
        let call = Call::Unlink { grant, who, name, node: node.node, keep_open: false };
        cluster.answer_of(BOB, at, call)
    };
    assert!(waits(unlink(&mut cluster)), "her kernel goes by it until her lease is over");
    cluster.pass(Config::standard().lease_ttl_max);
    assert_eq!(finds(unlink(&mut cluster)), Ok(false), "what waited is done");
}

#[test]
fn attributes_of_a_directory_that_were_set_where_it_is_lent_count_when_it_is_given_back() {
    let (mut cluster, directory) = with_directory();
    let grant = cluster.directory(BOB, directory).unwrap().grant;
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let show = Call::Directory { directory };
    assert!(waits(cluster.answer_of(BOB, directory.home, show)), "though nothing was ever made in it");
    let change = AttributeChange { mode: Some(Mode::new(0o700)), ..AttributeChange::default() };
    let set = Change::SetAttributes { node: directory, who: root_user(), change };
    let steps = vec![set, create(directory, "f", ids.first)];
    let sent = batch(&cluster, steps, ids, vec![directory.node]);
    send(&mut cluster, directory, sent).unwrap();
    let now = cluster.directory(BOB, directory).unwrap();
    assert_eq!(now.node.attributes.mode, Mode::new(0o700));
    let refused = cluster.create(BOB, &grant, "g");
    assert_eq!(refused.map(|_| ()), Err(Code::Unauthenticated), "a grant from before is good for no change");
}

#[test]
fn a_lone_survivor_of_three_copies_takes_no_directory_back_and_removes_nothing_in_it() {
    let mut cluster = Cluster::with_copies(3, 3);
    [ALICE, BOB].into_iter().for_each(|session| cluster.open_session(session));
    let root = cluster.root(ALICE).grant;
    let (directory, grant) = cluster.make(ALICE, &root, "d");
    let node = cluster.create(ALICE, &grant, "f").unwrap().node;
    let (grant, at) = (cluster.directory(BOB, directory).unwrap().grant, position(&grant, "f"));
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    for _ in 0..2 {
        cluster.kill(cluster.owner(directory.home).0);
        cluster.pass(Duration::from_secs(4));
    }
    assert!(!cluster.is_done_in_time(ALICE, directory.home, returning(&cluster, vec![], ids, directory)));
    let remove = Call::Unlink { grant, who: root_user(), name: name("f"), node, keep_open: false };
    assert!(waits(cluster.answer_of(BOB, at, remove)) && !names_recalled(&cluster, directory));
}

#[test]
fn a_holder_that_a_lone_survivor_puts_off_for_long_loses_nothing_though_others_look() {
    let mut cluster = Cluster::with_copies(3, 3);
    [ALICE, BOB].into_iter().for_each(|session| cluster.open_session(session));
    cluster.obedient = false;
    let root = cluster.root(ALICE).grant;
    let (directory, _) = cluster.make(ALICE, &root, "d");
    let ids = delegate(&mut cluster, ALICE, directory).ids;
    let owner = cluster.owner(directory.home).0;
    let others: Vec<_> = cluster.hosts.keys().copied().filter(|server| *server != owner).collect();
    let disks: Vec<_> = others.into_iter().map(|server| (server, cluster.kill(server))).collect();
    cluster.pass(Duration::from_secs(3));
    let steps = batch(&cluster, vec![create(directory, "f", ids.first)], ids, vec![]);
    for _ in 0..15 {
        for session in [ALICE, BOB] {
            cluster.send_call(session, position_of_session(session), Call::RenewSession);
        }
        assert!(!cluster.is_done_in_time(ALICE, directory.home, steps.clone()));
        assert!(!matches!(look(&mut cluster, directory, "f"), Some(Answer::Done { .. })));
        cluster.pass(Duration::from_secs(3));
    }
    disks.into_iter().for_each(|(server, log)| cluster.revive(server, log));
    cluster.pass(Duration::from_secs(5));
    look(&mut cluster, directory, "f");
    let done = send(&mut cluster, directory, steps).unwrap();
    assert!(done.steps[0].made.is_some());
}
