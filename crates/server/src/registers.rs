//! The registers of a cluster that has them in etcd: every server asks etcd itself, by a desk of its own, for
//! itself and for operators.

use crate::StartError;
use crate::config::DaemonConfig;
use crate::desk::Desk;
use bearing_engines_etcd::{EtcdCoordinator, Heard, Watch};
use bearing_env::Waker;
use bearing_proto::coordinator::{Ask, AskCall, Told};
use bearing_proto::{Message, Sender};
use bearing_seams::{Changes, Coordinator, EngineError, EngineResult, Entry, RegisterChange, Swap};
use bearing_types::ServerId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// See the module.
pub struct Registers {
    desk: Desk,
    /// Somebody has changed registers, or may have.
    changed: Arc<AtomicBool>,
    fatal: Arc<OnceLock<EngineError>>,
    _watch: Watch,
}

impl Registers {
    /// Of this server's cluster, if they are in etcd. Nobody is waited for here.
    pub fn start(config: &DaemonConfig, waker: impl Fn() -> Waker) -> Result<Option<Registers>, StartError> {
        let (Some(members), Some(id)) = (&config.etcd, config.cluster.id) else { return Ok(None) };
        let (root, reach) = (id.etcd_root(), "reach etcd");
        let etcd = EtcdCoordinator::new(members, &root).map_err(StartError::engine(reach))?;
        let fatal = Arc::new(OnceLock::new());
        let registers = Strict { etcd, fatal: fatal.clone() };
        let wake = waker();
        let desk = Desk::start(registers, move || wake.wake()).map_err(|error| StartError::Stopped {
            server: config.daemon.name.server(),
            reason: format!("no thread could be made for the registers: {error}"),
        })?;
        let changed = Arc::new(AtomicBool::new(false));
        let (told, wake) = (changed.clone(), waker());
        let away = AtomicBool::new(false);
        let watch = Watch::start(members, &root, move |heard| match heard {
            Heard::Changed => {
                if away.swap(false, Ordering::Relaxed) {
                    tracing::info!("etcd answers again");
                }
                told.store(true, Ordering::Relaxed);
                wake.wake();
            }
            Heard::Away(why) if away.swap(true, Ordering::Relaxed) => tracing::debug!("etcd: {why}"),
            Heard::Away(why) => tracing::warn!(
                "etcd does not answer ({why}): what is served goes on, but no server takes over for another, and none \
                 starts"
            ),
        });
        let _watch = watch.map_err(StartError::engine(reach))?;
        Ok(Some(Registers { desk, changed, fatal, _watch }))
    }

    /// Takes the questions to registers out of what a server or an operator sent.
    pub fn take(&mut self, sender: Sender, messages: &mut Vec<Message>) {
        let Sender::Server(asker) = sender else { return };
        messages.retain(|message| {
            let Message::Ask(ask) = message else { return true };
            let is_of_registers = match ask.call {
                AskCall::Read { .. }
                | AskCall::Changes { .. }
                | AskCall::Await { .. }
                | AskCall::Swap { .. } => true,
                AskCall::Sessions
                | AskCall::Tablets
                | AskCall::Metrics
                | AskCall::Compare { .. }
                | AskCall::Holders
                | AskCall::Checkpoint => false,
            };
            if is_of_registers {
                self.desk.ask(asker, ask.clone());
            }
            !is_of_registers
        });
    }

    /// A question of this server.
    pub fn ask(&mut self, asker: ServerId, ask: Ask) {
        self.desk.ask(asker, ask);
    }

    /// Has etcd asked, and gives the answers that are there.
    pub fn turn(&mut self) -> Result<Vec<(ServerId, Told)>, StartError> {
        if let Some(error) = self.fatal.get() {
            return Err(StartError::Engine { doing: "read the registers", error: error.clone() });
        }
        if self.changed.swap(false, Ordering::Relaxed) {
            self.desk.changed();
        }
        self.desk.turn().map_err(StartError::engine("answer from registers"))
    }
}

/// This server knows newer ones.
const OLDER: &str = "the registers in etcd are older than this server knows: nothing is changed in them, so no server takes over for another. \
                     Put etcd's newest snapshot back";

/// Registers that are another cluster's, or of a newer release, end the server that asks for them.
struct Strict {
    etcd: EtcdCoordinator,
    fatal: Arc<OnceLock<EngineError>>,
}

impl Strict {
    fn noted<T>(&self, result: EngineResult<T>) -> EngineResult<T> {
        result.inspect_err(|error| {
            if matches!(error, EngineError::Foreign { .. } | EngineError::NewerVersion { .. }) {
                let _ = self.fatal.set(error.clone());
            }
        })
    }
}

impl Coordinator for Strict {
    fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
        let result = self.etcd.read(key);
        self.noted(result)
    }

    fn changes(&mut self, prefix: &str, since: u64) -> EngineResult<Changes> {
        let result = self.etcd.changes(prefix, since);
        if result.as_ref().is_ok_and(|changes| since > changes.version) {
            tracing::error!("{OLDER}");
            self.etcd.mark_older()?;
        }
        self.noted(result)
    }

    fn swap(&mut self, changes: &[RegisterChange]) -> EngineResult<Swap> {
        let result = self.etcd.swap(changes);
        self.noted(result)
    }
}
