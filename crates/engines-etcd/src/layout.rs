//! Where registers lie in etcd, see `docs/formats/coordinator.md`:
//!
//! ```text
//! ROOT/entry/KEY          8 bytes that no other swap writes, then the value of a register; its version is
//!                         etcd's mod revision
//! ROOT/removed/KEY        empty: the register was removed, in this mod revision
//! ROOT/fact/format        the version of this layout, in decimal
//! ROOT/fact/last          empty; written with every swap: its mod revision is the version of all registers
//! ROOT/fact/older         empty, if there: somebody knows newer registers, so these change no more
//! ROOT/fact/forgotten     removals up to this version, in decimal, may not be there
//! ```

use etcd_client::KeyValue;

/// The newest layout that this program knows.
pub(crate) const FORMAT: u32 = 1;

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: String,
}

impl Layout {
    pub fn new(root: &str) -> Layout {
        Layout { root: root.trim_end_matches('/').to_owned() }
    }

    pub fn root(&self) -> &str {
        &self.root
    }

    pub fn entry(&self, key: &str) -> String {
        format!("{}/entry/{key}", self.root)
    }

    pub fn removed(&self, key: &str) -> String {
        format!("{}/removed/{key}", self.root)
    }

    pub fn format(&self) -> String {
        format!("{}/fact/format", self.root)
    }

    pub fn last(&self) -> String {
        format!("{}/fact/last", self.root)
    }

    pub fn older(&self) -> String {
        format!("{}/fact/older", self.root)
    }

    pub fn forgotten(&self) -> String {
        format!("{}/fact/forgotten", self.root)
    }

    /// The register that an etcd key is of.
    pub fn register(&self, key: &KeyValue) -> String {
        let key = String::from_utf8_lossy(key.key());
        let below = key.strip_prefix(&self.root).unwrap_or(&key);
        let kinds = ["/entry/", "/removed/"];
        kinds.iter().find_map(|kind| below.strip_prefix(kind)).unwrap_or(below).to_owned()
    }
}

/// The version that a key carries.
pub(crate) fn version(key: &KeyValue) -> u64 {
    key.mod_revision().unsigned_abs()
}

/// A fact that is a number.
pub(crate) fn number(keys: &[KeyValue]) -> Option<u64> {
    keys.first().and_then(|fact| std::str::from_utf8(fact.value()).ok()?.parse().ok())
}
