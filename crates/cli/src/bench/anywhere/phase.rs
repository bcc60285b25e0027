//! The phases, in the order in which they run: each finds what the one before it left.

use clap::ValueEnum;

/// One phase. The words in results are the names of the variants, in lower case with hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Creates empty files.
    Create,
    /// Asks for the attributes of each.
    Stat,
    /// The same, after the kernel's entries and nodes were dropped.
    StatUncached,
    /// Opens each for reading and closes it.
    OpenClose,
    /// Renames each within its directory.
    Rename,
    /// Removes them.
    Remove,
    /// Makes empty directories.
    Mkdir,
    /// Asks for the attributes of each.
    StatDir,
    /// Renames each within its directory.
    RenameDir,
    /// Removes them.
    Rmdir,
    /// `tar x` of small files.
    Untar,
    /// `rm -r` of what tar unpacked.
    RmR,
    /// `git clone` of a small repository, made beforehand on another filesystem.
    GitClone,
    /// Writes a file from front to back and syncs it.
    Write,
    /// Reads it from front to back, after cached pages were dropped.
    Read,
}

/// Phases that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// create, stat, stat-uncached, open-close, rename, remove
    Files,
    /// mkdir, stat-dir, rename-dir, rmdir
    Directories,
    /// untar, rm-r; by one process
    Tree,
    /// git-clone; by one process, if git is installed
    Git,
    /// write, read
    Data,
}

/// What has to be dropped before a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Nothing.
    Nothing,
    /// The kernel's entries and nodes (`drop_caches` 2).
    Nodes,
    /// These and all clean pages (`drop_caches` 3).
    NodesAndPages,
}

impl Group {
    /// All groups, in order.
    pub const ALL: [Group; 5] = [Group::Files, Group::Directories, Group::Tree, Group::Git, Group::Data];

    /// Its phases, in order.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Group::Files => &[
                Phase::Create,
                Phase::Stat,
                Phase::StatUncached,
                Phase::OpenClose,
                Phase::Rename,
                Phase::Remove,
            ],
            Group::Directories => &[Phase::Mkdir, Phase::StatDir, Phase::RenameDir, Phase::Rmdir],
            Group::Tree => &[Phase::Untar, Phase::RmR],
            Group::Git => &[Phase::GitClone],
            Group::Data => &[Phase::Write, Phase::Read],
        }
    }
}

impl Phase {
    /// Its name in results.
    pub fn word(self) -> String {
        self.to_possible_value().expect("no phase is hidden").get_name().to_owned()
    }

    /// The phase with a name.
    pub fn from_word(word: &str) -> Option<Phase> {
        Phase::from_str(word, false).ok()
    }

    /// What one operation of it is.
    pub fn unit(self) -> &'static str {
        match self {
            Phase::Write | Phase::Read => "MB",
            Phase::Untar | Phase::RmR | Phase::GitClone => "files",
            _ => "operations",
        }
    }

    /// Whether it changes something that another mount could look at.
    pub fn changes(self) -> bool {
        !matches!(self, Phase::Stat | Phase::StatUncached | Phase::OpenClose | Phase::StatDir | Phase::Read)
    }

    /// What is dropped before it.
    pub fn drop(self) -> Drop {
        match self {
            Phase::StatUncached => Drop::Nodes,
            Phase::Read => Drop::NodesAndPages,
            _ => Drop::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_in_one_group_and_found_by_its_word() {
        let mut seen: Vec<Phase> = Vec::new();
        for phase in Group::ALL.iter().flat_map(|group| group.phases()) {
            assert!(!seen.contains(phase), "{phase:?}");
            assert_eq!(Phase::from_word(&phase.word()), Some(*phase));
            seen.push(*phase);
        }
        assert_eq!(seen.len(), Phase::value_variants().len());
    }
}
