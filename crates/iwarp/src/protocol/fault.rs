//! The rules that a peer can break, and the Terminate that answers each (RFC 5040 figure 9, RFC 5041 section 7.2, RFC
//! 5044 section 8, RFC 6581 section 8).

use rpcrdma_fabric::PeerViolation;

/// The three fields of a Terminate that name the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode {
    /// 0 RDMAP, 1 DDP, 2 the lower layer (MPA).
    pub layer: u8,
    /// The layer's error type.
    pub etype: u8,
    /// The type's error code.
    pub code: u8,
}

/// RDMAP.
pub(crate) const LAYER_RDMAP: u8 = 0;
/// DDP.
pub(crate) const LAYER_DDP: u8 = 1;
/// MPA.
pub(crate) const LAYER_MPA: u8 = 2;
/// RDMAP: the peer may not touch the memory.
pub(crate) const RDMAP_PROTECTION: u8 = 1;
/// RDMAP: the operation makes no sense.
pub(crate) const RDMAP_OPERATION: u8 = 2;
/// DDP: tagged buffers.
pub(crate) const DDP_TAGGED: u8 = 1;
/// DDP: untagged buffers.
pub(crate) const DDP_UNTAGGED: u8 = 2;

/// A rule that the peer broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A set-up frame without its key.
    #[error("the set-up frame does not begin with the key of an MPA {expected}")]
    Key {
        /// `request` or `reply`.
        expected: &'static str,
    },
    /// A revision of MPA that this end does not speak, or another than it asked for.
    #[error("MPA revision {revision} is not spoken here (1 and 2 are; a reply must have the revision of the request)")]
    Revision {
        /// The revision.
        revision: u8,
    },
    /// Too much private data.
    #[error("{octets} bytes of private data (at most {max})")]
    PrivateData {
        /// How much.
        octets: usize,
        /// The most.
        max: usize,
    },
    /// The peer wants markers in the stream.
    #[error("the peer asked for markers, which this implementation does not send")]
    Markers,
    /// Enhanced set-up without its IRD/ORD block, or a reply without one to a request with one.
    #[error("the IRD/ORD block of the enhanced set-up is missing")]
    Enhanced,
    /// The peer would issue more RDMA Reads at a time than we can serve.
    #[error("the peer wants {wanted} RDMA Reads served at a time, of which {max} can be")]
    InsufficientIrd {
        /// The number that the peer wants.
        wanted: u16,
        /// The number that we can serve.
        max: u16,
    },
    /// An FPDU whose CRC is wrong.
    #[error("CRC32c {carried:02x?} on the wire, {computed:02x?} over the bytes")]
    Crc {
        /// The CRC that the FPDU carries.
        carried: [u8; 4],
        /// The CRC computed over its octets.
        computed: [u8; 4],
    },
    /// A ULPDU that is too short for its header.
    #[error("a ULPDU of {octets} bytes has no room for its header")]
    ShortUlpdu {
        /// Its length.
        octets: usize,
    },
    /// Not DDP version 1.
    #[error("DDP version {version} instead of 1")]
    DdpVersion {
        /// The version.
        version: u8,
        /// Whether it stands in a tagged segment.
        tagged: bool,
    },
    /// A tagged segment for memory that is not exposed on this connection.
    #[error("STag {stag:#010x} is not exposed")]
    Stag {
        /// The steering tag.
        stag: u32,
    },
    /// A tagged segment beyond the bounds of its memory.
    #[error("{octets} bytes at offset {offset} are outside STag {stag:#010x}")]
    Bounds {
        /// The memory's steering tag.
        stag: u32,
        /// The segment's offset in it.
        offset: u64,
        /// The segment's payload octets.
        octets: usize,
    },
    /// A tagged segment whose end exceeds 64-bit offsets.
    #[error("{octets} bytes at offset {offset} end beyond 64 bits")]
    OffsetWrap {
        /// The segment's offset.
        offset: u64,
        /// The segment's payload octets.
        octets: usize,
    },
    /// A Write to memory that may only be read.
    #[error("STag {stag:#010x} may not be written")]
    WriteAccess {
        /// The memory's steering tag.
        stag: u32,
    },
    /// An untagged segment for a queue that does not exist.
    #[error("queue {queue} does not exist")]
    Queue {
        /// The queue's number.
        queue: u32,
    },
    /// No buffer for a message: a Send without receive, a Read Request beyond the agreed depth, a second Terminate.
    #[error("no buffer for message {msn} on queue {queue}")]
    NoBuffer {
        /// The queue.
        queue: u32,
        /// The message's number.
        msn: u32,
    },
    /// A message whose number is not the next one.
    #[error("message {msn} on queue {queue} where {expected} is due")]
    Msn {
        /// The queue.
        queue: u32,
        /// The message's number.
        msn: u32,
        /// The number that is due.
        expected: u32,
    },
    /// A segment that does not continue its message.
    #[error("message offset {offset} where {expected} is due")]
    MessageOffset {
        /// The offset that the segment states.
        offset: u32,
        /// The offset at which the message continues.
        expected: usize,
    },
    /// A message that is longer than its buffer.
    #[error("a message of {octets} bytes or more for a buffer of {max}")]
    TooLong {
        /// The length of the message so far.
        octets: usize,
        /// The size of the buffer.
        max: usize,
    },
    /// Not RDMAP version 1.
    #[error("RDMAP version {version} instead of 1")]
    RdmapVersion {
        /// The version.
        version: u8,
    },
    /// An operation that is not defined, not expected, or on the wrong queue.
    #[error("operation {opcode} is not expected here")]
    Opcode {
        /// The operation's number.
        opcode: u8,
    },
    /// A Read Request that is not one segment of 28 octets.
    #[error("an RDMA Read Request of {octets} bytes, which is not one segment of 28")]
    ReadRequestLength {
        /// The segment's length.
        octets: usize,
    },
    /// A Read Request for memory that is not exposed on this connection.
    #[error("an RDMA Read of STag {stag:#010x}, which is not exposed")]
    ReadStag {
        /// The memory's steering tag.
        stag: u32,
    },
    /// A Read Request beyond the bounds of its memory.
    #[error("an RDMA Read of {octets} bytes at offset {offset}, outside STag {stag:#010x}")]
    ReadBounds {
        /// The memory's steering tag.
        stag: u32,
        /// The offset that the request states.
        offset: u64,
        /// The octets that it asks for.
        octets: u32,
    },
    /// A Read Request whose end exceeds 64-bit offsets.
    #[error("an RDMA Read of {octets} bytes at offset {offset} ends beyond 64 bits")]
    ReadOffsetWrap {
        /// The offset that the request states.
        offset: u64,
        /// The octets that it asks for.
        octets: u32,
    },
    /// A Read Request for memory that may only be written.
    #[error("STag {stag:#010x} may not be read")]
    ReadAccess {
        /// The memory's steering tag.
        stag: u32,
    },
    /// A Send with Invalidate for a steering tag that is not exposed on this connection.
    #[error("STag {stag:#010x} cannot be invalidated: it is not exposed")]
    CannotInvalidate {
        /// The steering tag.
        stag: u32,
    },
}

impl Fault {
    /// The protocol whose rule the peer broke.
    pub fn protocol(&self) -> &'static str {
        match self.error_code().map(|code| code.layer) {
            None | Some(LAYER_MPA) => "MPA",
            Some(LAYER_DDP) => "DDP",
            Some(_) => "RDMAP",
        }
    }

    /// The code in the Terminate for this fault. `None` for faults of the set-up, in which no Terminate can be sent.
    pub fn error_code(&self) -> Option<ErrorCode> {
        let (layer, etype, code) = match self {
            Fault::Key { .. }
            | Fault::Revision { .. }
            | Fault::PrivateData { .. }
            | Fault::Markers
            | Fault::Enhanced => return None,
            Fault::Crc { .. } => (LAYER_MPA, 0, 2),
            Fault::InsufficientIrd { .. } => (LAYER_MPA, 0, 6),
            Fault::ShortUlpdu { .. } => (LAYER_DDP, 0, 0),
            Fault::Stag { .. } => (LAYER_DDP, DDP_TAGGED, 0),
            // RDMAP-5040-4.8-a
            Fault::Bounds { .. } => (LAYER_DDP, DDP_TAGGED, 1),
            Fault::OffsetWrap { .. } => (LAYER_DDP, DDP_TAGGED, 3),
            Fault::DdpVersion { tagged: true, .. } => (LAYER_DDP, DDP_TAGGED, 4),
            Fault::Queue { .. } => (LAYER_DDP, DDP_UNTAGGED, 1),
            Fault::NoBuffer { .. } => (LAYER_DDP, DDP_UNTAGGED, 2),
            Fault::Msn { .. } => (LAYER_DDP, DDP_UNTAGGED, 3),
            Fault::MessageOffset { .. } => (LAYER_DDP, DDP_UNTAGGED, 4),
            Fault::TooLong { .. } => (LAYER_DDP, DDP_UNTAGGED, 5),
            Fault::DdpVersion { tagged: false, .. } => (LAYER_DDP, DDP_UNTAGGED, 6),
            Fault::ReadStag { .. } => (LAYER_RDMAP, RDMAP_PROTECTION, 0),
            Fault::ReadBounds { .. } => (LAYER_RDMAP, RDMAP_PROTECTION, 1),
            // DDP has no code for access rights, so RDMAP's code serves for both directions.
            Fault::ReadAccess { .. } | Fault::WriteAccess { .. } => (LAYER_RDMAP, RDMAP_PROTECTION, 2),
            Fault::ReadOffsetWrap { .. } => (LAYER_RDMAP, RDMAP_PROTECTION, 4),
            Fault::CannotInvalidate { .. } => (LAYER_RDMAP, RDMAP_PROTECTION, 9),
            Fault::RdmapVersion { .. } => (LAYER_RDMAP, RDMAP_OPERATION, 5),
            Fault::Opcode { .. } => (LAYER_RDMAP, RDMAP_OPERATION, 6),
            Fault::ReadRequestLength { .. } => (LAYER_RDMAP, RDMAP_OPERATION, 0xFF),
        };
        Some(ErrorCode { layer, etype, code })
    }

    /// The fault as the contract of a provider reports it.
    pub fn violation(&self) -> PeerViolation {
        PeerViolation { protocol: self.protocol(), rule: self.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_belong_to_the_protocol_whose_rule_was_broken() {
        assert_eq!(Fault::Markers.protocol(), "MPA");
        assert_eq!(Fault::Crc { carried: [0; 4], computed: [1; 4] }.protocol(), "MPA");
        assert_eq!(Fault::Stag { stag: 1 }.protocol(), "DDP");
        assert_eq!(Fault::Opcode { opcode: 9 }.violation().protocol, "RDMAP");
    }
}
