//! Credential flavours with large credentials and verifiers, which may protect whole bodies, as RPCSEC_GSS does. The
//! flavour here has the shape of RPCSEC_GSS, but no cryptography.

mod common;

use bytes::Bytes;
use common::{Log, bulk, finish_read, read, start_read, store, write};
use rpcrdma_oncrpc::{
    Accepted, AuthStat, CallError, CallHeader, CallId, Client, ClientFlavour, ClientTransport, Credential, OpaqueAuth,
    Protected, ReplyFlavour, Router, ServerFlavour, Unanswered, Verdict, Wrapped,
};
use rpcrdma_sim::World;
use rpcrdma_transport::{ClientOptions, Event, MessageKind, Server, ServerMemory, ServerOptions, Versions, connect};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

/// The flavour's number, which no real flavour has.
const NUMBER: u32 = 0x3000_0001;
/// The largest size of a credential.
const CREDENTIAL_BYTES: usize = 400;
/// A verifier that takes a good part of a small reply.
const VERIFIER_BYTES: usize = 396;

/// What the flavour does to bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// Nothing: only the caller is known.
    Authentication,
    /// Adds a checksum, and masks the body.
    Privacy,
    /// The same, but the server sends a wrong checksum.
    Broken,
}

#[derive(Clone, Copy, Debug)]
struct Sealed(Service);

fn auth(octets: usize) -> OpaqueAuth {
    OpaqueAuth { flavour: NUMBER, body: vec![0xC5; octets].into() }
}

fn sum(octets: &[u8]) -> u32 {
    octets.iter().fold(octets.len() as u32, |sum, octet| sum.rotate_left(5) ^ u32::from(*octet))
}

fn masked(octets: &[u8]) -> Bytes {
    octets.iter().map(|octet| octet ^ 0x5A).collect()
}

impl Sealed {
    fn seal(self, body: Payload, broken: bool) -> Payload {
        if self.0 == Service::Authentication {
            return body;
        }
        let body = body.without_placement().to_bytes();
        let mut sealed = Encoder::new();
        sealed.u32(sum(&body) ^ u32::from(broken));
        sealed.opaque_shared(masked(&body));
        sealed.finish()
    }

    fn open(self, mut body: Decoder) -> Result<Decoder, AuthStat> {
        if self.0 == Service::Authentication {
            return Ok(body);
        }
        let bad = |_| AuthStat::BAD_VERIFIER;
        let expected = body.u32().map_err(bad)?;
        let octets = masked(&body.opaque(4 << 20).map_err(bad)?);
        body.finish().map_err(bad)?;
        if sum(&octets) != expected {
            return Err(AuthStat::BAD_VERIFIER);
        }
        Ok(Decoder::new(Stream::from(octets)))
    }
}

impl ClientFlavour for Sealed {
    fn max_credential(&self) -> usize {
        CREDENTIAL_BYTES
    }
    fn max_verifier(&self) -> usize {
        VERIFIER_BYTES
    }
    fn max_expansion(&self) -> usize {
        if self.0 == Service::Authentication { 0 } else { 12 }
    }
    fn protects_bodies(&self) -> bool {
        self.0 != Service::Authentication
    }
    fn wrap(&self, _: &CallId, args: Payload, _: &Arc<dyn ClientTransport>) -> Wrapped {
        let (credential, verifier) = (auth(CREDENTIAL_BYTES), auth(VERIFIER_BYTES));
        Wrapped::Plain(Protected { credential, verifier, body: self.seal(args, false) })
    }
    fn unwrap(&self, _: &CallId, verifier: &OpaqueAuth, results: Decoder) -> Result<Decoder, AuthStat> {
        assert_eq!(*verifier, auth(VERIFIER_BYTES));
        self.open(results)
    }
}

impl ServerFlavour for Sealed {
    fn number(&self) -> u32 {
        NUMBER
    }
    fn accept(&self, _: SocketAddr, call: &CallHeader, args: Decoder) -> Verdict {
        assert_eq!(call.credential, auth(CREDENTIAL_BYTES));
        let reply: Option<Box<dyn ReplyFlavour>> = Some(Box::new(*self));
        self.open(args).map(|args| Accepted { reply, ..Accepted::plain(Credential::None, args) }).into()
    }
}

impl ReplyFlavour for Sealed {
    fn wrap(&self, results: Option<Payload>) -> Result<(OpaqueAuth, Payload), Unanswered> {
        let results = results.map(|results| self.seal(results, self.0 == Service::Broken));
        Ok((auth(VERIFIER_BYTES), results.unwrap_or_default()))
    }
}

/// A client and a server with one service, and the logs of both.
async fn both(world: &World, versions: Versions, service: Service) -> (Client, Arc<Log>, Arc<Log>) {
    let fabric = world.fabric(SERVER);
    let env = world.env();
    let router = Router::new(&env).with_service(store(&env)).with_flavour(Arc::new(Sealed(service)));
    let mut options = ServerOptions::default();
    options.versions = versions;
    let served = Arc::new(Log::default());
    let memory = ServerMemory::budget(16 << 20);
    let server = Server::new(&fabric, Arc::new(router), memory, env.clone(), options, served.clone());
    common::serve_at(world, Arc::new(fabric), ADDRESS, server);
    world.sleep(Duration::from_millis(1)).await;
    let mut options = ClientOptions::default();
    options.versions = versions;
    let log = Arc::new(Log::default());
    let (transport, driver) =
        connect(Arc::new(world.fabric(CLIENT)), ADDRESS, &env, options, log.clone()).await.unwrap();
    world.spawn(driver);
    let client = Client::new(transport, Arc::new(Sealed(service)), common::PROGRAM, 1);
    client.null().await.unwrap_or_else(|error| assert_eq!(service, Service::Broken, "{error}"));
    (client, log, served)
}

/// Sizes of items about as large as fits a message, and far larger ones.
const SIZES: [usize; 8] = [0, 100, 5600, 6400, 7200, 8192, 70_001, 1 << 20];

/// proves: V1-8.2.2.2-a, V2-11.2.2.2-a
#[test]
fn authentication_alone_leaves_what_may_be_placed() {
    for versions in [Versions::One, Versions::Two] {
        let world = World::new(1);
        world.block_on(async {
            let (client, log, served) = both(&world, versions, Service::Authentication).await;
            for len in SIZES {
                assert!(read(&client, len, 5).await || len < 8192, "{len} bytes are placed");
                write(&client, len, 6).await;
            }
            let placed = |log: &Log, kind| {
                log.count(
                    |event| matches!(event, Event::Sent(sent) if sent.kind == kind && sent.placed_bytes >= 1 << 20),
                )
            };
            // The items go by Read chunk and by Write chunk; the rest needs no Reply chunk.
            assert_eq!((placed(&log, MessageKind::Call), placed(&served, MessageKind::Reply)), (1, 1));
            assert_eq!(log.count(|event| matches!(event, Event::Sent(sent) if sent.reply_chunk)), 0);
        });
    }
}

/// The verifier makes the header of a reply longer. The caller must count it to decide whether the reply needs a Reply
/// chunk.
/// proves: V1-8.2.2.2-b, V2-11.2.2.2-b
#[test]
fn sizes_allow_for_credential_and_verifier() {
    for versions in [Versions::One, Versions::Two] {
        let world = World::new(2);
        world.block_on(async {
            let (client, log, served) = both(&world, versions, Service::Authentication).await;
            for len in (7600..8200).step_by(4) {
                bulk(&client, len).await;
            }
            bulk(&client, 300_000).await;
            let error = |event: &Event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Error);
            assert_eq!((served.count(error), log.count(|event| matches!(event, Event::Failed { .. }))), (0, 0));
            // The last reply: all of it is in its Reply chunk.
            let placed = |event: &Event| match event {
                Event::Answered { placed_bytes, .. } => Some(*placed_bytes).filter(|octets| *octets > 100_000),
                _ => None,
            };
            assert_eq!(log.find(placed), Some(24 + VERIFIER_BYTES + 4 + 300_000));
        });
    }
}

/// proves: V1-8.2.2-a, V2-11.2.2-a, V1-8.2.2.3-a, V1-8.2.2.3-b, V2-11.2.2.3-a, V2-11.2.2.3-b, V2-11.2.2.3-c
/// proves: V1-8.2.2.3-c
#[test]
fn protected_bodies_and_headers_are_never_reduced() {
    for versions in [Versions::One, Versions::Two] {
        let world = World::new(3);
        world.block_on(async {
            let (client, log, served) = both(&world, versions, Service::Privacy).await;
            for len in SIZES {
                assert!(!read(&client, len, 5).await, "{len}: nothing is placed by itself");
                write(&client, len, 6).await;
                bulk(&client, len.min(1 << 19)).await;
            }
            for event in log.0.lock().unwrap().iter() {
                let Event::Sent(sent) = event else { continue };
                assert_eq!(sent.write_chunks, 0, "{sent:?}");
                assert!(sent.read_chunks <= 1, "the Position Zero chunk at most: {sent:?}");
                // A chunk always holds the whole message, with its header.
                let whole = sent.placed_bytes == 0 || sent.inline_bytes < 200;
                assert!(sent.kind != MessageKind::Call || whole, "{sent:?}");
            }
            // In version 1 the header of a long call with a long reply has both chunks.
            let both = |event: &Event| matches!(event, Event::Sent(sent) if sent.read_chunks == 1 && sent.reply_chunk);
            assert!(versions == Versions::Two || log.count(both) > 0);
            // Large bodies travel by RDMA all the same, and the receiver then unwraps them.
            let by_rdma = |event: &Event| matches!(event, Event::Sent(sent) if sent.placed_bytes > 1 << 20);
            assert!(log.count(by_rdma) == 1 && served.count(by_rdma) >= 1);
        });
    }
}

/// proves: V2-11.2.2.3-d
#[test]
fn results_that_do_not_verify_reach_nobody() {
    for versions in [Versions::One, Versions::Two] {
        let world = World::new(4);
        world.block_on(async {
            let (client, log, _) = both(&world, versions, Service::Broken).await;
            for len in [100, 70_000] {
                let call = start_read(&client, len, 7, Duration::ZERO);
                let error = finish_read(call, len, 7).await.unwrap_err();
                assert!(matches!(error, CallError::BadVerifier(AuthStat::BAD_VERIFIER)), "{error}");
            }
            // The bytes have come, but not into the memory that the caller lent.
            assert_eq!(log.count(|event| matches!(event, Event::Sent(sent) if sent.write_chunks > 0)), 0);
        });
    }
}
