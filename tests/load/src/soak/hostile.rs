//! Peers that open, stall and repeat: each stops at another stage, keeps what it has for a while, and leaves in its own
//! way.

use super::Scene;
use crate::clients::Dialler;
use bytes::Bytes;
use rpcrdma_env::{Random as _, SeededRandom};
use rpcrdma_nfs::attr::NewAttributes;
use rpcrdma_nfs_client::{CreateHow, Handle, Name, Writer};
use rpcrdma_peers::{
    idlers::{From4, asked, deaf, dial_from, half_frame, read_call, ready, vanished, withholding},
    peer::Peer,
    rpc::{self, Header, Xdr},
    wire::{CRC, ENHANCED, PRIVATE_DATA, SEND, Untagged, enhanced, request},
};
use rpcrdma_transport::Versions;
use std::{
    cell::RefCell,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Once, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The most peers that an address has at a time.
const PEERS: u64 = 8;
/// The longest time for which a peer stays: the server may drop it earlier.
const KEPT: Duration = Duration::from_secs(12);
/// A turn of waiting.
const TICK: Duration = Duration::from_millis(50);
/// The name of the threads whose panics this file handles.
const THREAD: &str = "hostile";
/// Bytes of the file that peers read, and of data that they announce and do not send.
const BAIT_OCTETS: usize = 256 << 10;
const WITHHELD_OCTETS: u32 = 64 << 10;
/// Of version 2: the flag that more of the message follows; a grant of nothing, and one of sixteen.
const MORE: u32 = 2;
const NO_CREDITS: u32 = 64 << 16;
const CREDITS: u32 = 64 << 16 | 16;

/// The server that they attack, and a file there.
#[derive(Clone)]
pub(super) struct Target {
    rdma: String,
    file: Vec<u8>,
}

impl Target {
    /// Makes a file that they may read and write.
    pub(super) async fn find(dialler: &Dialler, rdma: SocketAddr, root: &Handle) -> anyhow::Result<Self> {
        let nfs = dialler.connect(rdma, Versions::One).await?;
        let attributes = NewAttributes { mode: Some(0o666), ..NewAttributes::default() };
        let file = nfs.create(root, &Name::from("bait"), CreateHow::Unchecked(attributes)).await?.file;
        let mut writer = Writer::new(file.clone(), 64 << 10, 2);
        writer.write(0, Bytes::from(vec![7; BAIT_OCTETS])).await?;
        writer.finish().await?;
        Ok(Self { rdma: rdma.to_string(), file: file.handle().as_slice().to_vec() })
    }
}

/// A connection that is kept open.
enum Held {
    Stream(TcpStream),
    Peer(Peer),
    /// A peer that sends the rest of its frame byte by byte.
    Dripping(Peer, Vec<u8>, usize),
}

impl Held {
    fn stream(&self) -> &TcpStream {
        match self {
            Held::Stream(stream) => stream,
            Held::Peer(peer) | Held::Dripping(peer, ..) => &peer.stream,
        }
    }

    fn tick(&mut self) {
        if let Held::Dripping(peer, frame, at) = self
            && let Some(octet) = frame.get(*at)
        {
            let octet = [*octet];
            *at += 1;
            peer.raw(&octet);
        }
    }

    /// Leaves: with an end of stream, or with a reset.
    fn leave(self, rudely: bool) {
        if rudely {
            // If this fails, the connection has an ordinary end.
            let _ = rustix::net::sockopt::set_socket_linger(self.stream(), Some(Duration::ZERO));
        }
    }
}

/// Brings a peer to the stage at which it stops.
type Stage = fn(From4, &Target, &SeededRandom) -> Held;
const STAGES: [(&str, Stage); 14] = [
    ("says nothing", |from, to, _| Held::Stream(dial_from(from, &to.rdma))),
    ("stops in MPA's request", |from, to, random| {
        let mut stream = dial_from(from, &to.rdma);
        let request = request(CRC | ENHANCED, 2, &enhanced(16, 16, &PRIVATE_DATA));
        let _ = stream.write_all(&request[..random.below(request.len() as u64) as usize]);
        Held::Stream(stream)
    }),
    ("stops after MPA's reply", |from, to, _| Held::Peer(Peer::over(dial_from(from, &to.rdma), 16, 16))),
    ("is idle", |from, to, _| Held::Peer(ready(from, &to.rdma))),
    ("stops in a frame", |from, to, _| Held::Peer(half_frame(from, &to.rdma))),
    ("stops in a call of several segments", |from, to, _| {
        let mut peer = ready(from, &to.rdma);
        let call = rpc::inline(&rpc::null(2));
        let begin = Untagged { last: false, ..Untagged::new(SEND, peer.msn) };
        peer.raw(&begin.fpdu(&call[..call.len() / 2]));
        Held::Peer(peer)
    }),
    ("stops in a call of several parts", |from, to, random| {
        let mut peer = second(from, to);
        let stream = rpc::write_call(55, &to.file, 1 << 20).0;
        for _ in 0..=random.below(8) {
            peer.send(&message2(CREDITS, 55, MORE, &stream[..stream.len() & !3]));
        }
        Held::Peer(peer)
    }),
    ("grants nothing for what it asks for", |from, to, _| {
        let mut peer = second(from, to);
        for xid in 60..68 {
            peer.send(&message2(NO_CREDITS, xid, 0, &read_call(xid, &to.file, 32 << 10).0));
        }
        Held::Peer(peer)
    }),
    ("withholds what is read from it", |from, to, random| {
        Held::Peer(withholding(from, &to.rdma, &to.file, 1 + random.below(16) as u32, WITHHELD_OCTETS))
    }),
    ("leaves in a Read Response", |from, to, _| {
        let mut peer = withholding(from, &to.rdma, &to.file, 3, WITHHELD_OCTETS);
        let asked = asked(&mut peer);
        peer.respond(&asked, &vec![7; asked.size as usize / 2]);
        Held::Peer(peer)
    }),
    ("does not read", |from, to, random| Held::Peer(deaf(from, &to.rdma, &to.file, 10 + random.below(50) as u32))),
    ("vanishes", |from, to, _| Held::Peer(vanished(from, &to.rdma))),
    ("sends a byte at a time", |from, to, _| {
        let mut peer = ready(from, &to.rdma);
        let frame = peer.next_send(&rpc::inline(&rpc::null(2)));
        Held::Dripping(peer, frame, 0)
    }),
    ("sends garbage", |from, to, random| {
        let mut peer = ready(from, &to.rdma);
        let mut garbage = vec![0; 1 + random.below(5000) as usize];
        random.fill(&mut garbage);
        peer.raw(&garbage);
        Held::Peer(peer)
    }),
];

/// A connection in version 2 on which the server has answered.
fn second(from: From4, to: &Target) -> Peer {
    let mut peer = Peer::over(dial_from(from, &to.rdma), 16, 16);
    peer.send(&message2(CREDITS, 5, 0, &rpc::null(5)));
    peer.message().expect("an answer");
    peer
}

/// A message of version 2 without chunks, or a part of one.
fn message2(credits: u32, xid: u32, flags: u32, stream: &[u8]) -> Vec<u8> {
    let mut message = Xdr::default().words(&[xid, 2, credits, 0, flags, 0]).0;
    message.extend(Header::default().lists().0);
    message.extend(stream);
    message
}

thread_local! {
    /// Why this thread has panicked.
    static WHY: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Threads of this name panic silently: the code that starts their peers judges the reason.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name().is_some_and(|name| name.starts_with(THREAD)) {
                WHY.with_borrow_mut(|why| *why = info.to_string());
            } else {
                usual(info);
            }
        }));
    });
}

/// Starts the peers of one address.
pub(super) fn start(number: usize, target: Target, scene: Arc<Scene>) -> JoinHandle<()> {
    hush();
    let work = move || {
        let random = SeededRandom::new(scene.seed.rotate_left(33) ^ number as u64);
        let from = [127, 0, 1, 1 + (number % 250) as u8];
        while !scene.is_over() {
            if scene.quiet.load(Ordering::SeqCst) {
                std::thread::sleep(TICK);
                continue;
            }
            let mut held = Vec::new();
            for _ in 0..=random.below(PEERS) {
                let (words, stage) = STAGES[random.below(STAGES.len() as u64) as usize];
                let starts = scene.starts.load(Ordering::SeqCst);
                match catch_unwind(AssertUnwindSafe(|| stage(from, &target, &random))) {
                    Ok(peer) => {
                        scene.report(|report| *report.hostile.entry(words).or_default() += 1);
                        held.push(peer);
                    }
                    // While the server is killed, peers may see anything; this is not judged.
                    Err(_)
                        if starts != scene.starts.load(Ordering::SeqCst)
                            || starts.is_multiple_of(2)
                            || scene.is_over() => {}
                    Err(_) => {
                        let why = WHY.with_borrow(|why| why.replace('\n', " "));
                        scene.fail(format!("a peer that {words}: {why}"));
                    }
                }
            }
            let (begin, keeps) = (Instant::now(), KEPT.mul_f64(random.below(1000) as f64 / 1000.0));
            while begin.elapsed() < keeps && !scene.quiet.load(Ordering::SeqCst) && !scene.is_over() {
                held.iter_mut().for_each(Held::tick);
                std::thread::sleep(TICK);
            }
            held.into_iter().for_each(|peer| peer.leave(random.below(2) == 0));
        }
    };
    let thread = std::thread::Builder::new().name(format!("{THREAD}-{number}")).spawn(work);
    thread.expect("the system starts a thread")
}
