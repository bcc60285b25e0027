//! The repository names no developer's machine and no package registry.
//!
//! Where packages come from is each machine's own setting (a mirror, a cache, the default). A path of one
//! machine in a script works there and nowhere else.

use super::report::Findings;
use super::tree::Tree;

/// Files that tools write and that must name registries.
const EXEMPT: &[&str] = &["Cargo.lock", "LICENSE"];

/// Directories of a developer's machine. Written in halves, or this file would be its own first finding.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];

/// Host names of package registries and mirrors.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
    concat!("security.debian", ".org"),
    concat!("archive.ubuntu", ".com"),
    concat!("static.rust-lang", ".org"),
    concat!("rustup", ".rs"),
    concat!("docker", ".io"),
    concat!("ghcr", ".io"),
    concat!("quay", ".io"),
];

/// Checks every text file of the repository.
pub fn check(tree: &Tree, found: &mut Findings) {
    for (path, text) in &tree.texts {
        if EXEMPT.contains(&path.as_str()) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            for name in MACHINE_PATHS.iter().filter(|name| stands_alone(line, name)) {
                let instead = "write it from the project's root, or take it from an argument";
                found.add(path, index + 1, format!("`{name}` is a path of one machine"), instead);
            }
            for name in REGISTRIES.iter().filter(|name| line.contains(**name)) {
                let instead =
                    "name the package and its version; where it comes from is each machine's setting";
                found.add(path, index + 1, format!("`{name}` is a package registry"), instead);
            }
        }
    }
}

/// Whether `name` begins a path in `line`, instead of going on with one (`$HOME/work/x`, `a/home/b`).
fn stands_alone(line: &str, name: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "_-.})*~".contains(c);
    line.match_indices(name).any(|(at, _)| !line[..at].chars().next_back().is_some_and(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_path_counts() {
        let name = MACHINE_PATHS[0];
        assert!(stands_alone(&format!("cd {name}x"), name));
        assert!(stands_alone(&format!("\"{name}x\""), name));
        assert!(!stands_alone(&format!("$HOME{name}x"), name));
        assert!(!stands_alone(&format!("./a{name}x"), name));
    }
}
