//! Receives that many connections share: a device's shared receive queue, and the buffers in it.
//!
//! A buffer belongs to the queue until a completion of some connection takes it out, or until the queue is destroyed:
//! when the pool and the last connection that uses it are dropped. Buffers for which the device has no room wait here,
//! and a buffer that the device gives back unused is posted again. A receive that a device loses with a connection
//! counts as posted, and its memory is kept, until the queue is destroyed.

use crate::{
    answer::{check, report},
    completions::RECEIVE,
    context::Context,
    domain::{Domain, Region},
    events,
    sys::verbs,
};
use rpcrdma_env::{Buffer, Clock};
use rpcrdma_fabric::ReceivePool;
use std::{
    collections::{BTreeMap, VecDeque},
    io, ptr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How long the end of a queue pair blocks until the device has reported every shared receive that the queue pair took.
/// Devices do so within microseconds after the queue pair was stopped.
const LAST_RECEIVE_PATIENCE: Duration = Duration::from_millis(50);

/// The pool of receives.
pub(crate) struct SharedReceives {
    raw: *mut verbs::SharedReceiveQueue,
    domain: Arc<Domain>,
    /// The most receives that the device has at a time.
    room: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    number: u64,
    /// The receives that the device has.
    posted: BTreeMap<u64, Posted>,
    waiting: VecDeque<Buffer>,
}

/// A receive, and its registration if it does not lie in the slabs.
struct Posted {
    _region: Option<Region>,
    buffer: Buffer,
}

// SAFETY: shared receive queues may be used from any thread; the buffers are behind a lock.
unsafe impl Send for SharedReceives {}
// SAFETY: as above.
unsafe impl Sync for SharedReceives {}

impl SharedReceives {
    /// A queue for `room` receives, in the domain of all its connections.
    pub(crate) fn new(domain: &Arc<Domain>, room: usize) -> io::Result<Arc<Self>> {
        let context = domain.context();
        let mut init = verbs::SharedReceiveQueueInit {
            srq_context: ptr::null_mut(),
            max_wr: room.try_into().unwrap_or(u32::MAX),
            max_sge: 1,
            srq_limit: 0,
        };
        // SAFETY: the domain is allocated and kept as long as the queue; the function writes the numbers that it has
        // chosen into `init`.
        let raw = unsafe { (context.library().verbs.ibv_create_srq)(domain.raw(), &mut init) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Self { raw, domain: domain.clone(), room, inner: Mutex::default() }))
    }

    /// The raw queue, for the queue pairs of its connections, each of which keeps it alive.
    pub(crate) fn raw(&self) -> *mut verbs::SharedReceiveQueue {
        self.raw
    }

    /// The buffer that a connection's completion names, with which the device is done.
    pub(crate) fn taken(&self, number: u64) -> Option<Buffer> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let posted = inner.posted.remove(&number)?;
        self.fill(&mut inner);
        Some(posted.buffer)
    }

    /// Gives the device the waiting buffers, as far as it has room. If it does not accept a buffer, the next call tries
    /// again.
    fn fill(&self, inner: &mut Inner) {
        while inner.posted.len() < self.room {
            let Some(buffer) = inner.waiting.pop_front() else { return };
            if let Err((buffer, error)) = self.give(inner, buffer) {
                tracing::warn!(%error, "a shared receive cannot be posted");
                inner.waiting.push_front(buffer);
                return;
            }
        }
    }

    fn give(&self, inner: &mut Inner, mut buffer: Buffer) -> Result<(), (Buffer, io::Error)> {
        let Some(post) = self.domain.context().ops().post_srq_recv else {
            return Err((buffer, io::ErrorKind::Unsupported.into()));
        };
        // SAFETY: the buffer goes into the table of the device's buffers, beside the region, and nothing touches it
        // there.
        let (mut slice, region) = match unsafe { self.domain.receive_slice(&mut buffer) } {
            Ok(found) => found,
            Err(error) => return Err((buffer, error)),
        };
        inner.number += 1;
        let number = inner.number | RECEIVE;
        let mut work = verbs::ReceiveWork {
            wr_id: number,
            next: ptr::null_mut(),
            num_sge: (slice.length > 0).into(),
            sg_list: &mut slice,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue exists, and copies the request. The buffer stays in the table, whose lock the caller holds,
        // until a completion takes it out or the queue has been destroyed; if the queue does not accept the request,
        // the device never sees the buffer.
        match check(unsafe { post(self.raw, &mut work, &mut bad) }) {
            Ok(()) => {
                inner.posted.insert(number, Posted { _region: region, buffer });
                Ok(())
            }
            Err(error) => Err((buffer, error)),
        }
    }
}

impl ReceivePool for SharedReceives {
    fn post(&self, buffer: Buffer) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.waiting.push_back(buffer);
        self.fill(&mut inner);
    }

    fn posted(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.posted.len() + inner.waiting.len()
    }

    fn take(&self) -> Option<Buffer> {
        None
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold a reference to this value, so none uses the queue any more.
        let answer = check(unsafe { (self.domain.context().library().verbs.ibv_destroy_srq)(self.raw) });
        if answer.is_err() {
            // Memory that the device may still reach is never used again.
            let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(&mut inner.posted));
        }
        report("destroying a shared receive queue", answer);
    }
}

/// After a queue pair was stopped, waits until the device has reported every shared receive that the queue pair took:
/// receives that are not reported before it is destroyed are lost to the pool.
pub(crate) fn await_last(context: &Context, queue_pair: *mut verbs::QueuePair, clock: &dyn Clock) {
    let end = clock.now() + LAST_RECEIVE_PATIENCE;
    while !events::is_done(context, queue_pair) {
        if clock.now() >= end {
            tracing::debug!("the device does not say that it is done with a connection's shared receives");
            return;
        }
        std::thread::yield_now();
    }
}
