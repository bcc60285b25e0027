//! What answers say of nodes and names: taken into the cache as far as it is leased, and told to whoever
//! asked.

use crate::context::State;
use crate::operation::{Found, Remaining};
use crate::state::Answered;
use crate::state::lease::{Directory, Held, Named, Seen, Stamp};
use bearing_proto::client::{
    Body, ChangedDirectory, DirectoryView, EntryView, Handle, LeaseKey, LeaseMs, NodeView,
};
use bearing_types::{Code, FileType, Mono, Name, NodeId, Position};

/// What became of a directory by a change of our own.
pub(crate) struct News {
    changed: ChangedDirectory,
    leased: Option<Mono>,
    /// Until when it is shown without a lease.
    shown: Mono,
}

impl State {
    /// Takes what a reply says of a node that is no directory.
    pub fn take_node(&mut self, view: &NodeView, stamp: &Stamp) -> Seen {
        let node = view.node;
        self.files.observe(node.node, &view.attributes, stamp.sent);
        let NodeView { attributes, may_open, extended, .. } = *view;
        let until = self.lease(LeaseKey::File(node.node), node.home, view.lease, stamp);
        if let Some(until) = until {
            let evicted = self.cache.keep_node(view, until, self.io.now.mono);
            self.invalidate(evicted);
        }
        Seen { node, attributes, until, may_open, extended }
    }

    /// Takes what a reply says of a directory.
    pub fn take_directory(&mut self, view: DirectoryView, stamp: &Stamp) -> Directory {
        let handle = view.node.node;
        // What is delegated to us its home knows less of than we.
        if let Some(ours) = self.local_directory(handle.node) {
            return ours;
        }
        let signed = self.io.signature_lives(view.grant.body.expires);
        let access_lease = if signed { view.access_lease } else { LeaseMs(0) };
        let access = self.lease(LeaseKey::Access(handle.node), handle.home, access_lease, stamp);
        let content = self.lease(LeaseKey::Content(handle.node), handle.home, view.node.lease, stamp);
        let access = self.within_grant(access, &view);
        if access.is_some() || content.is_some() {
            let evicted = self.cache.keep_directory(&view, access, content, (stamp.sent, self.io.now.mono));
            self.invalidate(evicted);
        }
        Directory { view, access_until: access, content_until: content, shown_until: None }
    }

    /// What the reply to a change says of a directory, and until when that may be used, if it is news at all.
    /// The change still counts as under way.
    pub fn weigh_changed(&self, changed: ChangedDirectory, stamp: &Stamp) -> Option<News> {
        let Handle { node, home } = changed.node.node;
        let key = LeaseKey::Content(node);
        let known = self.cache.own_change(node);
        let known = known.filter(|(_, version)| *version <= changed.version).map(|(mark, _)| mark);
        let may_lease = self.leases.may_take(key, home, stamp);
        let leased = self.io.lease_end(stamp.sent, changed.node.lease).filter(|_| may_lease);
        let shown = stamp.sent.after(self.io.config.directory_ttl);
        // What was asked for later knows of changes of others too, also of mode and owner.
        let is_news = self.leases.is_news(key, home, stamp, known)
            && self.cache.directory_asked(node).is_none_or(|asked| asked < stamp.sent);
        is_news.then_some(News { changed, leased, shown })
    }

    /// A change of our own in these directories is over. Where its reply says nothing new, nothing is known.
    pub fn take_changed(&mut self, directories: &[NodeId], news: &[News]) {
        let mark = self.leases.mark();
        for directory in directories {
            match news.iter().find(|news| news.changed.node.node.node == *directory) {
                Some(News { changed, leased, shown }) => {
                    self.cache.keep_changed(changed, *leased, *shown, mark);
                }
                None => self.cache.forget(&[LeaseKey::Content(*directory)]),
            }
        }
    }

    /// Takes what a reply says of a name.
    fn take_name(&mut self, directory: &Directory, name: &Name, view: &EntryView, stamp: &Stamp) -> Named {
        let grant = &directory.view.grant.body;
        if view.file_type != FileType::Directory {
            self.cache.note_name(view.node.node, grant.seat.node, name);
        }
        let until = self.lease(directory.name_key(name), directory.position(name), view.lease, stamp);
        let until = until.filter(|_| self.cache.may_hold_names(grant));
        if let Some(until) = until {
            let evicted = self.cache.keep_name(grant, name, view, (until, false), self.io.now.mono);
            self.invalidate(evicted);
        }
        Named { node: view.node, file_type: view.file_type, until }
    }

    /// Takes what a reply says of a name that nobody has asked for, and of what it leads to. Whether that may
    /// be used.
    pub fn take_prefetched(
        &mut self,
        directory: &Directory,
        name: &Name,
        view: &EntryView,
        stamp: &Stamp,
    ) -> bool {
        let (now, grant, position) = (self.io.now.mono, &directory.view.grant.body, directory.position(name));
        // Of a file that may be opened without asking more is known than this says.
        if let Some(node) = &view.attributes
            && self.cache.may_open_until(node.node.node, now).is_none()
        {
            self.take_node(node, stamp);
        }
        // It is leased with all others, but a change of our own was one of this name.
        let may_take = self.leases.may_take(directory.name_key(name), position, stamp);
        if !may_take || !self.cache.may_hold_names(grant) {
            return false;
        }
        let until = self.lease(LeaseKey::Names(grant.seat.node), position, view.lease, stamp);
        if let Some(until) = until {
            let evicted = self.cache.keep_name(grant, name, view, (until, true), now);
            self.invalidate(evicted);
        }
        until.is_some()
    }

    /// Takes all that a reply about a name says.
    pub fn take_entry(
        &mut self,
        parent: &Directory,
        name: &Name,
        view: EntryView,
        stamp: &Stamp,
    ) -> (Named, Option<Found>) {
        let named = self.take_name(parent, name, &view, stamp);
        let seen = match (view.attributes, view.directory) {
            (Some(node), _) => Some(self.take_node(&node, stamp)),
            (None, Some(directory)) => {
                let directory = self.take_directory(*directory, stamp);
                Some(self.directory_seen(&directory))
            }
            (None, None) => None,
        };
        let found = seen.map(|seen| self.found(&seen, named.until));
        (named, found)
    }

    /// Takes a reply about one node, whichever kind it is of.
    pub fn take_node_body(&mut self, answered: Answered) -> Result<Found, Code> {
        let seen = match answered.body {
            // Without a grant there is nothing to keep of a directory.
            Body::Node(view) if view.attributes.is_directory() => Seen {
                node: view.node,
                attributes: view.attributes,
                until: None,
                may_open: false,
                extended: view.extended,
            },
            Body::Node(view) => self.take_node(&view, &answered.stamp),
            Body::Directory(view) => {
                let directory = self.take_directory(*view, &answered.stamp);
                self.directory_seen(&directory)
            }
            _ => return Err(self.io.unexpected()),
        };
        Ok(self.found(&seen, None))
    }

    fn lease(&mut self, key: LeaseKey, position: Position, lease: LeaseMs, stamp: &Stamp) -> Option<Mono> {
        let until = self.io.lease_end(stamp.sent, lease)?;
        if !self.leases.may_take(key, position, stamp) {
            self.io.counters.leases_passed_over += 1;
            return None;
        }
        Some(Held::until(until).end())
    }

    /// A grant is good while both its lease and its signature last.
    fn within_grant(&self, until: Option<Mono>, view: &DirectoryView) -> Option<Mono> {
        let left = view.grant.body.expires.since(self.io.now.wall.after(self.io.config.skew_max));
        until.map(|until| until.min(self.io.now.mono.after(left)))
    }

    /// How long something may be used yet.
    pub fn remaining(&self, until: Option<Mono>) -> Remaining {
        Remaining(until.map(|until| until.since(self.io.now.mono)).unwrap_or_default())
    }

    /// An answer about a node; own writes that are not flushed yet are seen in it.
    pub fn found(&self, seen: &Seen, name_until: Option<Mono>) -> Found {
        let attributes = self.files.overlaid(seen.node.node, seen.attributes);
        Found {
            node: seen.node,
            attributes,
            name_remaining: self.remaining(name_until),
            attributes_remaining: self.remaining(seen.until),
        }
    }

    /// A directory's attributes. Mode and owner are used under one lease, times and counts under another;
    /// while that is not given, because several clients change the directory, they may be a little late.
    pub fn directory_seen(&self, directory: &Directory) -> Seen {
        let now = self.io.now.mono;
        let content = directory.content_until.or(directory.shown_until);
        let content = content.unwrap_or(now.after(self.io.config.directory_ttl));
        let until = directory.access_until.map(|access| access.min(content)).filter(|until| *until > now);
        let NodeView { node, attributes, extended, .. } = directory.view.node;
        Seen { node, attributes, until, may_open: false, extended }
    }
}
