//! Finds the device that leads to an address.
//!
//! If the kernel does not know the peer's hardware address, the connection manager asks the network for it. The answer
//! may not reach us: the kernel (seen in 6.12.117 with soft-RoCE) knows the address after a millisecond, and still lets
//! the caller wait until its time-out. So we ask again before that, and get the answer from what the kernel then knows.

use crate::{
    channel::{Channel, Id},
    sys::{Library, cm},
};
use rpcrdma_env::Clock;
use rpcrdma_fabric::within;
use std::{io, net::SocketAddr, time::Duration};

/// How long to wait for an answer before asking again: many times what a network takes.
const ATTEMPT: Duration = Duration::from_secs(1);

/// An identifier that is tied to the device that leads to a peer, from an address of ours if the caller names one.
///
/// # Errors
/// The connection manager's error; `TimedOut` if it does not answer within `limit`.
pub(crate) async fn resolved(
    library: &'static Library,
    clock: &dyn Clock,
    (from, peer): (Option<SocketAddr>, SocketAddr),
    limit: Duration,
) -> io::Result<Id> {
    let until = clock.now() + limit;
    loop {
        let attempt = ATTEMPT.min(until.since(clock.now()));
        let id = Id::new(&Channel::new(library)?)?;
        id.resolve(from, peer, attempt)?;
        let error = match within(clock, attempt, id.channel().wait()).await.transpose()? {
            Some(event) if event.kind == cm::ADDRESS_RESOLVED => return Ok(id),
            Some(event) => event.error(library),
            None => io::ErrorKind::TimedOut.into(),
        };
        if error.kind() != io::ErrorKind::TimedOut || clock.now() >= until {
            return Err(error);
        }
        tracing::debug!(%peer, "asking again for the way to the peer");
    }
}
