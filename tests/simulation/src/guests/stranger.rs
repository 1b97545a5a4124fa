//! Strangers: decent clients of either version that share no code with the transport, so that the engine is not only
//! tested with itself.
//!
//! They do what other clients do and ours does not: chunks of several segments, more room than needed in segments of
//! odd lengths, Read lists whose segments lie anywhere in memory. They make one call at a time; they lend its memory
//! until the reply, and check it after it has been invalidated.

mod chunks;
mod talk;

use crate::{
    hosts::{ADDRESS, Common},
    ledger::Process,
    plan::Edition,
    work::{ITEMS, PAIR, RUNS, Room, Work},
};
use bytes::Bytes;
use chunks::{Lending, Loans};
use rpcrdma_env::{Buffer, Random, SeededRandom};
use rpcrdma_fabric::{Completion, Connected, ConnectionParams, Fabric as _, Receives, SendWork};
use rpcrdma_oncrpc::{CallError, RemoteError, TransportError};
use rpcrdma_sim::{SimConfig, SimFabric};
use rpcrdma_transport::Versions;
use rpcrdma_wire::{PrivateData, v1, v2};
use std::{
    future::{Future as _, poll_fn},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};
use talk::{Heard, INLINE_BYTES, RECEIVES, Talk};

/// Process numbers of strangers begin here.
const PROCESSES: u64 = 200;
/// The pause after a connection was lost.
const CONNECT_PAUSE: Duration = Duration::from_millis(80);
/// The longest pause between calls, in microseconds.
const MAX_PAUSE_MICROS: u64 = 20_000;
/// How long a reply may take: longer than any server sleeps, and longer than the transport waits for memory and peers.
const PATIENCE: Duration = Duration::from_secs(180);
/// The most calls of a stranger.
const MAX_CALLS: u64 = 20;

/// Starts a stranger, which ends when it has made its calls or when the run ends it.
pub(super) fn come(common: &Common, ip: IpAddr, server: Versions, on: &Arc<AtomicBool>) {
    let world = common.world.clone();
    let random = Arc::new(SeededRandom::new(world.env().random.next_u64()));
    let config = if random.below(2) == 0 { SimConfig::default() } else { SimConfig::without_invalidation() };
    let IpAddr::V4(v4) = ip else { return };
    let version = match server {
        Versions::One => v1::VERSION,
        Versions::Two => v2::VERSION,
        _ => [v1::VERSION, v2::VERSION][random.below(2) as usize],
    };
    let stranger = Stranger {
        fabric: world.fabric_with(ip, config),
        common: common.clone(),
        process: Process { host: PROCESSES + u64::from(v4.octets()[3]), starts: 0 },
        ip,
        random,
    };
    let on = on.clone();
    let calls = 1 + stranger.random.below(MAX_CALLS);
    world.clone().spawn(async move {
        let mut made = 0;
        while made < calls && on.load(Ordering::Relaxed) {
            if let Some(mut line) = stranger.connect(version).await {
                while made < calls && on.load(Ordering::Relaxed) {
                    world.sleep(Duration::from_micros(stranger.random.below(MAX_PAUSE_MICROS))).await;
                    made += 1;
                    if stranger.call(&mut line).await.is_none() {
                        break;
                    }
                }
            }
            world.sleep(CONNECT_PAUSE).await;
        }
    });
}

/// The result of a call.
enum Answer {
    /// The reply is right; its largest chunk has so many segments.
    Right { segments: usize },
    /// The reply is wrong.
    Wrong(String),
    /// The server's transport refused the call.
    Refused,
}

/// A connection and the state of its conversation.
struct Line {
    qp: Connected,
    talk: Talk,
}

struct Stranger {
    common: Common,
    fabric: SimFabric,
    process: Process,
    ip: IpAddr,
    random: Arc<SeededRandom>,
}

fn receive() -> Buffer {
    Buffer::from_vec(vec![0; INLINE_BYTES as usize])
}

impl Stranger {
    async fn connect(&self, version: u32) -> Option<Line> {
        let remote_invalidation = rpcrdma_fabric::Fabric::capabilities(&self.fabric).remote_invalidation;
        let block = PrivateData { remote_invalidation, send_size: INLINE_BYTES, receive_size: INLINE_BYTES };
        let receives = Receives::Own((0..RECEIVES).map(|_| receive()).collect());
        let private_data = Bytes::copy_from_slice(&block.to_octets());
        let params = ConnectionParams { private_data, ird: 16, ord: 0, receives };
        let qp = self.fabric.connect(ADDRESS, params).await.ok()?;
        let mut line = Line { qp, talk: Talk::new(version) };
        if let Some(octets) = line.talk.opening(self.random.next_u32()) {
            line.send(octets)?;
        }
        Some(line)
    }

    fn draw(&self) -> Work {
        let procedure = [ITEMS, PAIR, RUNS][self.random.below(3) as usize];
        let work = Work::draw(&*self.random, false, Edition::First);
        let sleep = work.sleep.min(Duration::from_millis(5));
        Work { procedure, octets: work.octets % 60_000, wanted: work.wanted % 60_000, sleep, room: Room::Fits }
    }

    /// Makes a call. `None` if the connection is lost.
    async fn call(&self, line: &mut Line) -> Option<()> {
        let judges = &self.common.judges;
        let work = self.draw();
        let number = judges.ledger.begin(self.process, self.ip, false, format!("of a stranger: {work:?}"));
        let xid = self.random.next_u32();
        let (initiator, version) = (line.qp.info().local, line.talk.version());
        let ended = self.exchange(line, &work, number, xid).await;
        if ended.is_none() {
            judges.ledger.failed(number, &CallError::Transport(TransportError::Closed), false);
        }
        let fail = |error| judges.ledger.failed(number, &CallError::Transport(error), false);
        match ended? {
            Answer::Right { segments } => {
                let what = format!("stranger: version {version}, procedure {}", work.procedure);
                if segments > 1 {
                    judges.tally.count(format!("{what}, chunks of several segments"));
                }
                judges.tally.count(what);
                judges.ledger.answered(number);
            }
            Answer::Wrong(what) => {
                if self.counts(initiator) {
                    judges.record.found(format!("a stranger's call {number} ({work:?}): {what}"));
                }
                judges.ledger.answered(number);
            }
            Answer::Refused => fail(TransportError::Remote { server: ADDRESS, source: RemoteError::Chunk }),
        }
        Some(())
    }

    fn counts(&self, initiator: SocketAddr) -> bool {
        self.common.judges.ledger.trust.counts(initiator, ADDRESS.ip())
    }

    /// Sends a call and takes its reply. `None` if the connection ends first.
    async fn exchange(&self, line: &mut Line, work: &Work, number: u64, xid: u32) -> Option<Answer> {
        let mut loans = Loans::default();
        while !line.talk.may_call() {
            self.hear(line, &mut loans, xid).await?;
        }
        let qp = &mut line.qp;
        let (lists, inline, long) = Lending { qp, random: &self.random, loans: &mut loans }.lend(work, number, xid)?;
        let segments = lists.writes.0.iter().chain(&lists.reply).map(|chunk| chunk.0.len()).max().unwrap_or(0);
        let segments = segments.max(lists.reads.0.len());
        let may_invalidate = line.qp.capabilities().remote_invalidation && self.random.below(2) == 0;
        let handle = loans.handles().next().filter(|_| may_invalidate).unwrap_or_default();
        let message = line.talk.call(xid, lists.clone(), handle, (!long).then_some(&inline));
        line.send(message)?;
        let heard = loop {
            match self.hear(line, &mut loans, xid).await? {
                Heard::Nothing => {}
                heard => break heard,
            }
        };
        loans.handles().for_each(|handle| line.qp.invalidate(handle));
        while !loans.all_back() {
            self.hear(line, &mut loans, xid).await?;
        }
        Some(match heard {
            Heard::Refused => Answer::Refused,
            Heard::Noise(what) => Answer::Wrong(what),
            Heard::Nothing => Answer::Wrong("nothing".to_owned()),
            Heard::Reply(reply) => match loans.check(work, number, &lists, &reply) {
                Ok(()) => Answer::Right { segments },
                Err(what) => Answer::Wrong(what),
            },
        })
    }

    /// Takes the next completion.
    async fn hear(&self, line: &mut Line, loans: &mut Loans, xid: u32) -> Option<Heard> {
        match self.next(&mut line.qp).await? {
            Completion::Received { buffer, .. } => {
                let message = Bytes::copy_from_slice(buffer.filled());
                line.qp.post_receive(receive()).ok()?;
                let heard = line.talk.heard(&message, xid);
                if let Some(grant) = line.talk.grant() {
                    line.send(grant)?;
                }
                Some(heard)
            }
            completion => loans.took(completion).map(|()| Heard::Nothing),
        }
    }

    /// The next completion, unless it takes too long.
    async fn next(&self, qp: &mut Connected) -> Option<Completion> {
        let world = &self.common.world;
        let mut patience = std::pin::pin!(world.sleep(PATIENCE));
        poll_fn(|cx| match qp.poll(cx) {
            Poll::Ready(Completion::Closed { .. }) => Poll::Ready(None),
            Poll::Ready(completion) => Poll::Ready(Some(completion)),
            Poll::Pending => patience.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}

impl Line {
    fn send(&mut self, octets: Bytes) -> Option<()> {
        self.qp.post_send(SendWork { octets: vec![octets].into(), ..SendWork::default() }).ok()
    }
}
