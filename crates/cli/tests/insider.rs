//! Clients made by hand, with valid secrets, say whatever they like to a real cluster, and get at nothing
//! of others. `crates/meta/tests/machine/trust.rs` has what single calls may show.
//!
//! The first test needs root and /dev/fuse; without them it says so and passes.

mod by_hand;
mod common;

use bearing_proto::Message;
use bearing_proto::client::{Answer, Body, Call, ChunkRef, CommitMode, Extent, NewNode, Reply, WaitId};
use bearing_proto::data::DataError;
use bearing_proto::envelope::{self, Stamp};
use bearing_proto::grant::{Capability, DataRight, FramePart};
use bearing_types::{
    Code, Credentials, FileType, Gid, Lock, LockMode, LockOwner, LockRange, LockSpace, Mode, SetIds, Uid,
    Wall,
};
use by_hand::{Insider, PATIENCE, Socket, answers};
use common::{TestCluster, can_mount, shell};
use std::time::Duration;

const DEFAULT: &str = "secrets/enrolment.key";
const SECRET: &str = "what only root may read";
const PUBLIC: &str = "what everybody may read";

fn new_file(mode: u32) -> NewNode {
    NewNode { file_type: FileType::Regular, mode: Mode::new(mode), device: 0, target: Vec::new() }
}

#[test]
fn an_honest_user_and_a_root_that_is_squashed_get_at_no_byte_of_others() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("insider");
    shell(&format!(
        "cd {} && chmod 1777 . && printf '{SECRET}' > secret && printf '{PUBLIC}' > public &&
         chmod 600 secret && chmod 644 public && sync secret public",
        cluster.mnt().display()
    ))
    .ok();
    let root = Credentials::ROOT;
    let user = Credentials { uid: Uid(1001), gid: Gid(1001), groups: Vec::new() };
    let mut owner = Insider::new(&cluster, &cluster.file(DEFAULT));
    let mut other = Insider::new(&cluster, &cluster.file(DEFAULT));
    let laptops = cluster.file("laptops.key");
    cluster.run(&["enrol", "laptops", "--root-squash", "--out", laptops.to_str().unwrap()]).ok();
    let mut squashed = Insider::new(&cluster, &laptops);

    // Who may, reads: what follows is not refused for want of a file.
    let (secret, _) = owner.node("secret", &root, None);
    let (extent, right) = owner.extent(secret, &root).unwrap();
    assert_eq!(owner.read(&extent, &right).unwrap(), SECRET);
    let open = |who: &Credentials, [read, write, execute]: [bool; 3]| {
        let who = who.clone();
        Call::Open { node: secret, who, read, write, truncate: false, execute }
    };
    assert!(owner.call(secret.home, open(&root, [true, true, false])).is_ok());

    // Another user may not, nor may root if its enrolment squashes it.
    for (insider, who) in [(&mut other, &user), (&mut squashed, &root)] {
        assert_eq!(insider.node("secret", who, None).0, secret);
        assert_eq!(insider.extent(secret, who), Err(Code::Access));
        for wish in [[true, false, false], [false, true, false], [false, false, true]] {
            assert_eq!(insider.call(secret.home, open(who, wish)), Err(Code::Access));
        }
    }

    // A right of another session reads nothing, as it is or changed; nor does the right to what lies beside.
    let (public, _) = other.node("public", &user, None);
    let (beside, own_right) = other.extent(public, &user).unwrap();
    assert_eq!(other.read(&beside, &own_right).unwrap(), PUBLIC);
    assert_eq!(beside.chunk, extent.chunk, "both files lie in one chunk");
    let with = |right: &Capability, change: &dyn Fn(&mut Capability)| {
        let mut changed = right.clone();
        change(&mut changed);
        changed
    };
    let own_name = with(&right, &|right| right.body.session = other.agreed.session);
    let other_frame = with(&own_right, &|right| right.body.right = DataRight::Read(extent.part()));
    let all = FramePart { skip: 0, length: u32::MAX, ..extent.part() };
    let whole_frame = with(&own_name, &|right| right.body.right = DataRight::Read(all));
    for shown in [&right, &own_name, &other_frame, &whole_frame, &own_right] {
        assert_eq!(other.read(&extent, shown), Err(DataError::Capability), "{shown:?}");
    }
    let longer = Extent { length: beside.length + 1, ..beside };
    assert_eq!(other.read(&longer, &own_right), Err(DataError::Capability));

    // Bytes of a chunk that another session opened become no part of a file of his own, to be read there.
    let (own, token) = other.node("own", &user, Some(new_file(0o600)));
    let [(theirs, their_right), (mine, my_right)] = [&mut owner, &mut other].map(Insider::open_chunk);
    let mut commit = |chunk: ChunkRef, opened: &[&Capability]| {
        let (extents, token, mode) = (vec![Extent { chunk, ..extent }], token.unwrap(), CommitMode::Put);
        let opened = opened.iter().map(|right| (*right).clone()).collect();
        let (size_min, modified, set_ids) = (0, Wall(0), SetIds::Keep);
        let call = Call::Commit { node: own, token, extents, size_min, modified, mode, opened, set_ids };
        other.call(own.home, call).map(|_| ())
    };
    let renamed = with(&their_right, &|right| right.body.session = my_right.body.session);
    for shown in [&[][..], &[&my_right], &[&right], &[&own_name]] {
        assert_eq!(commit(extent.chunk, shown), Err(Code::Access));
    }
    for shown in [&[][..], &[&my_right], &[&their_right], &[&renamed]] {
        assert_eq!(commit(theirs, shown), Err(Code::Access));
    }
    assert_eq!(commit(mine, &[&my_right]), Ok(()));

    // An overheard request to read is done once, for him who sent it.
    let (to, request) = owner.reading(&extent, right.clone());
    let packet = owner.seal(to, &request);
    owner.socket.send(to, &packet);
    let (_, bytes) = owner.hear(PATIENCE, |message| answers(&request, message)).unwrap();
    assert_eq!(bytes, SECRET.as_bytes());
    let mut thief = Socket::new();
    thief.repeats_in_vain(to, &packet);
    assert_eq!(owner.read(&extent, &right).unwrap(), SECRET);
    assert_eq!(thief.next(Duration::ZERO), None);
}

#[test]
fn who_has_a_secret_speaks_and_hears_for_his_own_session_only() {
    let cluster = TestCluster::started("impostor");
    let enrolment = cluster.file(DEFAULT);
    let [mut owner, mut other, mut third] = [(); 3].map(|()| Insider::new(&cluster, &enrolment));
    let mut make = |text| owner.node(text, &Credentials::ROOT, Some(new_file(0o666))).0;
    let files = [make("one"), make("two")];
    let (space, range, mode) = (LockSpace::Whole, LockRange::ALL, LockMode::Exclusive);
    let lock = Lock { owner: LockOwner(7), space, range, mode, pid: 4242 };

    // Of another session's lock he learns that somebody has it: by a number that is not the session's, and
    // another one for each file.
    let holders = files.map(|node| {
        owner.call(node.home, Call::Lock { node, lock, wait: None }).unwrap();
        let seen = other.in_the_way(node, lock).expect("it is locked");
        assert_eq!(seen.lock, Lock { owner: LockOwner(0), pid: 0, ..lock });
        assert_ne!(seen.holder, owner.session().0);
        seen.holder
    });
    assert_ne!(holders[0], holders[1]);

    // What he gives back or ends is his own: he is sent to where his session is, and if that is here it is
    // his that ends.
    for node in files {
        other.call(node.home, Call::Unlock { node, owner: lock.owner, space, range }).unwrap();
    }
    third.assignment = owner.assignment.clone();
    match third.ask(owner.home(), Call::CloseSession) {
        Answer::Referral { tablet, .. } => assert!(tablet.contains(third.home())),
        Answer::Done { .. } => {
            assert_eq!(third.call(third.home(), Call::RenewSession), Err(Code::SessionEnded));
        }
        other => panic!("{other:?}"),
    }

    // With a session's number and its ticket, but without its secret, he is nobody, also to a server that
    // has not heard of the session.
    let end = owner.request(owner.home(), Call::CloseSession);
    let home = owner.server_of(owner.home());
    let unheard_of = cluster.address("data").parse().unwrap();
    let key = third.key();
    for to in [unheard_of, home] {
        let next = owner.next_to(to);
        for ticket in [&[][..], &owner.agreed.ticket, &third.agreed.ticket] {
            let stamp = Stamp { ticket, ..owner.stamp(next) };
            third.socket.is_refused(to, &envelope::seal(&stamp, Some(&key), Some(&end), &[]));
        }
    }
    let next = owner.next_to(home);
    assert!(matches!(owner.call(owner.home(), Call::RenewSession), Ok(Body::Session { .. })));
    assert_eq!(files.map(|node| other.in_the_way(node, lock).map(|seen| seen.holder)), holders.map(Some));

    // What he overhears and sends from elsewhere is not done again, and moves no answers: whoever waits for
    // a lock is told that it is free where he is.
    let [node, _] = files;
    let wait = other.request(node.home, Call::Lock { node, lock, wait: Some(WaitId(1)) });
    let to = other.server_of(node.home);
    let packet = other.seal(to, &wait);
    other.socket.send(to, &packet);
    let locked = other.hear(PATIENCE, |message| answers(&wait, message));
    let Some((Message::Reply(Reply { answer: Answer::Done { result, .. }, .. }), _)) = locked else {
        panic!("{locked:?}");
    };
    assert_eq!(result, Err(Code::Locked));
    let mut thief = Socket::new();
    thief.repeats_in_vain(to, &packet);
    owner.call(node.home, Call::Unlock { node, owner: lock.owner, space, range }).unwrap();
    let free = other.hear(PATIENCE, |message| {
        assert!(!answers(&wait, message), "answered twice");
        matches!(message, Message::LockFree(_))
    });
    assert!(free.is_some());
    assert_eq!(thief.next(Duration::ZERO), None);

    // The packet that was refused is one that ends the session, if it is signed as it should be.
    let packet = envelope::seal(&owner.stamp(next), Some(&owner.key()), Some(&end), &[]);
    owner.socket.send(home, &packet);
    assert!(owner.hear(PATIENCE, |message| answers(&end, message)).is_some());
    assert_eq!(owner.call(owner.home(), Call::RenewSession), Err(Code::SessionEnded));
}
