//! Ports of this machine's loopback for servers and for guests' forwarded ports.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};

/// The first port. All of them are below 32768, where Linux begins to take ports for outgoing connections: so a server
/// that restarts finds its port free.
const FIRST: u16 = 20_200;
const COUNT: u16 = 12_000;

/// The distance between the first ports of two processes, so that two harnesses rarely use the same ports.
const STEP: u32 = 64;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port on which nothing listens, and which this function returns only once in this run.
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
