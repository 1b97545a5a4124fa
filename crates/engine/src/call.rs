//! A call of ours, as the driver passes it to the engine.

use crate::CallId;
use rpcrdma_xdr::Payload;
use smallvec::SmallVec;

/// A call of ours: its names, its message, and how large its reply can be.
///
/// ```
/// use rpcrdma_engine::{Call, CallId};
/// use rpcrdma_xdr::Payload;
/// // A READ of 64 KiB: the reply has at most 100 bytes beside the data.
/// let call = Call::new(CallId(1), 7, Payload::new()).with_reply(65_536 + 100, &[65_536]);
/// assert_eq!((call.xid, call.reply_max, call.repeatable), (7, 65_636, false));
/// ```
#[derive(Clone, Debug)]
pub struct Call {
    /// The driver's name for it.
    pub id: CallId,
    /// Its XID. No other call of this end has the same.
    pub xid: u32,
    /// The whole RPC message, in which eligible items are marked.
    pub message: Payload,
    /// The most bytes of a reply, its eligible results included.
    pub reply_max: usize,
    /// The most bytes of each eligible result of the reply, in their order.
    pub items: SmallVec<[usize; 2]>,
    /// Whether the server may execute it twice. If so, version 2 sends it again if its reply did not fit.
    pub repeatable: bool,
}

impl Call {
    /// A call with an empty reply, which the server may not execute twice.
    pub fn new(id: CallId, xid: u32, message: Payload) -> Self {
        Self { id, xid, message, reply_max: 0, items: SmallVec::new(), repeatable: false }
    }

    /// The same call with a reply of at most `max` bytes, of which the eligible results have at most `items`.
    #[must_use]
    pub fn with_reply(self, max: usize, items: &[usize]) -> Self {
        Self { reply_max: max, items: items.into(), ..self }
    }
}
