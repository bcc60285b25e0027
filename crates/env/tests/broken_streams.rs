//! In a process of its own, where writing to what nobody reads ends the process, as it does in commands that
//! end with whoever reads their output.

use bearing_env::{Destination, Endpoint, Transport};
use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn a_stream_that_the_other_side_closed_is_a_failure_and_ends_nothing() {
    // SAFETY: the default action needs no handler, and nothing else runs in this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut endpoint = Endpoint::client().unwrap();
    let (mut failures, mut incoming) = (Vec::new(), Vec::new());
    let send = |endpoint: &mut Endpoint| {
        // What is refused because the stream is gone is a failure that is told.
        let _refused = endpoint.send(Destination::Address(address), Transport::Stream, b"packet");
        endpoint.flush().unwrap();
    };
    send(&mut endpoint);
    let (mut other, _) = listener.accept().unwrap();
    endpoint.receive(Some(Duration::from_secs(10)), &mut incoming).unwrap();
    // It takes what came and hangs up: the first packet after that is answered by a reset, the next one has
    // nobody.
    other.read_exact(&mut [0; 10]).unwrap();
    drop(other);
    (0..3).for_each(|_| send(&mut endpoint));
    endpoint.take_failures(&mut failures);
    assert_eq!(failures, [address]);
}
