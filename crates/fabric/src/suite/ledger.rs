//! Counted memory: each buffer has a number, and the ledger knows how many are still alive.

use super::PATIENCE;
use crate::{Buffer, Lent};
use bytes::Bytes;
use rpcrdma_env::{Env, Memory};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The interval between two checks of the ledger.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The memory of a case. Clones share one ledger.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    live: AtomicUsize,
    next: AtomicU64,
}

struct Counted {
    number: u64,
    octets: Vec<u8>,
    counts: Arc<Counts>,
}

impl Memory for Counted {
    fn octets(&self) -> &[u8] {
        &self.octets
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ledger {
    /// A buffer of exactly `octets` capacity.
    pub(super) fn buffer(&self, octets: usize) -> Buffer {
        self.counts.live.fetch_add(1, Ordering::Relaxed);
        let number = self.counts.next.fetch_add(1, Ordering::Relaxed);
        Buffer::new(Box::new(Counted { number, octets: vec![0xEE; octets], counts: self.counts.clone() }))
    }

    /// Several such buffers.
    pub(super) fn buffers(&self, count: usize, octets: usize) -> Vec<Buffer> {
        (0..count).map(|_| self.buffer(octets)).collect()
    }

    /// Shared bytes, counted like a buffer.
    pub(super) fn share(&self, octets: &[u8]) -> Bytes {
        let mut buffer = self.buffer(octets.len());
        buffer.bytes_mut().copy_from_slice(octets);
        buffer.set_len(octets.len());
        buffer.freeze()
    }

    /// Memory for the peer to read.
    pub(super) fn source(&self, octets: &[u8]) -> Lent {
        Lent::Source(self.share(octets))
    }

    /// Memory for the peer to write to.
    pub(super) fn sink(&self, octets: usize) -> Lent {
        Lent::Sink(self.buffer(octets))
    }

    /// Waits until all memory has been returned. Providers may hold bytes for a moment longer than their queue pairs
    /// live.
    pub(super) async fn settle(&self, env: &Env) {
        let until = env.clock.now() + PATIENCE;
        while self.counts.live.load(Ordering::Relaxed) != 0 {
            assert!(
                env.clock.now() < until,
                "{} buffers were never given back",
                self.counts.live.load(Ordering::Relaxed)
            );
            env.clock.sleep_until(env.clock.now() + LOOK_AGAIN).await;
        }
    }
}

/// The number of a counted buffer. No provider may hand out a buffer that the case did not give it.
pub(super) fn number(buffer: &Buffer) -> u64 {
    match buffer.memory().downcast_ref::<Counted>() {
        Some(counted) => counted.number,
        None => panic!("a buffer came that nobody gave: {buffer:?}"),
    }
}

/// `length` bytes that differ by place and by `seed`.
pub(super) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..length)
        .map(|_| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word as u8
        })
        .collect()
}
