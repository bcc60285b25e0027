//! Who uses a cluster: what this program says of itself, and what servers tell of all sessions.

use crate::ask;
use anyhow::Result;
use bearing_proto::coordinator::{AskCall, TellBody};
use bearing_proto::sessions::{DESCRIPTION_TEXT_BYTES_MAX, SessionDescription, SessionsView};
use bearing_server::cluster::Layout;
use bearing_types::{SessionId, Wall};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A session as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionView {
    /// Its name among sessions.
    pub session: String,
    /// The client's host; `None` while it has not said anything of itself, for instance just after its server
    /// was started.
    pub host: Option<String>,
    /// Where it is mounted.
    pub path: Option<String>,
    /// Its process there.
    pub process: Option<u32>,
    /// The program's version.
    pub version: Option<String>,
    /// When it began, in seconds since 1970.
    pub since: Option<i64>,
    /// Directories that are delegated to it.
    pub delegations: u32,
}

/// What this process says of itself to the servers.
pub fn description(point: Option<&Path>) -> SessionDescription {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    SessionDescription {
        host: host.trim().chars().take(DESCRIPTION_TEXT_BYTES_MAX / 4).collect(),
        path: point.map(|point| short(point.as_os_str().as_bytes())),
        process: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since: Wall(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)),
    }
}

/// The end of a long path says more than its beginning.
fn short(path: &[u8]) -> Vec<u8> {
    match path.len() > DESCRIPTION_TEXT_BYTES_MAX {
        true => [b"...", &path[path.len() - (DESCRIPTION_TEXT_BYTES_MAX - 3)..]].concat(),
        false => path.to_vec(),
    }
}

/// All sessions, asked of metadata servers at the same time; and complaints about servers that did not say.
pub fn all(
    layout: &Layout,
    servers: &[SocketAddr],
    patience: Duration,
) -> (Vec<SessionView>, Vec<anyhow::Error>) {
    let view = |body| match body {
        TellBody::Sessions(view) => Ok(view),
        other => anyhow::bail!("a server answered {other:?} to a question for its sessions"),
    };
    let asked = ask::each(layout, servers, &AskCall::Sessions, patience).into_iter();
    let (told, failed): (Vec<Result<SessionsView>>, Vec<_>) =
        asked.map(|body| body.and_then(view)).partition(Result::is_ok);
    (merged(told.into_iter().flatten()), failed.into_iter().filter_map(Result::err).collect())
}

/// Each session has one home, and delegations at any server.
fn merged(views: impl Iterator<Item = SessionsView>) -> Vec<SessionView> {
    let mut sessions: BTreeMap<SessionId, Option<SessionDescription>> = BTreeMap::new();
    let mut delegations: BTreeMap<SessionId, u32> = BTreeMap::new();
    for view in views {
        for (session, description) in view.sessions {
            let known = sessions.entry(session).or_default();
            *known = known.take().or(description);
        }
        for (session, count) in view.delegations {
            *delegations.entry(session).or_default() += count;
        }
    }
    let mut views: Vec<SessionView> = sessions
        .into_iter()
        .map(|(session, description)| {
            shown(session, description, delegations.get(&session).copied().unwrap_or(0))
        })
        .collect();
    views.sort_by(|a, b| (a.since, &a.host, &a.path, a.process).cmp(&(b.since, &b.host, &b.path, b.process)));
    views
}

fn shown(session: SessionId, description: Option<SessionDescription>, delegations: u32) -> SessionView {
    let session = session.to_string();
    let Some(SessionDescription { host, path, process, version, since }) = description else {
        return SessionView {
            session,
            host: None,
            path: None,
            process: None,
            version: None,
            since: None,
            delegations,
        };
    };
    // What a client says of itself may be anything.
    let text = |bytes: &[u8]| bearing_mount::quoted(bytes);
    SessionView {
        session,
        host: Some(text(host.as_bytes())),
        path: path.map(|path| text(&path)),
        process: Some(process),
        version: Some(text(version.as_bytes())),
        since: Some(since.0.div_euclid(1_000_000_000)),
        delegations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_says_of_itself_is_short_however_long_its_path() {
        let long = format!("/{}/end", "x".repeat(2000));
        let said = description(Some(Path::new(&long)));
        assert!(said.is_short() && said.path.unwrap().ends_with(b"/end"));
        assert_eq!(description(None).path, None);
    }

    #[test]
    fn a_session_is_told_once_with_its_delegations_of_all_servers() {
        let said = SessionDescription { host: "a\x1bb".into(), ..description(Some(Path::new("/mnt"))) };
        let (one, two) = (SessionId(1), SessionId(2));
        let home = SessionsView {
            sessions: vec![(one, Some(said)), (two, None)],
            delegations: vec![(one, 2)],
            left_out: 0,
        };
        let other =
            SessionsView { delegations: vec![(one, 3), (SessionId(9), 1)], ..SessionsView::default() };
        let all = merged([home, other].into_iter());
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].host.as_deref(), all[0].delegations), (None, 0));
        assert_eq!((all[1].path.as_deref(), all[1].delegations), (Some("/mnt"), 5));
        assert_eq!(all[1].host.as_deref(), Some("'a'$'\\033''b'"));
    }
}
