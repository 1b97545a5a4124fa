//! The connection manager's events and identifiers.

use crate::{
    answer::{check, report},
    error::REMOVED,
    sys::{Library, cm, verbs},
};
use bytes::Bytes;
use socket2::SockAddr;
use std::{
    ffi::{c_int, c_void},
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A descriptor that belongs to a library, which closes it.
pub(crate) struct Descriptor(RawFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Makes a library's descriptor non-blocking, and registers it with this thread's runtime.
///
/// # Safety
/// The descriptor is open, and stays open until the result has been dropped.
pub(crate) unsafe fn watch(fd: RawFd) -> io::Result<AsyncFd<Descriptor>> {
    // SAFETY: the caller's promise.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(borrowed)?;
    rustix::fs::fcntl_setfl(borrowed, flags | rustix::fs::OFlags::NONBLOCK)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { AsyncFd::register_with_interest(Descriptor(fd), Interest::READABLE) }?)
}

/// An event of the connection manager.
pub(crate) struct Event {
    pub(crate) kind: c_int,
    pub(crate) status: c_int,
    /// The identifier of a new request.
    pub(crate) request: Option<*mut cm::Id>,
    pub(crate) private_data: Bytes,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

impl Event {
    /// The error for an event that is not the awaited one.
    pub(crate) fn error(&self, library: &Library) -> io::Error {
        let name = library.event(self.kind);
        if self.kind == cm::DEVICE_REMOVAL {
            return io::Error::new(io::ErrorKind::NotConnected, REMOVED);
        }
        if self.status < 0 {
            let error = io::Error::from_raw_os_error(self.status.saturating_neg());
            return io::Error::new(error.kind(), format!("{name}: {error}"));
        }
        io::Error::other(format!("{name}, status {}", self.status))
    }
}

/// The source of events.
pub(crate) struct Channel {
    raw: *mut cm::EventChannel,
    library: &'static Library,
    /// Dropped before the descriptor is closed.
    fd: Option<AsyncFd<Descriptor>>,
}

// SAFETY: a channel may be used from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn new(library: &'static Library) -> io::Result<Arc<Self>> {
        // SAFETY: takes nothing.
        let raw = unsafe { (library.cm.rdma_create_event_channel)() };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut channel = Self { raw, library, fd: None };
        // SAFETY: the channel was just made. `drop` closes its descriptor after it has dropped this.
        channel.fd = Some(unsafe { watch((*raw).fd) }?);
        Ok(Arc::new(channel))
    }

    /// The next event, if there is one.
    pub(crate) fn next(&self) -> io::Result<Option<Event>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open; the function fills in an event that is ours until it is acknowledged.
        if let Err(error) = check(unsafe { (self.library.cm.rdma_get_cm_event)(self.raw, &mut raw) }) {
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: the function has returned successfully, so the event exists.
        let event = unsafe { &*raw };
        let connects = matches!(event.event, cm::CONNECT_REQUEST | cm::ESTABLISHED | cm::REJECTED);
        let mut seen = Event {
            kind: event.event,
            status: event.status,
            request: (event.event == cm::CONNECT_REQUEST).then_some(event.id),
            private_data: Bytes::new(),
            responder_resources: 0,
            initiator_depth: 0,
        };
        if connects {
            let conn = &event.conn;
            if !conn.private_data.is_null() {
                let octets = usize::from(conn.private_data_len);
                // SAFETY: the library keeps so many bytes at this pointer until the event is acknowledged.
                let data = unsafe { std::slice::from_raw_parts(conn.private_data.cast(), octets) };
                seen.private_data = Bytes::copy_from_slice(data);
            }
            seen.responder_resources = conn.responder_resources;
            seen.initiator_depth = conn.initiator_depth;
        }
        // SAFETY: nothing refers to the event any more.
        check(unsafe { (self.library.cm.rdma_ack_cm_event)(raw) })?;
        Ok(Some(seen))
    }

    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Event>> {
        let Some(fd) = &self.fd else { return Poll::Pending };
        loop {
            let mut guard = ready!(fd.poll_read_ready(cx))?;
            match self.next() {
                Ok(Some(event)) => return Poll::Ready(Ok(event)),
                Ok(None) => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    pub(crate) async fn wait(&self) -> io::Result<Event> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.fd = None;
        // SAFETY: identifiers hold a reference to their channel, so none is left.
        unsafe { (self.library.cm.rdma_destroy_event_channel)(self.raw) }
    }
}

/// What one end brings to a connection.
pub(crate) struct Bring<'a> {
    pub(crate) private_data: &'a [u8],
    pub(crate) ird: u16,
    pub(crate) ord: u16,
}

/// The transport's retries when a peer does not answer: together some seconds. Seven would be possible, but soft-RoCE
/// reads it as "for ever".
const RETRIES: u8 = 6;
/// The retries when a peer has no receive, up to 655 ms each: that is a fault of the peer, but it may have one a moment
/// later.
const NO_RECEIVE_RETRIES: u8 = 2;

impl Bring<'_> {
    fn parameters(&self) -> cm::ConnectionParameters {
        cm::ConnectionParameters {
            private_data: self.private_data.as_ptr().cast(),
            // The length was checked against the capabilities' limit, which is below 255.
            private_data_len: u8::try_from(self.private_data.len()).unwrap_or(u8::MAX),
            responder_resources: u8::try_from(self.ird).unwrap_or(u8::MAX),
            initiator_depth: u8::try_from(self.ord).unwrap_or(u8::MAX),
            flow_control: 0,
            retry_count: RETRIES,
            rnr_retry_count: NO_RECEIVE_RETRIES,
            srq: 0,
            qp_num: 0,
        }
    }
}

/// The connection manager's identifier of a connection, a listener, or a request. Dropping an unanswered request
/// refuses it.
pub(crate) struct Id {
    raw: *mut cm::Id,
    library: &'static Library,
    channel: Arc<Channel>,
}

// SAFETY: an identifier may be used from any thread.
unsafe impl Send for Id {}
// SAFETY: methods that take a shared reference only read it.
unsafe impl Sync for Id {}

impl Id {
    pub(crate) fn new(channel: &Arc<Channel>) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        let library = channel.library;
        // SAFETY: the channel is open; the function fills in the pointer.
        check(unsafe { (library.cm.rdma_create_id)(channel.raw, &mut raw, ptr::null_mut(), cm::PORT_SPACE_TCP) })?;
        Ok(Self { raw, library, channel: channel.clone() })
    }

    /// The identifier that came with a request on this channel.
    pub(crate) fn of_request(raw: *mut cm::Id, channel: &Arc<Channel>) -> Self {
        Self { raw, library: channel.library, channel: channel.clone() }
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Moves the identifier to this channel, on which its events come from now on.
    pub(crate) fn migrate(&mut self, channel: &Arc<Channel>) -> io::Result<()> {
        // SAFETY: both are open.
        check(unsafe { (self.library.cm.rdma_migrate_id)(self.raw, channel.raw) })?;
        self.channel = channel.clone();
        Ok(())
    }

    /// The device to which the identifier is tied; null if it is tied to none yet.
    pub(crate) fn device(&self) -> *mut verbs::Context {
        // SAFETY: the identifier is open.
        unsafe { (*self.raw).verbs }
    }

    pub(crate) fn queue_pair(&self) -> *mut verbs::QueuePair {
        // SAFETY: as above.
        unsafe { (*self.raw).qp }
    }

    /// Records that the queue pair has been destroyed.
    pub(crate) fn forget_queue_pair(&mut self) {
        // SAFETY: as above; the library knows by this field whether there is a queue pair.
        unsafe { (*self.raw).qp = ptr::null_mut() }
    }

    /// Our address and the peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        // SAFETY: as above.
        let (source, destination) = unsafe { ((*self.raw).source, (*self.raw).destination) };
        (address(&source), address(&destination))
    }

    pub(crate) fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let local = SockAddr::from(local);
        // SAFETY: the identifier is open, and the pointer leads to an address.
        check(unsafe { (self.library.cm.rdma_bind_addr)(self.raw, local.as_ptr().cast()) })
    }

    pub(crate) fn listen(&self, backlog: c_int) -> io::Result<()> {
        // SAFETY: the identifier is open.
        check(unsafe { (self.library.cm.rdma_listen)(self.raw, backlog) })
    }

    pub(crate) fn resolve(&self, local: Option<SocketAddr>, peer: SocketAddr, limit: Duration) -> io::Result<()> {
        let (local, peer) = (local.map(SockAddr::from), SockAddr::from(peer));
        let local = local.as_ref().map_or(ptr::null(), |local| local.as_ptr().cast::<c_void>());
        // SAFETY: the identifier is open, and the pointers lead to addresses.
        check(unsafe {
            (self.library.cm.rdma_resolve_addr)(self.raw, local, peer.as_ptr().cast(), milliseconds(limit))
        })
    }

    pub(crate) fn resolve_route(&self, limit: Duration) -> io::Result<()> {
        // SAFETY: the identifier is open.
        check(unsafe { (self.library.cm.rdma_resolve_route)(self.raw, milliseconds(limit)) })
    }

    pub(crate) fn create_queue_pair(
        &mut self,
        domain: *mut verbs::ProtectionDomain,
        init: &mut verbs::QueuePairInit,
    ) -> io::Result<()> {
        // SAFETY: identifier and domain are open; the caller keeps what `init` points to for as long as the queue pair.
        check(unsafe { (self.library.cm.rdma_create_qp)(self.raw, domain, init) })
    }

    pub(crate) fn connect(&self, bring: &Bring<'_>) -> io::Result<()> {
        // SAFETY: the identifier is open; the function copies the parameters.
        check(unsafe { (self.library.cm.rdma_connect)(self.raw, &mut bring.parameters()) })
    }

    pub(crate) fn accept(&self, bring: &Bring<'_>) -> io::Result<()> {
        // SAFETY: as above.
        check(unsafe { (self.library.cm.rdma_accept)(self.raw, &mut bring.parameters()) })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let octets = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: the identifier is open; the function copies the bytes.
        check(unsafe { (self.library.cm.rdma_reject)(self.raw, private_data.as_ptr().cast(), octets) })
    }

    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is open.
        check(unsafe { (self.library.cm.rdma_disconnect)(self.raw) })
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: its queue pair has been destroyed or never existed, and all its events are acknowledged.
        let answer = unsafe { (self.library.cm.rdma_destroy_id)(self.raw) };
        report("ending a connection's identifier", check(answer));
    }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

/// A socket address in the system's form.
fn address(raw: &cm::SocketAddress) -> Option<SocketAddr> {
    // SAFETY: the bytes are a `sockaddr_storage` that the library has filled; `as_socket` rejects a family that it does
    // not know.
    let (_, address) = unsafe {
        SockAddr::try_init(|storage, _| {
            let octets = raw.octets.len().min(size_of_val(&*storage));
            ptr::copy_nonoverlapping(raw.octets.as_ptr(), storage.cast::<u8>(), octets);
            Ok(())
        })
    }
    .ok()?;
    address.as_socket()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_come_to_an_end() {
        let bring = Bring { private_data: &[], ird: 1, ord: 1 };
        let parameters = bring.parameters();
        // Three bits each. InfiniBand defines the highest value of the second as "for ever"; some devices read both so.
        assert!((1..7).contains(&parameters.retry_count) && (1..7).contains(&parameters.rnr_retry_count));
    }
}
