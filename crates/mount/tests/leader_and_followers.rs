//! The mount's threads against a server in this process, over loopback.

mod server;

use bearing_mount::{Answer, Caller, ConnectError, Found, KernelCache, Key, Mount, MountConfig, Operation};
use bearing_proto::client::{LeaseKey, Recall};
use bearing_proto::envelope::Message;
use bearing_types::{Block, Code, Credentials, Epoch, Name, NameHash, NameKey, NodeId, Outcome};
use server::{Manners, PATIENCE, Server, secret};
use std::io;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn config(server: &Server) -> MountConfig {
    MountConfig { connect_wait: PATIENCE, ..MountConfig::new(vec![server.address()], secret()) }
}

fn connect(manners: Manners) -> (Server, Mount) {
    let server = Server::start(manners);
    let mount = Mount::connect(&config(&server)).unwrap();
    (server, mount)
}

fn root(mount: &Mount) -> Found {
    mount.found(Operation::Root).unwrap()
}

fn lookup(root: &Found, name: u64) -> Operation {
    let name = Name::new(name.to_string().as_bytes()).unwrap();
    Operation::Lookup { directory: root.node, name, who: Credentials::ROOT }
}

fn node(answer: Outcome<Answer>) -> u64 {
    bearing_mount::into_found(answer.unwrap()).node.node.0
}

#[test]
fn one_thread_gets_its_answers_without_another() {
    let (_server, mount) = connect(Manners::default());
    let root = root(&mount);
    let before = mount.counters();
    for name in 10..60 {
        assert_eq!(node(mount.call(lookup(&root, name))), name);
    }
    let after = mount.counters();
    let own = after.answered_by_asker - before.answered_by_asker;
    // The background thread leads when the first begins, and after every pause that this machine makes.
    assert!(own >= 10, "{own} of 50 answers came by the thread that asked");
}

#[test]
fn many_threads_get_each_their_own_answers() {
    let (_server, mount) = connect(Manners::default());
    let root = root(&mount);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (mount, root) = (&mount, &root);
            scope.spawn(move || {
                for name in 0..200 {
                    let name = 1000 * (thread + 1) + name;
                    assert_eq!(node(mount.call(lookup(root, name))), name);
                }
            });
        }
    });
}

#[test]
fn answers_in_another_order_reach_those_who_asked() {
    let (_server, mount) = connect(Manners { answers_in_reversed_groups_of: Some(6), ..Manners::default() });
    let root = root(&mount);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (mount, root) = (&mount, &root);
            scope.spawn(move || {
                for name in 0..20 {
                    let name = 1000 * (thread + 1) + name;
                    assert_eq!(node(mount.call(lookup(root, name))), name);
                }
            });
        }
    });
}

#[test]
fn lost_requests_are_sent_again_whoever_leads() {
    let (server, mount) = connect(Manners { loses_every: Some(5), ..Manners::default() });
    let root = root(&mount);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mount, root) = (&mount, &root);
            scope.spawn(move || {
                for name in 0..10 {
                    let name = 1000 * (thread + 1) + name;
                    assert_eq!(node(mount.call(lookup(root, name))), name);
                }
            });
        }
    });
    drop(server);
    assert!(mount.client_counters().resends > 0);
}

#[test]
fn operations_begun_together_share_a_datagram_and_keep_their_order() {
    let (server, mount) = connect(Manners::default());
    let root = root(&mount);
    let answers = mount.call_all((10..40).map(|name| lookup(&root, name)).collect());
    assert_eq!(answers.into_iter().map(node).collect::<Vec<_>>(), (10..40).collect::<Vec<_>>());
    assert_eq!(server.seen().packed.iter().max(), Some(&30));
}

#[test]
fn no_operations_have_no_answers() {
    let (_server, mount) = connect(Manners::default());
    assert!(mount.call_all(Vec::new()).is_empty());
}

#[test]
fn an_answer_that_is_too_large_comes_by_stream() {
    let (server, mount) = connect(Manners { statfs_by_stream_only: true, ..Manners::default() });
    assert_eq!(mount.statfs().unwrap().bytes_free, 1 << 39);
    let transports = server.seen().statfs.clone();
    assert_eq!(transports.last(), Some(&bearing_env::Transport::Stream));
}

#[test]
fn a_wrong_secret_is_named_with_the_cluster() {
    let server = Server::start(Manners::default());
    let config = MountConfig { enrolment: Key::new([1; 32]).into(), ..config(&server) };
    let error = Mount::connect(&config).err().unwrap();
    assert!(matches!(error, ConnectError::WrongSecret { .. }), "{error}");
    assert!(error.to_string().contains(&server.address().to_string()), "{error}");
}

#[test]
fn another_version_is_named_with_both_numbers() {
    let server = Server::start(Manners { speaks: Some(77), ..Manners::default() });
    let error = Mount::connect(&config(&server)).err().unwrap().to_string();
    let both = format!("protocol version 77, this program {}", bearing_proto::envelope::VERSION);
    assert!(error.contains(&both), "{error}");
}

#[test]
fn a_cluster_that_does_not_answer_is_named_with_every_address() {
    // It receives and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let seeds = vec![silent.local_addr().unwrap(), "127.0.0.1:9".parse().unwrap()];
    let config =
        MountConfig { connect_wait: Duration::from_millis(50), ..MountConfig::new(seeds.clone(), secret()) };
    let error = Mount::connect(&config).err().unwrap().to_string();
    for address in seeds {
        assert!(error.contains(&address.to_string()), "{error}");
    }
    let nobody = Mount::connect(&MountConfig::new(vec![], secret())).err().unwrap();
    assert!(matches!(nobody, ConnectError::NoSeeds), "{nobody}");
}

#[test]
fn after_its_end_a_session_does_nothing() {
    let (server, mount) = connect(Manners::default());
    mount.end().unwrap();
    server.wait_until("the end of the session", |seen| {
        seen.requests.iter().any(|request| request.call == bearing_proto::client::Call::CloseSession)
    });
    assert_eq!(mount.statfs(), Err(Code::SessionEnded));
}

/// A kernel that says what it is made to forget, and does so only when the test lets it.
struct SlowKernel {
    begun: Mutex<Sender<String>>,
    may_end: Mutex<Receiver<()>>,
}

impl KernelCache for SlowKernel {
    fn invalidate_entries(&self, entries: &[(NodeId, &Name)]) -> io::Result<()> {
        for (directory, name) in entries {
            self.begun.lock().unwrap().send(format!("{directory}/{name}")).unwrap();
            self.may_end.lock().unwrap().recv().unwrap();
        }
        Ok(())
    }

    fn invalidate_node(&self, node: NodeId) -> io::Result<()> {
        self.begun.lock().unwrap().send(node.to_string()).unwrap();
        self.may_end.lock().unwrap().recv().unwrap();
        Ok(())
    }
}

fn recall(name: &str) -> Message {
    let hash = NameHash::of(NameKey(5), &Name::new(name.as_bytes()).unwrap());
    let keys = vec![LeaseKey::Name(NodeId(1), hash)];
    Message::Recall(Recall { tablet: Block::RING, epoch: Epoch(1), number: 3, keys })
}

#[test]
fn a_recall_is_served_while_nobody_asks_and_answered_when_the_kernel_has_forgotten() {
    let (server, mount) = connect(Manners::default());
    let (begun, forgotten) = channel();
    let (let_end, may_end) = channel();
    mount.set_kernel_cache(Arc::new(SlowKernel { begun: Mutex::new(begun), may_end: Mutex::new(may_end) }));
    let root = root(&mount);
    assert_eq!(node(mount.call(lookup(&root, 42))), 42);
    server.say(recall("42"));
    assert_eq!(forgotten.recv_timeout(PATIENCE).unwrap(), "n1/42", "no operation is under way");
    // While the kernel takes its time, operations go on, and the server has no answer yet.
    assert_eq!(node(mount.call(lookup(&root, 43))), 43);
    assert!(server.seen().recalled.is_empty());
    let_end.send(()).unwrap();
    server.wait_until("the answer to its recall", |seen| seen.recalled == [3]);
}

#[test]
fn a_mount_without_a_kernel_answers_recalls_by_itself() {
    let (server, mount) = connect(Manners::default());
    let root = root(&mount);
    assert_eq!(node(mount.call(lookup(&root, 42))), 42);
    server.say(recall("42"));
    server.wait_until("the answer to its recall", |seen| seen.recalled == [3]);
    let asked = |server: &Server| server.seen().requests.len();
    let before = asked(&server);
    assert_eq!(node(mount.call(lookup(&root, 42))), 42);
    assert!(asked(&server) > before, "the name was not leased any more");
}
