//! What is decided in a delegated directory is what its home will say of it when it decides the steps again.

use super::delegation::*;
use super::world::*;
use crate::*;
use bearing_proto::client::{Handle, NewNode};
use bearing_types::*;

const SOMEBODY: Credentials = Credentials { uid: Uid(9), gid: Gid(9), groups: Vec::new() };

fn make_directory(world: &mut World, text: &str, mode: u32) -> Handle {
    let (who, mode) = (Credentials::ROOT, Mode::new(mode));
    let ticket = world.start(Operation::MakeDirectory { directory: root(), name: name(text), who, mode });
    world.found(ticket).node
}

fn make_file(world: &mut World, directory: Handle, text: &str) -> Handle {
    let new = NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: Vec::new() };
    let (who, open) = (Credentials::ROOT, false);
    let ticket = world.start(Operation::Create { directory, name: name(text), who, new, open });
    world.found(ticket).node
}

#[test]
fn who_may_list_a_directory_and_not_search_it_sees_names_and_kinds_only() {
    let mut world = with_root();
    let directory = make_directory(&mut world, "d", 0o704);
    make_file(&mut world, directory, "f");
    for (who, with_attributes, told) in
        [(Credentials::ROOT, true, true), (Credentials::ROOT, false, false), (SOMEBODY, true, false)]
    {
        let (after, count_max) = (Cookie::START, 10);
        let list = Operation::List { directory, who: who.clone(), after, count_max, with_attributes };
        let ticket = world.start(list);
        let Ok(Answer::Listed(listed)) = world.result(ticket) else { panic!("it may be listed") };
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].attributes.is_some(), told, "{who:?} {with_attributes}");
    }
}
