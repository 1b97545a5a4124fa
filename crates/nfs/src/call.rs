//! The arguments of a procedure: their type knows the procedure, and how large the results can be.

use rpcrdma_oncrpc::ReplyShape;
use rpcrdma_xdr::{Decode, Encode};

/// The arguments of one procedure of one program and version.
pub trait Call: Encode + Decode {
    /// The RPC program.
    const PROGRAM: u32;
    /// Its version.
    const VERSION: u32;
    /// The procedure.
    const PROCEDURE: u32;
    /// What the procedure returns.
    type Reply: Decode;

    /// Whether executing the call twice does no harm, so that it may be sent again when its results did not fit.
    fn is_repeatable(&self) -> bool;

    /// The largest results that these arguments can have, in octets, and room for their eligible items. The RPC reply
    /// header is not counted.
    // V2-A.2-b, ULB-3.2-c, ULB-3.2-d
    fn reply_shape(&self) -> ReplyShape;
}
