//! A topology as a picture: a row for each tier, hosts at the bottom, links as wide as they carry.

use bearing_routing::{End, Place, Rate, SwitchId, Topology};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Pixels between rows, between hosts, and around all.
const ROW: f64 = 130.0;
const HOST: f64 = 26.0;
const MARGIN: f64 = 40.0;
/// At least so wide.
const WIDTH: f64 = 560.0;
/// More hosts than this have no names in the picture: they would lie on each other.
const NAMED_MAX: u32 = 64;
/// Link widths, thinnest to thickest.
const STROKES: (f64, f64) = (1.0, 6.0);
/// Colours of links by capacity, the smallest first; of more than these the last one is used again.
const COLOURS: [&str; 5] = ["#7a869a", "#2f6f9f", "#c2702b", "#5b8c3e", "#8a4f9e"];

/// A picture in SVG.
pub fn svg(topology: &Topology) -> String {
    let layout = Layout::of(topology);
    let mut capacities: Vec<f64> = topology.links().map(|link| topology.capacity(link).bytes()).collect();
    capacities.sort_by(f64::total_cmp);
    capacities.dedup();
    let mut text = String::new();
    let (width, height) = (layout.width, layout.height + 24.0 * capacities.len() as f64);
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    );
    for link in topology.links() {
        let [(x1, y1), (x2, y2)] = topology.ends(link).map(|end| layout.at(end));
        let (colour, stroke) = style(topology.capacity(link), &capacities);
        let _ = writeln!(
            text,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{stroke:.1}\" stroke-opacity=\"0.75\"/>"
        );
    }
    for switch in topology.switches() {
        let ((x, y), name) = (layout.at(End::Switch(switch)), escaped(topology.name(switch)));
        let half = layout.half_box(topology.name(switch));
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"22\" rx=\"4\" fill=\"#eef2f7\" \
             stroke=\"#44546a\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#1d2733\">{name}</text>",
            x - half,
            y - 11.0,
            2.0 * half,
            y + 4.0
        );
    }
    for place in (0..topology.places()).map(Place) {
        let ((x, y), name) = (layout.at(End::Host(place)), escaped(topology.host_name(place)));
        let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"#44546a\"/>");
        if topology.places() <= NAMED_MAX {
            let _ = writeln!(
                text,
                "<text transform=\"translate({:.1} {:.1}) rotate(60)\" fill=\"#1d2733\">{name}</text>",
                x - 3.0,
                y + 14.0
            );
        }
    }
    for (index, capacity) in capacities.iter().enumerate() {
        let (colour, stroke) = style(Rate::bits((capacity * 8.0) as u64), &capacities);
        let y = layout.height + 24.0 * index as f64;
        let count = topology.links().filter(|link| topology.capacity(*link).bytes() == *capacity).count();
        let _ = writeln!(
            text,
            "<line x1=\"{MARGIN}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{stroke:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1d2733\">{}, {count} link{}</text>",
            MARGIN + 40.0,
            MARGIN + 50.0,
            y + 4.0,
            Rate::bits((capacity * 8.0).round() as u64),
            if count == 1 { "" } else { "s" }
        );
    }
    text.push_str("</svg>\n");
    text
}

fn style(capacity: Rate, all: &[f64]) -> (&'static str, f64) {
    let rank = all.iter().position(|other| *other >= capacity.bytes()).unwrap_or(0);
    let share = if all.len() > 1 { rank as f64 / (all.len() - 1) as f64 } else { 0.3 };
    (COLOURS[rank.min(COLOURS.len() - 1)], STROKES.0 + share * (STROKES.1 - STROKES.0))
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Where everything is drawn.
struct Layout {
    hosts: Vec<(f64, f64)>,
    switches: BTreeMap<SwitchId, (f64, f64)>,
    width: f64,
    height: f64,
}

impl Layout {
    fn of(topology: &Topology) -> Layout {
        let top = topology.switches().map(|switch| topology.level(switch)).max().unwrap_or(0);
        let places = topology.places();
        // As wide as the widest row of names wants it.
        let row = |level: u32| {
            let named = topology.switches().filter(|switch| topology.level(*switch) == level);
            named.map(|switch| box_width(topology.name(switch)) + 10.0).sum::<f64>()
        };
        let widest = (0..=top).map(row).fold(f64::from(places) * HOST, f64::max).max(WIDTH);
        let width = widest + 2.0 * MARGIN;
        let at = |index: usize, count: usize| MARGIN + widest * (index as f64 + 0.5) / count as f64;
        let hosts_at = MARGIN + ROW * f64::from(top + 1);
        let hosts = (0..places as usize).map(|index| (at(index, places as usize), hosts_at)).collect();
        let mut switches = BTreeMap::new();
        for level in 0..=top {
            let row: Vec<SwitchId> =
                topology.switches().filter(|switch| topology.level(*switch) == level).collect();
            let y = MARGIN + ROW * f64::from(top - level);
            let count = row.len();
            switches
                .extend(row.into_iter().enumerate().map(|(index, switch)| (switch, (at(index, count), y))));
        }
        let names = if places <= NAMED_MAX { 90.0 } else { 30.0 };
        Layout { hosts, switches, width, height: hosts_at + names }
    }

    fn at(&self, end: End) -> (f64, f64) {
        match end {
            End::Host(place) => self.hosts[place.0 as usize],
            End::Switch(switch) => self.switches[&switch],
        }
    }

    fn half_box(&self, name: &str) -> f64 {
        box_width(name) / 2.0
    }
}

fn box_width(name: &str) -> f64 {
    12.0 + 6.2 * name.chars().count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_routing::Shape;

    #[test]
    fn everything_is_in_the_picture_and_within_it() {
        let topology = Shape::mayflower(8.0).unwrap().topology();
        let picture = svg(&topology);
        assert_eq!(picture.matches("<circle").count(), 64);
        assert_eq!(picture.matches("<rect").count(), 1 + topology.switches().len());
        // A line for each link, and one for each capacity.
        assert_eq!(picture.matches("<line").count(), topology.links().len() + 2);
        assert!(picture.contains(">core-1</text>") && picture.contains("500 Mb/s, 48 links"), "{picture}");
        let layout = Layout::of(&topology);
        let inside =
            |(x, y): &(f64, f64)| (0.0..=layout.width).contains(x) && (0.0..=layout.height).contains(y);
        assert!(layout.hosts.iter().chain(layout.switches.values()).all(inside));
    }
}
