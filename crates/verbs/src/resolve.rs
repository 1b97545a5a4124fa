//! Which device leads to an address.
//!
//! The connection manager asks the network for the peer's hardware address if the kernel does not know it. The answer
//! may not reach us: the kernel (6.12.117 with soft-RoCE does so) knows the address after a millisecond, and lets the
//! caller wait until its time is over. So we ask again before that, and get the answer from what the kernel then knows.

use crate::{
    channel::{Channel, Id},
    sys::{Library, cm},
};
use rpcrdma_env::Clock;
use rpcrdma_fabric::within;
use std::{io, net::SocketAddr, time::Duration};

/// How long an answer is waited for before the question is asked again: many times what a network takes.
const ATTEMPT: Duration = Duration::from_secs(1);

/// An identifier that is tied to the device which leads from an address of ours, if one is named, to a peer.
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
        tracing::debug!(%peer, "the way to the peer is asked for again");
    }
}
