//! A way to etcd on which every answer takes a while.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// See the module. It listens as long as the test's process lives.
pub struct SlowWay {
    delay_ms: Arc<AtomicU64>,
    port: u16,
}

impl SlowWay {
    /// A way to a port of this machine, without delay at first.
    pub fn to(port: u16) -> SlowWay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = SlowWay { delay_ms: Arc::default(), port: listener.local_addr().unwrap().port() };
        let delay_ms = way.delay_ms.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (back, forth) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let delay_ms = delay_ms.clone();
                thread::spawn(move || pass(client, forth, &AtomicU64::new(0)));
                thread::spawn(move || pass(server, back, &delay_ms));
            }
        });
        way
    }

    /// Its URL for clients.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Answers take so long from now on.
    pub fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

/// Passes bytes on, each read a while later, but any number of them under way.
fn pass(mut from: TcpStream, mut to: TcpStream, delay_ms: &AtomicU64) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    let other = to.try_clone().unwrap();
    let writer = thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let due = Instant::now() + Duration::from_millis(delay_ms.load(Ordering::Relaxed));
        if sender.send((due, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writer.join();
    let (_, _) = (from.shutdown(Shutdown::Both), other.shutdown(Shutdown::Both));
}
