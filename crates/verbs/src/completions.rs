//! A completion queue, and the descriptor that shows when it has completions.

use crate::{
    answer::{check, report},
    channel::{Descriptor, watch},
    context::Context as Device,
    sys::verbs,
};
use std::{
    ffi::c_int,
    io, ptr,
    task::{Context, Poll},
};
use tokio::io::unix::AsyncFd;

/// Completions taken from the device at a time.
const BATCH: usize = 16;

/// The bit that marks the numbers of receives.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// The completion queue of one queue pair.
pub(crate) struct Completions {
    device: Device,
    channel: *mut verbs::CompletionChannel,
    queue: *mut verbs::CompletionQueue,
    /// Dropped before the channel is destroyed, which closes the descriptor.
    fd: Option<AsyncFd<Descriptor>>,
    /// Whether the device will announce the next completion.
    armed: bool,
}

// SAFETY: queues and channels may be used from any thread.
unsafe impl Send for Completions {}

impl Completions {
    /// A queue with room for `room` completions.
    pub(crate) fn new(device: &Device, room: usize) -> io::Result<Self> {
        let library = &device.library().verbs;
        // SAFETY: the context is open.
        let channel = unsafe { (library.ibv_create_comp_channel)(device.raw()) };
        if channel.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut this = Self { device: device.clone(), channel, queue: ptr::null_mut(), fd: None, armed: false };
        let room = c_int::try_from(room).unwrap_or(c_int::MAX);
        // SAFETY: context and channel are open.
        this.queue = unsafe { (library.ibv_create_cq)(device.raw(), room, ptr::null_mut(), channel, 0) };
        if this.queue.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `drop` closes the channel's descriptor after it has dropped this.
        this.fd = Some(unsafe { watch((*channel).fd) }?);
        Ok(this)
    }

    pub(crate) fn queue(&self) -> *mut verbs::CompletionQueue {
        self.queue
    }

    /// Takes the completions in the queue, at most a batch.
    pub(crate) fn take(&self, taken: &mut Vec<verbs::WorkCompletion>) -> io::Result<()> {
        let Some(poll_cq) = self.device.ops().poll_cq else { return Err(io::ErrorKind::Unsupported.into()) };
        taken.clear();
        let mut batch = [verbs::WorkCompletion::default(); BATCH];
        // SAFETY: the queue is open and the array has so many places.
        let count = unsafe { poll_cq(self.queue, BATCH as c_int, batch.as_mut_ptr()) };
        let Ok(count) = usize::try_from(count) else {
            return Err(io::Error::other("the completion queue cannot be read"));
        };
        taken.extend(batch.iter().take(count));
        Ok(())
    }

    /// Asks the device to announce the next completion. Returns true if that was not yet asked; then the caller must
    /// poll the queue once more.
    pub(crate) fn arm(&mut self) -> io::Result<bool> {
        if self.armed {
            return Ok(false);
        }
        let Some(notify) = self.device.ops().req_notify_cq else { return Err(io::ErrorKind::Unsupported.into()) };
        // SAFETY: the queue is open.
        check(unsafe { notify(self.queue, 0) })?;
        self.armed = true;
        Ok(true)
    }

    /// Ready when the device has announced a completion.
    pub(crate) fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(fd) = &self.fd else { return Poll::Pending };
        loop {
            let mut guard = std::task::ready!(fd.poll_read_ready(cx))?;
            let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
            let library = &self.device.library().verbs;
            // SAFETY: the channel is open, and the function fills in the pointers.
            match check(unsafe { (library.ibv_get_cq_event)(self.channel, &mut queue, &mut context) }) {
                Ok(()) => {
                    // SAFETY: the event that was just taken belongs to this queue, the only one of the channel.
                    unsafe { (library.ibv_ack_cq_events)(queue, 1) };
                    self.armed = false;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.fd = None;
        let library = &self.device.library().verbs;
        if !self.queue.is_null() {
            // SAFETY: the queue pair is destroyed first, and every event is acknowledged.
            report("destroying a completion queue", check(unsafe { (library.ibv_destroy_cq)(self.queue) }));
        }
        // SAFETY: as above; the queue has been destroyed.
        report("destroying a completion channel", check(unsafe { (library.ibv_destroy_comp_channel)(self.channel) }));
    }
}
