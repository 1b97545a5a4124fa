//! RPC headers at the beginning of a message, and the status of NFS or MOUNT behind a reply's.

use crate::event::{Outcome, ProcedureName, Rpc, Status};
use bytes::Bytes;
use rpcrdma_nfs::{mount, v3};
use rpcrdma_oncrpc::{CallHeader, ReplyHeader};
use rpcrdma_xdr::{Decode, Decoder, Stream};

/// Octets that are looked at: both headers with the largest credential and verifier, and a status.
const MAX_LOOKED_AT_OCTETS: usize = 1 << 10;
/// The word behind the XID that tells a Call.
const CALL: u32 = 0;

/// The RPC header at the beginning of `octets`. `called`: what a Reply answers, if that is known.
pub(super) fn header(octets: &[u8], called: impl FnOnce(u32) -> Option<ProcedureName>) -> Option<Rpc> {
    let octets = octets.get(..octets.len().min(MAX_LOOKED_AT_OCTETS))?;
    let mut stream = Stream::new();
    stream.push_run(Bytes::copy_from_slice(octets));
    let mut decoder = Decoder::new(stream);
    if octets.get(4..8)? == CALL.to_be_bytes() {
        return CallHeader::decode(&mut decoder).ok().map(|header| Rpc::Call(header.id));
    }
    let header = ReplyHeader::decode(&mut decoder).ok()?;
    let outcome = match header.status {
        Err(rejection) => Outcome::Rejected(rejection),
        Ok(()) => Outcome::Executed(called(header.xid).and_then(|called| status(called, &mut decoder))),
    };
    Some(Rpc::Reply { xid: header.xid, outcome })
}

/// The status at the beginning of a call's results.
fn status(called: ProcedureName, results: &mut Decoder) -> Option<Status> {
    if called.has_nfs3_status() {
        v3::Status::decode(results).ok().map(Status::Nfs3)
    } else if called.has_mount_status() {
        results.u32().ok().map(|status| Status::Mount(mount::Status(status)))
    } else {
        None
    }
}
