//! How a scheme looks: its colour, its marker and its line.
//!
//! Invariants: a name of the table looks the same in every figure; no two names of one figure look alike.
//! Colours are those of Okabe and Ito (Color Universal Design, 2008) that are legible as lines on white and
//! on black, with an olive of Tol's; the marker tells lines apart where colours do not, as in print.

use plotters::style::RGBColor;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) colour: RGBColor,
    pub(super) marker: Marker,
    pub(super) stroke: Stroke,
}

/// What stands at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
}

/// Between points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stroke {
    Solid,
    /// A scheme with a change (what stands behind the comma of its name) beside itself without.
    Dashed,
}

const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xB2);
const ORANGE: RGBColor = RGBColor(0xE6, 0x9F, 0x00);
const GREEN: RGBColor = RGBColor(0x00, 0x9E, 0x73);
const RED: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
const PINK: RGBColor = RGBColor(0xCC, 0x79, 0xA7);
const SKY: RGBColor = RGBColor(0x56, 0xB4, 0xE9);
const OLIVE: RGBColor = RGBColor(0x99, 0x99, 0x33);
/// Of bounds, and of what belongs to no scheme.
pub(super) const GREY: RGBColor = RGBColor(0x7A, 0x7A, 0x7A);

const COLOURS: [RGBColor; 7] = [BLUE, ORANGE, GREEN, RED, PINK, SKY, OLIVE];
const MARKERS: [Marker; 5] =
    [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Cross];

/// Schemes that are known. Those which one figure compares differ in colour as far as there are colours.
const KNOWN: &[(&str, RGBColor, Marker)] = &[
    // Selections.
    ("mayflower-p", BLUE, Marker::Circle),
    ("mayflower-b", SKY, Marker::Square),
    ("mayflower-n", PINK, Marker::Diamond),
    ("mayflower-x", OLIVE, Marker::Circle),
    ("sinbad-r-mf", ORANGE, Marker::Triangle),
    ("sinbad-r-ecmp", RED, Marker::Triangle),
    ("nearest-mf", GREEN, Marker::Square),
    ("nearest-ecmp", OLIVE, Marker::Square),
    ("hdfs-mf", GREEN, Marker::Cross),
    ("hdfs-ecmp", RED, Marker::Cross),
    ("lower bound", GREY, Marker::Cross),
    // Lookups.
    ("in-network", BLUE, Marker::Circle),
    ("metaflow", BLUE, Marker::Circle),
    ("chord", RED, Marker::Triangle),
    ("cached-fingers", RED, Marker::Cross),
    ("rebuilding-fingers", PINK, Marker::Triangle),
    ("one-hop", ORANGE, Marker::Square),
    ("client-map", SKY, Marker::Diamond),
    ("computed", OLIVE, Marker::Diamond),
    ("central", PINK, Marker::Square),
    ("g-hba", BLUE, Marker::Square),
    ("hba", ORANGE, Marker::Circle),
    ("bfa8", GREEN, Marker::Triangle),
    ("bfa16", PINK, Marker::Diamond),
    // Divisions of the tree.
    ("anglecut", BLUE, Marker::Circle),
    ("anglecut-hashed", SKY, Marker::Square),
    ("drop", ORANGE, Marker::Triangle),
    ("hash", GREEN, Marker::Diamond),
    ("static-subtree", RED, Marker::Square),
    ("dynamic-subtree", PINK, Marker::Circle),
    ("dht-mdsc", OLIVE, Marker::Triangle),
    ("rdht-mdsc", BLUE, Marker::Diamond),
];

/// A name without the change that was made to the scheme: what is before the comma.
pub(super) fn base_of(scheme: &str) -> &str {
    scheme.split_once(", ").map_or(scheme, |(base, _)| base)
}

/// The style of each name of a figure. The same name again changes nothing.
pub(super) fn styles<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Style> {
    let names: Vec<&str> = names.collect();
    let mut all: BTreeMap<&str, Style> = BTreeMap::new();
    for name in &names {
        if all.contains_key(name) {
            continue;
        }
        let is_beside_itself = base_of(name) != *name && names.contains(&base_of(name));
        let stroke = if is_beside_itself { Stroke::Dashed } else { Stroke::Solid };
        let wanted = own_style(name, stroke);
        let free = others(wanted).find(|style| !all.values().any(|taken| taken == style));
        // More names than there are styles: then some look alike.
        all.insert(*name, free.unwrap_or(wanted));
    }
    all
}

fn own_style(name: &str, stroke: Stroke) -> Style {
    let base = base_of(name);
    let known = KNOWN.iter().find(|(known, _, _)| *known == base);
    let (colour, marker) = known.map_or_else(|| drawn(base), |(_, colour, marker)| (*colour, *marker));
    Style { colour, marker, stroke }
}

/// A colour and a marker from the name alone, so that they are the same in every figure.
fn drawn(name: &str) -> (RGBColor, Marker) {
    let hash = xxh3_64(name.as_bytes()) as usize;
    (COLOURS[hash % COLOURS.len()], MARKERS[hash / COLOURS.len() % MARKERS.len()])
}

/// What a name may look like, the best first: dashed, then with another marker, then in another colour.
fn others(wanted: Style) -> impl Iterator<Item = Style> {
    let turned = |from: usize, step: usize, of: usize| (from + step) % of;
    let marker = MARKERS.iter().position(|marker| *marker == wanted.marker).unwrap_or(0);
    let colour = COLOURS.iter().position(|colour| *colour == wanted.colour).unwrap_or(0);
    let same = (0..MARKERS.len())
        .map(move |step| Style { marker: MARKERS[turned(marker, step, MARKERS.len())], ..wanted });
    let rest = (1..COLOURS.len() * MARKERS.len()).map(move |step| Style {
        colour: COLOURS[turned(colour, step, COLOURS.len())],
        marker: MARKERS[turned(marker, step / COLOURS.len(), MARKERS.len())],
        ..wanted
    });
    [wanted, Style { stroke: Stroke::Dashed, ..wanted }].into_iter().chain(same).chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_looks_the_same_in_every_figure() {
        let one = styles(["chord", "one-hop", "in-network"].into_iter());
        let other = styles(["drop", "in-network", "chord", "chord"].into_iter());
        assert_eq!(one["chord"], other["chord"]);
        assert_eq!(one["in-network"], other["in-network"]);
        assert_eq!(styles(["new"].into_iter())["new"], styles(["hash", "new"].into_iter())["new"]);
    }

    #[test]
    fn a_changed_scheme_has_the_colour_of_its_own_and_a_dashed_line() {
        let all = styles(["mayflower-n", "mayflower-n, re-planned", "mayflower-n, slow"].into_iter());
        let changed = all["mayflower-n, re-planned"];
        assert_eq!((changed.colour, changed.stroke), (all["mayflower-n"].colour, Stroke::Dashed));
        assert_ne!(changed, all["mayflower-n, slow"]);
    }

    #[test]
    fn changes_of_a_scheme_share_its_colour() {
        let all = styles(["mayflower-b, unaware", "mayflower-b, aware", "mayflower-p, aware"].into_iter());
        let (one, other) = (all["mayflower-b, unaware"], all["mayflower-b, aware"]);
        assert_eq!((one.colour, one.stroke, other.stroke), (other.colour, Stroke::Solid, Stroke::Dashed));
        assert_eq!(all["mayflower-p, aware"].stroke, Stroke::Solid);
    }

    #[test]
    fn no_two_names_of_a_figure_look_alike() {
        let names: Vec<String> =
            (0..COLOURS.len() * MARKERS.len()).map(|index| format!("s{index}")).collect();
        let all = styles(names.iter().map(String::as_str));
        for (index, name) in names.iter().enumerate() {
            assert!(names[..index].iter().all(|other| all[other.as_str()] != all[name.as_str()]), "{name}");
        }
        let many: Vec<String> = (0..100).map(|index| format!("s{index}")).collect();
        assert_eq!(styles(many.iter().map(String::as_str)).len(), 100);
    }

    #[test]
    fn schemes_that_figures_compare_do_not_look_alike() {
        let selections = &KNOWN[..11];
        let trees = &KNOWN[KNOWN.len() - 8..];
        for group in [selections, trees] {
            let all = styles(group.iter().map(|(name, _, _)| *name));
            assert!(group.iter().all(|(name, colour, marker)| {
                (all[name].colour, all[name].marker) == (*colour, *marker)
            }));
        }
    }
}
