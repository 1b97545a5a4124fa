//! What a provider can and cannot do. The layers above ask the capabilities, not which provider it is.

/// How an exposure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// By invalidating its handle, locally or by the peer's Send with Invalidate: memory windows, fast registrations,
    /// software tables.
    Invalidation,
    /// By deregistering the memory, if a device has no windows. The peer cannot end an exposure.
    Deregistration,
}

/// Where a handle is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleScope {
    /// On the one connection whose queue pair made the handle.
    Connection,
    /// In the whole protection domain. A provider then has a domain for each connection, so that no other peer can use
    /// the handle; the price is that it registers its pool in each domain.
    ProtectionDomain,
}

/// What a provider can do, and its limits: each is the lower of the device's limit and the local configuration's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The peer may end our exposures by Send with Invalidate.
    pub remote_invalidation: bool,
    /// Our end may use [`SendWork::invalidate`](crate::SendWork::invalidate).
    pub send_with_invalidate: bool,
    /// How exposures end.
    pub fencing: Fencing,
    /// Where handles are valid.
    pub handle_scope: HandleScope,
    /// How many of a handle's 32 bits a peer cannot predict: all 32 in software; eight if a device numbers its windows
    /// in sequence and leaves the rest to us; none if the device numbers its regions itself. If few bits are
    /// unpredictable, the handle's scope keeps other peers out.
    pub unpredictable_handle_bits: u8,
    /// One [`ReceivePool`](crate::ReceivePool) can serve many queue pairs.
    pub shared_receives: bool,
    /// The most bytes in one exposure.
    pub max_exposure_bytes: usize,
    /// The most exposures at a time on one queue pair.
    pub max_exposures: usize,
    /// The most bytes in one Send, Write, or one segment of a Read.
    pub max_message_bytes: usize,
    /// The most slices gathered into one Send or Write.
    pub max_gather: usize,
    /// The most receives posted on one queue pair.
    pub max_receives: usize,
    /// The most Sends, Writes, and segments of Reads posted and not completed on one queue pair. A caller cannot count
    /// unsignaled work that is not completed, so a provider whose device accepts less keeps the rest in a queue of its
    /// own.
    pub max_posted: usize,
    /// The most RDMA Reads of the peer that we can serve at a time (IRD).
    pub max_ird: u16,
    /// The most RDMA Reads of our own that can be under way at a time (ORD). More may be posted: they wait.
    pub max_ord: u16,
    /// The most bytes of private data that a connection request or its answer can carry.
    pub max_private_data: usize,
}
