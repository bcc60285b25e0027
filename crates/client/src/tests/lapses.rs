//! What is lent when its lease has lapsed, when more of its tablet is asked for, and when its owner has no
//! ids to give.

use super::delegation::*;
use super::servers::steps_done;
use super::world::*;
use crate::*;
use bearing_proto::client::{AttributeChange, Body, Call, Handle, LeaseMs, NewNode, NodeView, Request};
use bearing_proto::delegation::{DelegationView, LentDirectory, LentIds};
use bearing_proto::grant::{OpenRights, OpenToken};
use bearing_proto::keys::Key;
use bearing_types::*;
use std::time::Duration;

#[test]
fn nothing_is_told_of_a_lent_file_once_the_lease_has_lapsed() {
    let mut world = with_root();
    let (who, mode) = (Credentials::ROOT, Mode::new(0o644));
    let new = NewNode { file_type: FileType::Regular, mode, device: 0, target: Vec::new() };
    let made = world.start(Operation::Create { directory: root(), name: name("f"), who, new, open: true });
    let Ok(Answer::Opened(file, found)) = world.result(made) else { panic!("a file is made here") };
    let node = found.node;
    let (file_type, who) = (FileType::Regular, Credentials::ROOT);
    let name = XattrName::new(b"user.x").unwrap();
    let all = [
        Operation::Seek { file, offset: 0, target: SeekTarget::Data },
        Operation::Copy {
            source: file,
            source_offset: 0,
            target: file,
            target_offset: 0,
            length: 10,
            set_ids: SetIds::Keep,
        },
        Operation::Xattr { node, file_type, who: who.clone(), name },
        Operation::Xattrs { node, file_type, who },
        Operation::Read { file, offset: 0, length: 10 },
    ];
    for operation in all.clone() {
        let ticket = world.start(operation);
        assert!(world.finished.contains_key(&ticket), "its owner is not needed");
    }
    for _ in 0..110 {
        world.pass(Duration::from_millis(100));
    }
    for operation in all {
        let told = format!("{operation:?}");
        let ticket = world.start(operation);
        world.pass(Duration::from_millis(50));
        assert!(!world.finished.contains_key(&ticket), "{told}");
    }
}

#[test]
fn a_directory_that_is_asked_for_when_all_was_given_back_joins_nothing() {
    let mut world = given_back();
    let returning = world.take_request();
    let Call::Delegated { incarnation: before, .. } = returning.call else { panic!("{returning:?}") };
    done(&mut world, &returning);
    world.pass(Duration::from_millis(30));
    let asked = root_asked_for(&mut world, 60).expect("it is worth asking for");
    let Call::Delegate { incarnation, joins, .. } = asked.call else { panic!("{asked:?}") };
    assert!(incarnation > before && !joins);
}

#[test]
fn what_is_lent_when_the_lease_on_the_rest_has_lapsed_makes_nothing_of_that_current() {
    // A directory in the same tablet that is not lent with the root.
    let tablet = |home| map().assignment.tablet_at(home).block;
    let number = (50..).find(|number| {
        let seat = root_seat().child(NodeId(*number), hash_of("d"));
        tablet(seat.home) == tablet(root().home)
    });
    let seat = root_seat().child(NodeId(number.unwrap()), hash_of("d"));
    let directory = Handle { node: seat.node, home: seat.home };
    let mut world = with_root_and(vec![lent(directory, "d", FileType::Directory)], Vec::new());
    world.pass(Duration::from_millis(3_400));
    let renewal = world.take_request();
    done(&mut world, &renewal);
    world.pass(Duration::from_millis(9_000));
    world.sent.clear();
    let mut asked = None;
    for text in ["x", "y"] {
        let Operation::Create { who, new, .. } = make(text) else { unreachable!("it makes a link") };
        world.start(Operation::Create { directory, name: name(text), who, new, open: false });
        while let Some(sent) = world.sent.pop() {
            let request = sent.request().clone();
            match &request.call {
                Call::Directory { .. } => {
                    let view = directory_view(seat, 20_000);
                    world.reply_done(&request, Ok(Body::Directory(Box::new(view))));
                }
                Call::Create { .. } => world.reply_done(&request, Ok(entry(file(70, text), 0))),
                Call::Delegate { .. } => asked = Some(request),
                _ => {}
            }
        }
    }
    let asked = asked.expect("it is worth asking for");
    assert!(matches!(asked.call, Call::Delegate { joins: true, .. }), "{asked:?}");
    world.pass(Duration::from_millis(1_000));
    let lent = DelegationView {
        directories: vec![LentDirectory { view: directory_view(seat, 0), entries: Vec::new(), whole: true }],
        lease: LeaseMs(10_000),
        ids: LentIds::sign(NodeId(2000), 100, SESSION, &Key::new([9; 32])),
        now: Wall(15_000_000_000),
    };
    world.reply_done(&asked, Ok(Body::Delegation(Box::new(lent))));
    let looked = world.start(lookup("nothing"));
    world.pass(Duration::from_millis(50));
    assert!(
        !world.finished.contains_key(&looked),
        "only the answer to a renewal says that the root is lent yet"
    );
}

#[test]
fn an_owner_that_has_no_ids_to_give_renews_and_what_needs_one_is_its_to_decide() {
    let mut world = with_root();
    let wants =
        |request: &Request| matches!(&request.call, Call::Delegated { ids_wanted, .. } if *ids_wanted > 0);
    for number in 0..100 {
        let ticket = world.start(make(&format!("n{number}")));
        world.found(ticket);
    }
    world.pass(GATHERED);
    let batch = world.take_request();
    assert!(wants(&batch));
    done(&mut world, &batch);
    assert!(world.sent.is_empty(), "it is not asked over and over");
    let over = world.start(make("over"));
    world.pass(GATHERED);
    let asked = world.take_request();
    assert!(wants(&asked) && steps_of(&asked).0.is_empty());
    done(&mut world, &asked);
    let decides = world.take_request();
    assert!(matches!(decides.call, Call::Directory { .. } | Call::Create { .. }), "{decides:?}");
    assert!(!world.finished.contains_key(&over));
    world.pass(Duration::from_millis(4_000));
    let renews = |sent: &Sent| matches!(sent.request().call, Call::Delegated { .. });
    let renewal = world.sent.iter().find(|sent| renews(sent)).expect("a renewal").request().clone();
    assert!(!wants(&renewal));
}

#[test]
fn an_open_file_is_what_its_home_says_once_what_was_decided_about_it_here_is_lost() {
    let mut world = with_root();
    let (who, mode) = (Credentials::ROOT, Mode::new(0o644));
    let new = NewNode { file_type: FileType::Regular, mode, device: 0, target: Vec::new() };
    let made = world.start(Operation::Create { directory: root(), name: name("f"), who, new, open: true });
    let Ok(Answer::Opened(file, found)) = world.result(made) else { panic!("a file is made here") };
    world.pass(GATHERED);
    let batch = world.take_request();
    let Body::Steps(mut told) = steps_done(&steps_of(&batch).0) else { panic!("of steps") };
    let rights = OpenRights::ReadWrite;
    told.steps[0].token = Some(OpenToken::sign(found.node.node, SESSION, rights, &Key::new([9; 32])));
    world.reply_done(&batch, Ok(Body::Steps(told)));
    let change = AttributeChange { mode: Some(Mode::new(0o600)), ..AttributeChange::default() };
    let (node, file_type, who) = (found.node, FileType::Regular, Credentials::ROOT);
    let changed = world.start(Operation::SetAttributes { node, file_type, who, change, file: None });
    assert!(world.found(changed).attributes.version > found.attributes.version);
    world.pass(GATHERED);
    let batch = world.take_request();
    world.reply_done(&batch, Err(Code::Stale));
    assert!(world.notes.iter().any(|note| matches!(note, Note::StepsLost(1))), "{:?}", world.notes);
    let read = world.start(Operation::Read { file, offset: 0, length: 50 });
    let mut asked = 0;
    while !world.finished.contains_key(&read) {
        while let Some((number, _)) = world.invalidations.pop() {
            world.step(Event::Invalidated(number));
        }
        if world.sent.is_empty() {
            world.pass(Duration::from_millis(5));
            continue;
        }
        let request = world.sent.remove(0).request().clone();
        let at_home = Attributes { size: 10, ..found.attributes };
        let answer = match request.call {
            Call::Attributes { .. } => Body::Node(NodeView { attributes: at_home, ..file_view(node, 1, 0) }),
            Call::Extents { .. } => {
                let (version, size) = (at_home.version, at_home.size);
                Body::Extents { version, size, extents: vec![], complete: true, reads: None, token: None }
            }
            Call::Delegated { .. } => {
                done(&mut world, &request);
                continue;
            }
            other => panic!("nothing else is asked: {other:?}"),
        };
        asked += 1;
        assert!(asked < 20, "its home has said what it is, and is asked again: {request:?}");
        world.reply_done(&request, Ok(answer));
    }
    assert_eq!(world.result(read), Ok(Answer::Bytes(vec![0; 10])));
}
