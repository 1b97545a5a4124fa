//! Ports of this machine's loopback for servers and for guests' forwarded ports.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};

/// Below where Linux takes ports of outgoing connections from (32768), so that a server that restarts finds its port
/// free.
const FIRST: u16 = 20_200;
const COUNT: u16 = 12_000;

/// Steps from one process to the next, so that two harnesses rarely meet.
const STEP: u32 = 64;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that nobody listens on, and that nobody else here is given in this run.
pub(super) fn free() -> anyhow::Result<u16> {
    let base = u16::try_from(std::process::id().wrapping_mul(STEP) % u32::from(COUNT)).unwrap_or(0);
    for _ in 0..COUNT {
        let port = FIRST + (base.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no free port from {FIRST} on")
}
