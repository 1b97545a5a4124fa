//! RPC headers at the beginning of a message, and NFS's status behind a reply's.

use crate::event::{Outcome, ProcedureName, Rpc};
use bytes::Bytes;
use rpcrdma_nfs::v3::Status;
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
        Ok(()) => {
            let status = called(header.xid).filter(ProcedureName::has_nfs3_status);
            Outcome::Executed(status.and_then(|_| Status::decode(&mut decoder).ok()))
        }
    };
    Some(Rpc::Reply { xid: header.xid, outcome })
}
