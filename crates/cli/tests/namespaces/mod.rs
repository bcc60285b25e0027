//! Namespaces that a test makes for itself.

use super::common::{self, wait_for};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(90);

/// Makes namespaces of these kinds, which last as long as the process does that is given.
pub fn hold(kinds: &[&str]) -> Child {
    let mut holder = Command::new("unshare");
    holder.args(kinds).args(["--kill-child", "--fork", "sleep", "infinity"]);
    let holder = holder.stdin(Stdio::null()).spawn().expect("unshare is there");
    wait_for("the namespaces", PATIENCE, || {
        let own = fs::read_link("/proc/self/ns/net").ok();
        inner(&holder).is_some_and(|pid| fs::read_link(format!("/proc/{pid}/ns/net")).ok() != own)
    });
    holder
}

/// The process inside.
pub fn inner(holder: &Child) -> Option<u32> {
    let id = holder.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Ends all that runs in them, such as servers and mounts, and the process that holds them.
pub fn end(holder: &mut Child) {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    if let Some(own) = inner(holder).and_then(namespace) {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        common::kill(pids.filter(|pid| namespace(*pid).as_ref() == Some(&own)).map(u64::from));
    }
    let _ = (holder.kill(), holder.wait());
}
