//! Whole reply messages, and what a flavour makes of them.
//!
//! The duplicate request cache keeps the replies of flavours that protect them as they were before: each transmission
//! of a call has a verifier and a protection of its own, and no reply is sent twice with the same (RFC 2203 section
//! 5.3.3.1).

use crate::{Answered, OpaqueAuth, Outcome, Rejection, ReplyFlavour, ReplyHeader, Unanswered};
use rpcrdma_xdr::{Decoder, Encoder, Part, Payload, Stream};

/// What a call is answered with.
pub(super) fn reply(xid: u32, flavour: Option<&dyn ReplyFlavour>, result: Result<Payload, Rejection>) -> Outcome {
    match flavour {
        Some(flavour) => protect(xid, flavour, result),
        None => Outcome::Reply(plain(xid, result)),
    }
}

/// What a flavour has answered by itself.
pub(super) fn answered(xid: u32, answered: Answered) -> Outcome {
    let Answered { verifier, result } = answered;
    Outcome::Reply(whole(xid, verifier, result))
}

/// A reply without any protection. Its header is a run of its own.
pub(super) fn plain(xid: u32, result: Result<Payload, Rejection>) -> Payload {
    whole(xid, OpaqueAuth::none(), result)
}

/// The same reply, protected for one transmission of its call.
pub(super) fn protected(flavour: &dyn ReplyFlavour, plain: Payload) -> Outcome {
    let mut parts = plain.into_parts().into_iter();
    let header = match parts.next() {
        Some(Part::Run(header)) => ReplyHeader::decode(&mut Decoder::new(Stream::from(header))),
        // Nothing that was not made by `plain` comes here.
        _ => return Outcome::Nothing,
    };
    let Ok(ReplyHeader { xid, status, .. }) = header else { return Outcome::Nothing };
    let results = parts.fold(Payload::new(), |mut results, part| {
        match part {
            Part::Run(run) => results.push_run(run),
            Part::Item(data) => results.push_item(data),
        }
        results
    });
    protect(xid, flavour, status.map(|()| results))
}

fn protect(xid: u32, flavour: &dyn ReplyFlavour, result: Result<Payload, Rejection>) -> Outcome {
    // A denied reply has no verifier.
    if let Err(Rejection::Auth(_) | Rejection::RpcMismatch { .. }) = result {
        return Outcome::Reply(plain(xid, result));
    }
    let (results, rejection) = match result {
        Ok(results) => (Some(results), None),
        Err(rejection) => (None, Some(rejection)),
    };
    match flavour.wrap(results) {
        Ok((verifier, results)) => Outcome::Reply(whole(xid, verifier, rejection.map_or(Ok(results), Err))),
        Err(Unanswered::Denied(stat)) => Outcome::Reply(plain(xid, Err(Rejection::Auth(stat)))),
        Err(Unanswered::Silent) => Outcome::Nothing,
    }
}

fn whole(xid: u32, verifier: OpaqueAuth, result: Result<Payload, Rejection>) -> Payload {
    let (status, results) = match result {
        Ok(results) => (Ok(()), results),
        Err(rejection) => (Err(rejection), Payload::new()),
    };
    let mut encoder = Encoder::with_capacity(crate::REPLY_HEADER_OCTETS + verifier.body.len() + 8);
    ReplyHeader { xid, verifier, status }.encode(&mut encoder);
    if status.is_ok() {
        encoder.payload(results);
    }
    encoder.finish()
}
