//! Lending memory: through a window if the device has windows, else through a registration of its own.
//!
//! An exposure owns its memory until it is fenced: the window invalidated, by us or by the peer, or the registration
//! ended. Windows are used again in the order in which they became free, each time with another handle.

use super::{Kept, Phase, VerbsQueuePair, work::Work};
use crate::{
    config::BIND_PATIENCE,
    domain::{Key, Region},
    sys::verbs,
    window::Window,
};
use rpcrdma_fabric::{Access, CloseReason, Completion, FenceCause, Lent, Refused, RefusedReason, RemoteSegment, Token};
use std::io;

/// Why a connection ends if the device does not end a registration.
const NOT_ENDED: &str = "the device did not end a registration of memory";

/// Memory that the peer can reach.
pub(super) struct Exposure {
    token: Token,
    by: By,
    memory: Lent,
    /// Whether our end is invalidating it.
    ending: bool,
}

/// The object through which the peer reaches it.
enum By {
    Window { window: Window, key: Key, region: Kept },
    Region(Region),
}

/// Address and length of memory.
fn place(memory: &mut Lent) -> (usize, usize) {
    match memory {
        Lent::Source(octets) => (octets.as_ptr() as usize, octets.len()),
        Lent::Sink(buffer) => {
            let octets = buffer.bytes_mut();
            (octets.as_mut_ptr() as usize, octets.len())
        }
    }
}

impl VerbsQueuePair {
    pub(super) fn lend(&mut self, token: Token, mut memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        let limits = self.shared.capabilities();
        let (address, octets) = place(&mut memory);
        let length = u32::try_from(octets).ok().filter(|_| octets <= limits.max_exposure_bytes);
        let checked = match (self.phase, length) {
            (Phase::Open | Phase::Suspect(_), _) if octets == 0 => Err(RefusedReason::Empty),
            (Phase::Open | Phase::Suspect(_), None) => {
                Err(RefusedReason::Limit { what: "the length of an exposure", max: limits.max_exposure_bytes })
            }
            (Phase::Open | Phase::Suspect(_), Some(_)) if self.exposures.len() >= limits.max_exposures => {
                Err(RefusedReason::Limit { what: "the number of exposures", max: limits.max_exposures })
            }
            (Phase::Open | Phase::Suspect(_), Some(length)) => Ok(length),
            _ => Err(RefusedReason::Closed),
        };
        let length = match checked {
            Ok(length) => length,
            Err(reason) => return Err(Refused { reason, returned: memory }),
        };
        // SAFETY: the memory goes into the table of exposures, beside the registration. There a source is shared and
        // immutable, and nothing touches a sink until it is fenced.
        let lent = unsafe { self.reach(address, octets, memory.access()) };
        let (handle, offset, by) = match lent {
            Ok(lent) => lent,
            Err(_) => return Err(Refused { reason: RefusedReason::Registration, returned: memory }),
        };
        let binds = matches!(by, By::Window { .. });
        self.exposures.insert(handle, Exposure { token, by, memory, ending: false });
        if binds {
            // The bind leaves together with the Send that announces the handle to the peer.
            self.waiting.push_back(Work::Bind(handle));
            if self.shared.config.await_binds {
                self.await_bind(handle);
            }
        }
        Ok(RemoteSegment { handle, length, offset })
    }

    /// Waits in place until the device has bound an exposure's window, or the connection ends.
    fn await_bind(&mut self, handle: u32) {
        let clock = self.shared.env.clock.clone();
        let end = clock.now() + BIND_PATIENCE;
        let is_bind = |work: &Work| matches!(work, Work::Bind(waiting) if *waiting == handle);
        while self.waiting.iter().any(is_bind) || self.posted.iter().any(|posted| is_bind(&posted.work)) {
            if self.reason.is_some() || clock.now() >= end {
                return;
            }
            self.post_waiting();
            if !self.take_completions() {
                std::thread::yield_now();
            }
        }
    }

    /// Makes memory reachable for the peer: returns its handle and the first byte's offset.
    ///
    /// # Safety
    /// As for [`Domain::register`](crate::domain::Domain::register).
    unsafe fn reach(&mut self, address: usize, octets: usize, access: Access) -> io::Result<(u32, u64, By)> {
        if !self.shared.limits.windows {
            let rights = match access {
                Access::Read => verbs::ACCESS_REMOTE_READ,
                Access::Write => verbs::ACCESS_REMOTE_WRITE | verbs::ACCESS_LOCAL_WRITE,
            };
            // SAFETY: the caller's promise.
            let region = unsafe { self.domain.register(address, octets, rights) }
                .inspect_err(|error| tracing::warn!(octets, %error, "memory cannot be exposed"))?;
            return Ok((region.remote_key(), address as u64, By::Region(region)));
        }
        let rights = match access {
            Access::Read => verbs::ACCESS_BIND,
            Access::Write => verbs::ACCESS_BIND | verbs::ACCESS_LOCAL_WRITE,
        };
        // SAFETY: the caller's promise.
        let (key, region) = unsafe { self.domain.key(address, octets, rights) }?;
        let mut window = match self.windows.pop_front() {
            Some(window) => window,
            None => Window::new(&self.domain, self.shared.env.random.next_u64())
                .inspect_err(|error| tracing::warn!(%error, "there is no memory window left"))?,
        };
        let handle = window.next_handle();
        // Offsets count from zero, so that the peer learns none of our addresses.
        Ok((handle, 0, By::Window { window, key, region }))
    }

    /// Fills in the work request that binds an exposure's window.
    pub(super) fn prepare_bind(&mut self, handle: u32, request: &mut verbs::SendWork) -> io::Result<()> {
        let Some(Exposure { by: By::Window { window, key, .. }, memory, .. }) = self.exposures.get_mut(&handle) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let rights = match memory.access() {
            Access::Read => verbs::ACCESS_REMOTE_READ,
            Access::Write => verbs::ACCESS_REMOTE_WRITE,
        };
        let (address, octets) = place(memory);
        request.opcode = verbs::OP_BIND;
        request.bind = verbs::BindWork {
            mw: window.raw(),
            rkey: handle,
            bind_info: verbs::BindInfo {
                mr: key.region,
                addr: address as u64,
                length: octets as u64,
                mw_access_flags: rights | verbs::ACCESS_ZERO_BASED,
            },
        };
        Ok(())
    }

    /// The bind of an exposure's window has been posted.
    pub(super) fn bound(&mut self, handle: u32) {
        if let Some(Exposure { by: By::Window { window, .. }, .. }) = self.exposures.get_mut(&handle) {
            window.bound(handle);
        }
    }

    /// Begins to end an exposure, at our own request.
    pub(super) fn fence(&mut self, handle: u32) {
        let Some(exposure) = self.exposures.get_mut(&handle).filter(|exposure| !exposure.ending) else { return };
        exposure.ending = true;
        match exposure.by {
            By::Window { .. } => self.waiting.push_back(Work::Invalidate(handle)),
            By::Region(_) => self.fenced(handle, FenceCause::Local),
        }
    }

    /// An exposure has ended: its memory comes back, unless the device does not end the registration. In that case the
    /// memory is given up, no completion reports it as fenced, and the connection ends.
    pub(super) fn fenced(&mut self, handle: u32, cause: FenceCause) {
        let Some(Exposure { token, by, memory, ending }) = self.exposures.remove(&handle) else { return };
        if ending && cause == FenceCause::Remote {
            // The peer was first: a handle that is no longer exposed must not be invalidated again.
            self.waiting.retain(|work| !matches!(work, Work::Invalidate(waiting) if *waiting == handle));
        }
        let ended = match by {
            // At the connection's end windows are freed: not every driver can destroy a queue pair with windows.
            By::Window { window, region, .. } => {
                if cause == FenceCause::Closed {
                    drop(window);
                } else {
                    self.windows.push_back(window);
                }
                region.map_or(Ok(()), Region::end)
            }
            By::Region(region) => region.end(),
        };
        match self.shared.abandoned.unless_ended(ended, memory) {
            Some(memory) => self.out.push_back(Completion::Fenced { token, handle, memory, cause }),
            None => self.end(CloseReason::Broken(NOT_ENDED.to_owned())),
        }
    }

    /// Ends all exposures at the connection's end.
    pub(super) fn fence_all(&mut self) {
        while let Some((handle, _)) = self.exposures.first_key_value() {
            let handle = *handle;
            self.fenced(handle, FenceCause::Closed);
        }
        self.windows.clear();
    }
}
