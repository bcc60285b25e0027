//! etcd on this machine, for tests: members that are killed and started again. They end with the test,
//! however that ends.

#![allow(dead_code, reason = "each test uses some of it")]

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program, if it was built: `cargo xtask etcd` does it. Says so loudly if not.
pub fn program() -> Option<PathBuf> {
    let target =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|above| above.join("target/etcd/etcd"));
    let found = target.into_iter().find(|program| program.exists());
    if found.is_none() {
        eprintln!("SKIPPED: there is no etcd in target/etcd; `cargo xtask etcd` builds it");
    }
    found
}

/// Members of one etcd cluster.
pub struct Members {
    directory: PathBuf,
    program: PathBuf,
    /// Client and peer port of each.
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
}

impl Members {
    /// Starts so many, whose data lie below a directory, and waits until they answer.
    pub fn start(program: &Path, directory: &Path, count: usize) -> Members {
        let free: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let ports = free.chunks(2).map(|pair| (port(&pair[0]), port(&pair[1]))).collect();
        let running = (0..count).map(|_| None).collect();
        let mut members =
            Members { directory: directory.to_owned(), program: program.to_owned(), ports, running };
        drop(free);
        (0..count).for_each(|member| members.launch(member));
        (0..count).for_each(|member| members.await_listening(member));
        members
    }

    /// The URLs for clients.
    pub fn endpoints(&self) -> Vec<String> {
        self.client_ports().map(|port| format!("http://127.0.0.1:{port}")).collect()
    }

    /// The ports for clients.
    pub fn client_ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.ports.iter().map(|(client, _)| *client)
    }

    /// Kills a member, as a crash does.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.running[member].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The process of a member that runs.
    pub fn pid(&self, member: usize) -> Option<u32> {
        self.running[member].as_ref().map(Child::id)
    }

    /// Starts a member, if it does not run.
    pub fn launch(&mut self, member: usize) {
        if self.running[member].is_some() {
            return;
        }
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = self.ports[member];
        let others = self.ports.iter().enumerate();
        let cluster: Vec<String> =
            others.map(|(member, (_, peer))| format!("m{member}={}", url(*peer))).collect();
        let log =
            File::options().create(true).append(true).open(self.directory.join(format!("m{member}.log")));
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &format!("m{member}"), "--log-level", "warn"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &cluster.join(","), "--initial-cluster-token", "bearing-test"])
            .arg("--data-dir")
            .arg(self.directory.join(format!("m{member}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        // SAFETY: prctl with plain numbers is safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        self.running[member] = Some(command.spawn().unwrap());
    }

    fn await_listening(&mut self, member: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.ports[member].0)).is_err() {
            let ended = self.running[member].as_mut().and_then(|child| child.try_wait().unwrap());
            assert_eq!(ended, None, "etcd ended; see its log in {}", self.directory.display());
            assert!(Instant::now() < deadline, "etcd does not listen");
            std::thread::yield_now();
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..self.running.len()).for_each(|member| self.kill(member));
    }
}
