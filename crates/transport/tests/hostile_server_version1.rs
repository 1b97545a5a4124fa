//! Servers that abuse version 1: each call of a client ends or goes to the next connection, and the client's memory
//! comes back.

mod common;

use bytes::Bytes;
use common::{End, Log, PROGRAM, READ, bytes, finish_read, pattern, script, serve_after, start_read};
use rpcrdma_env::Random;
use rpcrdma_fabric::WriteWork;
use rpcrdma_oncrpc::{Client, ItemRoom, ReplyShape};
use rpcrdma_sim::World;
use rpcrdma_transport::{ClientOptions, Event, MessageKind, Versions};
use rpcrdma_wire::v1::{Body, ErrorBody, Header, Lists, Segment, WriteChunk, WriteList};
use rpcrdma_xdr::Encoder;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 20049);

/// The server's end of a connection, which sends what a test orders.
struct Foe(End);

impl From<End> for Foe {
    fn from(end: End) -> Self {
        Self(end)
    }
}

impl Foe {
    /// The next arrived message that decodes.
    fn heard(&mut self) -> Option<(Header, Bytes)> {
        while let Some(message) = self.0.next() {
            if let Ok((header, at)) = Header::decode(&message) {
                return Some((header, message.slice(at..)));
            }
        }
        None
    }

    /// The next call, or `None` when the connection ends first.
    async fn call(&mut self) -> Option<(Header, Bytes)> {
        loop {
            if let Some(call) = self.heard() {
                return Some(call);
            }
            if self.0.closed {
                return None;
            }
            self.0.wait().await;
        }
    }

    async fn post(&mut self, octets: Vec<Bytes>, invalidate: Option<u32>) {
        self.0.post(octets, invalidate);
        // A queue pair sends nothing until it is polled.
        self.0.look().await;
    }

    async fn write(&mut self, to: &Segment, octets: Vec<u8>) {
        let (handle, offset) = (to.handle, to.offset);
        let _ = self.0.qp.post_write(WriteWork {
            octets: vec![octets.into()].into(),
            handle,
            offset,
            ..WriteWork::default()
        });
        self.0.look().await;
    }
}

async fn connected(world: &World) -> (Client, Arc<Log>) {
    world.sleep(Duration::from_millis(1)).await;
    let mut options = ClientOptions::default();
    options.versions = Versions::One;
    common::connected(world, CLIENT, ADDRESS, options).await
}

fn is_null(call: &Bytes) -> bool {
    call.get(20..24) == Some(&[0; 4])
}

fn accepted(xid: u32, results: &[u32]) -> Bytes {
    bytes(&[&[xid, 1, 0, 0, 0, 0], results].concat())
}

fn first_sink(header: &Header) -> Option<Segment> {
    header.body.lists()?.writes.chunks().first()?.segments().first().copied()
}

/// A random message about a call, seldom correct.
fn nonsense(random: &dyn Random, xid: u32, offered: &Lists) -> Vec<u8> {
    let filled = |chunk: &WriteChunk| chunk.filled(random.below(chunk.len() + 1));
    let writes = || WriteList(offered.writes.chunks().iter().filter_map(filled).collect());
    let reply = || offered.reply.as_ref().and_then(filled);
    let (body, payload) = match random.below(9) {
        0 => (Body::Msg(Lists { writes: writes(), ..Lists::default() }), accepted(xid, &[random.next_u32(), 900])),
        1 => (Body::Msg(Lists { writes: writes(), reply: reply(), ..Lists::default() }), accepted(xid, &[])),
        2 => (Body::Nomsg(Lists { writes: writes(), reply: reply(), ..Lists::default() }), Bytes::new()),
        3 => (Body::Msg(Lists::default()), accepted(xid, &[random.next_u32(), 3, 0])),
        4 => (Body::Error(ErrorBody::Chunk), Bytes::new()),
        5 => {
            (Body::Error(ErrorBody::Version { low: random.next_u32() % 4, high: random.next_u32() % 4 }), Bytes::new())
        }
        6 => (Body::Done, Bytes::new()),
        7 => (Body::Msg(Lists::default()), bytes(&[xid, 0, 2, PROGRAM, 1, 0, 0, 0, 0, 0])),
        _ => (Body::Msg(offered.clone()), accepted(xid, &[])),
    };
    let credit = if random.below(4) == 0 { random.next_u32() } else { random.below(9) as u32 };
    let mut octets = [Header::new(xid, credit, body).to_bytes(), payload].concat();
    for _ in 0..random.below(3) {
        let at = random.below(octets.len() as u64) as usize;
        octets[at] = random.next_u32() as u8;
    }
    octets
}

/// Random messages from the server on a few connections, with Writes and invalidations; then an honest connection.
/// Every call ends.
#[test]
fn noise_from_a_server_delays_calls_and_no_more() {
    for seed in 0..40 {
        let world = World::new(seed);
        world.block_on(async {
            let noise = script(|world, mut foe: Foe| async move {
                let random = world.env().random;
                let mut about = Header::new(7, 8, Body::Msg(Lists::default()));
                for _ in 0..random.below(60) {
                    foe.0.look().await;
                    // Often about a call of the client.
                    if random.below(2) == 0
                        && let Some((call, _)) = foe.heard()
                    {
                        about = call;
                    }
                    let offered = about.body.lists().cloned().unwrap_or_default();
                    let sink = first_sink(&about);
                    if random.below(4) == 0
                        && let Some(sink) = &sink
                    {
                        // At times more than there is room for.
                        let octets = random.below(u64::from(sink.length) * 9 / 8) as usize;
                        foe.write(sink, vec![0xBA; octets]).await;
                    }
                    let invalidate = sink.filter(|_| random.below(6) == 0).map(|sink| sink.handle);
                    foe.post(vec![nonsense(&*random, about.xid, &offered).into()], invalidate).await;
                    world.sleep(Duration::from_micros(random.below(300))).await;
                }
                foe.0.qp.disconnect();
                foe.0.ends().await;
            });
            let _served = serve_after(&world, ADDRESS, Versions::One, 4, noise);
            let (client, _) = connected(&world).await;
            let begun = world.now();
            let mut tasks = Vec::new();
            for k in 0..20u32 {
                let client = client.clone();
                tasks.push(world.spawn(async move {
                    // Such a server may answer wrongly: only the end of each call counts.
                    let mut args = Encoder::new();
                    let (procedure, max_len) = if k % 2 == 0 {
                        args.u64(0);
                        args.u32(900 * k);
                        args.u32(k);
                        (READ, 30_000)
                    } else {
                        args.opaque(&pattern(k as usize * 900, k));
                        (common::BULK, 20_000)
                    };
                    let shape = ReplyShape { max_len, items: vec![ItemRoom::new(9000)].into() };
                    let _ = client.call_repeatable(procedure, args.finish(), shape).await;
                }));
            }
            for task in tasks {
                task.await;
            }
            assert!(world.now().since(begun) < Duration::from_secs(1000), "seed {seed}: {:?}", world.now());
            // Whatever noise remains, sooner or later a call succeeds.
            while client.null().await.is_err() {
                world.sleep(Duration::from_millis(100)).await;
                assert!(world.now().since(begun) < Duration::from_secs(1000), "seed {seed}");
            }
            drop(client);
            world.sleep(Duration::from_secs(200)).await;
            assert_eq!(world.open_ends(), 0, "seed {seed}");
        });
    }
}

/// A server that shows that it is alive, but does not answer: its client waits, and can give up at any time.
#[test]
fn a_call_that_a_live_server_does_not_answer_is_waited_for_until_it_is_taken_back() {
    let world = World::new(1);
    world.block_on(async {
        let mute = script(|_, mut foe: Foe| async move {
            while let Some((header, call)) = foe.call().await {
                if is_null(&call) {
                    let reply = Header::new(header.xid, 8, Body::Msg(Lists::default())).to_bytes();
                    foe.post(vec![reply, accepted(header.xid, &[])], None).await;
                }
            }
        });
        let _served = serve_after(&world, ADDRESS, Versions::One, 1, mute);
        let (client, log) = connected(&world).await;
        client.null().await.unwrap();
        let call = start_read(&client, 100_000, 1, Duration::ZERO);
        world.sleep(Duration::from_secs(3600)).await;
        let probes = log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Probe));
        assert!((170..=180).contains(&probes), "{probes}");
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. } | Event::Failed { .. })), 0);
        let given_up = world.now();
        assert_eq!(call.cancel().await.buffers.len(), 1, "its memory is there");
        assert!(world.now().since(given_up) < Duration::from_millis(1), "at once");
        client.null().await.unwrap();
    });
}

/// A server that, with one reply, invalidates the memory of another call: when it then writes there, it loses the
/// connection, and the other call goes to the next connection.
#[test]
fn a_handle_of_another_call_is_the_servers_own_loss() {
    const LEN: usize = 9000;
    let world = World::new(2);
    world.block_on(async {
        let confused = script(|_, mut foe: Foe| async move {
            let mut calls = Vec::new();
            while calls.len() < 2 {
                let Some((header, call)) = foe.call().await else { return };
                if is_null(&call) {
                    let reply = Header::new(header.xid, 8, Body::Msg(Lists::default())).to_bytes();
                    foe.post(vec![reply, accepted(header.xid, &[])], None).await;
                } else {
                    calls.push(header);
                }
            }
            let [first, second] = [&calls[0], &calls[1]].map(|call| first_sink(call).unwrap());
            foe.write(&first, pattern(LEN, 1)).await;
            let chunk = calls[0].body.lists().unwrap().writes.chunks()[0].filled(LEN as u64);
            let lists = Lists { writes: WriteList(chunk.into_iter().collect()), ..Lists::default() };
            let reply = Header::new(calls[0].xid, 8, Body::Msg(lists)).to_bytes();
            foe.post(vec![reply, accepted(calls[0].xid, &[1, LEN as u32, 1])], Some(second.handle)).await;
            foe.write(&second, vec![0xBA; LEN]).await;
            foe.0.ends().await;
        });
        let _served = serve_after(&world, ADDRESS, Versions::One, 1, confused);
        let (client, log) = connected(&world).await;
        client.null().await.unwrap();
        let first = start_read(&client, LEN, 1, Duration::ZERO);
        let second = start_read(&client, LEN, 2, Duration::ZERO);
        assert_eq!(finish_read(first, LEN, 1).await.unwrap(), (true, false));
        assert_eq!(finish_read(second, LEN, 2).await.unwrap(), (true, true), "from the next connection");
        assert_eq!(log.count(|event| matches!(event, Event::Closed { error: Some(_) })), 1);
        assert_eq!(log.count(|event| matches!(event, Event::Invalidated { by_peer: true, .. })), 2);
    });
}

/// A server that sends a message on each connection and ends it: the pauses grow as if it had sent nothing.
#[test]
fn a_server_that_ends_each_connection_does_not_make_the_client_hurry() {
    let world = World::new(9);
    world.block_on(async {
        let leaving = script(|_, mut foe: Foe| async move {
            let Some((header, _)) = foe.call().await else { return };
            let other = header.xid.wrapping_add(1000);
            let reply = Header::new(other, 8, Body::Msg(Lists::default())).to_bytes();
            foe.post(vec![reply, accepted(other, &[])], None).await;
            foe.0.qp.disconnect();
            foe.0.ends().await;
        });
        let _served = serve_after(&world, ADDRESS, Versions::One, 10_000, leaving);
        let (client, log) = connected(&world).await;
        let waiting = start_read(&client, 100, 1, Duration::ZERO);
        world.sleep(Duration::from_secs(20)).await;
        let connections = log.count(|event| matches!(event, Event::Connected { .. }));
        let heard = log.count(|event| matches!(event, Event::Received { .. }));
        // The pauses are at least 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5 and 5 seconds.
        assert!((6..=9).contains(&connections), "{connections} connections in 20 seconds");
        assert!(heard + 1 >= connections, "something was said on each of them");
        drop(waiting);
    });
}
