//! The members of an etcd cluster: a question goes to the one that answered last. When it is silent for a
//! while it goes to the next one too, and so on; the first answer counts. What this does twice that way etcd
//! does once, because every change names the version that it replaces.

use bearing_seams::EngineError;
use etcd_client::{Channel, Client, ConnectOptions, Error, Identity, TlsOptions};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Code;
use tonic::transport::{Certificate, Endpoint};

/// A member that does not take a connection within this time is passed over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A member that is silent for so long is not waited for alone.
const HEDGE_DELAY: Duration = Duration::from_millis(700);
/// When none answers, it is tried anew after so long.
const PAUSE: Duration = Duration::from_millis(200);
/// After so long without any answer a question has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// By which certificates members and this program know each other. Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// Of the authority that signed the members' certificates.
    pub authority: PathBuf,
    /// This program's certificate and its key, if members ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Where the members of an etcd cluster are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdMembers {
    /// Their client URLs: `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// For `https`.
    pub tls: Option<EtcdTls>,
}

impl EtcdMembers {
    /// Checks what can be checked without asking anybody.
    pub fn check(&self) -> Result<(), String> {
        self.endpoints().map(|_| ())
    }

    /// An endpoint for each member.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>, String> {
        if self.endpoints.is_empty() {
            return Err("there is no etcd endpoint; give endpoints = [\"https://HOST:2379\"]".to_owned());
        }
        let tls = self.tls.as_ref().map(tls_options).transpose()?;
        let endpoint = |url: &String| {
            let wrong = |why: &str| {
                format!("the etcd endpoint {url} {why}; write it like https://HOST:2379 or http://HOST:2379")
            };
            let endpoint = Endpoint::from_shared(url.clone()).map_err(|_| wrong("is no URL"))?;
            let endpoint = match (endpoint.uri().scheme_str(), &tls) {
                (Some("https"), Some(tls)) => endpoint
                    .tls_config(tls.clone())
                    .map_err(|error| format!("certificates of etcd: {error}"))?,
                (Some("https"), None) => return Err(wrong("needs certificates (authority = \"FILE\")")),
                (Some("http"), None) => endpoint,
                (Some("http"), Some(_)) => return Err(wrong("takes no certificates")),
                _ => return Err(wrong("has no http:// or https://")),
            };
            Ok(endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true))
        };
        self.endpoints.iter().map(endpoint).collect()
    }
}

fn tls_options(tls: &EtcdTls) -> Result<TlsOptions, String> {
    let read =
        |path: &Path| fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&tls.authority)?));
    match &tls.identity {
        Some((certificate, key)) => Ok(options.identity(Identity::from_pem(read(certificate)?, read(key)?))),
        None => Ok(options),
    }
}

/// A connection with one member.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Client, Error> {
    let channel = Channel::Tonic(endpoint.connect().await?);
    // A member that is cut off from the others says so instead of waiting for them.
    Client::from_channel(channel, Some(ConnectOptions::new().with_require_leader(true))).await
}

/// A runtime of the calling thread.
pub(crate) fn runtime() -> Result<Runtime, EngineError> {
    let failed =
        |error| EngineError::Failed { doing: format!("start the runtime of the etcd client ({error})") };
    Builder::new_current_thread().enable_all().build().map_err(failed)
}

/// Connections with the members.
pub(crate) struct Connections {
    endpoints: Arc<[Endpoint]>,
    /// One that answered is used again.
    clients: Vec<Option<Client>>,
    /// Who answered last.
    first: usize,
}

impl Connections {
    pub fn new(endpoints: Vec<Endpoint>) -> Connections {
        let clients = endpoints.iter().map(|_| None).collect();
        Connections { endpoints: endpoints.into(), clients, first: 0 }
    }

    /// Asks until somebody answers. Whether somebody else was asked before comes with the answer: what was to
    /// be done may have been done there.
    pub async fn ask<T, F>(
        &mut self,
        doing: &str,
        question: impl Fn(Client) -> F + Clone + Send + 'static,
    ) -> Result<(T, bool), EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let deadline = Instant::now() + PATIENCE;
        // Whoever is asked still when this ends is asked no more.
        let mut asked: JoinSet<Attempt<T>> = JoinSet::new();
        let (mut times, mut complaint) = (0, "no member answers".to_owned());
        while Instant::now() < deadline {
            let at = (self.first + times) % self.endpoints.len();
            let (kept, endpoints, question) =
                (self.clients[at].take(), self.endpoints.clone(), question.clone());
            asked.spawn(async move { (at, put(kept, &endpoints[at], question).await) });
            times += 1;
            let joined = timeout_at(Instant::now() + HEDGE_DELAY, asked.join_next()).await;
            // Whoever fails is followed by the next one at once, and a round of failures by a pause.
            match joined {
                Ok(Some(Ok((at, Ok((client, answer)))))) => {
                    (self.first, self.clients[at]) = (at, Some(client));
                    return Ok((answer, times > 1));
                }
                Ok(Some(Ok((at, Err(error))))) => {
                    complaint = format!("{}: {}", self.endpoints[at].uri(), chain(&error));
                    if is_final(&error) {
                        break;
                    }
                    if times % self.endpoints.len() == 0 {
                        sleep(PAUSE).await;
                    }
                }
                Ok(_) | Err(_) => {}
            }
        }
        Err(EngineError::Unavailable { what: format!("etcd does not {doing}: {complaint}") })
    }
}

/// Which member was asked, and its answer with the connection that it came by.
type Attempt<T> = (usize, Result<(Client, T), Error>);

async fn put<T, F: Future<Output = Result<T, Error>>>(
    kept: Option<Client>,
    endpoint: &Endpoint,
    question: impl Fn(Client) -> F,
) -> Result<(Client, T), Error> {
    let client = match kept {
        Some(client) => client,
        None => connect(endpoint).await?,
    };
    let answer = question(client.clone()).await?;
    Ok((client, answer))
}

/// Whether another member would say the same.
fn is_final(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    let same =
        [Code::InvalidArgument, Code::PermissionDenied, Code::Unauthenticated, Code::FailedPrecondition];
    same.contains(&status.code())
}

/// What happened and why: an error of the transport alone says nothing.
pub(crate) fn chain(error: &Error) -> String {
    let mut said = match error {
        Error::GRpcStatus(status) => return status.message().to_owned(),
        error => error.to_string(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    said
}
