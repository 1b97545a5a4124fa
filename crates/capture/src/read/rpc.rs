//! RPC headers at the beginning of a message, the status of NFS or MOUNT behind a reply's, and what the message says.

use crate::{
    content::{self, Body, Content},
    event::{Outcome, ProcedureName, Rpc, Status},
};
use bytes::Bytes;
use rpcrdma_nfs::{mount, v2, v3, v4};
use rpcrdma_oncrpc::{CallHeader, ReplyHeader};
use rpcrdma_xdr::{Decoder, Stream};

/// The word behind the XID that tells a Call.
const CALL: u32 = 0;
/// The procedure by which servers call back.
const CB_COMPOUND: u32 = v4::callback::Arguments::PROCEDURE;

/// The RPC header at the beginning of `body`, and what follows it. `called`: what a Reply answers, if that is known.
/// `may_call_back`: a Call may be one of NFS version 4's callbacks, whatever its program's number is.
pub(super) fn message(
    body: &Body<'_>,
    may_call_back: bool,
    called: impl FnOnce(u32) -> Option<ProcedureName>,
) -> Option<(Rpc, Option<Content>)> {
    let is_call = body.kept.get(4..8)? == CALL.to_be_bytes();
    let (stream, problem) = match body.stream() {
        Ok(stream) => (stream, None),
        Err(problem) => (run(&body.kept), Some(Content { problem: Some(problem), ..Content::default() })),
    };
    let mut decoder = Decoder::new(stream);
    if is_call {
        let id = CallHeader::decode(&mut decoder).ok()?.id;
        let name = ProcedureName::from(id);
        let may_call_back = may_call_back && name.program_name().is_none() && id.procedure == CB_COMPOUND;
        let content = match (problem, may_call_back) {
            (Some(_), true) => None,
            (Some(problem), false) => Some(problem),
            (None, true) => content::callback_arguments(decoder, body),
            (None, false) => content::arguments(name, decoder, body),
        };
        return Some((Rpc::Call(id), content));
    }
    let header = ReplyHeader::decode(&mut decoder).ok()?;
    let (outcome, content) = match (header.status, called(header.xid)) {
        (Err(rejection), _) => (Outcome::Rejected(rejection), None),
        (Ok(()), None) => (Outcome::Executed(None), None),
        (Ok(()), Some(called)) => {
            // The status is told even where what follows it cannot be read.
            let status = body.kept.get(decoder.position()..).and_then(|results| status(called, results));
            if called.is_compound() {
                // Which of its items travelled in chunks shows only when its operations are read.
                let mut decoder = Decoder::new(body.inline());
                ReplyHeader::decode(&mut decoder).ok()?;
                let content = content::compound_results(called, decoder, body);
                return Some((Rpc::Reply { xid: header.xid, outcome: Outcome::Executed(status) }, Some(content)));
            }
            (Outcome::Executed(status), problem.or_else(|| content::results(called, decoder, body)))
        }
    };
    Some((Rpc::Reply { xid: header.xid, outcome }, content))
}

/// The same of a message whose other parts follow.
pub(super) fn beginning(octets: &Bytes, called: impl FnOnce(u32) -> Option<ProcedureName>) -> Option<Rpc> {
    let body = Body { kept: octets.clone(), missing_octets: None, items: &[] };
    message(&body, false, called).map(|(rpc, _)| rpc)
}

fn run(octets: &Bytes) -> Stream {
    let mut stream = Stream::new();
    stream.push_run(octets.clone());
    stream
}

/// The status at the beginning of a call's results.
fn status(called: ProcedureName, results: &[u8]) -> Option<Status> {
    let word = u32::from_be_bytes(*results.first_chunk()?);
    if called.is_compound() {
        Some(Status::Nfs4(v4::Status(word)))
    } else if called.has_nfs2_status() {
        Some(Status::Nfs2(v2::Status(word)))
    } else if called.has_nfs3_status() {
        Some(Status::Nfs3(v3::Status(word)))
    } else if called.has_mount_status() {
        Some(Status::Mount(mount::Status(word)))
    } else {
        None
    }
}
