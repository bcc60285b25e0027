//! Good histories pass; each way to break a promise is caught, under its own name.

use super::*;
use crate::{
    ClientId, Entry, Event, Mutation, MutationOutcome, OwnWrites, Piece, Query, RequestId, Seen, View,
    WitnessKind, WriteOpen,
};
use bearing_proto::client::{AttributeChange, CommitMode, NewNode, RenameMode};
use bearing_types::{
    Code, Credentials, FileType, Gid, Mode, Mono, Name, Outcome, Sequence, SessionId, SetIds, Uid,
};

const ROOT: NodeId = NodeId::ROOT;
const FILE: NodeId = NodeId(10);
const DIRECTORY: NodeId = NodeId(11);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn user() -> Credentials {
    Credentials { uid: Uid(7), gid: Gid(7), groups: vec![] }
}

fn access(mode: u32) -> Access {
    Access { mode: Mode::new(mode), uid: Uid(0), gid: Gid(0) }
}

fn view(node: NodeId, file_type: FileType, links: u32, size: u64) -> View {
    let mode = Mode::new(if file_type == FileType::Directory { 0o755 } else { 0o644 });
    View { node, file_type, mode, uid: Uid(0), gid: Gid(0), links, size, modified: None }
}

fn file(links: u32, size: u64) -> View {
    view(FILE, FileType::Regular, links, size)
}

fn create(text: &str) -> Mutation {
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: vec![] };
    Mutation::Create { directory: ROOT, name: name(text), who: Credentials::ROOT, new }
}

fn mkdir(text: &str) -> Mutation {
    Mutation::MakeDirectory {
        directory: ROOT,
        name: name(text),
        who: Credentials::ROOT,
        mode: Mode::new(0o755),
    }
}

fn unlink(text: &str) -> Mutation {
    Mutation::Unlink { directory: ROOT, name: name(text), who: Credentials::ROOT }
}

fn rename(source: &str, target: &str) -> Mutation {
    Mutation::Rename {
        source: ROOT,
        source_name: name(source),
        target: ROOT,
        target_name: name(target),
        who: Credentials::ROOT,
        mode: RenameMode::Replace,
    }
}

fn lookup(text: &str) -> Query {
    Query::Lookup { directory: ROOT, name: name(text), who: Credentials::ROOT }
}

fn list() -> Query {
    Query::List { directory: ROOT, who: Credentials::ROOT }
}

fn listed(names: &[&str]) -> Outcome<Seen> {
    Ok(Seen::Listing(names.iter().map(|text| (name(text), FILE, FileType::Regular)).collect()))
}

/// A history and its witness, told in calls.
struct Story {
    history: History,
    witness: Vec<WitnessEvent>,
    check: Check,
}

impl Story {
    fn new() -> Story {
        let check = Check {
            root: ROOT,
            root_access: access(0o777),
            counts_late: Duration::ZERO,
            entry_bytes: Some(1),
            law: Law::Linux,
        };
        Story { history: History::default(), witness: Vec::new(), check }
    }

    fn request(number: usize) -> RequestId {
        RequestId { session: SessionId(1), sequence: Sequence(number as u64) }
    }

    /// A change between two times; returns its number for the witness.
    fn change(&mut self, times: (u64, u64), mutation: Mutation, told: Outcome<Seen>) -> usize {
        self.mutation(times.0, Some(times.1), mutation, MutationOutcome::Told(told))
    }

    fn mutation(
        &mut self,
        from: u64,
        to: Option<u64>,
        mutation: Mutation,
        outcome: MutationOutcome,
    ) -> usize {
        let number = self.history.entries.len();
        let event = Event::Mutation { mutation, requests: vec![Story::request(number)], outcome };
        self.push(ClientId(1), from, to, event);
        number
    }

    fn push(&mut self, client: ClientId, from: u64, to: Option<u64>, event: Event) {
        self.history.entries.push(Entry { client, invoked: Mono(from), returned: to.map(Mono), event });
    }

    fn read(&mut self, times: (u64, u64), query: Query, result: Outcome<Seen>) {
        self.push(ClientId(2), times.0, Some(times.1), Event::Read { query, result });
    }

    fn commit(&mut self, at: u64, number: usize) {
        self.commit_as(at, number, false, None);
    }

    fn commit_as(&mut self, at: u64, number: usize, link_owed: bool, created: Option<NodeId>) {
        let kind = WitnessKind::Committed { created, link_owed };
        self.witness.push(WitnessEvent { at: Mono(at), request: Story::request(number), kind });
    }

    fn drop_link(&mut self, at: u64, number: usize) {
        let kind = WitnessKind::LinkDropped;
        self.witness.push(WitnessEvent { at: Mono(at), request: Story::request(number), kind });
    }

    /// A file `f` is created from 10 to 20, committed at 15.
    fn with_file() -> Story {
        let mut story = Story::new();
        let number = story.change((10, 20), create("f"), Ok(Seen::Node(file(1, 0))));
        story.commit(15, number);
        story
    }

    /// `with_file`, and "abc" in it from 30 to 40.
    fn with_content() -> Story {
        let mut story = Story::with_file();
        story.write((30, 40), 35, 0, b"abc");
        story
    }

    fn write(&mut self, times: (u64, u64), at: u64, offset: u64, bytes: &[u8]) {
        let pieces = vec![Piece { offset, bytes: bytes.to_vec() }];
        let size_min = offset + bytes.len() as u64;
        let number = self.change(
            times,
            Mutation::Commit { node: FILE, pieces, size_min, mode: CommitMode::Put, set_ids: SetIds::Keep },
            Ok(Seen::Done),
        );
        self.commit(at, number);
    }

    fn rules(&self) -> Vec<Rule> {
        self.check
            .run(&self.history, &self.witness)
            .violations
            .iter()
            .map(|violation| violation.rule)
            .collect()
    }

    #[track_caller]
    fn passes(&self) {
        let violations = self.check.run(&self.history, &self.witness).violations;
        assert!(violations.is_empty(), "{}", violations[0]);
    }
}

fn content(opened: u64, writes: &[(u64, &[u8])]) -> Query {
    let pieces: Vec<_> =
        writes.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes: bytes.to_vec() }).collect();
    let own = OwnWrites {
        opened: Mono(opened),
        cut: None,
        flushed: Mono(opened),
        since_opened: pieces.clone(),
        unflushed: pieces,
    };
    Query::Content { node: FILE, offset: 0, length: 100, own }
}

#[test]
fn a_read_beside_a_change_may_see_either_state_and_after_it_only_the_new_one() {
    let mut story = Story::with_file();
    story.read((12, 18), lookup("f"), Err(Code::NotFound));
    story.read((12, 18), lookup("f"), Ok(Seen::Node(file(1, 0))));
    story.read((30, 40), lookup("f"), Ok(Seen::Node(file(1, 0))));
    story.passes();
    story.read((16, 18), lookup("f"), Err(Code::NotFound));
    assert_eq!(story.rules(), [Rule::WrongRead]);
}

#[test]
fn what_a_reader_cut_itself_is_gone_for_it_but_what_others_wrote_since_may_wait_for_the_next_open() {
    let mut story = Story::with_content();
    let truncate = Mutation::Truncate { node: FILE, who: Credentials::ROOT, read: true };
    // The answer of the cut at 55 comes late, behind what another wrote at 65.
    let cut = story.change((50, 80), truncate, Ok(Seen::Node(file(1, 0))));
    story.commit(55, cut);
    story.write((60, 70), 65, 0, b"xy");
    let read = |seen: &[u8], cut| {
        let Query::Content { node, offset, length, own } = content(50, &[]) else { unreachable!() };
        let own = OwnWrites { cut, ..own };
        (Query::Content { node, offset, length, own }, Ok(Seen::Bytes(seen.to_vec())))
    };
    for seen in [&b""[..], b"xy"] {
        let (query, seen) = read(seen, Some(cut));
        story.read((90, 95), query, seen);
    }
    story.passes();
    let (query, seen) = read(b"abc", Some(cut));
    story.read((90, 95), query, seen);
    assert_eq!(story.rules(), [Rule::WrongRead]);
}

#[test]
fn a_lost_update_is_caught() {
    let mut story = Story::new();
    story.change((10, 20), create("f"), Ok(Seen::Node(file(1, 0))));
    assert_eq!(story.rules(), [Rule::NeverCommitted]);
}

#[test]
fn a_lost_write_is_caught() {
    let mut story = Story::with_content();
    story.read((50, 60), content(50, &[]), Ok(Seen::Bytes(b"".to_vec())));
    assert_eq!(story.rules(), [Rule::WrongRead]);
}

#[test]
fn a_second_execution_is_caught() {
    let mut story = Story::with_file();
    story.commit(17, 0);
    assert_eq!(story.rules(), [Rule::CommittedTwice]);
}

#[test]
fn a_second_execution_under_a_new_node_is_caught_by_the_refusal_too() {
    let mut story = Story::with_file();
    let number = story.change((30, 40), create("f"), Err(Code::Exists));
    story.passes();
    story.commit_as(35, number, false, Some(NodeId(99)));
    assert_eq!(story.rules(), [Rule::ImpossibleChange]);
}

#[test]
fn a_commit_outside_its_call_is_caught() {
    let mut story = Story::new();
    let number = story.change((10, 20), create("f"), Ok(Seen::Node(file(1, 0))));
    story.commit(25, number);
    assert_eq!(story.rules(), [Rule::CommittedOutsideCall]);
}

#[test]
fn an_unanswered_change_may_be_made_once_or_not() {
    let mut story = Story::new();
    let number = story.mutation(10, None, create("f"), MutationOutcome::Unknown);
    story.read((90, 95), lookup("f"), Err(Code::NotFound));
    story.passes();
    story.history.entries.pop();
    story.commit_as(80, number, false, Some(FILE));
    story.read((90, 95), lookup("f"), Ok(Seen::Node(file(1, 0))));
    story.passes();
    story.commit_as(96, number, false, Some(NodeId(77)));
    assert_eq!(story.rules(), [Rule::CommittedTwice]);
}

#[test]
fn a_refusal_that_was_made_is_caught() {
    let mut story = Story::new();
    let number = story.change((10, 20), create("f"), Err(Code::NoSpace));
    story.commit_as(15, number, false, Some(FILE));
    assert_eq!(story.rules(), [Rule::RefusedButCommitted]);
}

#[test]
fn a_refusal_that_nothing_justifies_is_caught() {
    let mut story = Story::with_file();
    story.change((30, 40), create("g"), Err(Code::Exists));
    assert_eq!(story.rules(), [Rule::WrongRefusal]);
}

#[test]
fn of_several_codes_the_first_counts_unless_any_will_do() {
    let mut story = Story::with_file();
    story.check.root_access = access(0o755);
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: vec![] };
    let by_user = Mutation::Create { directory: ROOT, name: name("f"), who: user(), new };
    story.change((30, 40), by_user, Err(Code::Access));
    assert_eq!(story.rules(), [Rule::WrongRefusal]);
    story.check.law = Law::Posix;
    story.passes();
}

#[test]
fn a_name_that_rises_again_is_caught() {
    let mut story = Story::with_file();
    let number = story.change((30, 40), unlink("f"), Ok(Seen::Done));
    story.commit(35, number);
    story.read((50, 60), lookup("f"), Ok(Seen::Node(file(1, 0))));
    assert_eq!(story.rules(), [Rule::WrongRead]);
}

#[test]
fn a_rename_is_seen_whole() {
    let mut story = Story::with_file();
    let number = story.change((30, 50), rename("f", "g"), Ok(Seen::Done));
    story.commit(40, number);
    story.read((41, 45), list(), listed(&["g"]));
    story.read((35, 39), list(), listed(&["f"]));
    story.passes();
    // Both, neither, each outside the one moment at which it changes.
    story.read((41, 45), list(), listed(&["f", "g"]));
    story.read((41, 45), list(), listed(&[]));
    story.read((35, 39), lookup("f"), Err(Code::NotFound));
    story.read((41, 45), lookup("f"), Ok(Seen::Node(file(1, 0))));
    let expected = [Rule::ListingInvents, Rule::ListingLacks, Rule::WrongRead, Rule::WrongRead];
    assert_eq!(story.rules(), expected);
}

#[test]
fn a_refusal_needs_one_point_for_all_entries_concerned() {
    let mut story = Story::with_file();
    let number = story.change((30, 50), rename("f", "g"), Ok(Seen::Done));
    story.commit(40, number);
    // At no point are both names free.
    story.change((31, 49), rename("f", "h"), Err(Code::NotFound));
    story.passes();
    story.change((31, 39), rename("f", "h"), Err(Code::NotFound));
    assert_eq!(story.rules(), [Rule::WrongRefusal]);
}

#[test]
fn a_listing_must_not_repeat_or_name_the_wrong_node() {
    let mut story = Story::with_file();
    story.read((30, 40), list(), listed(&["f", "f"]));
    let wrong_node = vec![(name("f"), NodeId(99), FileType::Regular)];
    story.read((30, 40), list(), Ok(Seen::Listing(wrong_node)));
    let wrong_kind = vec![(name("f"), FILE, FileType::Symlink)];
    story.read((30, 40), list(), Ok(Seen::Listing(wrong_kind)));
    assert_eq!(story.rules(), [Rule::ListingRepeats, Rule::ListingInvents, Rule::ListingInvents]);
}

#[test]
fn a_name_that_comes_or_goes_during_a_listing_may_be_in_it_or_not() {
    let mut story = Story::with_file();
    story.read((5, 18), list(), listed(&[]));
    story.read((5, 18), list(), listed(&["f"]));
    story.passes();
}

#[test]
fn a_wrong_answer_to_a_change_is_caught_and_the_rest_goes_on() {
    let mut story = Story::new();
    let number = story.change((10, 20), create("f"), Ok(Seen::Node(file(3, 0))));
    story.commit(15, number);
    story.read((30, 40), lookup("f"), Ok(Seen::Node(file(1, 0))));
    assert_eq!(story.rules(), [Rule::WrongAnswer]);
}

#[test]
fn a_node_id_given_twice_is_caught() {
    let mut story = Story::with_file();
    let number = story.change((30, 40), create("g"), Ok(Seen::Node(file(1, 0))));
    story.commit(35, number);
    assert_eq!(story.rules(), [Rule::NodeIdReused]);
}

#[test]
fn a_change_needs_the_permission_of_its_own_place_in_the_order() {
    let mut story = Story::with_file();
    let change = AttributeChange { mode: Some(Mode::new(0o700)), ..Default::default() };
    let closing = Mutation::SetAttributes { node: ROOT, who: Credentials::ROOT, change, through_file: false };
    let number = story.change((30, 40), closing, Ok(Seen::Done));
    story.commit(35, number);
    let by_user = Mutation::Unlink { directory: ROOT, name: name("f"), who: user() };
    let unlinked = story.change((34, 50), by_user.clone(), Ok(Seen::Done));
    story.commit(34, unlinked);
    story.witness.swap(1, 2);
    story.passes();
    let late = story.witness.remove(1);
    story.witness.push(WitnessEvent { at: Mono(45), ..late });
    assert_eq!(story.rules(), [Rule::ImpossibleChange], "also when it was called before");
}

#[test]
fn a_link_may_be_dropped_late_but_before_the_reply_and_once() {
    let mut story = Story::with_file();
    let number = story.change((30, 50), unlink("f"), Ok(Seen::Done));
    story.commit_as(35, number, true, None);
    story.read((36, 39), Query::Attributes { node: FILE, own_end: 0 }, Ok(Seen::Node(file(1, 0))));
    assert_eq!(story.rules(), [Rule::LinkDrop], "never dropped");
    story.drop_link(40, number);
    story.passes();
    story.read((60, 61), Query::Attributes { node: FILE, own_end: 0 }, Err(Code::Stale));
    story.read((60, 61), Query::Attributes { node: FILE, own_end: 0 }, Ok(Seen::Node(file(0, 0))));
    story.passes();
    story.drop_link(45, number);
    assert_eq!(story.rules(), [Rule::LinkDrop], "dropped twice");
    story.witness.pop();
    story.witness.last_mut().unwrap().at = Mono(55);
    assert_eq!(story.rules(), [Rule::LinkDrop], "dropped after the reply");
}

#[test]
fn a_file_shows_what_was_closed_before_it_was_opened_and_the_readers_own_writes() {
    let mut story = Story::with_content();
    story.write((50, 60), 55, 1, b"XY");
    // Opened before the second write was made: either is right. Opened after it: only the second.
    story.read((62, 64), content(45, &[]), Ok(Seen::Bytes(b"abc".to_vec())));
    story.read((62, 64), content(61, &[]), Ok(Seen::Bytes(b"aXY".to_vec())));
    story.read((62, 64), content(61, &[(2, b"own")]), Ok(Seen::Bytes(b"aXown".to_vec())));
    story.passes();
    story.read((62, 64), content(61, &[]), Ok(Seen::Bytes(b"abc".to_vec())));
    story.read((62, 64), content(61, &[(2, b"own")]), Ok(Seen::Bytes(b"aXY".to_vec())));
    story.read((62, 64), content(45, &[]), Ok(Seen::Bytes(b"abY".to_vec())));
    assert_eq!(story.rules(), [Rule::WrongRead; 3]);
}

#[test]
fn content_may_be_that_of_several_versions_while_another_client_writes() {
    let mut story = Story::with_content();
    story.write((50, 60), 55, 1, b"XYZ");
    story.read((62, 64), content(45, &[]), Ok(Seen::Bytes(b"aXY".to_vec())));
    assert_eq!(story.rules(), [Rule::WrongRead]);
    let writer = WriteOpen { client: ClientId(1), node: FILE, from: Mono(47), until: Some(Mono(60)) };
    story.history.writers.push(writer);
    story.passes();
    story.read((62, 64), content(61, &[]), Ok(Seen::Bytes(b"aXY".to_vec())));
    story.read((62, 64), content(45, &[]), Ok(Seen::Bytes(b"aX".to_vec())));
    assert_eq!(story.rules(), [Rule::WrongRead; 2]);
}

#[test]
fn a_size_may_be_late_only_while_another_client_writes() {
    let mut story = Story::with_content();
    story.read((50, 60), Query::Attributes { node: FILE, own_end: 0 }, Ok(Seen::Node(file(1, 0))));
    assert_eq!(story.rules(), [Rule::WrongRead]);
    story.history.writers.push(WriteOpen {
        client: ClientId(1),
        node: FILE,
        from: Mono(25),
        until: Some(Mono(55)),
    });
    story.passes();
    story.history.writers[0].until = Some(Mono(45));
    assert_eq!(story.rules(), [Rule::WrongRead]);
}

#[test]
fn counts_of_directories_may_be_as_late_as_allowed() {
    let mut story = Story::new();
    let made = story.change((10, 20), mkdir("d"), Ok(Seen::Node(view(DIRECTORY, FileType::Directory, 2, 0))));
    story.commit(15, made);
    let root = |links, size| {
        Ok(Seen::Node(View { mode: Mode::new(0o777), ..view(ROOT, FileType::Directory, links, size) }))
    };
    let attributes = Query::Attributes { node: ROOT, own_end: 0 };
    story.read((30, 40), attributes.clone(), root(3, 1));
    story.passes();
    story.read((30, 40), attributes, root(2, 0));
    assert_eq!(story.rules(), [Rule::WrongRead]);
    story.check.counts_late = Duration::from_nanos(20);
    story.passes();
}

#[test]
fn a_change_without_effect_needs_no_commit() {
    let mut story = Story::with_file();
    story.change((30, 40), rename("f", "f"), Ok(Seen::Done));
    story.passes();
}

#[test]
fn what_nobody_asked_for_is_caught() {
    let mut story = Story::with_file();
    story.commit(50, 9);
    assert_eq!(story.rules(), [Rule::NobodyAsked]);
}

#[test]
fn the_tree_at_the_end_is_compared_exactly() {
    let story = Story::with_content();
    let checked = story.check.run(&story.history, &story.witness);
    let root = View { mode: Mode::new(0o777), ..view(ROOT, FileType::Directory, 2, 0) };
    let found = |path: &[&str], view, content: Option<&[u8]>| Observed {
        path: path.iter().map(|text| name(text)).collect(),
        view,
        content: content.map(<[u8]>::to_vec),
    };
    let good = [found(&[], root, None), found(&["f"], file(1, 3), Some(b"abc"))];
    assert_eq!(compare_tree(&checked.oracle, ROOT, &good), vec![]);
    for bad in [
        vec![good[0].clone()],
        vec![good[0].clone(), found(&["f"], file(1, 3), Some(b"abX"))],
        vec![good[0].clone(), found(&["f"], file(2, 3), None)],
        vec![good[0].clone(), good[1].clone(), found(&["g"], file(1, 3), None)],
    ] {
        let rules: Vec<_> =
            compare_tree(&checked.oracle, ROOT, &bad).iter().map(|found| found.rule).collect();
        assert_eq!(rules, [Rule::WrongTree], "{bad:?}");
    }
}

#[test]
fn an_open_file_that_is_unlinked_may_be_read_for_ever_and_is_never_said_to_be_gone() {
    let mut story = Story::with_content();
    let number = story.change((50, 60), unlink("f"), Ok(Seen::Done));
    story.commit(55, number);
    let later = 100_000_000_000;
    story.read((later, later + 10), content(45, &[]), Ok(Seen::Bytes(b"abc".to_vec())));
    story.passes();
    for code in [Code::Stale, Code::NotFound] {
        story.read((later, later + 10), content(45, &[]), Err(code));
    }
    assert_eq!(story.rules(), [Rule::WrongRead, Rule::WrongRead]);
}
