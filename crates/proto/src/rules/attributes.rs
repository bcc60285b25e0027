//! What becomes of the attributes of a node that exists.

use bearing_types::{Attributes, Wall};

/// The node was changed. Time stands still rather than going back; the version always grows.
pub fn touch(attributes: &mut Attributes, now: Wall) {
    attributes.changed = attributes.changed.max(now);
    attributes.version = attributes.version.next();
}
