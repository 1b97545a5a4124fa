//! The credential of RPCSEC_GSS version 1 (RFC 2203 section 5).

use super::{Failure, GssService, Protection};
use crate::{AuthStat, CallHeader, CallId, OpaqueAuth};
use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, Encoder, Stream};

/// The flavour number of RPCSEC_GSS.
pub const RPCSEC_GSS: u32 = 6;
/// Sequence numbers stay below this one (RFC 2203 section 5).
// GSS-2203-5.3.3.3-b
pub const MAX_SEQUENCE: u32 = 0x8000_0000;
/// The only version that is implemented.
const VERSION: u32 = 1;

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedure {
    /// A call of the program.
    Data,
    /// The beginning of a context.
    Init,
    /// Another token for a context.
    ContinueInit,
    /// The end of a context.
    Destroy,
}

/// A credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GssCredential {
    /// The purpose of the message.
    pub procedure: Procedure,
    /// The number of the call in its context.
    pub sequence: u32,
    /// `None` in messages that make contexts, where the service has no meaning.
    pub service: Option<GssService>,
    /// The context.
    pub handle: Bytes,
}

impl GssCredential {
    /// Reads the body of a credential.
    ///
    /// # Errors
    /// The status for the client. GSS-2203-5.1-a, GSS-2203-5.3.3.3-c.
    pub fn read(body: &Bytes) -> Result<Self, AuthStat> {
        let bad = |_: DecodeError| AuthStat::BAD_CREDENTIAL;
        let mut decoder = Decoder::new(Stream::from(body.clone()));
        if decoder.u32().map_err(bad)? != VERSION {
            return Err(AuthStat::REJECTED_CREDENTIAL);
        }
        let procedure = match decoder.u32().map_err(bad)? {
            0 => Procedure::Data,
            1 => Procedure::Init,
            2 => Procedure::ContinueInit,
            3 => Procedure::Destroy,
            _ => return Err(AuthStat::BAD_CREDENTIAL),
        };
        let sequence = decoder.u32().map_err(bad)?;
        let service = match decoder.u32().map_err(bad)? {
            1 => Some(GssService::Authentication),
            2 => Some(GssService::Integrity),
            3 => Some(GssService::Privacy),
            _ => None,
        };
        let handle = decoder.opaque(body.len()).map_err(bad)?;
        decoder.finish().map_err(bad)?;
        // GSS-2203-5.2.2-a: messages that make contexts have no service.
        let needs_service = matches!(procedure, Procedure::Data | Procedure::Destroy);
        if needs_service && service.is_none() {
            return Err(AuthStat::BAD_CREDENTIAL);
        }
        Ok(Self { procedure, sequence, service, handle })
    }

    /// The credential as it is in a call. A credential for making a context names the service that every server knows.
    pub(super) fn write(&self) -> OpaqueAuth {
        let procedure = match self.procedure {
            Procedure::Data => 0,
            Procedure::Init => 1,
            Procedure::ContinueInit => 2,
            Procedure::Destroy => 3,
        };
        let service = match self.service {
            None | Some(GssService::Authentication) => 1,
            Some(GssService::Integrity) => 2,
            Some(GssService::Privacy) => 3,
        };
        let mut body = Encoder::with_capacity(20 + self.handle.len() + 3);
        [VERSION, procedure, self.sequence, service].into_iter().for_each(|word| body.u32(word));
        body.opaque(&self.handle);
        OpaqueAuth { flavour: RPCSEC_GSS, body: body.finish().to_bytes() }
    }
}

/// The header of a message, with its verifier. GSS-2203-5.3.1-a.
pub(super) fn sign(protection: &mut dyn Protection, id: CallId, credential: OpaqueAuth) -> Result<CallHeader, Failure> {
    let unsigned = CallHeader { id, credential, verifier: OpaqueAuth::none() };
    let body = protection.sign(&signed_header(&unsigned))?;
    Ok(CallHeader { verifier: OpaqueAuth { flavour: RPCSEC_GSS, body }, ..unsigned })
}

/// What the verifier of a call signs: the header up to its credential (RFC 2203 section 5.3.1).
pub(super) fn signed_header(call: &CallHeader) -> Bytes {
    let mut encoder = Encoder::with_capacity(crate::CALL_HEADER_BYTES + call.credential.body.len());
    call.encode_to_credential(&mut encoder);
    encoder.finish().to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body(words: [u32; 4], handle: &[u8]) -> Bytes {
        let mut encoder = Encoder::new();
        words.into_iter().for_each(|word| encoder.u32(word));
        encoder.opaque(handle);
        encoder.finish().to_bytes()
    }

    /// proves: GSS-2203-5.1-a
    #[test]
    fn other_versions_are_refused_as_such() {
        for version in [0, 2, 3, u32::MAX] {
            assert_eq!(GssCredential::read(&body([version, 1, 0, 1], b"")), Err(AuthStat::REJECTED_CREDENTIAL));
        }
    }

    /// proves: GSS-2203-5.3.3.3-c, GSS-2203-5.2.2-a
    #[test]
    fn unknown_procedures_and_services_and_wrong_lengths_are_bad() {
        let bad = Err(AuthStat::BAD_CREDENTIAL);
        for (procedure, service) in [(0, 0), (0, 4), (3, 0), (4, 1), (u32::MAX, 1)] {
            assert_eq!(GssCredential::read(&body([1, procedure, 0, service], b"")), bad, "{procedure} {service}");
        }
        for procedure in [1, 2] {
            let read = GssCredential::read(&body([1, procedure, 77, 99], b"abcd")).unwrap();
            assert_eq!((read.service, &read.handle[..]), (None, &b"abcd"[..]), "a service is ignored");
        }
        let whole = body([1, 0, 7, 3], b"handle");
        let read = GssCredential::read(&whole).unwrap();
        assert_eq!((read.procedure, read.sequence, read.service), (Procedure::Data, 7, Some(GssService::Privacy)));
        for len in (0..whole.len()).step_by(4) {
            assert_eq!(GssCredential::read(&whole.slice(..len)), bad, "{len} bytes");
        }
        assert_eq!(GssCredential::read(&[&whole[..], &[0; 4]].concat().into()), bad);
    }

    proptest! {
        #[test]
        fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..400), known in any::<bool>()) {
            let mut octets = octets;
            if known && octets.len() >= 8 {
                octets[..8].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
            }
            let _ = GssCredential::read(&octets.into());
        }
    }
}
