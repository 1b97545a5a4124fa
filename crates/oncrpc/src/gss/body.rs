//! Arguments and results under protection (RFC 2203 sections 5.3.2.2 and 5.3.2.3).

use super::{GssService, Protection, RPCSEC_GSS};
use crate::{AuthStat, MAX_AUTH_BODY_BYTES, OpaqueAuth, Unanswered};
use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, Encoder, Payload, Stream, padded};

/// The largest checksum in bytes that is read: Kerberos' have 28 at most (RFC 4121 section 4.2.6.1).
const MAX_CHECKSUM_BYTES: usize = 400;

/// The most bytes that protection adds to arguments or results: lengths of an opaque and of a checksum, the sequence
/// number, padding, and a checksum, which is also more than a seal adds.
const MAX_EXPANSION_BYTES: usize = 4 + 4 + 3 + 4 + MAX_CHECKSUM_BYTES + 1;

impl GssService {
    /// Whether arguments and results are rewritten.
    // V1-8.2.2.2-a, V2-11.2.2.2-a
    pub(super) fn protects_bodies(self) -> bool {
        self != Self::Authentication
    }

    /// The most bytes that are added to results.
    // V1-8.2.2.2-b, V2-11.2.2.2-b
    pub(super) fn max_expansion(self) -> usize {
        if self.protects_bodies() { MAX_EXPANSION_BYTES } else { 0 }
    }

    /// The most bytes that are added to a call: as many as to results, and a verifier.
    pub(super) fn max_call_expansion(self) -> usize {
        padded(MAX_AUTH_BODY_BYTES) + self.max_expansion()
    }
}

/// Bytes that were made from others whose memory is counted. They are not counted themselves, so they hold the others,
/// and with them the count, until they are dropped.
struct Instead<T> {
    octets: Bytes,
    _of: T,
}

impl<T> AsRef<[u8]> for Instead<T> {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

fn instead<T: Send + 'static>(octets: Bytes, of: T) -> Bytes {
    Bytes::from_owner(Instead { octets, _of: of })
}

/// A body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It was placed directly, which is not allowed under protection.
    Placed,
    /// It is malformed, or its protection is wrong.
    Wrong,
}

impl From<DecodeError> for Unreadable {
    fn from(error: DecodeError) -> Self {
        if error.is_placement() { Self::Placed } else { Self::Wrong }
    }
}

/// Takes the protection from arguments or results. GSS-2203-5.3.3.1-d, GSS-2203-5.3.3.4.2-b, GSS-2203-5.3.3.4.3-a.
// V2-11.2.2.3-d
pub(super) fn open(
    protection: &mut dyn Protection,
    service: GssService,
    sequence: u32,
    mut body: Decoder,
) -> Result<Decoder, Unreadable> {
    // The whole body has arrived: its length bounds the lengths in it.
    let max = body.remaining();
    let message = match service {
        GssService::Authentication => return Ok(body),
        GssService::Integrity => {
            let message = body.opaque(max)?;
            // GSS-2203-5.3.2.2-a
            let checksum = body.opaque(MAX_CHECKSUM_BYTES)?;
            body.finish()?;
            protection.verify(&message, &checksum).map_err(|_| Unreadable::Wrong)?;
            message
        }
        GssService::Privacy => {
            // GSS-2203-5.3.2.3-a
            let sealed = body.opaque(max)?;
            body.finish()?;
            instead(protection.open(&sealed).map_err(|_| Unreadable::Wrong)?, sealed)
        }
    };
    let mut inner = Decoder::new(Stream::from(message));
    if inner.u32()? != sequence {
        return Err(Unreadable::Wrong);
    }
    Ok(inner)
}

/// Protects arguments or results. Nothing that is signed or sealed can be placed directly (RFC 8166 section 8.2.2.3).
// V2-11.2.2.3-b, V1-8.2.2.3-b, V2-11.2.2.3-c, V1-8.2.2.3-c
pub(super) fn close(
    protection: &mut dyn Protection,
    service: GssService,
    sequence: u32,
    body: Payload,
) -> Result<Payload, super::Failure> {
    if service == GssService::Authentication {
        return Ok(body);
    }
    let mut message = Vec::with_capacity(4 + body.len());
    message.extend_from_slice(&sequence.to_be_bytes());
    body.slices().for_each(|slice| message.extend_from_slice(&slice));
    let message = Bytes::from(message);
    let mut encoder = Encoder::with_capacity(padded(MAX_CHECKSUM_BYTES));
    if service == GssService::Integrity {
        // GSS-2203-5.3.2.2-a, V1-8.2.2.3-a, V2-11.2.2.3-a
        let checksum = protection.sign(&message)?;
        encoder.opaque_shared(instead(message, body));
        encoder.opaque(&checksum);
    } else {
        // GSS-2203-5.3.2.3-a, V1-8.2.2.3-a, V2-11.2.2.3-a
        encoder.opaque_shared(instead(protection.seal(&message)?, body));
    }
    Ok(encoder.finish())
}

/// The verifier of a reply, and its results protected. A rejection has no results. GSS-2203-5.3.3.2-a,
/// GSS-2203-5.3.3.4.1-a, GSS-2203-5.3.3.4.1-b.
///
/// # Errors
/// If nothing can be signed any more, the denial to send. If results cannot be protected, there is no answer, because
/// the call has been executed.
pub(super) fn answer(
    protection: &mut dyn Protection,
    principal: &str,
    (service, sequence): (GssService, u32),
    results: Option<Payload>,
) -> Result<(OpaqueAuth, Payload), Unanswered> {
    let denied = |failure: super::Failure| {
        tracing::debug!(principal, %failure, "a reply cannot be signed");
        Unanswered::Denied(AuthStat::GSS_CONTEXT_PROBLEM)
    };
    let verifier = OpaqueAuth { flavour: RPCSEC_GSS, body: protection.sign(&sequence.to_be_bytes()).map_err(denied)? };
    let Some(results) = results else { return Ok((verifier, Payload::new())) };
    match close(protection, service, sequence, results) {
        Ok(results) => Ok((verifier, results)),
        Err(failure) => {
            tracing::warn!(principal, %failure, "the results of a call cannot be protected: the client gets no answer");
            Err(Unanswered::Silent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Failure, *};
    use std::sync::{Arc, Weak};

    /// Seals by copying.
    struct Copying;

    impl Protection for Copying {
        fn sign(&mut self, _: &[u8]) -> Result<Bytes, Failure> {
            Ok(Bytes::from_static(b"sum!"))
        }
        fn verify(&mut self, _: &[u8], _: &[u8]) -> Result<(), Failure> {
            Ok(())
        }
        fn seal(&mut self, message: &[u8]) -> Result<Bytes, Failure> {
            Ok(Bytes::copy_from_slice(message))
        }
        fn open(&mut self, message: &[u8]) -> Result<Bytes, Failure> {
            Ok(Bytes::copy_from_slice(message))
        }
    }

    /// Bytes with an owner, and whether the owner still exists.
    fn counted(octets: Vec<u8>) -> (Bytes, Weak<Vec<u8>>) {
        struct Owner(Arc<Vec<u8>>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let memory = Arc::new(octets);
        let still = Arc::downgrade(&memory);
        (Bytes::from_owner(Owner(memory)), still)
    }

    /// A reply that the client does not take, and a call during its execution, occupy the budget that their memory came
    /// from.
    #[test]
    fn memory_counts_for_as_long_as_what_protection_has_made_of_it() {
        for service in [GssService::Integrity, GssService::Privacy] {
            let (octets, still) = counted(vec![7; 400]);
            let reply = close(&mut Copying, service, 5, Payload::from(octets)).unwrap();
            assert!(still.upgrade().is_some(), "{service:?}: the reply is there");
            let (sealed, came) = counted(reply.to_bytes().to_vec());
            drop(reply);
            assert!(still.upgrade().is_none(), "{service:?}: the reply was taken");
            let opened = open(&mut Copying, service, 5, Decoder::new(Stream::from(sealed))).unwrap();
            assert!(came.upgrade().is_some(), "{service:?}: the arguments are there");
            drop(opened);
            assert!(came.upgrade().is_none(), "{service:?}: the call is over");
        }
    }
}
