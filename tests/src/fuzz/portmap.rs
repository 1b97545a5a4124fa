//! Datagrams for a portmapper: calls with a right header, and arbitrary bytes. Each answer must belong to a received
//! call, go to its sender, and be not much larger than the call.

use super::mint::Mint;
use rpcrdma_env::{Env, Heap, SeededRandom, TokioClock};
use rpcrdma_oncrpc::{
    Netid, ReplyHeader,
    portmap::{self, Entry, Table},
    rpcbind::RPCBIND_PROGRAM,
    udp::{self, Datagrams, Local, MAX_AMPLIFICATION, MAX_DATAGRAM_BYTES, Received},
};
use rpcrdma_xdr::{Decoder, Stream};
use std::{
    collections::VecDeque,
    future::Future,
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// A question: its bytes, and the sender's address.
type Question = (Vec<u8>, SocketAddr);

/// Delivers questions, and checks each answer.
struct Watched {
    questions: VecDeque<Question>,
    /// The last question that was read: a portmapper answers at once.
    asked: Question,
}

impl Datagrams for Watched {
    fn poll_receive(&mut self, _: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<Received>> {
        let Some((octets, peer)) = self.questions.pop_front() else { return Poll::Pending };
        let fits = octets.len().min(room.len());
        room[..fits].copy_from_slice(&octets[..fits]);
        let len = octets.len();
        self.asked = (octets, peer);
        Poll::Ready(Ok(Received { len, peer, local: None }))
    }

    fn send(&mut self, octets: &[u8], to: SocketAddr, _: Option<Local>) -> io::Result<()> {
        let (question, peer) = &self.asked;
        assert_eq!(to, *peer, "an answer goes to who has asked");
        assert!(question.len() <= MAX_DATAGRAM_BYTES, "a question that is too large is answered");
        assert!(octets.len() <= MAX_AMPLIFICATION * question.len(), "{} bytes", octets.len());
        let answer = Stream::from(bytes::Bytes::copy_from_slice(octets));
        let header = ReplyHeader::decode(&mut Decoder::new(answer)).expect("a reply");
        assert_eq!(question.get(..4), Some(&header.xid.to_be_bytes()[..]), "the answer is that question's");
        Ok(())
    }
}

pub(super) fn datagrams(input: &[u8]) {
    let mut mint = Mint::new(input);
    let mut questions = VecDeque::new();
    while !mint.is_empty() {
        let (kind, from) = (mint.u8(), mint.u8());
        let peer = match kind % 2 {
            0 => SocketAddr::from(([192, 0, 2, from], 700)),
            _ => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(from)], u16::from(from))),
        };
        let (version, procedure) = (u32::from(mint.u8() % 6), u32::from(mint.u8() % 16));
        let len = usize::from(mint.u16() % 1400);
        let octets = mint.take(len);
        let head = [u32::from(from), 0, 2, RPCBIND_PROGRAM, version, procedure, 0, 0, 0, 0];
        let head = head.iter().flat_map(|word| word.to_be_bytes());
        questions.push_back(match kind & 2 {
            0 => (head.chain(octets.iter().copied()).collect(), peer),
            _ => (octets.to_vec(), peer),
        });
    }
    let count = questions.len() as u64;
    let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) };
    let local = SocketAddr::from(([192, 0, 2, 1], 111));
    let endpoint = udp::Endpoint { local, id: 1, allocator: Arc::new(Heap) };
    let socket = Watched { questions, asked: (Vec::new(), local) };
    let router = Arc::new(portmap::router(table(), &env));
    let (handle, driver) = udp::serve(socket, endpoint, router, &env, udp::ServerOptions::default());
    let mut driver = pin!(driver);
    let mut poll = || driver.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    // It reads many questions at a turn, so this is more than enough.
    for _ in 0..=count {
        assert!(!poll(), "it goes on until it is told to end");
    }
    handle.drain();
    assert!(poll(), "nothing is under way");
    let dropped: u64 = handle.dropped().by_reason().iter().map(|(_, count)| count).sum();
    assert!(handle.answered() + dropped <= count, "each is answered or dropped once");
}

fn table() -> Table {
    let all = [
        (100_003, 3, Netid::Tcp, "0.0.0.0:2049"),
        (100_003, 4, Netid::Tcp6, "[::]:2049"),
        (100_003, 3, Netid::Rdma, "192.0.2.1:20049"),
        (100_005, 3, Netid::Tcp, "192.0.2.1:20048"),
        (100_024, 1, Netid::Udp, "0.0.0.0:662"),
    ];
    let entry = |(program, version, netid, address): (u32, u32, Netid, &str)| Entry {
        program,
        version,
        netid,
        address: address.parse().expect("an address"),
    };
    Table::new(all.into_iter().map(entry).collect()).expect("it is small")
}
