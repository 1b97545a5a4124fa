//! The forms of messages of version 1, and how they look on the wire.

mod common;

use bytes::Bytes;
use common::{Log, bulk, bytes, client, finish_read, read, router, start_read, store, write};
use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::{
    Buffer, Completion, ConnectionParams, Fabric, Lent, Listener, ReadWork, Receives, RemoteSegment, SendWork, Token,
};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::Client;
use rpcrdma_sim::{SimConfig, World};
use rpcrdma_transport::{
    ClientOptions, Event, MessageKind, Sent, Server, ServerMemory, ServerOptions, Versions, connect,
};
use rpcrdma_wire::v1::{Body, Header, Lists};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
/// The inline threshold of both ends.
const INLINE: usize = 8192;
/// Far more than fits inline.
const LARGE: usize = 70_000;

/// A client and a server of version 1 with these credits, and the logs of both. The server can expose no memory at all.
async fn both(world: &World, wanted: u32, granted: u32) -> (Client, Arc<Log>, Arc<Log>) {
    let config = SimConfig::default().with_capabilities(|capabilities| capabilities.max_exposures = 0);
    let fabric = world.fabric_with(SERVER, config);
    let env = world.env();
    let mut options = ServerOptions::default();
    (options.versions, options.credits) = (Versions::One, granted);
    let served = Arc::new(Log::default());
    let memory = ServerMemory::budget(16 << 20);
    let server = Server::new(&fabric, router(&env, &store(&env)), memory, env.clone(), options, served.clone());
    common::serve_at(world, Arc::new(fabric), ADDRESS, server);
    world.sleep(Duration::from_millis(1)).await;
    let mut options = ClientOptions::default();
    (options.versions, options.credits) = (Versions::One, wanted);
    let log = Arc::new(Log::default());
    let fabric = Arc::new(world.fabric(CLIENT));
    let (transport, driver) = connect(fabric, ADDRESS, &env, options, log.clone()).await.unwrap();
    world.spawn(driver);
    (client(transport), log, served)
}

/// The last sent message of this kind.
fn last(log: &Log, kind: MessageKind) -> Sent {
    let all = log.0.lock().unwrap();
    let sent = all.iter().rev().find_map(|event| match event {
        Event::Sent(sent) if sent.kind == kind => Some(*sent),
        _ => None,
    });
    sent.expect("one was sent")
}

/// Read chunks, Write chunks, and whether there is a Reply chunk.
fn chunks(sent: &Sent) -> (u32, u32, bool) {
    (sent.read_chunks, sent.write_chunks, sent.reply_chunk)
}

/// proves: V1-3.5.1-a, V1-3.5.2-a, V1-3.5.3-a, V1-3.5.3-d, V1-3.5.3-f, V1-3.5.3-g, V1-3.1-a
#[test]
fn each_message_takes_the_form_that_is_due() {
    let world = World::new(1);
    world.block_on(async {
        let (client, log, served) = both(&world, 8, 8).await;
        client.null().await.unwrap();
        let pair = || (last(&log, MessageKind::Call), last(&served, MessageKind::Reply));
        // Short: one Send each, and no other RDMA operation.
        bulk(&client, 900).await;
        let (call, reply) = pair();
        assert_eq!((chunks(&call), chunks(&reply)), ((0, 0, false), (0, 0, false)));
        assert_eq!((call.placed_bytes, reply.placed_bytes), (0, 0));
        // An argument and a result that may be placed: the rest stays inline.
        write(&client, LARGE, 1).await;
        let (call, reply) = pair();
        assert_eq!((chunks(&call), call.placed_bytes), ((1, 0, false), LARGE as u64));
        assert_eq!((chunks(&reply), reply.placed_bytes), ((0, 0, false), 0));
        read(&client, LARGE, 2).await;
        let (call, reply) = pair();
        assert_eq!((chunks(&call), call.placed_bytes), ((0, 1, false), 0), "what is left of the reply fits");
        assert_eq!((chunks(&reply), reply.placed_bytes), ((0, 1, false), LARGE as u64));
        // Too long, without an item that may be placed: the call goes in one chunk, and the reply in a Reply chunk.
        bulk(&client, LARGE).await;
        let (call, reply) = pair();
        assert_eq!(chunks(&call), (1, 0, true));
        assert_eq!(chunks(&reply), (0, 0, true));
        let whole = LARGE as u64 + 4;
        assert_eq!((call.placed_bytes, reply.placed_bytes), (whole + 40, whole + 24), "with the headers of RPC");
        assert!(call.inline_bytes < 200 && reply.inline_bytes < 200, "and nothing of it inline");
        // Messages at the threshold, and one word longer.
        let mut forms = Vec::new();
        for len in (INLINE - 128..INLINE + 4).step_by(4) {
            bulk(&client, len).await;
            let (call, reply) = pair();
            for sent in [&call, &reply] {
                assert!(sent.inline_bytes <= INLINE, "{sent:?}");
                // Short if it fits: 28 bytes of header without chunks, and the stream.
                let stream = if sent.kind == MessageKind::Call { 40 } else { 24 } + 4 + len;
                let lists = if call.reply_chunk { 4 + 16 } else { 0 };
                assert!(sent.placed_bytes == 0 || 28 + lists + stream > INLINE, "{len}: {sent:?}");
            }
            forms.push((call.placed_bytes > 0, reply.placed_bytes > 0));
        }
        assert_eq!(forms.first(), Some(&(false, false)));
        assert_eq!(forms.last(), Some(&(true, true)));
        assert!(forms.is_sorted(), "once for good");
        assert_eq!(served.count(|event| matches!(event, Event::Invalidated { .. })), 0, "the server exposes nothing");
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
    });
}

/// proves: V1-3.3.1-e, V1-3.3.1-c, V1-8.1.4-b
#[test]
fn as_many_calls_are_under_way_as_both_ends_want() {
    for (wanted, granted) in [(8, 3), (3, 8), (5, 5), (1, 8), (8, 1)] {
        let world = World::new(2);
        world.block_on(async {
            let (client, log, served) = both(&world, wanted, granted).await;
            client.null().await.unwrap();
            let calls: Vec<_> = (0..40).map(|k| start_read(&client, 100, k, Duration::from_millis(1))).collect();
            for (k, call) in (0..).zip(calls) {
                finish_read(call, 100, k).await.unwrap();
            }
            let (mut under_way, mut most) = (0, 0);
            for event in served.0.lock().unwrap().iter() {
                match event {
                    Event::Called { .. } => under_way += 1,
                    Event::Sent(sent) if sent.kind == MessageKind::Reply => under_way -= 1,
                    _ => {}
                }
                most = most.max(under_way);
            }
            // If there are several credits, one is kept for a probe.
            let allowed = wanted.min(granted);
            assert_eq!(most, (allowed - 1).max(1), "{wanted} wanted, {granted} granted");
            assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
        });
    }
}

fn params() -> ConnectionParams {
    let receives = (0..16).map(|_| Buffer::from_vec(vec![0; INLINE])).collect();
    ConnectionParams { private_data: Bytes::new(), ird: 4, ord: 4, receives: Receives::Own(receives) }
}

/// Receives two calls of a client, a short and a long one, and looks at their bytes.
async fn look_at_calls(mut listener: Box<dyn Listener>) {
    let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let mut qp = pending.request().await.unwrap().accept(params()).await.unwrap();
    let mut looked_at = 0;
    while looked_at < 2 {
        let Completion::Received { buffer, .. } = poll_fn(|cx| qp.poll(cx)).await else { continue };
        let (header, len) = Header::decode(buffer.filled()).unwrap();
        let mut stream = buffer.filled()[len..].to_vec();
        if let Body::Nomsg(lists) = &header.body {
            assert!(stream.is_empty());
            let from = lists.reads.0.iter().map(|read| &read.segment);
            let sources: Vec<_> =
                from.map(|at| RemoteSegment { handle: at.handle, length: at.length, offset: at.offset }).collect();
            let octets = sources.iter().map(|source| source.length as usize).sum();
            qp.post_read(ReadWork { token: Token(1), sink: Buffer::from_vec(vec![0; octets]), sources }).unwrap();
            stream = loop {
                if let Completion::Read { sink, .. } = poll_fn(|cx| qp.poll(cx)).await {
                    break sink.filled().to_vec();
                }
            };
        }
        // The message begins with its XID, which is also in the header; there is no record mark before it.
        assert_eq!(stream[..4], header.xid.to_be_bytes());
        assert_eq!(stream[4..16], bytes(&[0, 2, common::PROGRAM])[..], "a call, RPC version 2, the program");
        let reply = Header::new(header.xid, 8, Body::Msg(Lists::default())).to_bytes();
        let results = if looked_at == 0 { bytes(&[header.xid, 1, 0, 0, 0, 0]) } else { Bytes::new() };
        if !results.is_empty() {
            qp.post_send(SendWork { octets: vec![reply, results].into(), ..SendWork::default() }).unwrap();
        }
        looked_at += 1;
    }
}

async fn calls_are_headers_and_messages(fabric: Arc<dyn Fabric>, there: &dyn Fabric, at: SocketAddr, env: &Env) {
    let listener = there.listen(at).await.unwrap();
    let address = listener.local_addr();
    let mut options = ClientOptions::default();
    options.versions = Versions::One;
    let client = async {
        let (transport, driver) = connect(fabric, address, env, options, Arc::new(Log::default())).await.unwrap();
        let calls = async {
            let client = client(transport);
            client.null().await.unwrap();
            bulk(&client, LARGE).await;
        };
        futures_util::future::join(driver, calls).await
    };
    let looking = std::pin::pin!(look_at_calls(listener));
    futures_util::future::select(looking, std::pin::pin!(client)).await;
}

/// Makes hand-made calls and looks at the bytes of the replies: short, and by Reply chunk.
async fn replies_are_headers_and_messages(fabric: &dyn Fabric, address: SocketAddr) {
    let mut qp = fabric.connect(address, params()).await.unwrap();
    let lent = qp.expose(Token(1), Lent::Sink(Buffer::from_vec(vec![0; 20_000]))).unwrap();
    for (xid, len) in [(5u32, 100u32), (6, 9000)] {
        let mut lists = Lists::default();
        if len > 4000 {
            let segment = rpcrdma_wire::v1::Segment { handle: lent.handle, length: lent.length, offset: lent.offset };
            lists.reply = Some(rpcrdma_wire::v1::WriteChunk(vec![segment].into()));
        }
        let header = Header::new(xid, 8, Body::Msg(lists)).to_bytes();
        let call = bytes(&[xid, 0, 2, common::PROGRAM, 1, common::READ, 0, 0, 0, 0, 0, 0, len, 7]);
        qp.post_send(SendWork { octets: vec![header, call].into(), ..SendWork::default() }).unwrap();
        let mut fenced = None;
        let message = loop {
            match poll_fn(|cx| qp.poll(cx)).await {
                Completion::Received { buffer, .. } => break buffer.filled().to_vec(),
                Completion::Fenced { memory: Lent::Sink(mut buffer), .. } => fenced = Some(buffer.bytes_mut().to_vec()),
                Completion::Closed { reason } => panic!("{reason:?}"),
                _ => {}
            }
        };
        let (header, header_bytes) = Header::decode(&message).unwrap();
        let mut stream = message[header_bytes..].to_vec();
        assert_eq!(header.xid, xid);
        if let Body::Nomsg(_) = header.body {
            assert!(stream.is_empty() && len > 4000);
            if fenced.is_none() {
                qp.invalidate(lent.handle);
            }
            stream = loop {
                if let Some(octets) = fenced.take() {
                    break octets;
                }
                if let Completion::Fenced { memory: Lent::Sink(mut buffer), .. } = poll_fn(|cx| qp.poll(cx)).await {
                    fenced = Some(buffer.bytes_mut().to_vec());
                }
            };
        } else {
            assert!(len < 4000);
        }
        // A reply, accepted, with an empty verifier and success; then the results.
        assert_eq!(stream[..32], bytes(&[xid, 1, 0, 0, 0, 0, 7, len])[..]);
    }
}

/// The same on each provider: a header, then the message from its XID, and nothing between them.
/// proves: V1-3.2-a, V1-3.2-b
#[tokio::test]
async fn what_is_sent_is_a_header_and_a_message() {
    let env = tokio_env().unwrap();
    let iwarp = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let calls = calls_are_headers_and_messages(iwarp.clone(), &*iwarp, "127.0.0.1:0".parse().unwrap(), &env);
    tokio::time::timeout(Duration::from_secs(30), calls).await.expect("done in time");
    let mut options = ServerOptions::default();
    options.versions = Versions::One;
    let memory = ServerMemory::budget(1 << 20);
    let log = Arc::new(Log::default());
    let server = Server::new(&*iwarp, router(&env, &store(&env)), memory, env.clone(), options, log);
    let mut listener = iwarp.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let (_, driver) = server.accept(pending).await.unwrap();
        let _ = driver.await;
    });
    let replies = replies_are_headers_and_messages(&*iwarp, address);
    tokio::time::timeout(Duration::from_secs(30), replies).await.expect("done in time");

    let world = World::new(3);
    world.block_on(async {
        let (here, there) = (Arc::new(world.fabric(CLIENT)), world.fabric(SERVER));
        calls_are_headers_and_messages(here, &there, ADDRESS, &world.env()).await;
    });
    let world = World::new(4);
    world.block_on(async {
        let _serving = both(&world, 1, 8).await;
        replies_are_headers_and_messages(&world.fabric(CLIENT), ADDRESS).await;
    });
}
