use super::*;
use bearing_types::ParameterError;

fn described(switches: &[&str], hosts: &[&str], links: &[(&str, &str, u64)]) -> Description {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let links =
        links.iter().map(|(one, other, bits)| ((*one).to_owned(), (*other).to_owned(), Rate::bits(*bits)));
    Description { switches: names(switches), hosts: names(hosts), links: links.collect() }
}

#[test]
fn what_is_no_topology_is_refused_with_its_part() {
    let refused = |description: Description| {
        let error = Topology::new(&description).unwrap_err();
        (error.item(), error.to_string())
    };
    let link = Some(Item::Link(0));
    let cases = [
        (described(&["s"], &[], &[]), None, "there is no host; describe at least one"),
        (
            described(&["s"], &["a", "a"], &[]),
            Some(Item::Host(1)),
            "a is described twice; every host and switch needs a name of its own",
        ),
        (
            described(&["s"], &["s"], &[]),
            Some(Item::Host(0)),
            "s is described twice; every host and switch needs a name of its own",
        ),
        (
            described(&["s"], &["a"], &[("a", "t", 1)]),
            link,
            "a link ends at t, which is neither a host nor a switch; describe it or correct the name",
        ),
        (described(&["s"], &["a"], &[("s", "s", 1)]), link, "a link leads from s to itself; name two ends"),
        (
            described(&["s"], &["a", "b"], &[("a", "b", 1)]),
            link,
            "a link leads from host a to host b; hosts are linked to switches",
        ),
        (
            described(&["s"], &["a"], &[("a", "s", 0)]),
            link,
            "the link between a and s has capacity 0; give what it carries, such as \"1 Gb/s\"",
        ),
        (
            described(&["s"], &["a", "b"], &[("a", "s", 1)]),
            Some(Item::Host(1)),
            "b cannot be reached from a; link them, or leave one out",
        ),
        (
            described(&["s", "t"], &["a"], &[("a", "s", 1)]),
            Some(Item::Switch(1)),
            "t cannot be reached from a; link them, or leave one out",
        ),
    ];
    for (description, item, message) in cases {
        assert_eq!(refused(description), (item, message.to_owned()));
    }
}

#[test]
fn impossible_shapes_are_refused_with_the_bound() {
    let message = |refused: Result<Shape, ParameterError>| refused.unwrap_err().to_string();
    assert_eq!(
        message(Shape::fat_tree(5)),
        "ports of a fat tree's switches may not be 5; give an even number, 2 to 128"
    );
    assert_eq!(message(Shape::two_tiers(0, 4)), "fan-out may not be 0; give 1 to 4096");
    assert_eq!(
        message(Shape::three_tiers(4096, 4096, 4096)),
        "places of a topology may not be 68719476736; give fan-outs for at most 1048576"
    );
    assert_eq!(message(Shape::pods(2, 4, 5)), "cores_each may not be 5; give 1 to half of the ports");
    let nan = Shape::two_tiers(2, 2).and_then(|shape| shape.oversubscribed(&[f64::NAN]));
    assert_eq!(
        message(nan),
        "oversubscription may not be NaN; give more than 0, at most 1000, for each tier"
    );
    let rate = Shape::two_tiers(2, 2).and_then(|shape| shape.with_rate(0));
    assert_eq!(message(rate), "rate of hosts may not be 0; give more than 0 bits a second");
}

/// What goes out of a set of switches to those of a higher level.
fn upwards(topology: &Topology, level: u32) -> Rate {
    topology
        .links()
        .filter(|link| match topology.ends(*link) {
            [End::Switch(one), End::Switch(other)] => topology.level(one).min(topology.level(other)) == level,
            _ => false,
        })
        .map(|link| topology.capacity(link))
        .sum()
}

#[test]
fn mayflowers_testbed_has_the_published_counts_and_ratio() {
    let topology = Shape::mayflower(8.0).unwrap().topology();
    assert_eq!((topology.places(), topology.switches().len()), (64, 2 + 8 + 16));
    assert_eq!(upwards(&topology, 0), Rate::bits(16_000_000_000));
    assert_eq!(upwards(&topology, 1), Rate::bits(8_000_000_000));
    // Full bisection, when nothing is said.
    let fat_tree = Shape::fat_tree(8).unwrap().topology();
    assert_eq!(upwards(&fat_tree, 0), upwards(&fat_tree, 1));
}

#[test]
fn hops_lead_from_one_end_to_the_other_and_back() {
    let topology = Shape::mayflower(8.0).unwrap().topology();
    let ends = (0..topology.places()).map(|place| End::Host(Place(place)));
    let ends = ends.chain(topology.switches().map(End::Switch));
    let mut seen = vec![false; topology.hops()];
    for end in ends {
        for hop in topology.hops_from(end) {
            assert_eq!(topology.source(hop), end);
            assert_eq!(topology.source(hop.reverse()), topology.target(hop));
            assert!(!std::mem::replace(&mut seen[hop.index()], true));
        }
    }
    assert!(seen.iter().all(|seen| *seen));
}

#[test]
fn names_find_hosts() {
    let topology = Shape::leaf_spine(2, 2, 3).unwrap().topology();
    assert_eq!(topology.host("host-4"), Some(Place(4)));
    assert_eq!(topology.host_name(Place(4)), "host-4");
    assert_eq!(topology.host("core-0"), None);
}
