//! rpcbind's client against a small rpcbind of its own, over record-marked TCP.

use super::*;
use crate::{
    Answer, CallContext, Router, Service,
    tcp::{ClientOptions, Connector, Endpoint, Io, ServerOptions, connect, serve},
};
use proptest::prelude::*;
use rpcrdma_env::{BoxFuture, Env, Heap, SeededRandom, TokioClock};
use rpcrdma_xdr::Stream;
use std::{io, sync::Mutex};

type Table = Arc<Mutex<Vec<Registration>>>;

struct Version(u32, Table);

impl Service for Version {
    fn program(&self) -> u32 {
        RPCBIND_PROGRAM
    }
    fn version(&self) -> u32 {
        self.0
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        !matches!(procedure, SET | UNSET)
    }
    fn call(&self, _: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let mut table = self.1.lock().unwrap();
        let mut encoder = Encoder::new();
        if procedure == DUMP {
            for registration in table.iter() {
                encoder.optional(Some(registration));
            }
            encoder.bool(false);
        } else if self.0 == 2 {
            let words: Vec<_> = (0..4).map_while(|_| args.u32().ok()).collect();
            assert_eq!(words, [100_005, 3, 6, 0]);
            encoder.u32(20048);
        } else {
            let asked = Registration::decode(&mut args).unwrap();
            let same =
                |r: &Registration| (r.program, r.version, &r.netid) == (asked.program, asked.version, &asked.netid);
            let found = table.iter().position(same);
            match procedure {
                GETADDR => encoder.opaque(found.map_or(&[], |at| &table[at].address[..])),
                SET if found.is_none() => {
                    table.push(asked);
                    encoder.bool(true);
                }
                UNSET => encoder.bool(found.map(|at| table.remove(at)).is_some()),
                _ => encoder.bool(false),
            }
        }
        Box::pin(std::future::ready(Answer::Results(encoder.finish())))
    }
}

struct Duplex(Mutex<Option<tokio::io::DuplexStream>>);

impl Connector for Duplex {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        let io = self.0.lock().unwrap().take().ok_or(io::ErrorKind::ConnectionRefused.into());
        Box::pin(std::future::ready(io.map(|io| Box::new(io) as Box<dyn Io>)))
    }
    fn server(&self) -> SocketAddr {
        ([127, 0, 0, 1], RPCBIND_PORT).into()
    }
}

async fn with_rpcbind<T>(versions: &[u32], test: impl AsyncFnOnce(Rpcbind) -> T) -> T {
    let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) };
    let table = Table::default();
    let mut router = Router::new(&env);
    for version in versions {
        router = router.with_service(Arc::new(Version(*version, table.clone())));
    }
    let (near, far) = tokio::io::duplex(4096);
    let address = SocketAddr::from(([127, 0, 0, 1], RPCBIND_PORT));
    let endpoint = Endpoint { peer: address, local: address, id: 1, allocator: Arc::new(Heap) };
    let (_, server) = serve(far, endpoint, Arc::new(router), env.clock.clone(), ServerOptions::default());
    let connector = Arc::new(Duplex(Mutex::new(Some(near))));
    let (transport, client) = connect(connector, Arc::new(Heap), &env, ClientOptions::default()).await.unwrap();
    let test = async move { test(Rpcbind::new(transport)).await };
    let (result, (), ended) = tokio::join!(test, client, server);
    ended.unwrap();
    result
}

/// proves: RPC-1833-2.2.1-a
#[tokio::test]
async fn services_are_set_found_listed_and_unset() {
    for versions in [&[2, 3, 4][..], &[2, 3]] {
        with_rpcbind(versions, async |rpcbind: Rpcbind| {
            let address = SocketAddr::from(([192, 0, 2, 1], 20049));
            assert!(rpcbind.set(100_003, 3, Netid::Rdma, &address, "me").await.unwrap());
            assert!(!rpcbind.set(100_003, 3, Netid::Rdma, &address, "me").await.unwrap());
            assert_eq!(rpcbind.address(100_003, 3, Netid::Rdma).await.unwrap(), Some(address));
            assert_eq!(rpcbind.address(100_003, 3, Netid::Tcp).await.unwrap(), None);
            let all = rpcbind.registrations().await.unwrap();
            assert_eq!((all.len(), &all[0].address[..]), (1, &b"192.0.2.1.78.81"[..]));
            assert!(rpcbind.unset(100_003, 3, Netid::Rdma, "me").await.unwrap());
            assert!(!rpcbind.unset(100_003, 3, Netid::Rdma, "me").await.unwrap());
            assert_eq!(rpcbind.port(100_005, 3).await.unwrap(), Some(20048));
        })
        .await;
    }
}

#[test]
fn a_listing_ends_at_its_limit() {
    let listing = |count| {
        let mut encoder = Encoder::new();
        for _ in 0..count {
            encoder.optional(Some(&Registration::default()));
        }
        encoder.bool(false);
        Listing::decode(&mut Decoder::new(Stream::from(encoder.finish().to_bytes())))
    };
    assert_eq!(listing(MAX_REGISTRATIONS).map(|Listing(all)| all.len()), Ok(MAX_REGISTRATIONS));
    assert!(matches!(listing(MAX_REGISTRATIONS + 1), Err(DecodeError::TooLong { .. })));
}

#[test]
fn there_is_room_for_the_largest_registrations() {
    let longest = || vec![b'x'; MAX_STRING_BYTES];
    let largest = Registration { program: 1, version: 2, netid: longest(), address: longest(), owner: longest() };
    let mut encoder = Encoder::new();
    largest.encode(&mut encoder);
    let octets = encoder.finish().to_bytes();
    assert_eq!(octets.len(), MAX_REGISTRATION_BYTES);
    assert_eq!(Registration::decode(&mut Decoder::new(Stream::from(octets))), Ok(largest));
}

proptest! {
    #[test]
    fn arbitrary_listings_are_survived(mut octets in prop::collection::vec(any::<u8>(), 0..300)) {
        if octets.len() > 3 {
            octets[..4].copy_from_slice(&[0, 0, 0, 1]);
        }
        let _ = Listing::decode(&mut Decoder::new(Stream::from(bytes::Bytes::from(octets))));
    }
}
