//! A middlebox: passes the bytes of TCP connections to a port of the loopback, and can cut, stall and slow them, at a
//! chosen byte.
//!
//! The middlebox ends TCP at both sides, so a peer still gets acknowledgements while the middlebox passes nothing. To
//! make a host vanish, use [`super::namespace`]. Each connection has two threads, one for each direction, which own the
//! bytes that they hold; an error at one side ends both.

use super::process::LOOK;
use anyhow::Context as _;
use rustix::net::sockopt;
use std::{
    collections::VecDeque,
    fmt,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

mod scanner;

pub(super) use scanner::Part;
use scanner::Scanner;

/// The most bytes that it reads at a time.
const TAKEN: usize = 65_536;

/// How long a thread waits for a socket before it looks at its orders again.
const PATIENCE: Duration = Duration::from_millis(10);

/// The sockets' receive buffers, so that little is under way when a connection stalls.
const BUFFER: usize = 65_536;

/// Before the middlebox ends a connection it passes nothing for so long, so that all earlier bytes have arrived. QEMU's
/// user-mode network (libslirp, in `soread`) aborts if a connection ends while its buffer towards the guest is full.
const SETTLED: Duration = Duration::from_millis(200);

/// If the middlebox slows a direction, it passes the bytes in so many portions a second.
const PORTIONS: u64 = 20;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the end that connected.
    Up,
    /// To the end that connected.
    Down,
}

/// What happens at the place of the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection ends at both sides with a FIN.
    Fin,
    /// The connection ends at both sides with a reset.
    Reset,
    /// Nothing passes in this direction until [`Middlebox::go_on`].
    Stall,
    /// Nothing passes in either direction until then.
    StallBoth,
}

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the middle of an FPDU of this kind.
    Inside(Part),
    /// After so many bytes.
    After(u64),
}

/// An order to cut one connection: the first that reaches the place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) way: Way,
    pub(super) place: Place,
    /// How many FPDUs of the kind pass before the cut.
    pub(super) skip: u64,
    pub(super) end: End,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Inside(part) => write!(f, "{:?} in the middle of a {part:?} {:?}", self.end, self.way),
            Place::After(octets) => write!(f, "{:?} after {octets} bytes {:?}", self.end, self.way),
        }
    }
}

#[derive(Default)]
struct Orders {
    /// The cuts still to be made, one after the other.
    cuts: VecDeque<Cut>,
    /// FPDUs of the kind, or bytes, that have passed since the first of these cuts became the next one.
    passed: u64,
    done: Vec<String>,
    stalled: [bool; 2],
    /// Bytes a second in each direction.
    rate: Option<u64>,
}

struct Shared {
    target: u16,
    ended: AtomicBool,
    accepted: AtomicU64,
    open: AtomicU64,
    orders: Mutex<Orders>,
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A middlebox that runs. Dropping the value ends it and its connections.
pub(super) struct Middlebox {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Middlebox {
    /// Opens a new port of the loopback and passes its connections to the target port there.
    pub(super) fn before(target: u16) -> anyhow::Result<Self> {
        let port = super::ports::free()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).context("the middlebox")?;
        sockopt::set_socket_recv_buffer_size(&listener, BUFFER)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            target,
            ended: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            orders: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let acceptor = thread::Builder::new().name("middlebox".into()).spawn(move || accept(&listener, &of_thread))?;
        Ok(Self { port, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Orders a cut, after those that were ordered before.
    pub(super) fn cut(&self, cut: Cut) {
        self.shared.orders().cuts.push_back(cut);
    }

    /// Whether no cut waits for its place.
    pub(super) fn is_done(&self) -> bool {
        self.shared.orders().cuts.is_empty()
    }

    /// The cuts that were made, in words.
    pub(super) fn cuts(&self) -> Vec<String> {
        self.shared.orders().done.clone()
    }

    /// Lets stalled bytes pass again.
    pub(super) fn go_on(&self) {
        self.shared.orders().stalled = [false; 2];
    }

    /// Passes so many bytes a second in each direction; with `None`, all that come.
    pub(super) fn slow(&self, rate: Option<u64>) {
        self.shared.orders().rate = rate;
    }

    /// Connections so far.
    pub(super) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Middlebox {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    while !shared.ended.load(Ordering::Relaxed) {
        let Ok((near, _)) = listener.accept() else {
            thread::sleep(LOOK);
            continue;
        };
        let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.target)) else {
            let _ = sockopt::set_socket_linger(&near, Some(Duration::ZERO));
            continue;
        };
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if let Ok(link) = Link::new(near, far, shared) {
            let link = Arc::new(link);
            for way in [Way::Up, Way::Down] {
                let link = Arc::clone(&link);
                threads.push(thread::spawn(move || link.pass(way)));
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// One connection: the socket that a peer opened to us, and the socket that we opened to the target.
struct Link {
    near: TcpStream,
    far: TcpStream,
    cut: AtomicBool,
    /// The connection is about to end: nothing passes any more.
    ending: AtomicBool,
    shared: Arc<Shared>,
}

impl Link {
    fn new(near: TcpStream, far: TcpStream, shared: &Arc<Shared>) -> anyhow::Result<Self> {
        sockopt::set_socket_recv_buffer_size(&far, BUFFER)?;
        for socket in [&near, &far] {
            socket.set_nonblocking(false)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
        }
        shared.open.fetch_add(1, Ordering::Relaxed);
        Ok(Self { near, far, cut: AtomicBool::new(false), ending: AtomicBool::new(false), shared: Arc::clone(shared) })
    }

    fn is_over(&self) -> bool {
        self.cut.load(Ordering::Relaxed) || self.shared.ended.load(Ordering::Relaxed)
    }

    /// Ends both sides. A reset goes out when the last thread drops the sockets.
    fn end(&self, end: End) {
        for socket in [&self.near, &self.far] {
            match end {
                End::Fin => drop(socket.shutdown(Shutdown::Both)),
                _ => drop(sockopt::set_socket_linger(socket, Some(Duration::ZERO))),
            }
        }
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Passes the bytes of one direction until the connection ends.
    fn pass(&self, way: Way) {
        let (mut from, to) = match way {
            Way::Up => (&self.near, &self.far),
            Way::Down => (&self.far, &self.near),
        };
        let mut scanner = Scanner::default();
        let mut octets = vec![0; TAKEN];
        while !self.is_over() {
            let (stalled, rate) = {
                let orders = self.shared.orders();
                (orders.stalled[way as usize], orders.rate)
            };
            if stalled || self.ending.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
                continue;
            }
            let most = rate.map_or(TAKEN, |rate| usize::try_from(rate / PORTIONS).unwrap_or(TAKEN).clamp(1, TAKEN));
            let begin = Instant::now();
            let count = match from.read(&mut octets[..most]) {
                Ok(0) => return drop(to.shutdown(Shutdown::Write)),
                Ok(count) => count,
                Err(error) if is_patience(&error) => continue,
                Err(_) => return self.end(End::Reset),
            };
            let taken = &octets[..count];
            let cut = self.place_of_cut(way, taken, &scanner.feed(taken));
            let passed = cut.map_or(taken, |(at, _)| &taken[..at]);
            if !self.write(to, passed) {
                return self.end(End::Reset);
            }
            match cut {
                Some((at, End::Stall | End::StallBoth)) => {
                    while self.shared.orders().stalled[way as usize] && !self.is_over() {
                        thread::sleep(LOOK);
                    }
                    if !self.write(to, &taken[at..]) {
                        return self.end(End::Reset);
                    }
                }
                Some((_, end)) => {
                    self.ending.store(true, Ordering::Relaxed);
                    thread::sleep(SETTLED);
                    return self.end(end);
                }
                None => {}
            }
            if let Some(rate) = rate {
                let due = Duration::from_secs(count as u64) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX);
                thread::sleep(due.saturating_sub(begin.elapsed()));
            }
        }
    }

    /// Where and how to cut the connection among these bytes, if at all.
    fn place_of_cut(&self, way: Way, octets: &[u8], parts: &[(Part, usize)]) -> Option<(usize, End)> {
        let mut orders = self.shared.orders();
        let cut = orders.cuts.front().copied().filter(|cut| cut.way == way)?;
        let at = match cut.place {
            Place::Inside(wanted) => {
                let mut fitting = parts.iter().filter(|(part, _)| *part == wanted);
                let left = cut.skip.saturating_sub(orders.passed);
                let found = fitting.clone().nth(usize::try_from(left).unwrap_or(usize::MAX)).map(|(_, at)| *at);
                orders.passed += fitting.by_ref().count() as u64;
                found?
            }
            Place::After(wanted) => {
                let left = wanted.saturating_sub(orders.passed);
                orders.passed += octets.len() as u64;
                usize::try_from(left).ok().filter(|left| *left < octets.len())?
            }
        };
        orders.cuts.pop_front();
        orders.passed = 0;
        orders.done.push(cut.to_string());
        match cut.end {
            End::Stall => orders.stalled[way as usize] = true,
            End::StallBoth => orders.stalled = [true; 2],
            End::Fin | End::Reset => {}
        }
        Some((at, cut.end))
    }

    /// Writes all bytes, unless the connection ends before.
    fn write(&self, mut to: &TcpStream, mut octets: &[u8]) -> bool {
        while !octets.is_empty() {
            match to.write(octets) {
                Ok(0) => return false,
                Ok(count) => octets = &octets[count..],
                Err(error) if is_patience(&error) && !self.is_over() => {}
                Err(_) => return false,
            }
        }
        true
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_patience(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::{Cut, End, Middlebox, Place, Way};
    use std::{
        io::{ErrorKind, Read as _, Write as _},
        net::{TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    fn pair() -> (Middlebox, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let middlebox = Middlebox::before(listener.local_addr().unwrap().port()).unwrap();
        let near = TcpStream::connect(("127.0.0.1", middlebox.port())).unwrap();
        let (far, _) = listener.accept().unwrap();
        (middlebox, near, far)
    }

    #[test]
    fn octets_pass_both_ways_and_the_end_of_a_way_too() {
        let (_middlebox, mut near, mut far) = pair();
        near.write_all(b"there").unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        far.write_all(b"and back").unwrap();
        drop(far);
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "thereand back");
    }

    #[test]
    fn a_connection_is_cut_after_so_many_octets_by_fin_or_reset() {
        for end in [End::Fin, End::Reset] {
            let (middlebox, mut near, mut far) = pair();
            middlebox.cut(Cut { way: Way::Up, place: Place::After(5), skip: 0, end });
            near.write_all(b"abc").unwrap();
            let mut found = [0; 3];
            far.read_exact(&mut found).unwrap();
            near.write_all(b"defgh").unwrap();
            let mut rest = Vec::new();
            let read = far.read_to_end(&mut rest);
            assert_eq!(read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), end == End::Reset);
            assert!(end == End::Reset || rest == b"de", "{rest:?}");
            assert!(middlebox.is_done());
            assert_eq!(middlebox.cuts().len(), 1);
        }
    }

    #[test]
    fn a_stalled_way_holds_its_octets_and_a_slowed_one_takes_its_time() {
        let (middlebox, mut near, mut far) = pair();
        middlebox.cut(Cut { way: Way::Up, place: Place::After(1), skip: 0, end: End::Stall });
        near.write_all(b"xy").unwrap();
        far.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut found = [0; 1];
        far.read_exact(&mut found).unwrap();
        assert!(far.read_exact(&mut found).is_err());
        middlebox.go_on();
        far.set_read_timeout(None).unwrap();
        far.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"y");

        middlebox.slow(Some(10_000));
        std::thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        near.write_all(&[1; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        assert!(begin.elapsed() > Duration::from_millis(300), "{:?}", begin.elapsed());
    }
}
