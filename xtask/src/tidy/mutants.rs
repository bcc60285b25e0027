//! The planted bugs (cargo feature `mutants`) cannot reach a release build.

use super::lex::{Kind, Token};
use super::report::Findings;
use super::rooms::SHIPPED;
use super::tree::{Manifest, RustFile, Tree, line_of};

const FEATURE: &str = "mutants";

/// The guard as tokens, so that its layout does not matter.
const GUARD: &str = "# [ cfg ( all ( feature = mutants , not ( debug_assertions ) ) ) ] compile_error !";

/// How a room's function `planted` asks for the feature, and how nobody does.
const ASKED: &str = "cfg ! ( feature = mutants )";
const CUT_OUT: &str = "cfg ( feature = mutants )";

/// Checks all manifests, and the guard in the sources of each package that has the feature.
pub fn check(tree: &Tree, found: &mut Findings) {
    workspace_pins(tree, found);
    for manifest in &tree.manifests {
        by_default(manifest, found);
        if SHIPPED.contains(&manifest.room.as_str()) {
            shipped(manifest, found);
        }
        let has_feature = manifest.table.get("features").and_then(|f| f.get(FEATURE)).is_some();
        if has_feature {
            asked_once(tree, &manifest.room, found);
        }
        if has_feature && lines(tree, &manifest.room, GUARD).next().is_none() {
            found.add(
                &manifest.path,
                manifest.line_of(FEATURE),
                format!("package `{}` has the feature `{FEATURE}` and no guard against a release build", manifest.room),
                "add to its lib.rs: #[cfg(all(feature = \"mutants\", not(debug_assertions)))] compile_error!(\"..\");",
            );
        }
    }
}

fn workspace_pins(tree: &Tree, found: &mut Findings) {
    let pins = tree.workspace.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.as_table());
    for (name, pin) in pins.into_iter().flatten() {
        if enables(pin) {
            let line = tree.texts.get("Cargo.toml").map_or(1, |text| line_of(text, name));
            let seen = format!("the workspace switches `{FEATURE}` on for everybody who imports `{name}`");
            found.add("Cargo.toml", line, seen, "switch it on in the package whose tests need it");
        }
    }
}

/// `default` may not lead to the feature, not through other features either.
fn by_default(manifest: &Manifest, found: &mut Findings) {
    let Some(features) = manifest.table.get("features").and_then(|f| f.as_table()) else { return };
    let mut reached = vec!["default".to_owned()];
    let mut at = 0;
    while at < reached.len() {
        let values = features.get(&reached[at]).and_then(|v| v.as_array());
        for value in values.into_iter().flatten().filter_map(|v| v.as_str()) {
            if !reached.iter().any(|known| known == value) {
                reached.push(value.to_owned());
            }
        }
        at += 1;
    }
    if reached.iter().any(|name| is_feature(name)) {
        let seen = format!("the default features of `{}` switch `{FEATURE}` on", manifest.room);
        found.add(
            &manifest.path,
            manifest.line_of("default"),
            seen,
            "take it out of `default`: only tests ask for it",
        );
    }
}

fn is_feature(name: &str) -> bool {
    name == FEATURE || name.ends_with("/mutants")
}

fn enables(dependency: &toml::Value) -> bool {
    let features = dependency.get("features").and_then(|f| f.as_array());
    features.into_iter().flatten().filter_map(|f| f.as_str()).any(is_feature)
}

/// A package that is shipped names the feature nowhere: not of its own, not of a dependency.
fn shipped(manifest: &Manifest, found: &mut Findings) {
    let own = manifest.table.get("features").and_then(|f| f.as_table());
    let named = own.into_iter().flatten().any(|(name, values)| {
        let values = values.as_array().into_iter().flatten().filter_map(|v| v.as_str());
        is_feature(name) || values.into_iter().any(is_feature)
    });
    if named || any_dependency_enables(&manifest.table) {
        let seen = format!("`{}` is shipped and names the feature `{FEATURE}`", manifest.room);
        let instead = "run planted bugs from the simulator or from the tests of the machine itself";
        found.add(&manifest.path, manifest.line_of(FEATURE), seen, instead);
    }
}

fn any_dependency_enables(table: &toml::Table) -> bool {
    let mut holders = vec![table];
    holders.extend(
        table
            .get("target")
            .and_then(|t| t.as_table())
            .into_iter()
            .flatten()
            .filter_map(|(_, t)| t.as_table()),
    );
    holders.iter().any(|holder| {
        ["dependencies", "dev-dependencies", "build-dependencies"]
            .iter()
            .filter_map(|name| holder.get(*name).and_then(|t| t.as_table()))
            .any(|dependencies| dependencies.values().any(enables))
    })
}

/// Only the function `planted` of a room asks for the feature; sites call it in a plain `if`, so that both
/// builds compile all of them.
fn asked_once(tree: &Tree, room: &str, found: &mut Findings) {
    let asked = lines(tree, room, ASKED).skip(1);
    for (file, line) in asked.chain(lines(tree, room, CUT_OUT)) {
        let seen = format!("`{room}` asks for the feature `{FEATURE}` in more than one place");
        found.add(&file.path, line, seen, "write `if config.planted(Mutant::X)` instead");
    }
}

/// Where a run of tokens begins in what a room compiles outside of tests.
fn lines<'t>(tree: &'t Tree, room: &'t str, wanted: &str) -> impl Iterator<Item = (&'t RustFile, usize)> {
    let wanted: Vec<String> = wanted.split(' ').map(str::to_owned).collect();
    let files = tree.rust.iter().filter(move |file| file.room == room && !file.test_only);
    files.flat_map(move |file| {
        let fits = |window: &&[Token]| {
            window.iter().zip(&wanted).all(|(token, text)| token.text == *text && token.kind != Kind::Other)
        };
        let lines: Vec<usize> =
            file.tokens.windows(wanted.len()).filter(fits).map(|window| window[0].line).collect();
        lines.into_iter().map(move |line| (file, line))
    })
}
