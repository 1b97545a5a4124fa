//! A network with a round trip: relays that pass on, some time later, what each end of a TCP connection sends.
//!
//! Between two programs on one machine there is no round trip, so a measurement does not show what costs a user most
//! over a network. Each direction has a thread that reads and a thread that sends what is due. The relays cost
//! processor time, but the same for all programs that are compared.

use anyhow::Context as _;
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    num::NonZeroU64,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// The most bytes that are read at a time.
const CHUNK: usize = 256 << 10;
/// The most of these reads that are under way in one direction: like a network, a relay holds a limited amount.
const UNDER_WAY: usize = 256;

/// The bytes of one read, and when they have to arrive.
type Sent = (Instant, Vec<u8>);

/// Listens on a new address, which it returns, and passes all connections on to `to`, each byte `delay` later.
pub(super) fn relay(to: &str, delay: Duration) -> anyhow::Result<SocketAddr> {
    let to: SocketAddr = to.parse().with_context(|| format!("{to} is no address"))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if let Err(error) = join(near, to, delay) {
                eprintln!("a connection through the relay to {to} ended: {error:#}");
            }
        }
    });
    Ok(at)
}

/// Joins a connection with one to `to`.
fn join(near: TcpStream, to: SocketAddr, delay: Duration) -> anyhow::Result<()> {
    let far = TcpStream::connect(to)?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
    }
    carry(near.try_clone()?, far.try_clone()?, delay);
    carry(far, near, delay);
    Ok(())
}

/// Carries one direction until its end, in threads of its own.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::sync_channel::<Sent>(UNDER_WAY);
    thread::spawn(move || {
        let mut room = vec![0; CHUNK];
        while let Ok(read) = from.read(&mut room)
            && read > 0
            && sender.send((Instant::now() + delay, room[..read].to_vec())).is_ok()
        {}
    });
    thread::spawn(move || {
        // Without this, Linux may end a sleep up to 50 microseconds late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while let Ok((due, octets)) = receiver.recv() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&octets).is_err() {
                break;
            }
        }
        // Passes on the end of the stream, too. This fails if the peer has already gone, which does no harm.
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_arrives_later_and_so_does_the_end() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap().to_string();
        let echo = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut octets = Vec::new();
            stream.read_to_end(&mut octets).unwrap();
            stream.write_all(&octets).unwrap();
        });
        let mut client = TcpStream::connect(relay(&to, Duration::from_millis(20)).unwrap()).unwrap();
        let (begin, sent) = (Instant::now(), vec![7; 3 * CHUNK]);
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert!(back == sent, "{} bytes of {}", back.len(), sent.len());
        assert!(begin.elapsed() >= Duration::from_millis(40), "{:?}", begin.elapsed());
        echo.join().unwrap();
        assert!(relay("nowhere", Duration::ZERO).is_err());
    }
}
