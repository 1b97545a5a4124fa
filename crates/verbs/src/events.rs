//! What a device reports about itself, besides connections and completions: that it has failed, that a port's link is
//! lost or back, that a queue pair will take no more shared receives.
//!
//! Events of one device come on one descriptor, in the order in which they happened. The reader passes each event to
//! the object that it concerns, so it does not matter which object reads: a listener, which waits for events, or the
//! end of a connection with shared receives.

use crate::{answer::check, context::Context as Device, sys::verbs};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::fcntl_dupfd_cloexec,
};
use std::{
    collections::BTreeSet,
    ffi::c_int,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    ptr,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};
use tokio::io::{Interest, unix::AsyncFd};

/// The queue pairs, by address, of which the device has reported that they take no more shared receives.
///
/// This set belongs to the process and not to a fabric: librdmacm opens a device once for the whole process, so fabrics
/// of one device take each other's events.
static DONE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// What an event means for the device as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The device has failed, or is being removed: no object of it works any more.
    Gone,
    LinkLost,
    LinkBack,
    /// A queue pair has taken its last shared receive.
    LastReceive,
    /// An event of a connection, which sees it in its completions, or one of no interest.
    Other,
}

fn told(event: c_int) -> Told {
    match event {
        verbs::EVENT_DEVICE_FATAL => Told::Gone,
        verbs::EVENT_PORT_DOWN => Told::LinkLost,
        verbs::EVENT_PORT_ACTIVE => Told::LinkBack,
        verbs::EVENT_LAST_RECEIVE => Told::LastReceive,
        _ => Told::Other,
    }
}

/// Makes the device's descriptor non-blocking. Called once, before events are taken.
pub(crate) fn prepare(device: &Device) -> io::Result<()> {
    let events = descriptor(device);
    fcntl_setfl(events, fcntl_getfl(events)? | OFlags::NONBLOCK)?;
    Ok(())
}

fn descriptor(device: &Device) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the context.
    unsafe { BorrowedFd::borrow_raw((*device.raw()).async_fd) }
}

/// Takes the events that have come, and passes each to the object that it concerns.
pub(crate) fn take(device: &Device) {
    let library = &device.library().verbs;
    let mut event = verbs::AsyncEvent { element: ptr::null_mut(), event_type: 0 };
    // SAFETY: the context is open, and its descriptor does not block. The function fills in the event.
    while check(unsafe { (library.ibv_get_async_event)(device.raw(), &mut event) }).is_ok() {
        match told(event.event_type) {
            Told::Gone => {
                tracing::error!(device = device.name(), "the RDMA device has failed or is being removed");
                device.leave();
            }
            Told::LinkLost => tracing::warn!(device = device.name(), "the link of the RDMA device is lost"),
            Told::LinkBack => tracing::info!(device = device.name(), "the link of the RDMA device is up"),
            Told::LastReceive => {
                DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(event.element as usize);
            }
            Told::Other => {}
        }
        // SAFETY: the event was just taken, once. The objects that it names exist: destroying them waits for this call.
        unsafe { (library.ibv_ack_async_event)(&mut event) };
    }
}

/// Whether the device has reported that a queue pair takes no more shared receives.
pub(crate) fn is_done(device: &Device, queue_pair: *mut verbs::QueuePair) -> bool {
    take(device);
    DONE.lock().unwrap_or_else(PoisonError::into_inner).remove(&(queue_pair as usize))
}

/// Forgets a queue pair that has been destroyed: another may soon have its address.
pub(crate) fn forget(queue_pair: *mut verbs::QueuePair) {
    DONE.lock().unwrap_or_else(PoisonError::into_inner).remove(&(queue_pair as usize));
}

/// Announces events to an object that has no other descriptor to wait for.
pub(crate) struct Watch {
    device: Device,
    fd: AsyncFd<OwnedFd>,
}

impl Watch {
    /// Waits for events in this thread's runtime.
    pub(crate) fn new(device: &Device) -> io::Result<Self> {
        // A descriptor of its own: other objects may wait for the same events elsewhere.
        let fd = fcntl_dupfd_cloexec(descriptor(device), 0)?;
        // SAFETY: the descriptor is this value's own, and stays open until it is dropped.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { device: device.clone(), fd })
    }

    /// Takes events. Ready when the device is gone.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.device.is_gone() {
                return Poll::Ready(());
            }
            let Ok(mut guard) = ready!(self.fd.poll_read_ready(cx)) else { return Poll::Pending };
            guard.clear_ready();
            take(&self.device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_device_is_gone() {
        for event in 0..=18 {
            let expected = match event {
                8 => Told::Gone,
                9 => Told::LinkBack,
                10 => Told::LinkLost,
                16 => Told::LastReceive,
                _ => Told::Other,
            };
            assert_eq!(told(event), expected, "{event}");
        }
    }
}
