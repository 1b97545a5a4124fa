//! Whole reply messages, and their protection by a flavour.
//!
//! If a flavour protects replies, the duplicate request cache keeps them as they were before: each transmission of a
//! call has a verifier and a protection of its own, and no reply is sent twice with the same (RFC 2203 section
//! 5.3.3.1).

use crate::{
    Answered, FirstWord, OpaqueAuth, Outcome, Rejection, ReplyFlavour, ReplyHeader, Unanswered, peek::peek_word,
};
use bytes::Bytes;
use rpcrdma_xdr::{Decoder, Encoder, Part, Payload, SharedScratch, Stream};
use std::sync::Arc;

/// Room for results that are copied behind the header.
const SHORT_RESULT_BYTES: usize = 256;

/// A longer run has memory of its own already: [`rpcrdma_env::Scratch`] does not put it into shared memory.
const MAX_COPY_BYTES: usize = 1024;

/// A flavour, and the observer that gets the first word of the results before the flavour protects them.
pub(super) struct Telling {
    pub(super) flavour: Box<dyn ReplyFlavour>,
    pub(super) word: Arc<FirstWord>,
}

impl ReplyFlavour for Telling {
    fn wrap(&self, results: Option<Payload>) -> Result<(OpaqueAuth, Payload), Unanswered> {
        if let Some(word) = results.as_ref().and_then(peek_word) {
            self.word.tell(word);
        }
        self.flavour.wrap(results)
    }
}

/// The reply to a call, if it is not kept.
pub(super) fn reply(
    scratch: &SharedScratch,
    xid: u32,
    flavour: Option<&dyn ReplyFlavour>,
    result: Result<Payload, Rejection>,
) -> Outcome {
    match flavour {
        Some(flavour) => protect(xid, flavour, result),
        None => Outcome::Reply(short(scratch, xid, result)),
    }
}

/// A reply without any protection, in memory that it shares with others; short results follow the header there.
fn short(scratch: &SharedScratch, xid: u32, result: Result<Payload, Rejection>) -> Payload {
    let (status, results) = split(result);
    scratch.write(crate::REPLY_HEADER_BYTES + 8 + SHORT_RESULT_BYTES, |encoder| {
        ReplyHeader::plain(xid, status).encode(encoder);
        if status.is_ok() {
            encoder.payload(results);
        }
    })
}

/// The outcome of an answer that a flavour has given itself.
pub(super) fn answered(xid: u32, answered: Answered) -> Outcome {
    let Answered { verifier, result } = answered;
    Outcome::Reply(whole(xid, verifier, result))
}

/// A reply without any protection that may be kept: it has memory of its own, because short results may lie beside
/// those of other calls, which would be kept as well. Its header is a run of its own.
pub(super) fn kept(xid: u32, result: Result<Payload, Rejection>) -> Payload {
    plain(xid, result.map(apart))
}

/// The same stream, whose short runs are copied to memory of their own.
fn apart(results: Payload) -> Payload {
    let copy = |run: Bytes| if run.len() <= MAX_COPY_BYTES { Bytes::copy_from_slice(&run) } else { run };
    results.into_parts().into_iter().fold(Payload::new(), |mut apart, part| {
        match part {
            Part::Run(run) => apart.push_run(copy(run)),
            Part::Item(data) => apart.push_item(data),
        }
        apart
    })
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
        // Only replies that `plain` has made come here.
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

/// A reply whose header is a run of its own.
fn whole(xid: u32, verifier: OpaqueAuth, result: Result<Payload, Rejection>) -> Payload {
    let (status, results) = split(result);
    let mut encoder = Encoder::with_capacity(crate::REPLY_HEADER_BYTES + verifier.body.len() + 8);
    ReplyHeader { xid, verifier, status }.encode(&mut encoder);
    let mut reply = encoder.finish();
    if status.is_ok() {
        reply.append(results);
    }
    reply
}

fn split(result: Result<Payload, Rejection>) -> (Result<(), Rejection>, Payload) {
    match result {
        Ok(results) => (Ok(()), results),
        Err(rejection) => (Err(rejection), Payload::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a kept reply would keep 2 KiB of its connection's memory, and the cache counts only the reply's bytes.
    #[test]
    fn a_reply_that_is_kept_keeps_no_memory_of_others() {
        let scratch = SharedScratch::default();
        let results = || {
            let mut encoder = scratch.encoder(8);
            encoder.u64(7);
            encoder.finish()
        };
        let (first, second) = (kept(1, Ok(results())), results());
        let ends = |payload: &Payload| match payload.parts().last() {
            Some(Part::Run(run)) => run.as_ptr().wrapping_add(run.len()),
            _ => panic!("no results"),
        };
        assert_eq!(first.to_bytes()[24..], 7u64.to_be_bytes());
        let begins = ends(&second).wrapping_sub(second.len());
        drop(second);
        assert_ne!(ends(&first), begins, "the results that came next lie elsewhere");
        let header = short(&scratch, 1, Ok(results()));
        assert_eq!(header.parts().len(), 1, "a reply that nobody keeps is one run");
        assert_eq!(header.to_bytes(), first.to_bytes());
    }
}
