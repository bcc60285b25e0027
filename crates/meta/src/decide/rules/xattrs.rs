//! Extended attributes of a node, at its home: one record names them all with the numbers of their values,
//! each value is a record of its own. So a node that has none costs nothing, and a list reads no value. Who
//! may is not asked here.

use crate::record::{Key, NodeRecord, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{XattrChange, XattrMode};
use bearing_types::{Code, NodeId, XattrName};

type Names = Vec<(XattrName, u16)>;

/// The names, in the order in which they came to be.
pub(crate) fn names(view: &mut View, node: NodeId, record: &NodeRecord) -> Decide<Names> {
    if !record.xattrs {
        return Ok(Vec::new());
    }
    view.get_as(Key::Xattr(node, 0), Record::into_xattr_names)?.ok_or(Stop::Refuse(Code::Io))
}

/// The value of one, or `NoData`.
pub(crate) fn value(view: &mut View, node: NodeId, record: &NodeRecord, name: &XattrName) -> Decide<Vec<u8>> {
    let names = names(view, node, record)?;
    let number = number_of(&names, name).ok_or(Stop::Refuse(Code::NoData))?;
    view.get_as(Key::Xattr(node, number), Record::into_xattr)?.ok_or(Stop::Refuse(Code::Io))
}

/// Sets or removes one. The caller writes the node's record.
pub(crate) fn change(
    view: &mut View,
    node: NodeId,
    record: &mut NodeRecord,
    name: &XattrName,
    change: &XattrChange,
) -> Decide<()> {
    let mut names = names(view, node, record)?;
    let number = number_of(&names, name);
    match (change, number) {
        (XattrChange::Remove | XattrChange::Set { mode: XattrMode::Replace, .. }, None) => {
            return Err(Stop::Refuse(Code::NoData));
        }
        (XattrChange::Set { mode: XattrMode::Create, .. }, Some(_)) => {
            return Err(Stop::Refuse(Code::Exists));
        }
        (XattrChange::Remove, Some(number)) => {
            view.delete(Key::Xattr(node, number));
            names.retain(|(other, _)| other != name);
        }
        (XattrChange::Set { value, .. }, number) => {
            if value.len() > XattrName::VALUE_BYTES_MAX {
                return Err(Stop::Refuse(Code::TooLarge));
            }
            let number = match number {
                Some(number) => number,
                None => add(&mut names, name)?,
            };
            view.put(Key::Xattr(node, number), Record::Xattr(value.clone()));
        }
    }
    record.xattrs = !names.is_empty();
    if names.is_empty() {
        view.delete(Key::Xattr(node, 0));
    } else {
        view.put(Key::Xattr(node, 0), Record::XattrNames(names));
    }
    Ok(())
}

/// The node goes.
pub(crate) fn remove_all(view: &mut View, node: NodeId, record: &mut NodeRecord) -> Decide<()> {
    let names = names(view, node, record)?;
    for (_, number) in &names {
        view.delete(Key::Xattr(node, *number));
    }
    if !names.is_empty() {
        view.delete(Key::Xattr(node, 0));
    }
    record.xattrs = false;
    Ok(())
}

fn number_of(names: &Names, name: &XattrName) -> Option<u16> {
    names.iter().find(|(other, _)| other == name).map(|(_, number)| *number)
}

/// Gives a new name the smallest number that is free.
fn add(names: &mut Names, name: &XattrName) -> Decide<u16> {
    let bytes: usize = names.iter().map(|(name, _)| name.list_bytes()).sum();
    if bytes + name.list_bytes() > XattrName::LIST_BYTES_MAX {
        return Err(Stop::Refuse(Code::NoSpace));
    }
    let taken: std::collections::BTreeSet<u16> = names.iter().map(|(_, number)| *number).collect();
    let free = (1..=u16::MAX).find(|number| !taken.contains(number)).ok_or(Stop::Refuse(Code::NoSpace))?;
    names.push((name.clone(), free));
    Ok(free)
}
