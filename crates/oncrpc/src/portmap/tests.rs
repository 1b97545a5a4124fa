//! Each procedure of each version, as whole messages, and by this crate's own client over TCP.

use super::*;
use crate::{
    CallContext, CallHeader, CallId, Connection, GoneSignal, Handler, Limits, Netid, OpaqueAuth, Outcome, Rejection,
    ReplyHeader, TransportKind,
    rpcbind::{RPCBIND_PROGRAM, Registration, Rpcbind},
    tcp::{self, ClientOptions, Connector, Endpoint, Io, ServerOptions},
};
use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_env::{BoxFuture, Clock, Heap, SeededRandom, Timestamp, TokioClock};
use rpcrdma_xdr::{Decoder, Encode, Encoder, Stream};
use std::{io, net::SocketAddr, sync::Mutex, time::Duration};

/// A clock at a known time of day.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }
    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_800_000_000)
    }
}

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn table() -> Table {
    let entry =
        |program, version, netid, address: &str| Entry { program, version, netid, address: address.parse().unwrap() };
    Table::new(vec![
        entry(NFS, 3, Netid::Tcp, "0.0.0.0:2049"),
        entry(NFS, 4, Netid::Tcp, "0.0.0.0:2049"),
        entry(NFS, 4, Netid::Tcp6, "[::]:2050"),
        entry(NFS, 3, Netid::Rdma, "192.0.2.1:20049"),
        entry(MOUNT, 3, Netid::Tcp, "192.0.2.1:20048"),
        entry(MOUNT, 1, Netid::Tcp, "127.0.0.1:20048"),
        entry(100_024, 1, Netid::Udp, "0.0.0.0:662"),
    ])
    .unwrap()
}

struct Asker {
    router: Router,
    kind: TransportKind,
    local: SocketAddr,
}

impl Asker {
    fn new(kind: TransportKind, local: &str) -> Self {
        let env = Env { clock: Arc::new(Noon), random: Arc::new(SeededRandom::new(1)) };
        Self { router: router(table(), &env), kind, local: local.parse().unwrap() }
    }

    fn tcp() -> Self {
        Self::new(TransportKind::Tcp, "192.0.2.1:111")
    }

    fn send(&self, version: u32, procedure: u32, args: &[u8]) -> Outcome {
        let id = CallId { xid: 7, program: RPCBIND_PROGRAM, version, procedure };
        let mut encoder = Encoder::new();
        CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
        encoder.opaque_fixed(args);
        let message = Stream::from(encoder.finish().to_bytes());
        let (peer, limits) = (([192, 0, 2, 7], 700).into(), Limits::new(4096, 4096));
        let (_signal, gone) = GoneSignal::new();
        let connection = Connection::new(peer, self.local, 1, self.kind, limits, Arc::new(Heap), gone);
        let mut outcome = self.router.handle(CallContext::new(Arc::new(connection)), message);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match outcome.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(outcome) => outcome,
            std::task::Poll::Pending => panic!("a portmapper waits for nothing"),
        }
    }

    /// The results of a call.
    fn ask(&self, version: u32, procedure: u32, args: &[u8]) -> Result<Decoder, Rejection> {
        let Outcome::Reply(reply) = self.send(version, procedure, args) else { panic!("no reply") };
        let mut decoder = Decoder::new(Stream::from(reply.to_bytes()));
        ReplyHeader::decode(&mut decoder).unwrap().status.map(|()| decoder)
    }

    fn word(&self, version: u32, procedure: u32, args: &[u8]) -> u32 {
        let mut results = self.ask(version, procedure, args).unwrap();
        let word = results.u32().unwrap();
        results.finish().unwrap();
        word
    }

    fn text(&self, version: u32, procedure: u32, args: &[u8]) -> String {
        let mut results = self.ask(version, procedure, args).unwrap();
        let text = results.opaque(100).unwrap();
        results.finish().unwrap();
        String::from_utf8(text.into()).unwrap()
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn encoded(value: &impl Encode) -> Bytes {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().to_bytes()
}

fn question(program: u32, version: u32, netid: &str) -> Bytes {
    encoded(&Registration { program, version, netid: netid.into(), ..Registration::default() })
}

/// proves: RPC-1833-3.2-a
#[test]
fn version_2_tells_ports_and_zero_for_what_is_not_there() {
    let ports = |asker: &Asker| {
        [(NFS, 3, 6), (NFS, 9, 6), (NFS, 3, 17), (MOUNT, 3, 6), (100_024, 1, 17), (1, 1, 6), (NFS, 3, 99)].map(
            |(program, version, protocol)| {
                asker.word(2, procedure::GETADDR, &words(&[program, version, protocol, 0xffff_ffff]))
            },
        )
    };
    assert_eq!(ports(&Asker::tcp()), [2049, 2049, 0, 20048, 662, 0, 0]);
    assert_eq!(ports(&Asker::new(TransportKind::Udp, "192.0.2.1:111")), [2049, 2049, 0, 20048, 662, 0, 0]);
    // MOUNT does not listen at this address, and a port alone would lead the caller to it.
    assert_eq!(ports(&Asker::new(TransportKind::Tcp, "192.0.2.2:111")), [2049, 2049, 0, 0, 662, 0, 0]);
    // Only version 4 listens on IPv6, and the answer for version 3 is its port.
    assert_eq!(ports(&Asker::new(TransportKind::Tcp, "[2001:db8::1]:111"))[..2], [2050, 2050]);
}

/// proves: RPC-1833-3.2-a
#[test]
fn version_2_lists_what_has_ports() {
    let mut results = Asker::tcp().ask(2, procedure::DUMP, &[]).unwrap();
    let mut listed = Vec::new();
    while results.bool().unwrap() {
        listed.push([0; 4].map(|_: u32| results.u32().unwrap()));
    }
    results.finish().unwrap();
    assert_eq!(listed, [[NFS, 3, 6, 2049], [NFS, 4, 6, 2049], [MOUNT, 3, 6, 20048], [100_024, 1, 17, 662]]);
}

/// proves: RPC-1833-2.2.1-b, RPC-1833-2.2.2-a
#[test]
fn versions_3_and_4_tell_addresses() {
    let asker = Asker::tcp();
    for version in [3, 4] {
        let address =
            |program, wanted, netid| asker.text(version, procedure::GETADDR, &question(program, wanted, netid));
        assert_eq!(address(NFS, 3, "tcp"), "192.0.2.1.8.1", "where it was asked, not everywhere");
        assert_eq!(address(NFS, 3, "rdma"), "192.0.2.1.78.81");
        assert_eq!(address(NFS, 9, "tcp"), "192.0.2.1.8.1", "the newest, which tells its versions");
        assert_eq!(address(NFS, 3, ""), "192.0.2.1.8.1", "the transport of the question");
        assert_eq!(address(NFS, 3, "sctp"), "192.0.2.1.8.1", "the transport of the question");
        assert_eq!(address(NFS, 3, "udp"), "");
        assert_eq!(address(1, 3, "tcp"), "");
        assert_eq!(address(100_024, 1, "udp"), "192.0.2.1.2.150");
    }
    let exactly = |version| asker.text(4, procedure::GETVERSADDR, &question(NFS, version, "tcp"));
    assert_eq!([3, 4, 9].map(exactly), ["192.0.2.1.8.1", "192.0.2.1.8.1", ""]);
    let over_udp = Asker::new(TransportKind::Udp, "192.0.2.9:111");
    assert_eq!(over_udp.text(4, procedure::GETADDR, &question(100_024, 1, "")), "192.0.2.9.2.150");
    assert_eq!(over_udp.text(4, procedure::GETADDR, &question(NFS, 3, "")), "");
    let over_ipv6 = Asker::new(TransportKind::Tcp, "[2001:db8::1]:111");
    assert_eq!(over_ipv6.text(3, procedure::GETADDR, &question(NFS, 4, "tcp6")), "2001:db8::1.8.2");
}

/// proves: RPC-1833-2.2.1-b
#[test]
fn versions_3_and_4_list_everything_that_the_caller_may_reach() {
    for version in [3, 4] {
        let mut results = Asker::tcp().ask(version, procedure::DUMP, &[]).unwrap();
        let mut listed = Vec::new();
        while let Some(Registration { program, version, netid, address, owner }) = results.optional().unwrap() {
            assert_eq!(owner, b"rpcrdma");
            let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
            listed.push(format!("{program} {version} {} {}", text(netid), text(address)));
        }
        results.finish().unwrap();
        let expected = [
            "100003 3 tcp 192.0.2.1.8.1",
            "100003 4 tcp 192.0.2.1.8.1",
            "100003 4 tcp6 ::.8.2",
            "100003 3 rdma 192.0.2.1.78.81",
            "100005 3 tcp 192.0.2.1.78.80",
            "100024 1 udp 192.0.2.1.2.150",
        ];
        assert_eq!(listed, expected);
    }
}

/// proves: RPC-1833-2.2.1-b
#[test]
fn versions_3_and_4_tell_the_time_and_turn_addresses_round() {
    let asker = Asker::tcp();
    for version in [3, 4] {
        assert_eq!(asker.word(version, procedure::GETTIME, &[]), 1_800_000_000);
        for (text, octets) in [("192.0.2.1.8.1", 16), ("2001:db8::1.8.1", 28)] {
            let mut results = asker.ask(version, procedure::UADDR2TADDR, &encoded_text(text)).unwrap();
            assert_eq!(results.u32().unwrap(), octets);
            let address = results.opaque(100).unwrap();
            assert_eq!(address.len(), octets as usize);
            let mut encoder = Encoder::new();
            encoder.u32(octets);
            encoder.opaque(&address);
            let back = asker.text(version, procedure::TADDR2UADDR, &encoder.finish().to_bytes());
            assert_eq!(back, text);
        }
        let mut none = asker.ask(version, procedure::UADDR2TADDR, &encoded_text("nowhere")).unwrap();
        assert_eq!((none.u32(), none.u32()), (Ok(0), Ok(0)));
        assert_eq!(asker.text(version, procedure::TADDR2UADDR, &words(&[4, 4, 0])), "");
    }
}

fn encoded_text(text: &str) -> Bytes {
    let mut encoder = Encoder::new();
    encoder.opaque(text.as_bytes());
    encoder.finish().to_bytes()
}

/// proves: RPC-1833-2.2.2-b
#[test]
fn version_4_lists_the_transports_of_a_program_and_counts_questions() {
    let asker = Asker::tcp();
    let mut results = asker.ask(4, procedure::GETADDRLIST, &question(NFS, 3, "")).unwrap();
    let mut listed = Vec::new();
    while results.bool().unwrap() {
        let mut text = || String::from_utf8(results.opaque(100).unwrap().into()).unwrap();
        let (address, netid) = (text(), text());
        let semantics = results.u32().unwrap();
        let mut text = || String::from_utf8(results.opaque(100).unwrap().into()).unwrap();
        listed.push((address, netid, semantics, text(), text()));
    }
    results.finish().unwrap();
    let entry = |address: &str, netid: &str, protocol: &str| {
        (address.to_owned(), netid.to_owned(), 3, "inet".to_owned(), protocol.to_owned())
    };
    assert_eq!(listed, [entry("192.0.2.1.8.1", "tcp", "tcp"), entry("192.0.2.1.78.81", "rdma", "rdma")]);

    asker.word(2, procedure::GETADDR, &words(&[NFS, 3, 6, 0]));
    asker.text(4, procedure::GETADDR, &question(NFS, 3, "tcp"));
    asker.text(4, procedure::GETADDR, &question(1, 3, "tcp"));
    let mut results = asker.ask(4, procedure::GETSTAT, &[]).unwrap();
    for version in VERSIONS {
        let calls: Vec<_> = (0..13).map(|_| results.u32().unwrap()).collect();
        let expected = match version {
            2 => [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            3 => [0; 13],
            _ => [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1],
        };
        assert_eq!((calls, results.u32(), results.u32()), (expected.to_vec(), Ok(0), Ok(0)), "version {version}");
        if version != 3 {
            assert!(results.bool().unwrap());
            assert_eq!([0; 4].map(|_: u32| results.u32().unwrap()), [NFS, 3, 1, 0]);
            assert_eq!(&results.opaque(10).unwrap()[..], b"tcp");
        }
        assert_eq!((results.bool(), results.bool()), (Ok(false), Ok(false)), "version {version}");
    }
    results.finish().unwrap();
}

/// proves: RPC-1833-2.2.1-c
#[test]
fn nobody_registers_and_nothing_is_called_for_others() {
    let asker = Asker::new(TransportKind::Tcp, "127.0.0.1:111");
    let mapping = words(&[NFS, 3, 6, 4000]);
    let mut registration = Registration { program: 5, version: 1, netid: "tcp".into(), ..Registration::default() };
    registration.address = "127.0.0.1.8.1".into();
    for number in [procedure::SET, procedure::UNSET] {
        assert_eq!(asker.word(2, number, &mapping), 0);
        assert_eq!([3, 4].map(|version| asker.word(version, number, &encoded(&registration))), [0, 0]);
    }
    assert_eq!(asker.word(2, procedure::GETADDR, &words(&[NFS, 3, 6, 0])), 2049);
    assert_eq!(asker.text(4, procedure::GETADDR, &question(5, 1, "tcp")), "");
    let call = words(&[NFS, 3, 0, 0]);
    for (version, number) in
        [(2, procedure::CALLIT), (3, procedure::CALLIT), (4, procedure::CALLIT), (4, procedure::INDIRECT)]
    {
        assert!(matches!(asker.send(version, number, &call), Outcome::Nothing), "version {version}");
    }
}

#[test]
fn what_is_not_there_and_what_is_no_argument_is_told() {
    let asker = Asker::tcp();
    for version in [2, 3, 4] {
        asker.ask(version, 0, &[]).unwrap().finish().unwrap();
        for number in (0..20).filter(|number| *number != procedure::CALLIT && *number != procedure::INDIRECT) {
            let answered = asker.ask(version, number, &[0xff; 3 * 4]);
            let expected = match procedure::name(version, number) {
                Some(_) => Rejection::GarbageArgs,
                None => Rejection::ProcedureUnavailable,
            };
            assert_eq!(answered.err(), Some(expected), "version {version}, procedure {number}");
        }
    }
    assert_eq!(asker.ask(2, 10, &[]).err(), Some(Rejection::ProcedureUnavailable));
    for version in [0, 1, 5, u32::MAX] {
        assert_eq!(asker.ask(version, 3, &[]).err(), Some(Rejection::ProgramMismatch { low: 2, high: 4 }));
    }
}

struct Duplex(Mutex<Option<tokio::io::DuplexStream>>);

impl Connector for Duplex {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        let io = self.0.lock().unwrap().take().ok_or(io::ErrorKind::ConnectionRefused.into());
        Box::pin(std::future::ready(io.map(|io| Box::new(io) as Box<dyn Io>)))
    }
    fn server(&self) -> SocketAddr {
        ([192, 0, 2, 1], 111).into()
    }
}

/// proves: RPC-1833-2.2.1-b
#[tokio::test]
async fn our_own_client_finds_everything() {
    let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) };
    let (near, far) = tokio::io::duplex(4096);
    let local = SocketAddr::from(([192, 0, 2, 1], 111));
    let endpoint = Endpoint { peer: ([192, 0, 2, 7], 700).into(), local, id: 1, allocator: Arc::new(Heap) };
    let router = Arc::new(router(table(), &env));
    let (_, server) = tcp::serve(far, endpoint, router, env.clock.clone(), ServerOptions::default());
    tokio::spawn(server);
    let connector = Arc::new(Duplex(Mutex::new(Some(near))));
    let (transport, client) = tcp::connect(connector, Arc::new(Heap), &env, ClientOptions::default()).await.unwrap();
    tokio::spawn(client);
    let rpcbind = Rpcbind::new(transport);
    let rdma = SocketAddr::from(([192, 0, 2, 1], 20049));
    assert_eq!(rpcbind.address(NFS, 3, Netid::Rdma).await.unwrap(), Some(rdma));
    assert_eq!(rpcbind.address(MOUNT, 3, Netid::Udp).await.unwrap(), None);
    assert_eq!(rpcbind.port(MOUNT, 3).await.unwrap(), Some(20048));
    assert_eq!(rpcbind.registrations().await.unwrap().len(), 6);
    assert!(!rpcbind.set(NFS, 3, Netid::Udp, &rdma, "me").await.unwrap());
    assert!(!rpcbind.unset(NFS, 3, Netid::Rdma, "me").await.unwrap());
    assert_eq!(rpcbind.registrations().await.unwrap().len(), 6);
}

proptest! {
    #[test]
    fn arbitrary_arguments_are_survived(
        version in 0_u32..6,
        number in 0_u32..15,
        args in prop::collection::vec(any::<u8>(), 0..40),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let padded = |octets: Vec<u8>| octets[..octets.len() / 4 * 4].to_vec();
        let _ = Asker::tcp().send(version, number, &padded(args.clone()));
        // A text of some length, so that more is read.
        let text = [words(&[NFS, 3, 4]), b"rdma".to_vec(), padded(rest)].concat();
        let _ = Asker::new(TransportKind::Udp, "[::1]:111").send(version, number, &text);
    }
}
