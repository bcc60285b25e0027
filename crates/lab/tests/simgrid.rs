//! Flows over links take as long as in SimGrid, whose model of the network is published and was validated
//! (Casanova and others 2014; Velho and others 2013).
//!
//! `simgrid.txt` is what SimGrid 3.32 printed for 80 flows over 12 links: see `bench/simgrid_flows.py`.

use bearing_routing::{FlowId, Hop, Rate, Shares};
use std::collections::BTreeMap;

struct Flow {
    start: f64,
    bytes: f64,
    hops: Vec<Hop>,
    end: f64,
}

fn read(text: &str) -> (Vec<Rate>, Vec<Flow>) {
    let (mut links, mut flows) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["link", bytes] => links.push(Rate::bits(bytes.parse::<u64>().unwrap() * 8)),
            ["flow", start, bytes, hops, end] => flows.push(Flow {
                start: start.parse::<f64>().unwrap() / 1000.0,
                bytes: bytes.parse().unwrap(),
                hops: hops.split(',').map(|hop| Hop::numbered(hop.parse().unwrap())).collect(),
                end: end.parse().unwrap(),
            }),
            _ => panic!("{line:?}"),
        }
    }
    (links, flows)
}

/// When each flow ends, from one event to the next.
fn ends(links: Vec<Rate>, flows: &[Flow]) -> BTreeMap<usize, f64> {
    let mut shares = Shares::new(links);
    let mut coming: Vec<usize> = (0..flows.len()).collect();
    coming.sort_by(|one, other| flows[*other].start.total_cmp(&flows[*one].start));
    let (mut now, mut left, mut ends) = (0.0, BTreeMap::<usize, f64>::new(), BTreeMap::new());
    while ends.len() < flows.len() {
        let next_start = coming.last().map_or(f64::INFINITY, |index| flows[*index].start);
        let rate = |index: usize| shares.rate(FlowId(index as u64)).bytes();
        let next_end =
            left.iter().map(|(index, bytes)| now + bytes / rate(*index)).fold(f64::INFINITY, f64::min);
        let next = next_start.min(next_end);
        left.iter_mut().for_each(|(index, bytes)| *bytes -= rate(*index) * (next - now));
        now = next;
        if next_start <= next_end {
            let index = coming.pop().unwrap();
            left.insert(index, flows[index].bytes);
            shares.add(FlowId(index as u64), flows[index].hops.clone(), Rate::UNBOUNDED);
        }
        // A thousandth of a byte is what rounding leaves.
        for (index, _) in left.extract_if(.., |_, bytes| *bytes < 1e-3).collect::<Vec<_>>() {
            shares.remove(FlowId(index as u64));
            ends.insert(index, now);
        }
        shares.settle();
    }
    ends
}

#[test]
fn flows_end_when_they_end_in_simgrid() {
    let (links, flows) = read(include_str!("simgrid.txt"));
    assert_eq!((links.len(), flows.len()), (12, 80));
    for (index, end) in ends(links, &flows) {
        let expected = flows[index].end;
        assert!((end - expected).abs() < 1e-6 * expected, "flow {index}: {end}, in SimGrid {expected}");
    }
}
