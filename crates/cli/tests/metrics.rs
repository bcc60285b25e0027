//! What daemons show of themselves: pages of metrics, as a real Prometheus reads them, and health.

mod common;

use common::{SetAtEnd, TestCluster, can_mount, kill, shell, wait_for};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// What is answered at an address: the status and the body. `None` while nobody listens.
fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Where each daemon shows its metrics, by name.
fn addresses(cluster: &TestCluster) -> Vec<(String, String)> {
    let status = cluster.status();
    let address = |daemon: &serde_json::Value| {
        let name = match daemon["kind"].as_str().unwrap() {
            "coordinator" => "coordinator".to_owned(),
            kind => format!("{kind}-{}", daemon["id"]),
        };
        (name, daemon["metrics"].as_str().expect("it shows metrics").to_owned())
    };
    status["daemons"].as_array().unwrap().iter().map(address).collect()
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        kill([u64::from(self.0.id())]);
        let _ = self.0.wait();
    }
}

fn daemon(cluster: &TestCluster, kind: &str, directory: &str) -> Running {
    let log = std::fs::File::create(cluster.file(directory).join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bearing"));
    command.args(["daemon", kind, "--config"]).arg(cluster.file(directory).join("config.toml"));
    Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

#[test]
fn health_says_why_a_server_does_not_serve_and_when_it_does() {
    let cluster = TestCluster::started("health");
    let addresses = addresses(&cluster);
    for (name, address) in &addresses {
        assert_eq!(get(address, "/healthz"), Some((200, "serving\n".to_owned())), "{name}");
        assert_eq!(get(address, "/").unwrap().0, 404);
    }
    cluster.down().ok();
    let [(_, coordinator), (_, metadata), ..] = &addresses[..] else { panic!("{addresses:?}") };
    assert_eq!(get(metadata, "/healthz"), None, "it does not run");
    let _one = daemon(&cluster, "metadata", "metadata-1");
    wait_for("it says what it waits for", PATIENCE, || {
        get(metadata, "/healthz").is_some_and(|(status, said)| {
            status == 503 && said.starts_with("the coordinator at ") && said.contains("has not answered yet")
        })
    });
    let page = get(metadata, "/metrics").unwrap().1;
    assert!(page.contains("\nbearing_serving 0\n"), "{page}");
    let _coordinator = daemon(&cluster, "coordinator", "coordinator");
    let _two = daemon(&cluster, "metadata", "metadata-2");
    wait_for("both serve", PATIENCE, || {
        [coordinator, metadata]
            .iter()
            .all(|address| get(address, "/healthz").is_some_and(|said| said.0 == 200))
    });
}

#[test]
fn a_typing_error_of_the_address_is_named_with_its_line_and_a_taken_one_stops_nobody() {
    let cluster = TestCluster::started("taken");
    cluster.down().ok();
    let path = cluster.file("metadata-1/config.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let line = config.lines().position(|line| line.starts_with("metrics = ")).unwrap() + 1;
    let wrong = config.replace("metrics = \"127.0.0.1:", "metrics = \"127.0.0.1;");
    std::fs::write(&path, wrong).unwrap();
    let said = common::bearing(&["daemon", "metadata", "--config", path.to_str().unwrap()]);
    assert!(said.err.contains(&format!("config.toml:{line}: ")), "{said:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let lines = config.lines().map(|line| match line.starts_with("metrics = ") {
        true => format!("metrics = \"{address}\"\n"),
        false => format!("{line}\n"),
    });
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    cluster.up(&[]).ok();
    assert!(cluster.serves());
    let log = std::fs::read_to_string(cluster.file("metadata-1/log")).unwrap();
    assert!(log.contains(&format!("metrics = \"{address}\" in ")) && log.contains("in use"), "{log}");
}

/// What is not on any page, or counts less than was done.
fn lacking(pages: &[(String, String)]) -> Vec<&'static str> {
    let sum = |metric: &str| -> f64 {
        let values =
            pages.iter().flat_map(|(_, page)| page.lines()).filter_map(|line| line.strip_prefix(metric));
        values.map(|rest| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let done = [
        ("bearing_requests_total{", 5.0),
        ("bearing_request_seconds_count{", 5.0),
        ("bearing_log_sync_seconds_count", 2.0),
        ("bearing_data_bytes_total{kind=\"appended\"}", 200.0),
        ("bearing_data_requests_total{kind=\"append\"}", 1.0),
        ("bearing_questions_total{", 4.0),
        ("bearing_tablets{role=\"served\"}", 16.0),
        ("bearing_log_bytes", 1.0),
        ("bearing_store_bytes", 1.0),
        ("bearing_registers_bytes", 1.0),
    ];
    let less =
        done.into_iter().filter(|(metric, at_least)| sum(metric) < *at_least).map(|(metric, _)| metric);
    // Whatever may happen in a cluster at some time, or only where requests are carried (see `network.rs`);
    // all else is shown by one that was used a little.
    let rare = ["bearing_clock_offset_seconds", "bearing_carried_total", "bearing_filters_total"];
    let names = bearing_server::metrics::CATALOG.iter().map(|metric| metric.name);
    let shown = |name: &str| pages.iter().any(|(_, page)| page.contains(&format!("# TYPE {name} ")));
    less.chain(names.filter(|name| !rare.contains(name) && !shown(name))).collect()
}

#[test]
fn pages_are_in_order_for_promtool_and_count_what_is_done() {
    let cluster = TestCluster::started("pages");
    let tree = cluster.root().join("tree");
    std::fs::create_dir(&tree).unwrap();
    (0..20).for_each(|number| std::fs::write(tree.join(format!("f{number}")), "some bytes").unwrap());
    cluster.run(&["fs", "put", "-r", tree.to_str().unwrap(), "/tree"]).ok();
    cluster.run(&["fs", "cat", "/tree/f7"]).ok();
    cluster.run(&["explain", "read", "/tree/f7"]).ok();
    let read = || -> Vec<(String, String)> {
        let addresses = addresses(&cluster).into_iter();
        addresses.map(|(name, address)| (name, get(&address, "/metrics").unwrap().1)).collect()
    };
    // A page may be 100 ms old, and rates of what was done only once fade.
    let (mut pages, begun) = (read(), Instant::now());
    wait_for("what was done is counted", PATIENCE, || {
        cluster.run(&["fs", "cat", "/tree/f7"]).ok();
        pages = read();
        lacking(&pages).is_empty() || begun.elapsed() > PATIENCE / 2
    });
    assert_eq!(lacking(&pages), [""; 0]);
    if shell("command -v promtool").code != Some(0) {
        return eprintln!("skipped: there is no promtool (Debian's package `prometheus`)");
    }
    for (name, page) in &pages {
        let path = cluster.root().join(name);
        std::fs::write(&path, page).unwrap();
        let said = shell(&format!("promtool check metrics < {}", path.display()));
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{name}: {}", said.out);
    }
}

/// What Prometheus answers to a query, or why it refuses it.
fn query(prometheus: &str, expression: &str) -> Result<Vec<serde_json::Value>, String> {
    let coded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let (_, body) = get(prometheus, &format!("/api/v1/query?query={coded}")).ok_or("nobody listens")?;
    // Its answers may come in chunks with their lengths.
    let json = body.find('{').zip(body.rfind('}')).map_or("", |(from, to)| &body[from..=to]);
    let answer: serde_json::Value = serde_json::from_str(json).map_err(|error| format!("{error}: {body}"))?;
    match answer["status"] == "success" {
        true => Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default()),
        false => Err(answer["error"].to_string()),
    }
}

#[test]
fn a_real_prometheus_scrapes_all_daemons_and_answers_all_that_the_board_asks() {
    if shell("command -v prometheus").code != Some(0) {
        return eprintln!("skipped: there is no prometheus (Debian's package `prometheus`)");
    }
    let cluster = TestCluster::new("prometheus");
    cluster.up(&["--no-restart"]).ok();
    let targets: Vec<String> = addresses(&cluster).into_iter().map(|(_, address)| address).collect();
    let all = targets.len() as f64;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let prometheus = free.local_addr().unwrap().to_string();
    let config = cluster.root().join("prometheus.yml");
    let scraped = format!(
        "scrape_configs:\n  - job_name: bearing\n    scrape_interval: 500ms\n    \
        static_configs:\n      - targets: {targets:?}\n"
    );
    std::fs::write(&config, scraped).unwrap();
    drop(free);
    let log = std::fs::File::create(cluster.root().join("prometheus.log")).unwrap();
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", cluster.root().join("series").display()));
    command.arg(format!("--web.listen-address={prometheus}"));
    let _prometheus = Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let value = |expression: &str| -> f64 {
        let found = query(&prometheus, expression).unwrap_or_default();
        found.first().and_then(|one| one["value"][1].as_str()?.parse().ok()).unwrap_or(0.0)
    };
    wait_for("all daemons are scraped", PATIENCE, || {
        value("sum(up)") == all && value("sum(bearing_serving)") == all
    });
    cluster.run(&["fs", "mkdir", "/made"]).ok();
    wait_for("what was done is seen", PATIENCE, || {
        value("sum(bearing_requests_total{kind=\"make_directory\"})") >= 1.0
            && value("histogram_quantile(0.99, sum by (le) (bearing_request_seconds_bucket))") > 0.0
    });
    let board = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/bearing.json");
    let board: serde_json::Value = serde_json::from_slice(&std::fs::read(board).unwrap()).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 30, "{}", expressions.len());
    let known: BTreeSet<&str> = bearing_server::metrics::CATALOG.iter().map(|metric| metric.name).collect();
    for expression in expressions {
        for word in expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            let name = word.strip_suffix("_bucket").unwrap_or(word);
            let is_metric = name.starts_with("bearing_") || name.starts_with("process_");
            assert!(!is_metric || known.contains(name), "the board asks for {word}, which nobody shows");
        }
        let filled =
            expression.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*");
        query(&prometheus, &filled).unwrap_or_else(|error| panic!("{expression}: {error}"));
    }
    kill([cluster.daemons()[1]]);
    wait_for("the dead one is missed", PATIENCE, || value("sum(up)") == all - 1.0);
}

#[test]
fn top_shows_operations_latencies_tablets_directories_by_path_and_sessions() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("top");
    let mnt = cluster.mnt();
    std::fs::create_dir(mnt.join("deep")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = SetAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::fs::create_dir(mnt.join("deep/inside")).unwrap();
                std::fs::remove_dir(mnt.join("deep/inside")).unwrap();
                // What is decided here reaches the servers.
                std::fs::File::open(mnt.join("deep")).unwrap().sync_all().unwrap();
            }
        });
        let mount = format!(":{} (process ", mnt.display());
        let parts = ["6 of 6 daemons answer", "metadata ", " requests/s, p50 ", " OPERATION ", " TABLET "];
        let others = [" DIRECTORY ", " SESSION ", " /deep", &mount];
        // A daemon that gets no processor for 900 ms is one that does not answer.
        wait_for("all is shown", PATIENCE, || {
            let said = cluster.run(&["top", "--once"]).ok();
            parts.iter().chain(&others).all(|part| said.contains(part))
        });
        drop(ends);
    });
    cluster.down().ok();
    assert!(cluster.run(&["top", "--once"]).refused(3).contains("no daemon answers"));
}

#[test]
fn a_log_for_programs_has_an_object_in_each_line() {
    let cluster = TestCluster::new("json");
    let up = format!(
        "BEARING_LOG_FORMAT=json {} up --detach --dir {}",
        env!("CARGO_BIN_EXE_bearing"),
        cluster.dir()
    );
    shell(&up).ok();
    let log = std::fs::read_to_string(cluster.file("metadata-1/log")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_it =
        |line: &&serde_json::Value| line["message"].as_str().unwrap().starts_with("metadata-1 listens on ");
    let listens = lines.iter().find(is_it).expect("it listens");
    assert_eq!((&listens["level"], listens["timestamp"].is_string()), (&"INFO".into(), true), "{listens}");
}
