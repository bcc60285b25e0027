//! Hears of changes: a stream from one member, from another when that ends or is silent.

use crate::layout::Layout;
use crate::members::{EtcdMembers, chain, connect, runtime};
use bearing_seams::{EngineError, EngineResult};
use etcd_client::Error;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::transport::Endpoint;

/// The member is asked so often whether it is there.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// One that has said nothing for so long is left.
const SILENCE: Duration = Duration::from_secs(6);
/// Before the next one is asked.
const PAUSE: Duration = Duration::from_millis(200);

/// What a watch hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Registers may have changed.
    Changed,
    /// No member answers, in words.
    Away(String),
}

/// A thread that hears of changes until this is dropped.
pub struct Watch {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `heard` whenever registers may have changed, and when all members are away.
    pub fn start(
        members: &EtcdMembers,
        root: &str,
        heard: impl Fn(Heard) + Send + 'static,
    ) -> EngineResult<Watch> {
        let failed = |doing: String| EngineError::Failed { doing };
        let endpoints = members.endpoints().map_err(failed)?;
        let (layout, runtime) = (Layout::new(root), runtime()?);
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = follow(&endpoints, &layout, &heard) => {}
                }
            })
        };
        let thread = std::thread::Builder::new().name("etcd watch".to_owned()).spawn(run);
        let thread = thread.map_err(|error| failed(format!("start a thread ({error})")))?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It hears that the sender is gone.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn follow(endpoints: &[Endpoint], layout: &Layout, heard: &impl Fn(Heard)) {
    let mut failed = 0;
    for endpoint in endpoints.iter().cycle() {
        let ended = hear(endpoint, layout, heard).await;
        failed = if ended.is_ok() { 0 } else { failed + 1 };
        if let (Err(error), true) = (ended, failed == endpoints.len()) {
            heard(Heard::Away(format!("{}: {}", endpoint.uri(), chain(&error))));
        }
        sleep(PAUSE).await;
    }
}

/// Hears from one member until it is silent. What was missed meanwhile is asked for.
async fn hear(endpoint: &Endpoint, layout: &Layout, heard: &impl Fn(Heard)) -> Result<(), Error> {
    let silent = |_| Error::WatchError("silent".to_owned());
    let mut client = timeout(SILENCE, connect(endpoint)).await.map_err(silent)??;
    let mut stream = timeout(SILENCE, client.watch(layout.last(), None)).await.map_err(silent)??;
    heard(Heard::Changed);
    let mut quiet = Duration::ZERO;
    while quiet < SILENCE {
        match timeout(PROGRESS_INTERVAL, stream.message()).await {
            Ok(Ok(Some(response))) if !response.canceled() => {
                quiet = Duration::ZERO;
                if !response.events().is_empty() {
                    heard(Heard::Changed);
                }
            }
            Ok(_) => break,
            Err(_) => {
                quiet += PROGRESS_INTERVAL;
                if stream.request_progress().await.is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}
