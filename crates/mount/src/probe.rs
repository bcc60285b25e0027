//! What is seen at an address that does not answer: for the person who wrote it down.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a connection may take, and how long a first word.
const CONNECT_PATIENCE: Duration = Duration::from_millis(600);
const WORD_PATIENCE: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing listens there.
    Refused,
    /// No answer at all.
    Silent,
    /// Somebody takes connections, and says nothing that we understand.
    Mute,
    /// Another program, by its first words.
    Stranger,
    /// The system's complaint.
    Unreachable(String),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Seen::Refused => "connection refused: nothing listens there",
            Seen::Silent => "no answer: the machine is down, or a firewall drops packets",
            Seen::Mute => {
                "it takes TCP connections, but no Bearing answers: another program, a server that is starting, or UDP is blocked"
            }
            Seen::Stranger => "another program answers, not Bearing",
            Seen::Unreachable(reason) => reason,
        })
    }
}

/// Looks at all addresses at the same time.
pub(crate) fn look(addresses: &[SocketAddr]) -> Vec<(SocketAddr, Seen)> {
    std::thread::scope(|scope| {
        let looks: Vec<_> =
            addresses.iter().map(|address| (*address, scope.spawn(|| look_at(address)))).collect();
        looks
            .into_iter()
            .map(|(address, look)| (address, look.join().expect("looking does not panic")))
            .collect()
    })
}

fn look_at(address: &SocketAddr) -> Seen {
    let mut stream = match TcpStream::connect_timeout(address, CONNECT_PATIENCE) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                ErrorKind::ConnectionRefused => Seen::Refused,
                ErrorKind::TimedOut | ErrorKind::WouldBlock => Seen::Silent,
                _ => Seen::Unreachable(error.to_string()),
            };
        }
    };
    // A Bearing waits to be spoken to. What others say is of no interest, only that they do.
    let spoken = stream.set_read_timeout(Some(WORD_PATIENCE)).and_then(|()| stream.read(&mut [0; 16]));
    match spoken {
        Ok(bytes) if bytes > 0 => Seen::Stranger,
        _ => Seen::Mute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn who_is_at_an_address_is_told_from_who_is_not() {
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (mute_at, stranger_at) = (mute.local_addr().unwrap(), stranger.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| stranger.accept().unwrap().0.write_all(b"SSH-2.0-x\r\n").unwrap());
            let seen = look(&[closed, mute_at, stranger_at]);
            assert_eq!(seen, [(closed, Seen::Refused), (mute_at, Seen::Mute), (stranger_at, Seen::Stranger)]);
        });
    }
}
