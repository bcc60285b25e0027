//! Names that the kernel may go by although their directory was given back: its owner leases them to this client together, asks for them back before somebody
//! else takes one away, and lets that lease end when no kernel goes by them any more.

use super::Kept;
use super::image::LocalDirectory;
use crate::event::Invalidation;
use crate::hub::State;
use bearing_types::{Block, Mono, NodeId};

impl State {
    /// Until when the kernel may go by names of a tablet that it was told until now.
    pub(super) fn names_kept_until(&self, tablet: Block) -> Mono {
        let life = self.delegations.tablets.get(&tablet).map(|lent| lent.names_life);
        self.now.mono.after(life.unwrap_or_default())
    }

    /// A directory is given back, and with it the names that the kernel knows.
    pub(super) fn keep_names(&mut self, image: LocalDirectory, until: Mono) {
        let now = self.now.mono;
        self.delegations.kept.retain(|_, kept| now < kept.until);
        if now < until && !image.entries.is_empty() {
            let names = image.entries.into_values().map(|entry| entry.name).collect();
            self.delegations.kept.insert(image.handle.node, Kept { tablet: image.tablet, names, until });
        }
    }

    /// The names of a directory are recalled. Its owner may lease them before its word of that is here.
    pub(crate) fn recall_names(&mut self, directory: NodeId, kernel: &mut Vec<Invalidation>) {
        let kept = self.delegations.kept.remove(&directory);
        let names = kept.filter(|kept| self.now.mono < kept.until).map(|kept| kept.names);
        let draining = self.delegations.image(directory).filter(|image| image.draining);
        let leaving = draining.into_iter().flat_map(|image| image.entries.values());
        let leaving = leaving.map(|entry| entry.name.clone());
        let names = names.into_iter().flatten().chain(leaving);
        kernel.extend(names.map(|name| Invalidation::Entry { directory, name }));
    }

    /// The same of everything in a block.
    pub(crate) fn recall_names_in(&mut self, block: Block, kernel: &mut Vec<Invalidation>) {
        let meets = |tablet: Block| block.contains(tablet.start()) || tablet.contains(block.start());
        let kept = self.delegations.kept.iter().filter(|(_, kept)| meets(kept.tablet));
        let mut directories: Vec<NodeId> = kept.map(|(directory, _)| *directory).collect();
        let images = self.delegations.directories.iter().chain(&self.delegations.suspended);
        let leaving = images.filter(|(_, image)| image.draining && meets(image.tablet));
        directories.extend(leaving.map(|(directory, _)| *directory));
        for directory in directories {
            self.recall_names(directory, kernel);
        }
    }
}
