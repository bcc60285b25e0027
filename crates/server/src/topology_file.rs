//! Topology files: a network as its operator describes it (docs/formats/topology.md).

use crate::StartError;
use crate::toml_file;
use bearing_flow::Network;
use bearing_routing::{Description, Item, Rate, Shape, Topology, Wiring};
use bearing_types::ParameterError;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use toml::Spanned;

/// The version of the format.
const VERSION: u32 = 3;
/// Since then hosts have addresses.
const WITH_ADDRESSES: u32 = 2;
/// Since then links have latencies.
const WITH_LATENCIES: u32 = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFile {
    version: Spanned<u32>,
    /// Of links that have no other one.
    latency: Option<Spanned<Latency>>,
    shape: Option<Spanned<ShapeTable>>,
    #[serde(default)]
    switch: Vec<Spanned<Named>>,
    #[serde(default)]
    host: Vec<Spanned<Named>>,
    #[serde(default)]
    link: Vec<Spanned<LinkTable>>,
    #[serde(default)]
    addresses: Vec<Spanned<AddressTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressTable {
    host: String,
    ip: Vec<IpAddr>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    between: [String; 2],
    capacity: Capacity,
    latency: Option<Spanned<Latency>>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum ShapeTable {
    TwoTier {
        edges: u32,
        hosts: u32,
        rate: Option<Capacity>,
        #[serde(default)]
        oversubscription: Vec<f64>,
    },
    LeafSpine {
        leaves: u32,
        spines: u32,
        hosts: u32,
        rate: Option<Capacity>,
        #[serde(default)]
        oversubscription: Vec<f64>,
    },
    ThreeTier {
        pods: u32,
        aggregations: u32,
        racks: u32,
        hosts: u32,
        cores: u32,
        rate: Option<Capacity>,
        #[serde(default)]
        oversubscription: Vec<f64>,
    },
    FatTree {
        ports: u32,
        rate: Option<Capacity>,
        #[serde(default)]
        oversubscription: Vec<f64>,
    },
}

impl ShapeTable {
    fn shape(&self) -> Result<Shape, ParameterError> {
        let (shape, rate, oversubscription) = match self {
            ShapeTable::TwoTier { edges, hosts, rate, oversubscription } => {
                (Shape::two_tiers(*edges, *hosts)?, rate, oversubscription)
            }
            ShapeTable::LeafSpine { leaves, spines, hosts, rate, oversubscription } => {
                (Shape::leaf_spine(*leaves, *spines, *hosts)?, rate, oversubscription)
            }
            ShapeTable::ThreeTier { pods, aggregations, racks, hosts, cores, rate, oversubscription } => {
                let shape = Shape::racks(*pods, *aggregations, *racks, *hosts, Wiring::Mesh(*cores))?;
                (shape, rate, oversubscription)
            }
            ShapeTable::FatTree { ports, rate, oversubscription } => {
                (Shape::fat_tree(*ports)?, rate, oversubscription)
            }
        };
        let shape = match rate {
            Some(rate) => shape.with_rate(rate.0)?,
            None => shape,
        };
        shape.oversubscribed(oversubscription)
    }
}

/// Bits a second, written as `"10 Gb/s"`.
#[derive(Clone, Copy, Debug)]
struct Capacity(u64);

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Capacity, D::Error> {
        let text = String::deserialize(deserializer)?;
        bits(&text).map(Capacity).ok_or_else(|| {
            D::Error::invalid_value(
                Unexpected::Str(&text),
                &"a number and a unit of kb/s, Mb/s, Gb/s or Tb/s, such as \"10 Gb/s\"",
            )
        })
    }
}

/// How long a bit takes from one end of a link to the other, written as `"500 ns"`.
#[derive(Clone, Copy, Debug)]
struct Latency(Duration);

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Latency, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration(&text).map(Latency).ok_or_else(|| {
            D::Error::invalid_value(
                Unexpected::Str(&text),
                &"a number and a unit of ns, us, ms or s, at most 10 s, such as \"500 ns\"",
            )
        })
    }
}

fn duration(text: &str) -> Option<Duration> {
    let nanoseconds = quantity(text, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])?;
    (0.0..=1e10).contains(&nanoseconds).then(|| Duration::from_nanos(nanoseconds.round() as u64))
}

fn bits(text: &str) -> Option<u64> {
    let bits = quantity(text, &[("kb/s", 1e3), ("Mb/s", 1e6), ("Gb/s", 1e9), ("Tb/s", 1e12)])?;
    (0.0..=1e18).contains(&bits).then_some(bits.round() as u64)
}

/// A number and one of these units.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number.trim().parse::<f64>().ok()? * factor)
}

/// What a file says.
struct Read {
    topology: Topology,
    network: Network,
    /// By link.
    latencies: Vec<Option<Duration>>,
}

/// Reads a topology. What is wrong is told with its line.
pub fn read(path: &Path) -> Result<Topology, StartError> {
    Ok(parse(path, &text_of(path)?)?.topology)
}

/// Reads a topology with the latencies of its links, as far as these are given.
pub fn read_with_latencies(path: &Path) -> Result<(Topology, Vec<Option<Duration>>), StartError> {
    let read = parse(path, &text_of(path)?)?;
    Ok((read.topology, read.latencies))
}

/// Reads a network, whose hosts have addresses: at least one of them.
pub fn read_network(path: &Path) -> Result<Network, StartError> {
    let network = parse(path, &text_of(path)?)?.network;
    if network.addresses.is_empty() {
        let complaint = "no host has an address, so nobody is known in it; say version = 2 and, for each host, [[addresses]] \
                         host = \"NAME\", ip = [\"10.0.0.1\"]";
        return Err(StartError::Config { file: path.to_owned(), line: 1, complaint: complaint.to_owned() });
    }
    Ok(network)
}

fn text_of(path: &Path) -> Result<String, StartError> {
    fs::read_to_string(path).map_err(|error| StartError::file("read", path, &error))
}

/// Parses text as if it were the content of `path`.
fn parse(path: &Path, text: &str) -> Result<Read, StartError> {
    // A file of a later version may have what is unknown here: so its version is looked at first.
    let at = |offset: usize, complaint: String| StartError::Config {
        file: path.to_owned(),
        line: toml_file::line_of(text, offset),
        complaint,
    };
    #[derive(Deserialize)]
    struct Versioned {
        version: Option<Spanned<u32>>,
    }
    if let Ok(Versioned { version: Some(version) }) = toml::from_str::<Versioned>(text)
        && *version.get_ref() > VERSION
    {
        let complaint = format!(
            "the file has version {}, this program knows versions up to {VERSION}; use a newer one",
            version.get_ref()
        );
        return Err(at(version.span().start, complaint));
    }
    let file: TopologyFile = toml_file::parse(path, text)?;
    if *file.version.get_ref() == 0 {
        return Err(at(
            file.version.span().start,
            format!("there is no version 0; write version = {VERSION}"),
        ));
    }
    let is_drawn = !(file.switch.is_empty() && file.host.is_empty() && file.link.is_empty());
    let (topology, described) = match &file.shape {
        Some(shape) if is_drawn => {
            let complaint = "a shape and single switches, hosts or links are given; give one of both";
            return Err(at(shape.span().start, complaint.to_owned()));
        }
        Some(shape) => match shape.get_ref().shape() {
            Ok(made) => (made.topology(), made.describe()),
            Err(error) => return Err(at(shape.span().start, error.to_string())),
        },
        None => drawn(&file).map_err(|(offset, complaint)| at(offset, complaint))?,
    };
    let addresses = addresses_of(&file, &topology).map_err(|(offset, complaint)| at(offset, complaint))?;
    let latencies = latencies_of(&file, &topology).map_err(|(offset, complaint)| at(offset, complaint))?;
    Ok(Read { topology, network: Network { described, addresses }, latencies })
}

/// By link: how long a bit takes, if that is given.
fn latencies_of(file: &TopologyFile, topology: &Topology) -> Result<Vec<Option<Duration>>, (usize, String)> {
    let own = file.link.iter().map(|table| table.get_ref().latency.as_ref());
    let given = own.clone().flatten().chain(&file.latency).next();
    if let Some(latency) = given.filter(|_| *file.version.get_ref() < WITH_LATENCIES) {
        let complaint =
            format!("latencies are known since version {WITH_LATENCIES}; say version = {VERSION}");
        return Err((latency.span().start, complaint));
    }
    let all = file.latency.as_ref();
    let own = own.chain(std::iter::repeat(None));
    let of = own.map(|own| own.or(all).map(|latency| latency.get_ref().0));
    Ok(of.take(topology.links().len()).collect())
}

/// By address: the name of its host.
fn addresses_of(
    file: &TopologyFile,
    topology: &Topology,
) -> Result<BTreeMap<IpAddr, String>, (usize, String)> {
    let mut addresses = BTreeMap::new();
    for table in &file.addresses {
        let (start, AddressTable { host, ip }) = (table.span().start, table.get_ref());
        if *file.version.get_ref() < WITH_ADDRESSES {
            return Err((
                start,
                format!("addresses are known since version {WITH_ADDRESSES}; say version = {VERSION}"),
            ));
        }
        if topology.host(host).is_none() {
            return Err((start, format!("there is no host {host}; describe it or correct the name")));
        }
        for ip in ip {
            if let Some(other) = addresses.insert(*ip, host.clone()) {
                return Err((
                    start,
                    format!("{ip} is the address of {other} already; an address has one host"),
                ));
            }
        }
    }
    Ok(addresses)
}

fn drawn(file: &TopologyFile) -> Result<(Topology, Description), (usize, String)> {
    let names = |tables: &[Spanned<Named>]| {
        tables.iter().map(|table| table.get_ref().name.clone()).collect::<Vec<_>>()
    };
    let link = |table: &Spanned<LinkTable>| {
        let LinkTable { between: [one, other], capacity, .. } = table.get_ref();
        (one.clone(), other.clone(), Rate::bits(capacity.0))
    };
    let described = Description {
        switches: names(&file.switch),
        hosts: names(&file.host),
        links: file.link.iter().map(link).collect(),
    };
    let topology = Topology::new(&described).map_err(|error| {
        let offset = error.item().map_or(0, |item| match item {
            Item::Switch(index) => file.switch[index].span().start,
            Item::Host(index) => file.host[index].span().start,
            Item::Link(index) => file.link[index].span().start,
        });
        (offset, error.to_string())
    })?;
    Ok((topology, described))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: &str = r#"version = 1

[[switch]]
name = "core"

[[host]]
name = "a"
[[host]]
name = "b"

[[link]]
between = ["a", "core"]
capacity = "10 Gb/s"
[[link]]
between = ["b", "core"]
capacity = "2.5 Gb/s"
"#;

    fn parsed(text: &str) -> Result<Topology, String> {
        parse(Path::new("net.toml"), text).map(|read| read.topology).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        parsed(text).unwrap_err()
    }

    #[test]
    fn a_drawn_network_and_a_shape_are_read() {
        let drawn = parsed(DRAWN).unwrap();
        assert_eq!((drawn.places(), drawn.switches().len(), drawn.links().len()), (2, 1, 2));
        let capacities: Vec<String> = drawn.links().map(|link| drawn.capacity(link).to_string()).collect();
        assert_eq!(capacities, ["10 Gb/s", "2.5 Gb/s"]);
        let shape = |body: &str| parsed(&format!("version = 1\n[shape]\n{body}")).unwrap();
        assert_eq!(shape("kind = \"fat-tree\"\nports = 4").places(), 16);
        assert_eq!(shape("kind = \"two-tier\"\nedges = 3\nhosts = 5\nrate = \"10 Gb/s\"").places(), 15);
        assert_eq!(shape("kind = \"leaf-spine\"\nleaves = 3\nspines = 2\nhosts = 5").switches().len(), 5);
        let mayflower = "kind = \"three-tier\"\npods = 4\naggregations = 2\nracks = 4\nhosts = 4\ncores = 2\n\
                         oversubscription = [4, 2]";
        assert_eq!(shape(mayflower), Shape::mayflower(8.0).unwrap().topology());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let twice = DRAWN.replace("name = \"b\"", "name = \"a\"");
        assert!(refused(&twice).starts_with("net.toml:8: a is described twice"), "{}", refused(&twice));
        let none = DRAWN.replace("2.5 Gb/s", "0 Gb/s");
        assert!(refused(&none).starts_with("net.toml:14: the link between b and core has capacity 0"));
        let apart = DRAWN.replace("[\"b\", \"core\"]", "[\"a\", \"core\"]");
        assert!(refused(&apart).starts_with("net.toml:8: b cannot be reached from a"), "{}", refused(&apart));
        let unknown = DRAWN.replace("[\"b\", \"core\"]", "[\"b\", \"spine\"]");
        assert!(refused(&unknown).starts_with("net.toml:14: a link ends at spine"), "{}", refused(&unknown));
        let unit = refused(&DRAWN.replace("2.5 Gb/s", "2.5 GB/s"));
        assert!(unit.starts_with("net.toml:16: ") && unit.contains("such as \"10 Gb/s\""), "{unit}");
        let negative = refused(&DRAWN.replace("2.5 Gb/s", "-2 Gb/s"));
        assert!(negative.starts_with("net.toml:16: "), "{negative}");
        let key = refused(&DRAWN.replace("capacity = \"2.5", "capactiy = \"2.5"));
        assert!(key.starts_with("net.toml:14: ") || key.starts_with("net.toml:16: "), "{key}");
        let ports = refused("version = 1\n[shape]\nkind = \"fat-tree\"\nports = 5");
        assert!(ports.contains("net.toml:2: ports of a fat tree's switches may not be 5"), "{ports}");
        let both = refused(&format!("{DRAWN}[shape]\nkind = \"fat-tree\"\nports = 4"));
        assert!(both.contains("give one of both"), "{both}");
        let empty = refused("version = 1\n");
        assert!(empty.starts_with("net.toml:1: there is no host"), "{empty}");
    }

    #[test]
    fn hosts_have_addresses_each_of_one_host() {
        let with = |version: u32, tables: &str| {
            let text = format!("{}{tables}", DRAWN.replace("version = 1", &format!("version = {version}")));
            parse(Path::new("net.toml"), &text)
                .map(|read| read.network.addresses)
                .map_err(|error| error.to_string())
        };
        let (a, b) = (
            "[[addresses]]\nhost = \"a\"\nip = [\"10.0.0.1\", \"fd00::1\"]\n",
            "[[addresses]]\nhost = \"b\"\nip = [\"10.0.0.2\"]\n",
        );
        let known = with(2, &format!("{a}{b}")).unwrap();
        assert_eq!((known.len(), known[&IpAddr::from([10, 0, 0, 2])].as_str()), (3, "b"));
        for (version, tables, said) in [
            (1, b.to_owned(), "net.toml:17: addresses are known since version 2"),
            (2, b.replace("\"b\"", "\"c\""), "net.toml:17: there is no host c"),
            (2, format!("{b}{b}"), "net.toml:20: 10.0.0.2 is the address of b already"),
            (2, b.replace("0.2", "0.256"), "net.toml:19: "),
        ] {
            let error = with(version, &tables).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn links_have_latencies_their_own_or_that_of_all() {
        let with = |version: u32, head: &str, tail: &str| {
            let text = DRAWN.replace("version = 1\n", &format!("version = {version}\n{head}\n"));
            let text = text.replace("\"2.5 Gb/s\"", &format!("\"2.5 Gb/s\"\n{tail}"));
            let read = parse(Path::new("net.toml"), &text).map_err(|error| error.to_string())?;
            Ok::<_, String>(read.latencies)
        };
        let micros = |time| Some(Duration::from_micros(time));
        assert_eq!(with(3, "", "").unwrap(), [None, None]);
        assert_eq!(with(3, "latency = \"2 us\"", "").unwrap(), [micros(2); 2]);
        let own = "latency = \"1.5 ms\"";
        assert_eq!(with(3, "latency = \"2 us\"", own).unwrap(), [micros(2), micros(1500)]);
        assert_eq!(with(3, "", own).unwrap(), [None, micros(1500)]);
        let shape = "version = 3\nlatency = \"1 us\"\n[shape]\nkind = \"two-tier\"\nedges = 2\nhosts = 2";
        assert_eq!(parse(Path::new("net.toml"), shape).unwrap().latencies, [micros(1); 6]);
        let early = with(2, "latency = \"2 us\"", "").unwrap_err();
        assert!(early.starts_with("net.toml:2: latencies are known since version 3"), "{early}");
        for wrong in ["2 hours", "-1 us", "us", "11 s", "NaN us"] {
            let error = with(3, &format!("latency = \"{wrong}\""), "").unwrap_err();
            assert!(error.starts_with("net.toml:2: ") && error.contains("such as \"500 ns\""), "{error}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_before_its_content() {
        let newer = refused("# of tomorrow\nversion = 4\n[[router]]\nname = \"r\"\n");
        assert_eq!(
            newer,
            "net.toml:2: the file has version 4, this program knows versions up to 3; use a newer one"
        );
        assert!(refused("[[host]]\nname = \"a\"\n").contains("version"));
        assert!(refused("version = 0\n").contains("no version 0"));
    }
}
