//! The page over HTTP, on a thread of its own: `/metrics` and `/healthz`.
//!
//! The thread asks the loop for a new page and waits for it, so a loop that is stuck is found out; the loop
//! never waits for the thread. What strangers can make it do is bounded: connections at a time, how long each
//! lasts, the size of a request, and how often the loop is asked at all.

use crate::metrics::Metric;
use crate::metrics::beside;
use bearing_env::Waker;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// At a time. Who comes beyond them waits.
const CONNECTIONS_MAX: usize = 16;
/// A request has to have come within this.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// And a connection ends after this, whatever is left to be read.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Request line and headers.
const REQUEST_BYTES_MAX: usize = 8192;
/// A loop that takes longer is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// A page that is no older is shown again: so the loop fills ten pages in a second at most.
const PAGE_TTL: Duration = Duration::from_millis(100);

/// What a loop tells.
#[derive(Debug)]
struct Told {
    /// Or one sentence why it does not serve.
    health: Result<(), String>,
    page: String,
    at: Instant,
}

/// The loop's end.
#[derive(Debug)]
pub struct Publisher {
    wanted: Arc<AtomicBool>,
    told: watch::Sender<Option<Arc<Told>>>,
    address: SocketAddr,
}

impl Publisher {
    /// Listens at an address; port 0 takes any that is free. The waker has the loop look at
    /// [`Publisher::is_wanted`]. Of these files or directories it is shown
    /// how much they hold.
    pub fn start(
        address: SocketAddr,
        places: Vec<(&'static Metric, PathBuf)>,
        waker: Waker,
    ) -> io::Result<Publisher> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (told, answers) = watch::channel(None);
        let wanted = Arc::new(AtomicBool::new(false));
        let desk = Arc::new(Desk { wanted: wanted.clone(), waker, answers, places });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            runtime.block_on(async {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener, desk).await,
                    Err(error) => tracing::error!("nobody can read the metrics: {error}"),
                }
            });
        })?;
        Ok(Publisher { wanted, told, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether somebody waits for a page. Says so once.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed)
    }

    /// Gives it.
    pub fn tell(&self, health: Result<(), String>, page: String) {
        self.told.send_replace(Some(Arc::new(Told { health, page, at: Instant::now() })));
    }
}

/// The thread's end.
struct Desk {
    wanted: Arc<AtomicBool>,
    waker: Waker,
    answers: watch::Receiver<Option<Arc<Told>>>,
    places: Vec<(&'static Metric, PathBuf)>,
}

async fn serve(listener: tokio::net::TcpListener, desk: Arc<Desk>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = room.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, or the peer has gone: either way it is no use to turn at once.
            tokio::time::sleep(PAGE_TTL).await;
            continue;
        };
        let desk = desk.clone();
        tokio::spawn(async move {
            // How it ends is the reader's business.
            let _ = timeout(CONNECTION_TIMEOUT, converse(stream, desk)).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, desk: Arc<Desk>) -> hyper::Result<()> {
    let answer = service_fn(|request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.answer(&request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT);
    http.keep_alive(false).max_buf_size(REQUEST_BYTES_MAX);
    http.serve_connection(TokioIo::new(stream), answer).await
}

impl Desk {
    async fn answer<B>(&self, request: &Request<B>) -> Response<String> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return sentence(StatusCode::METHOD_NOT_ALLOWED, "here is only something to read: use GET");
        }
        match request.uri().path() {
            "/metrics" => match self.newest().await {
                Ok(told) => {
                    let page = told.page.clone() + &beside::page(&self.places).text();
                    with_type(Response::new(page), prometheus_text::CONTENT_TYPE)
                }
                Err(why) => sentence(StatusCode::SERVICE_UNAVAILABLE, why),
            },
            "/healthz" => match self.newest().await.map(|told| told.health.clone()) {
                Ok(Ok(())) => sentence(StatusCode::OK, "serving"),
                Ok(Err(why)) => sentence(StatusCode::SERVICE_UNAVAILABLE, &why),
                Err(why) => sentence(StatusCode::SERVICE_UNAVAILABLE, why),
            },
            _ => sentence(StatusCode::NOT_FOUND, "there is no such page: ask for /metrics or /healthz"),
        }
    }

    /// What the loop tells now, or why it does not.
    async fn newest(&self) -> Result<Arc<Told>, &'static str> {
        let mut answers = self.answers.clone();
        let known = answers.borrow_and_update().clone();
        let Some(known) = known else { return Err("it is starting: its stores are being opened") };
        if known.at.elapsed() <= PAGE_TTL {
            return Ok(known);
        }
        self.wanted.store(true, Ordering::Relaxed);
        self.waker.wake();
        match timeout(ANSWER_TIMEOUT, answers.changed()).await {
            Ok(Ok(())) => Ok(answers.borrow().clone().unwrap_or(known)),
            Ok(Err(_)) => Err("it is stopping"),
            Err(_) => Err("its network loop has answered nobody for 2 s: its log says what it does"),
        }
    }
}

fn sentence(status: StatusCode, words: &str) -> Response<String> {
    let mut response = with_type(Response::new(format!("{words}\n")), "text/plain; charset=utf-8");
    *response.status_mut() = status;
    response
}

fn with_type(mut response: Response<String>, content_type: &'static str) -> Response<String> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_env::Endpoint;
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;
    use std::thread::JoinHandle;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    /// A loop that tells these, one after the other, when it is asked, and then answers nobody.
    fn publisher(answers: Vec<Result<(), String>>) -> (SocketAddr, JoinHandle<Publisher>) {
        let mut endpoint = Endpoint::server(ANY).unwrap();
        let publisher = Publisher::start(ANY, Vec::new(), endpoint.waker()).unwrap();
        let address = publisher.address();
        let turns = thread::spawn(move || {
            for (number, health) in answers.into_iter().enumerate() {
                // Its first word comes unasked: that it is there.
                while number > 0 && !publisher.is_wanted() {
                    endpoint.receive(None, &mut Vec::new()).unwrap();
                }
                publisher.tell(health, "bearing_test 1\n".to_owned());
            }
            publisher
        });
        (address, turns)
    }

    fn say(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A request that is not read to its end is answered by a reset too.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn get(address: SocketAddr, path: &str) -> String {
        say(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"))
    }

    /// Asks until the answer is another one: a page is shown again while it is young.
    fn until_not(address: SocketAddr, status: &str) -> String {
        loop {
            let said = get(address, "/healthz");
            if !said.starts_with(status) {
                return said;
            }
        }
    }

    #[test]
    fn a_daemon_says_that_it_starts_serves_does_not_and_stops() {
        let (address, turns) = publisher(Vec::new());
        for path in ["/healthz", "/metrics"] {
            let said = get(address, path);
            assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("it is starting"), "{said}");
        }
        let publisher = turns.join().unwrap();
        publisher.tell(Ok(()), "bearing_test 1\n".to_owned());
        let said = get(address, "/healthz");
        assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("\r\n\r\nserving\n"), "{said}");
        let said = get(address, "/metrics");
        assert!(said.contains("text/plain; version=0.0.4") && said.contains("\nbearing_test 1\n"), "{said}");
        assert!(said.contains("\nprocess_resident_memory_bytes "), "{said}");
        publisher.tell(Err("the disk is full".to_owned()), String::new());
        let said = get(address, "/healthz");
        assert!(said.starts_with("HTTP/1.1 503 ") && said.ends_with("the disk is full\n"), "{said}");
        publisher.tell(Ok(()), String::new());
        drop(publisher);
        let said = until_not(address, "HTTP/1.1 200 ");
        assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("it is stopping"), "{said}");
    }

    #[test]
    fn the_loop_is_asked_for_what_is_not_young_and_one_that_is_stuck_is_found_out() {
        let (address, turns) = publisher(vec![Err("not yet".to_owned()), Ok(())]);
        let said = until_not(address, "HTTP/1.1 503 ");
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        let _stuck = turns.join().unwrap();
        let said = until_not(address, "HTTP/1.1 200 ");
        assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("has answered nobody for 2 s"), "{said}");
    }

    #[test]
    fn what_is_not_there_is_said_to_be_and_too_long_a_request_is_refused() {
        let (address, turns) = publisher(Vec::new());
        let said = get(address, "/");
        assert!(said.starts_with("HTTP/1.1 404 ") && said.contains("/metrics or /healthz"), "{said}");
        let said = say(address, "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 405 "), "{said}");
        let said = get(address, &"x".repeat(2 * REQUEST_BYTES_MAX));
        assert!(said.starts_with("HTTP/1.1 414 ") || said.starts_with("HTTP/1.1 431 "), "{said}");
        drop(turns);
    }
}
