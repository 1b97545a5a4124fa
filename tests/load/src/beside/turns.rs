//! Turns: each version keeps calls under way for a slice of time, and waits for all replies before the other begins.

use super::calls::{Caller, Lane};
use crate::{clients::CALL_LIMIT, resources::busy_ns};
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The calls that a turn makes.
pub(super) struct Load {
    writes: bool,
    block: u32,
    depth: usize,
    file_octets: u64,
    /// How many blocks were asked for: all lanes of both versions go through the file together.
    walked: AtomicU64,
    data: Bytes,
}

impl Load {
    pub(super) fn new(writes: bool, block: u32, depth: usize, file_octets: u64) -> Self {
        let data = if writes { Bytes::from(vec![0xA5; block as usize]) } else { Bytes::new() };
        Self { writes, block, depth, file_octets, walked: AtomicU64::new(0), data }
    }

    /// Bytes of each call.
    pub(super) fn block(&self) -> u32 {
        self.block
    }

    /// Calls under way.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    fn next_offset(&self) -> u64 {
        let block = u64::from(self.block.max(1));
        let blocks = (self.file_octets / block).max(1);
        self.walked.fetch_add(1, Ordering::Relaxed) % blocks * block
    }

    async fn one(&self, caller: &Caller, lane: &mut Lane) -> anyhow::Result<()> {
        let offset = self.next_offset();
        let moved = match self.writes {
            true => caller.write(lane, offset, self.data.clone()).await?,
            false => caller.read(lane, offset, self.block).await?,
        };
        ensure!(moved == self.block as usize, "{moved} bytes of {} were moved", self.block);
        Ok(())
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (procedure, depth) = (if self.writes { "WRITE" } else { "READ" }, self.depth);
        match self.block {
            block if block >= 1 << 20 => write!(f, "{procedure} of {} MiB, {depth} under way", block >> 20),
            block => write!(f, "{procedure} of {} KiB, {depth} under way", block >> 10),
        }
    }
}

/// The result of one version's turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    pub(super) calls: u64,
    /// The time until the last reply.
    pub(super) took: Duration,
    /// Processor time of the server meanwhile.
    pub(super) server: Duration,
    /// Processor time of this process meanwhile.
    pub(super) client: Duration,
}

impl Turn {
    /// Calls a second.
    pub(super) fn rate(&self) -> f64 {
        self.calls as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// A turn of each version, version 4 first if `turned`. The first returned turn is always version 3's.
///
/// # Errors
/// If a call fails.
pub(super) async fn pair(
    three: &Arc<Caller>,
    four: &Arc<Caller>,
    load: &Arc<Load>,
    lanes: &mut Vec<Lane>,
    lasts: Duration,
    server: u32,
    turned: bool,
) -> anyhow::Result<[Turn; 2]> {
    if turned {
        let of_four = turn(four, load, lanes, lasts, server).await?;
        Ok([turn(three, load, lanes, lasts, server).await?, of_four])
    } else {
        let of_three = turn(three, load, lanes, lasts, server).await?;
        Ok([of_three, turn(four, load, lanes, lasts, server).await?])
    }
}

async fn turn(
    caller: &Arc<Caller>,
    load: &Arc<Load>,
    lanes: &mut Vec<Lane>,
    lasts: Duration,
    server: u32,
) -> anyhow::Result<Turn> {
    let before = (busy_ns(server)?, busy_ns(std::process::id())?);
    let mut working = JoinSet::new();
    let idle = lanes.split_off(load.depth().min(lanes.len()));
    let begin = Instant::now();
    for mut lane in lanes.drain(..) {
        let (caller, load) = (caller.clone(), load.clone());
        working.spawn(async move {
            let mut calls = 0;
            while begin.elapsed() < lasts {
                load.one(&caller, &mut lane).await?;
                calls += 1;
            }
            anyhow::Ok((lane, calls))
        });
    }
    let mut turn = Turn::default();
    let finish = async {
        while let Some(done) = working.join_next().await {
            let (lane, calls) = done??;
            turn.calls += calls;
            lanes.push(lane);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(lasts + CALL_LIMIT, finish).await.context("a call is not answered")??;
    turn.took = begin.elapsed();
    lanes.sort_by_key(|lane| lane.slot);
    lanes.extend(idle);
    turn.server = spent(&before.0, &busy_ns(server)?);
    turn.client = spent(&before.1, &busy_ns(std::process::id())?);
    Ok(turn)
}

/// Processor time of a process between two readings of its threads' times.
fn spent(before: &HashMap<u32, u64>, after: &HashMap<u32, u64>) -> Duration {
    let of = |(thread, ns): (&u32, &u64)| ns.saturating_sub(before.get(thread).copied().unwrap_or(0));
    Duration::from_nanos(after.iter().map(of).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_walked_in_order_and_again() {
        let load = Load::new(false, 100, 1, 300);
        assert_eq!([0, 1, 2, 3].map(|_| load.next_offset()), [0, 100, 200, 0]);
        assert_eq!(Load::new(true, 1 << 20, 8, 0).to_string(), "WRITE of 1 MiB, 8 under way");
        assert_eq!(Load::new(false, 4096, 1, 0).to_string(), "READ of 4 KiB, 1 under way");
    }

    #[test]
    fn threads_that_come_count_and_those_that_go_take_nothing_away() {
        let (before, after) = (HashMap::from([(1, 100), (2, 500)]), HashMap::from([(1, 150), (3, 7)]));
        assert_eq!(spent(&before, &after), Duration::from_nanos(57));
    }
}
