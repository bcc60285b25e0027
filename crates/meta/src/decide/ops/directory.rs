//! Reads of a node at its home: directories with their grants, attributes, link targets.

use crate::decide::rules::namespace;
use crate::record::NodeContent;
use crate::view::{Decide, Stop, View};
use bearing_placement::Seat;
use bearing_proto::client::{Body, Handle, LeaseKey, LeaseMs};
use bearing_types::{Code, FilesystemId};

pub(super) fn root(view: &mut View, filesystem: FilesystemId) -> Decide<Body> {
    if filesystem != view.filesystem.filesystem {
        return Err(Stop::Refuse(Code::NotFound));
    }
    let root = view.filesystem.root;
    let home = Seat::root(root, view.filesystem.scheme.seating()).home;
    show(view, Handle { node: root, home })
}

pub(super) fn show(view: &mut View, directory: Handle) -> Decide<Body> {
    let record = view.node_at(directory)?;
    Ok(Body::Directory(Box::new(namespace::directory_view(view, directory.node, &record)?)))
}

pub(super) fn attributes(view: &mut View, handle: Handle) -> Decide<Body> {
    let record = view.node_at(handle)?;
    if let NodeContent::Directory(_) = record.content {
        let (attributes, all_here) = namespace::directory_attributes(view, handle.node, &record)?;
        let lease = if all_here { view.lease(LeaseKey::Content(handle.node)) } else { LeaseMs(0) };
        return Ok(Body::Node(namespace::directory_node_view(handle.node, &record, attributes, lease)));
    }
    Ok(Body::Node(namespace::node_view(view, handle.node, &record)))
}

pub(super) fn place(view: &mut View, directory: Handle) -> Decide<Body> {
    let record = view.node_at(directory)?;
    let content = record.directory()?;
    Ok(Body::Place(content.parent, content.name.clone()))
}

pub(super) fn read_link(view: &mut View, handle: Handle) -> Decide<Body> {
    match view.node_at(handle)?.content {
        NodeContent::Symlink(target) => Ok(Body::Link(target)),
        NodeContent::File | NodeContent::Directory(_) | NodeContent::Special => {
            Err(Stop::Refuse(Code::InvalidArgument))
        }
    }
}
