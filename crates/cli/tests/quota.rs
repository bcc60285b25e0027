//! Quotas of directories, as programs on two mounts meet them.
//!
//! This test needs root and /dev/fuse; without them it says so and passes.

mod common;

use common::{TestCluster, bearing, can_mount, shell, wait_for};
use std::fs;
use std::io::Write;
use std::time::Duration;

fn told(cluster: &TestCluster, path: &str) -> serde_json::Value {
    let text = cluster.run(&["fs", "quota", "get", path, "--json"]).ok();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["quota"].clone()
}

#[test]
fn quotas_stop_programs_and_df_shows_them() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("quota");
    let second = cluster.mount_again();
    let team = cluster.mnt().join("team");
    fs::create_dir(&team).unwrap();
    assert_eq!(told(&cluster, "/team"), serde_json::Value::Null);
    cluster.run(&["fs", "quota", "set", "/team", "--space", "8M", "--entries", "100"]).ok();
    fs::create_dir(team.join("inner")).unwrap();

    let mut made = 1;
    let refused = loop {
        let mount = if made % 2 == 0 { &team } else { &second.join("team/inner") };
        match fs::write(mount.join(made.to_string()), b"x") {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(libc::EDQUOT));
    assert!((80..=120).contains(&made), "{made}");
    cluster.run(&["fs", "quota", "set", "/team", "--entries", "1M"]).ok();
    wait_for("the new limit counts", Duration::from_secs(10), || fs::write(team.join("more"), b"x").is_ok());

    // What is buffered is refused when it is flushed.
    let mut big = fs::File::create(second.join("team/inner/big")).unwrap();
    let written = (0..64).try_for_each(|_| big.write_all(&[7; 1 << 18])).and_then(|()| big.sync_all());
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EDQUOT));
    drop(big);
    assert_eq!(
        fs::rename(team.join("more"), cluster.mnt().join("out")).unwrap_err().raw_os_error(),
        Some(libc::EXDEV)
    );
    shell(&format!("mv {} {}", team.join("more").display(), cluster.mnt().join("out").display())).ok();

    let size = |path: &str| -> u64 {
        let text = shell(&format!("df --output=size -B1 {path} | tail -1")).ok();
        text.trim().parse().unwrap()
    };
    assert_eq!(size(&second.join("team/inner").display().to_string()), 8 << 20);
    assert!(size(&second.display().to_string()) > 8 << 20);
    let used = |what: &str| told(&cluster, "/team/inner")[what]["used"].as_u64().unwrap();
    assert!(used("space") <= (8 << 20) + 8 * (256 << 10), "{}", used("space"));

    shell(&format!("rm -r {}/*", team.display())).ok();
    wait_for("all is given back", Duration::from_secs(20), || used_of(&cluster) == (0, 0));
    cluster.run(&["fs", "quota", "clear", "/team"]).ok();
    assert_eq!(told(&cluster, "/team")["space"]["limit"], serde_json::Value::Null);
    let full = cluster.run(&["fs", "quota", "set", "/", "--space", "1G"]).refused(1);
    assert!(full.contains("/ is not empty"), "{full}");
    bearing(&["umount", second.to_str().unwrap()]).ok();
}

fn used_of(cluster: &TestCluster) -> (u64, u64) {
    let quota = told(cluster, "/team");
    (quota["space"]["used"].as_u64().unwrap(), quota["entries"]["used"].as_u64().unwrap())
}
