//! A client that others can share (`--tasks`): each call under way is a task's, and whatever has the connection sends
//! the calls of all of them and hands the replies back. A call needs a place among those under way, and two wake-ups:
//! of the connection's end, and of the task that waits for the reply.
//!
//! Only the end that asks works in this way. The end that answers has one task for the connection, as a server has that
//! does not wait for a disk.

use super::{Asking, CRC, Lengths, Sample, frame, room::Room, wire::Wire, xid};
use anyhow::{Context, Result, anyhow, ensure};
use std::{collections::HashMap, time::Instant};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    task::JoinSet,
};

/// A call that a task makes: who is told when the reply has come.
type Ask = oneshot::Sender<()>;

/// Makes calls, one after the other.
async fn caller(asks: UnboundedSender<Ask>, octets: u64, end: Instant) -> Result<Sample> {
    let (mut sample, mut now) = (Sample::new(), Instant::now());
    while now < end {
        let (answer, answered) = oneshot::channel();
        // Whoever has the connection says why it has gone.
        let gone = || anyhow!("the connection has gone");
        asks.send(answer).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?;
        let begun = std::mem::replace(&mut now, Instant::now());
        sample.record(now - begun, octets);
    }
    Ok(sample)
}

/// Measures as many tasks as there may be calls under way.
pub(super) async fn measure(mut asking: Asking, mut wire: Wire, end: Instant) -> Result<Sample> {
    let (asks, queue) = unbounded_channel();
    let octets = asking.work.data() as u64;
    let mut callers: JoinSet<_> = (0..asking.work.depth).map(|_| caller(asks.clone(), octets, end)).collect();
    drop(asks);
    drive(&mut asking, &mut wire, queue).await?;
    let mut all = Sample::new();
    while let Some(sample) = callers.join_next().await {
        all.add(sample??)?;
    }
    Ok(all)
}

/// Sends calls and receives replies until no task makes calls any more.
async fn drive(asking: &mut Asking, wire: &mut Wire, mut queue: UnboundedReceiver<Ask>) -> Result<()> {
    let (depth, data, Lengths { head, .. }) = (asking.work.depth, asking.work.data(), asking.lengths);
    let answer = head + data + CRC;
    // One more than can come: when a message fills its room, tokio reads once more before it waits.
    let mut room = Room::new(answer * depth + 1);
    let mut under_way: HashMap<u32, Ask> = HashMap::with_capacity(depth);
    let (mut sent, mut have) = (0, 0);
    loop {
        let came = tokio::select! {
            biased;
            received = wire.receive(&mut room[have..]) => Came::Octets(received?),
            ask = queue.recv() => Came::Ask(ask),
        };
        match came {
            // A task waits for the reply to its last call before it ends.
            Came::Ask(None) => return Ok(()),
            Came::Ask(Some(ask)) => {
                let first = sent;
                let mut next = Some(ask);
                while let Some(ask) = next {
                    under_way.insert(xid(sent), ask);
                    sent += 1;
                    next = queue.try_recv().ok();
                }
                wire.send(&mut asking.requests(first, sent)?).await?;
            }
            Came::Octets(0) => return Err(anyhow!("the other process has gone")),
            Came::Octets(received) => {
                have += received;
                let whole = have / answer;
                for answer in room.chunks(answer).take(whole) {
                    let (octets, carried) = answer.split_at(answer.len() - CRC);
                    let (head, octets) = octets.split_at(head);
                    ensure!(frame::crc(head, octets) == *carried, "a CRC is wrong");
                    // The first word of RPC-over-RDMA's header.
                    let id = u32::from_be_bytes(*head.first_chunk().context("a reply is too short")?);
                    let ask = under_way.remove(&id).with_context(|| format!("no call {id} is under way"))?;
                    if let Some(calls) = &mut asking.calls {
                        calls.read(id, head)?;
                    }
                    // A task that has gone needs no reply.
                    let _ = ask.send(());
                }
                if whole > 0 {
                    room.copy_within(whole * answer..have, 0);
                }
                have -= whole * answer;
            }
        }
    }
}

/// What has come to the connection.
enum Came {
    /// A task's call; `None` if all tasks have ended.
    Ask(Option<Ask>),
    /// Bytes of replies; none if the other process has gone.
    Octets(usize),
}
