//! Strangers: decent clients of version 1 that share no line with the transport, so that one engine is not only tested against
//! itself.
//!
//! They do what our client never does and others do: chunks of several segments, more room than is needed in pieces of odd lengths,
//! Read lists whose segments lie anywhere in memory. One call at a time; its memory is lent until it is answered, and looked
//! at when it has been fenced.

mod chunks;

use crate::{
    hosts::{ADDRESS, Common},
    ledger::Process,
    plan::Edition,
    work::{ITEMS, PAIR, RUNS, Room, Work},
};
use bytes::Bytes;
use chunks::{Lending, Loans};
use rpcrdma_env::{Buffer, Random, SeededRandom};
use rpcrdma_fabric::{Completion, Connected, ConnectionParams, Fabric as _, Receives, Send};
use rpcrdma_oncrpc::{CallError, RemoteError, TransportError};
use rpcrdma_sim::{SimConfig, SimFabric};
use rpcrdma_wire::{PrivateData, v1};
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

/// Process numbers of strangers begin here.
const PROCESSES: u64 = 200;
/// Octets of the largest message, and of a receive.
const INLINE_OCTETS: u32 = 4096;
/// How many receives are posted. One call at a time needs two.
const RECEIVES: usize = 4;
/// After a connection was lost.
const CONNECT_PAUSE: Duration = Duration::from_millis(80);
/// Between calls at most, in microseconds.
const MAX_PAUSE_MICROS: u64 = 20_000;
/// How long an answer may take: longer than any server sleeps, and than the transport waits for memory and peers.
const PATIENCE: Duration = Duration::from_secs(180);
/// Calls of a stranger at most.
const MAX_CALLS: u64 = 20;

/// Lets a stranger come, who stays until it has made its calls or is told to leave.
pub(super) fn come(common: &Common, ip: IpAddr, on: &Arc<AtomicBool>) {
    let world = common.world.clone();
    let random = Arc::new(SeededRandom::new(world.env().random.next_u64()));
    let config = if random.below(2) == 0 { SimConfig::default() } else { SimConfig::without_invalidation() };
    let IpAddr::V4(v4) = ip else { return };
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
            if let Some(mut qp) = stranger.connect().await {
                while made < calls && on.load(Ordering::Relaxed) {
                    world.sleep(Duration::from_micros(stranger.random.below(MAX_PAUSE_MICROS))).await;
                    made += 1;
                    if stranger.call(&mut qp).await.is_none() {
                        break;
                    }
                }
            }
            world.sleep(CONNECT_PAUSE).await;
        }
    });
}

/// What came of a call.
enum Answer {
    /// It is right, with so many segments in a chunk at most.
    Right { segments: usize },
    /// It is not what was asked for.
    Wrong(String),
    /// The server's transport refused the call.
    Refused,
}

struct Stranger {
    common: Common,
    fabric: SimFabric,
    process: Process,
    ip: IpAddr,
    random: Arc<SeededRandom>,
}

fn receive() -> Buffer {
    Buffer::from_vec(vec![0; INLINE_OCTETS as usize])
}

impl Stranger {
    async fn connect(&self) -> Option<Connected> {
        let remote_invalidation = rpcrdma_fabric::Fabric::capabilities(&self.fabric).remote_invalidation;
        let block = PrivateData { remote_invalidation, send_size: INLINE_OCTETS, receive_size: INLINE_OCTETS };
        let receives = Receives::Own((0..RECEIVES).map(|_| receive()).collect());
        let private_data = Bytes::copy_from_slice(&block.to_octets());
        self.fabric.connect(ADDRESS, ConnectionParams { private_data, ird: 16, ord: 0, receives }).await.ok()
    }

    fn draw(&self) -> Work {
        let procedure = [ITEMS, PAIR, RUNS][self.random.below(3) as usize];
        let work = Work::draw(&*self.random, false, Edition::First);
        let sleep = work.sleep.min(Duration::from_millis(5));
        Work { procedure, octets: work.octets % 60_000, wanted: work.wanted % 60_000, sleep, room: Room::Fits }
    }

    /// Makes a call. `None` if the connection is lost.
    async fn call(&self, qp: &mut Connected) -> Option<()> {
        let judges = &self.common.judges;
        let work = self.draw();
        let number = judges.ledger.begin(self.process, self.ip, false, format!("of a stranger: {work:?}"));
        let xid = self.random.next_u32();
        let initiator = qp.info().local;
        let ended = self.exchange(qp, &work, number, xid).await;
        if ended.is_none() {
            judges.ledger.failed(number, &CallError::Transport(TransportError::Closed), false);
        }
        let fail = |error| judges.ledger.failed(number, &CallError::Transport(error), false);
        match ended? {
            Answer::Right { segments } => {
                judges.tally.count(format!("stranger: procedure {} was answered", work.procedure));
                if segments > 1 {
                    judges.tally.count("stranger: an answer with chunks of several segments");
                }
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

    /// Sends a call and takes its answer. `None`: the connection ended first.
    async fn exchange(&self, qp: &mut Connected, work: &Work, number: u64, xid: u32) -> Option<Answer> {
        let mut loans = Loans::default();
        let (lists, inline, long) = Lending { qp, random: &self.random, loans: &mut loans }.lend(work, number, xid)?;
        let segments = lists.writes.0.iter().chain(&lists.reply).map(|chunk| chunk.0.len()).max().unwrap_or(0);
        let segments = segments.max(lists.reads.0.len());
        let body = if long { v1::Body::Nomsg(lists.clone()) } else { v1::Body::Msg(lists.clone()) };
        let mut octets = v1::Header::new(xid, 1, body).to_bytes().to_vec();
        octets.extend_from_slice(&inline);
        qp.post_send(Send { octets: vec![octets.into()], ..Send::default() }).ok()?;

        let message = loop {
            match self.next(qp).await? {
                Completion::Received { buffer, .. } => {
                    let message = Bytes::copy_from_slice(buffer.filled());
                    qp.post_receive(receive()).ok()?;
                    // The server may call back where a corrupted call has asked for that; nobody answers.
                    if message.get(..4) == Some(&xid.to_be_bytes()) {
                        break message;
                    }
                }
                completion => loans.took(completion)?,
            }
        };
        loans.handles().for_each(|handle| qp.invalidate(handle));
        while !loans.all_back() {
            let completion = self.next(qp).await?;
            loans.took(completion)?;
        }
        Some(match v1::Header::decode(&message) {
            Ok((v1::Header { body: v1::Body::Error(_), .. }, _)) => Answer::Refused,
            _ => match loans.check(work, number, &lists, &message) {
                Ok(()) => Answer::Right { segments },
                Err(what) => Answer::Wrong(what),
            },
        })
    }

    /// What happens next, unless that takes too long.
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
