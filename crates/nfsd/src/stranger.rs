//! The answers for a client that may use no export: each call has one fixed answer.
//!
//! The answers are the same as from Linux's servers: NULL succeeds, MNT fails with MNT3ERR_ACCES, the lists of exports
//! and of mounts are empty, and every call to NFS fails because its authentication is too weak. The handler looks only
//! at the message's header, executes nothing, and needs memory only for the answer.

use crate::mount::results;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::{
    mount::{self, MountReply, MountReply1, Status, procedure},
    nfsacl, v3,
};
use rpcrdma_oncrpc::{
    Answer, AuthStat, BadCall, CallContext, CallHeader, CallId, Handler, OpaqueAuth, Outcome, Rejection, ReplyHeader,
};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream};

/// The handler for clients that may use no export.
pub(crate) struct Stranger;

impl Handler for Stranger {
    fn handle(&self, _: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        let outcome = match CallHeader::decode(&mut Decoder::new(message)) {
            Ok(header) => reply(header.id.xid, answer(header.id)),
            Err(BadCall::Rejected { xid, rejection }) => reply(xid, Err(rejection)),
            Err(BadCall::NotACall) => Outcome::Nothing,
            Err(BadCall::NotEligible) => Outcome::NotEligible,
        };
        Box::pin(std::future::ready(outcome))
    }
}

/// The results of a call, or why it has none.
fn answer(call: CallId) -> Result<Payload, Rejection> {
    let answer = match (call.program, call.version, call.procedure) {
        (v3::PROGRAM, v3::VERSION, 0)
        | (nfsacl::PROGRAM, nfsacl::VERSION_3, 0)
        | (mount::PROGRAM, mount::VERSION_1 | mount::VERSION_3, 0) => results(&()),
        (mount::PROGRAM, mount::VERSION_3, procedure::MOUNT) => results(&MountReply::Failed(Status::ACCES)),
        (mount::PROGRAM, mount::VERSION_1, procedure::MOUNT) => results(&MountReply1::Failed(Status::ACCES.0)),
        (mount::PROGRAM, mount::VERSION_1 | mount::VERSION_3, procedure::DUMP) => results(&mount::Mounts(Vec::new())),
        (mount::PROGRAM, mount::VERSION_1 | mount::VERSION_3, procedure::EXPORT)
        | (mount::PROGRAM, mount::VERSION_1, procedure::EXPORT_ALL) => results(&mount::Exports(Vec::new())),
        // NFS3-ACL-c
        _ => return Err(Rejection::Auth(AuthStat::TOO_WEAK)),
    };
    match answer {
        Answer::Results(results) => Ok(results),
        _ => Err(Rejection::SystemError),
    }
}

fn reply(xid: u32, answer: Result<Payload, Rejection>) -> Outcome {
    let (status, results) = match answer {
        Ok(results) => (Ok(()), results),
        Err(rejection) => (Err(rejection), Payload::new()),
    };
    let mut encoder = Encoder::new();
    ReplyHeader { xid, verifier: OpaqueAuth::none(), status }.encode(&mut encoder);
    encoder.payload(results);
    Outcome::Reply(encoder.finish())
}
