//! Servers that abuse version 1: a client's calls end or go to the next connection, and its memory comes back.

mod common;

use bytes::Bytes;
use common::{Log, PROGRAM, READ, Script, bytes, client, finish_read, pattern, serve_after, start_read};
use rpcrdma::{ClientOptions, Event, MessageKind, Versions, connect};
use rpcrdma_env::Random;
use rpcrdma_fabric::{
    Buffer, Completion, Connected, ConnectionParams, Pending, Receives, Send as Message, Token, Write,
};
use rpcrdma_oncrpc::{Client, ItemRoom, ReplyShape};
use rpcrdma_sim::World;
use rpcrdma_wire::v1::{Body, ErrorBody, Header, Lists, Segment, WriteChunk, WriteList};
use rpcrdma_xdr::Encoder;
use std::{
    collections::VecDeque,
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    task::Poll,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 20049);

/// The server's end of a connection, which says what a test has it say.
struct Foe {
    qp: Connected,
    /// Messages that nobody has looked at.
    heard: VecDeque<(Header, Bytes)>,
    closed: bool,
}

impl Foe {
    async fn taken(pending: Box<dyn Pending>) -> Self {
        let receives = (0..128).map(|_| Buffer::from_vec(vec![0; 4096])).collect();
        let params = ConnectionParams { private_data: Bytes::new(), ird: 4, ord: 4, receives: Receives::Own(receives) };
        let qp = pending.request().await.unwrap().accept(params).await.unwrap();
        Self { qp, heard: VecDeque::new(), closed: false }
    }

    fn took(&mut self, completion: Completion) {
        match completion {
            Completion::Received { buffer, .. } => {
                let _ = self.qp.post_receive(Buffer::from_vec(vec![0; 4096]));
                let message = buffer.freeze();
                if let Ok((header, at)) = Header::decode(&message) {
                    self.heard.push_back((header, message.slice(at..)));
                }
            }
            Completion::Closed { .. } => self.closed = true,
            _ => {}
        }
    }

    /// Takes what has come, without waiting.
    async fn look(&mut self) {
        poll_fn(|cx| {
            while !self.closed
                && let Poll::Ready(completion) = self.qp.poll(cx)
            {
                self.took(completion);
            }
            Poll::Ready(())
        })
        .await;
    }

    async fn wait(&mut self) {
        let completion = poll_fn(|cx| self.qp.poll(cx)).await;
        self.took(completion);
    }

    /// The next call, or `None` when the connection ends first.
    async fn call(&mut self) -> Option<(Header, Bytes)> {
        while self.heard.is_empty() && !self.closed {
            self.wait().await;
        }
        self.heard.pop_front()
    }

    async fn ends(&mut self) {
        while !self.closed {
            self.wait().await;
        }
    }

    async fn post(&mut self, octets: Vec<Bytes>, invalidate: Option<u32>) {
        let _ = self.qp.post_send(Message { token: Token(1), octets, invalidate, ..Message::default() });
        // Nothing is sent by a queue pair that is not polled.
        self.look().await;
    }

    async fn write(&mut self, to: &Segment, octets: Vec<u8>) {
        let (handle, offset) = (to.handle, to.offset);
        let _ = self.qp.post_write(Write { octets: vec![octets.into()], handle, offset, ..Write::default() });
        self.look().await;
    }
}

fn script<F: Future<Output = ()> + Send + 'static>(
    script: impl Fn(World, Foe) -> F + Clone + Send + Sync + 'static,
) -> Script {
    Arc::new(move |world, pending| {
        let script = script.clone();
        Box::pin(async move { script(world, Foe::taken(pending).await).await })
    })
}

async fn connected(world: &World) -> (Client, Arc<Log>) {
    world.sleep(Duration::from_millis(1)).await;
    let log = Arc::new(Log::default());
    let mut options = ClientOptions::default();
    options.versions = Versions::One;
    let fabric = Arc::new(world.fabric(CLIENT));
    let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, log.clone()).await.unwrap();
    world.spawn(driver);
    (client(transport), log)
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

/// Something about a call, not often right.
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

/// Random messages from the server on a few connections, and Writes and invalidations beside them; then a sane one. Every call
/// ends.
#[test]
fn noise_from_a_server_delays_calls_and_no_more() {
    for seed in 0..40 {
        let world = World::new(seed);
        world.block_on(async {
            let noise = script(|world, mut foe| async move {
                let random = world.env().random;
                let mut about = Header::new(7, 8, Body::Msg(Lists::default()));
                for _ in 0..random.below(60) {
                    foe.look().await;
                    // Often about what the client has asked.
                    if random.below(2) == 0
                        && let Some((call, _)) = foe.heard.pop_front()
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
                foe.qp.disconnect();
                foe.ends().await;
            });
            let _served = serve_after(&world, ADDRESS, Versions::One, 4, noise);
            let (client, _) = connected(&world).await;
            let begun = world.now();
            let mut tasks = Vec::new();
            for k in 0..20u32 {
                let client = client.clone();
                tasks.push(world.spawn(async move {
                    // What such a server says may be wrong, but it is said.
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
                    let shape = ReplyShape { max_len, items: vec![ItemRoom::new(9000)] };
                    let _ = client.call_repeatable(procedure, args.finish(), shape).await;
                }));
            }
            for task in tasks {
                task.await;
            }
            assert!(world.now().since(begun) < Duration::from_secs(1000), "seed {seed}: {:?}", world.now());
            // Whatever is left of the noise, sooner or later a call comes through.
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

/// A server that lives, and says so, and does not answer: its client waits, and can give up when it likes.
#[test]
fn a_call_that_a_live_server_does_not_answer_is_waited_for_until_it_is_taken_back() {
    let world = World::new(1);
    world.block_on(async {
        let mute = script(|_, mut foe| async move {
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
        assert!((50..=60).contains(&probes), "{probes}");
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. } | Event::Failed { .. })), 0);
        let given_up = world.now();
        assert_eq!(call.cancel().await.buffers.len(), 1, "its memory is there");
        assert!(world.now().since(given_up) < Duration::from_millis(1), "at once");
        client.null().await.unwrap();
    });
}

/// A server that, with one answer, invalidates the memory of another call: what it then writes there costs it the connection,
/// and the other call goes to the next one.
#[test]
fn a_handle_of_another_call_is_the_servers_own_loss() {
    const LEN: usize = 9000;
    let world = World::new(2);
    world.block_on(async {
        let confused = script(|_, mut foe| async move {
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
            foe.ends().await;
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
