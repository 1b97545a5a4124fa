//! The queue pair: the driver that moves octets between one TCP socket and one [`Endpoint`].
//!
//! It has no task of its own: everything happens in [`QueuePair::poll`], on the caller's thread. Each turn writes what
//! is ready with one vectored write and reads what has come with one vectored read, payload from and to its place.
//! While it hands out many completions, work posted meanwhile leaves in portions ([`Overlap`]). A read or write that
//! the socket served only in part shows that the socket is drained or full; the readiness is cleared in the same step,
//! which saves a system call.

use crate::{
    config::NUDGE_DELAYS,
    fabric::Shared,
    net::{Wire, is_passing},
    overlap::Overlap,
    protocol::{Endpoint, Phase},
    tap::Direction,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer, Pause, Spin, Timestamp};
use rpcrdma_fabric::{
    Capabilities, Completion, ConnectionInfo, Lent, QueuePair, ReadWork, Refused, RemoteSegment, SendWork, Token,
    WriteWork,
};
use socket2::SockRef;
use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::Interest;

pub(crate) struct IwarpQueuePair {
    shared: Arc<Shared>,
    /// `None` after the connection's end.
    wire: Option<Wire>,
    endpoint: Endpoint,
    info: ConnectionInfo,
    /// The times since when the peer owes us something.
    owes: [Option<Timestamp>; OWES],
    /// How often we have nudged the peer.
    nudges: usize,
    timer: Option<(Timestamp, BoxFuture<'static, ()>)>,
    /// The error with which writing has failed. Octets received before may still show the cause.
    mute: Option<io::Error>,
    spin: Spin,
    overlap: Overlap,
}

/// The indices of `owes`: what the peer owes is to accept data, to send data that is due, to end, to send anything at
/// all.
const TAKING: usize = 0;
const SENDING: usize = 1;
const ANSWERING: usize = 3;
const OWES: usize = 4;

impl IwarpQueuePair {
    pub(crate) fn new(shared: Arc<Shared>, wire: Wire, endpoint: Endpoint, info: ConnectionInfo) -> Self {
        let overlap = Overlap::new(endpoint.role());
        let spin = Spin::new(shared.config.busy_poll);
        IwarpQueuePair {
            shared,
            wire: Some(wire),
            endpoint,
            info,
            owes: [None; OWES],
            nudges: 0,
            timer: None,
            mute: None,
            spin,
            overlap,
        }
    }

    /// Writes until nothing is left or the socket is full. Returns whether anything has changed.
    fn pump_out(&mut self, cx: &mut Context<'_>) -> bool {
        let IwarpQueuePair { wire: Some(Wire { stream, tap }), endpoint, mute, owes, overlap, .. } = self else {
            return false;
        };
        overlap.wrote();
        let mut changed = false;
        while mute.is_none() && endpoint.has_output() {
            match stream.poll_write_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => *mute = Some(error),
            }
            let slices = endpoint.write_slices();
            let total: usize = slices.iter().map(|slice| slice.len()).sum();
            let mut taken = 0;
            let result = stream.try_io(Interest::WRITABLE, || {
                taken = (&*SockRef::from(&*stream)).write_vectored(&slices)?;
                if taken < total { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if let Some(tap) = tap {
                let mut left = taken;
                for slice in &slices {
                    tap.octets(Direction::Sent, slice.get(..left).unwrap_or(slice));
                    left = left.saturating_sub(slice.len());
                    if left == 0 {
                        break;
                    }
                }
            }
            drop(slices);
            if taken > 0 {
                endpoint.written(taken);
                owes[TAKING] = None;
                changed = true;
            }
            match result {
                Err(error) if !is_passing(&error) => *mute = Some(error),
                _ => {}
            }
        }
        if endpoint.wants_fin() {
            // A socket that cannot be shut down is already broken, which the next read will show.
            let _ = SockRef::from(&*stream).shutdown(Shutdown::Write);
            changed = true;
        }
        changed
    }

    /// Reads once. Returns whether anything has changed.
    fn pump_in(&mut self, cx: &mut Context<'_>) -> bool {
        let IwarpQueuePair { shared, wire: Some(Wire { stream, tap }), endpoint, owes, spin, overlap, .. } = self
        else {
            return false;
        };
        loop {
            let told = match stream.poll_read_ready(cx) {
                Poll::Pending => false,
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(error)) => {
                    failed(endpoint, &error, shared.config.stall_timeout);
                    return true;
                }
            };
            if !told {
                // A peer that still has to read does not answer soon.
                let pause = if endpoint.has_output() { Pause::Sleep } else { spin.pause(&*shared.env.clock) };
                if pause == Pause::GiveWay {
                    Spin::again(cx);
                }
                if pause != Pause::Look {
                    return false;
                }
            }
            let mut slices = endpoint.read_slices();
            let room: usize = slices.iter().map(|slice| slice.len()).sum();
            let mut came = None;
            let mut read = || {
                let octets = (&*SockRef::from(&*stream)).read_vectored(&mut slices)?;
                came = Some(octets);
                // After the peer's FIN the socket stays readable, so a read of 0 octets keeps the readiness.
                if 0 < octets && octets < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            };
            let result = if told { stream.try_io(Interest::READABLE, read) } else { read() };
            drop(slices);
            if !told && came.is_none() && result.as_ref().is_err_and(is_passing) {
                Spin::again(cx);
                return false;
            }
            match (came, result) {
                (Some(0), _) => endpoint.peer_closed(),
                (Some(octets), _) => {
                    if let Some(tap) = tap {
                        endpoint.show_read(octets, |octets| tap.octets(Direction::Received, octets));
                    }
                    owes[SENDING] = None;
                    spin.heard(&*shared.env.clock);
                    endpoint.read(octets);
                    overlap.came(endpoint.completions());
                }
                (None, Err(error)) if is_passing(&error) => continue,
                (None, Err(error)) => failed(endpoint, &error, shared.config.stall_timeout),
                (None, Ok(())) => continue,
            }
            return true;
        }
    }

    /// Watches what the peer owes us. Returns whether anything has changed.
    fn watch(&mut self, cx: &mut Context<'_>) -> bool {
        let config = &self.shared.config;
        let ending = matches!(self.endpoint.phase(), Phase::Terminating(_) | Phase::Lingering(_));
        let nudge = NUDGE_DELAYS.get(self.nudges).copied().filter(|_| self.endpoint.may_nudge());
        let due: [Option<Duration>; OWES] = [
            self.endpoint.has_output().then_some(config.stall_timeout),
            self.endpoint.awaits_octets().then_some(config.stall_timeout),
            ending.then_some(config.linger),
            nudge,
        ];
        let clock = &self.shared.env.clock;
        let mut first: Option<(Timestamp, Duration, usize)> = None;
        for (what, (limit, since)) in due.into_iter().zip(&mut self.owes).enumerate() {
            let Some(limit) = limit else {
                *since = None;
                continue;
            };
            let when = *since.get_or_insert_with(|| clock.now()) + limit;
            if first.is_none_or(|(earliest, ..)| when < earliest) {
                first = Some((when, limit, what));
            }
        }
        let Some((when, limit, what)) = first else { return false };
        loop {
            // A timer that fires too early is set again, one that would fire too late is replaced. So not every octet
            // that comes needs a new timer.
            let (_, sleep) = match &mut self.timer {
                Some(timer) if timer.0 <= when => timer,
                timer => timer.insert((when, clock.sleep_until(when))),
            };
            if sleep.as_mut().poll(cx).is_pending() {
                return false;
            }
            self.timer = None;
            if clock.now() >= when {
                if what == ANSWERING {
                    self.nudges += 1;
                    self.endpoint.nudge();
                } else {
                    self.endpoint.time_up(limit.as_secs());
                }
                return true;
            }
        }
    }
}

/// The socket has failed. TCP gives up a peer that acknowledges nothing after the same time as we do: what was sent may
/// be in the socket and not here, so either of the two clocks can be the first to see the same stall.
fn failed(endpoint: &mut Endpoint, error: &io::Error, stall_timeout: Duration) {
    match error.kind() {
        io::ErrorKind::TimedOut => endpoint.time_up(stall_timeout.as_secs()),
        _ => endpoint.broken(error.to_string()),
    }
}

impl QueuePair for IwarpQueuePair {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        self.endpoint.post_receive(buffer)
    }

    fn posted_receives(&self) -> usize {
        self.endpoint.posted_receives()
    }

    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        self.overlap.posted_send(send.octets.iter().map(Bytes::len).sum());
        self.endpoint.post_send(send)
    }

    fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>> {
        self.overlap.posted_write(write.octets.iter().map(Bytes::len).sum());
        self.endpoint.post_write(write)
    }

    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
        self.endpoint.post_read(read)
    }

    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        self.endpoint.expose(token, memory)
    }

    fn invalidate(&mut self, handle: u32) {
        self.endpoint.invalidate(handle);
    }

    fn disconnect(&mut self) {
        self.endpoint.disconnect();
    }

    fn has_completion(&self) -> bool {
        self.endpoint.has_completion()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        loop {
            if self.overlap.is_due() && self.endpoint.has_completion() {
                self.pump_out(cx);
            }
            if let Some(completion) = self.endpoint.next_completion() {
                if let Completion::Closed { reason } = &completion {
                    tracing::debug!(local = %self.info.local, peer = %self.info.peer, %reason, "closed");
                    self.wire = None;
                    self.timer = None;
                }
                return Poll::Ready(completion);
            }
            let wrote = self.pump_out(cx);
            let read = self.pump_in(cx);
            if wrote || read || self.endpoint.has_completion() {
                continue;
            }
            if let Some(error) = self.mute.take() {
                failed(&mut self.endpoint, &error, self.shared.config.stall_timeout);
            } else if !self.watch(cx) {
                return Poll::Pending;
            }
        }
    }
}
