//! How much a READ and a WRITE carry, for every version of NFS alike.

use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::v3::MAX_TRANSFER_BYTES;
use rpcrdma_oncrpc::Limits;
use rpcrdma_xdr::Payload;

/// The most bytes that a message has beside the data of a READ or WRITE: header, credential and verifier at their
/// largest, handle, attributes.
pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = 1536;
/// Transfers are multiples of it, so that they fall on pages.
pub(crate) const TRANSFER_UNIT_BYTES: usize = 4096;
/// The most bytes that a session counts beside the data: SEQUENCE, PUTFH, the READ or WRITE, and a GETATTR, whose
/// results have two hundred bytes to spare. Clients ask for sessions that carry 1 MiB and some headroom (at least 900
/// bytes with Linux), and are to get 1 MiB.
const SESSION_OVERHEAD_BYTES: usize = 640;
/// The largest READDIR or READDIRPLUS answer.
pub(crate) const MAX_LISTING_BYTES: usize = 256 << 10;

fn whole_units(octets: usize) -> usize {
    let data = octets.min(MAX_TRANSFER_BYTES);
    if data < TRANSFER_UNIT_BYTES { data } else { data - data % TRANSFER_UNIT_BYTES }
}

/// The largest READ and the largest WRITE over a transport.
pub(crate) fn transfer_limits(transport: Limits) -> (usize, usize) {
    let limit = |message: usize| whole_units(message.saturating_sub(MESSAGE_OVERHEAD_BYTES));
    (limit(transport.max_reply), limit(transport.max_call))
}

/// The same in a session that limits the bytes of its replies and requests.
pub(crate) fn session_limits(transport: Limits, response: usize, request: usize) -> (usize, usize) {
    let limit = |message: usize| whole_units(message.saturating_sub(SESSION_OVERHEAD_BYTES));
    let (read, write) = transfer_limits(transport);
    (read.min(limit(response)), write.min(limit(request)))
}

/// Bytes that count as a user's memory while this exists. Nothing is written to that memory.
pub(crate) struct Counted {
    octets: Bytes,
    _as: Buffer,
}

impl Counted {
    /// Results without items, which count as that memory until the server has sent them.
    pub(crate) fn payload(results: Payload, counted: Buffer) -> Payload {
        Payload::from(Bytes::from_owner(Self { octets: results.to_bytes(), _as: counted }))
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn transfers_fit_their_messages_and_fall_on_pages() {
        let of = |octets| transfer_limits(Limits::new(octets, octets)).0;
        assert_eq!(of(MIB + MESSAGE_OVERHEAD_BYTES), MIB);
        assert_eq!(of(MIB + MESSAGE_OVERHEAD_BYTES - 1), MIB - TRANSFER_UNIT_BYTES);
        assert_eq!((of(MESSAGE_OVERHEAD_BYTES + 100), of(0), of(usize::MAX)), (100, 0, MAX_TRANSFER_BYTES));
    }

    /// proves: NFS4-TRANSFER-a
    #[test]
    fn a_session_for_a_mebibyte_carries_one() {
        let wide = Limits::new(2 * MIB, 2 * MIB);
        let of = |response, request| session_limits(wide, response, request);
        let enough = MIB + SESSION_OVERHEAD_BYTES;
        assert_eq!(of(enough, enough), (MIB, MIB));
        assert_eq!(of(enough - 1, enough), (MIB - TRANSFER_UNIT_BYTES, MIB));
        assert_eq!(of(enough, 8192), (MIB, 4096));
        assert_eq!(session_limits(Limits::new(MIB, 8192), enough, enough), (4096, MIB - TRANSFER_UNIT_BYTES));
    }
}
