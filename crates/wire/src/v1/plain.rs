//! The header of most messages: an `RDMA_MSG` without chunks.

use super::{NO_CHUNKS_OCTETS, VERSION};
use crate::rpc::has_xid;

/// The header of an `RDMA_MSG` without chunks, as two numbers. It reads and writes the same octets as
/// [`Header`](super::Header), in fewer steps.
///
/// ```
/// use rpcrdma_wire::v1::{Body, Header, Lists, Plain};
/// let plain = Plain { xid: 7, credit: 32 };
/// assert_eq!(plain.octets()[..], Header::new(7, 32, Body::Msg(Lists::default())).to_bytes()[..]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The XID of the RPC message.
    pub xid: u32,
    /// Credits, as in a [`Header`](super::Header).
    pub credit: u32,
}

/// Procedure and lists are zero.
const ZEROES: [u8; 16] = [0; 16];

impl Plain {
    /// The encoded header.
    // V1-4.2.2-a
    pub fn octets(self) -> [u8; NO_CHUNKS_OCTETS] {
        let mut octets = [0; NO_CHUNKS_OCTETS];
        octets[..4].copy_from_slice(&self.xid.to_be_bytes());
        octets[4..8].copy_from_slice(&VERSION.to_be_bytes());
        octets[8..12].copy_from_slice(&self.credit.to_be_bytes());
        octets
    }

    /// The header of a message that both roles accept: an `RDMA_MSG` without chunks, whose stream begins with the
    /// header's XID. The stream begins at [`NO_CHUNKS_OCTETS`]. Any other message is for [`judge`](super::judge).
    // V1-4.1.2-c, V1-4.2.1-c
    pub fn of(message: &[u8]) -> Option<Self> {
        let (head, stream) = message.split_first_chunk::<NO_CHUNKS_OCTETS>()?;
        let [x0, x1, x2, x3, v0, v1, v2, v3, c0, c1, c2, c3, rest @ ..] = head;
        let xid = u32::from_be_bytes([*x0, *x1, *x2, *x3]);
        let is_plain = u32::from_be_bytes([*v0, *v1, *v2, *v3]) == VERSION && *rest == ZEROES && has_xid(stream, xid);
        is_plain.then_some(Self { xid, credit: u32::from_be_bytes([*c0, *c1, *c2, *c3]) })
    }
}
