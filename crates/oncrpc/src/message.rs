//! RPC message headers (RFC 5531 section 9), encoded and decoded.
//!
//! Decoding shares bytes with the received message. Headers are small and bounded: a credential and a verifier
//! of at most 400 bytes each.

use crate::{AUTH_NONE, MAX_AUTH_BODY_BYTES};
use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, Encoder};

/// The version of RPC that this crate implements (RFC 5531 section 7).
pub const RPC_VERSION: u32 = 2;
/// Bytes of a call's header without the bodies of credential and verifier.
pub const CALL_HEADER_BYTES: usize = 40;
/// The words of a call's header before the credential.
const FIXED_WORDS: usize = 6;
/// Bytes of a successful reply's header without the verifier's body.
pub const REPLY_HEADER_BYTES: usize = 24;
/// Bytes that follow the header of a reply with PROG_MISMATCH: the versions.
pub const MISMATCH_BYTES: usize = 8;

/// The words that the headers of messages are made of (RFC 5531 section 9).
pub(crate) struct Word;

impl Word {
    pub(crate) const CALL: u32 = 0;
    pub(crate) const REPLY: u32 = 1;
    const MSG_ACCEPTED: u32 = 0;
    pub(crate) const MSG_DENIED: u32 = 1;
    const SUCCESS: u32 = 0;
    const PROG_UNAVAIL: u32 = 1;
    const PROG_MISMATCH: u32 = 2;
    const PROC_UNAVAIL: u32 = 3;
    const GARBAGE_ARGS: u32 = 4;
    const SYSTEM_ERR: u32 = 5;
    const RPC_MISMATCH: u32 = 0;
    const AUTH_ERROR: u32 = 1;
}

/// A credential or verifier as it is in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpaqueAuth {
    /// The flavour's number.
    pub flavour: u32,
    /// At most 400 bytes.
    pub body: Bytes,
}

impl OpaqueAuth {
    /// AUTH_NONE: no body.
    pub const fn none() -> Self {
        Self { flavour: AUTH_NONE, body: Bytes::new() }
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.flavour);
        encoder.opaque(&self.body);
    }

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        if decoder.words(|words| *words == [AUTH_NONE, 0]).is_some() {
            return Ok(Self::none());
        }
        // RPC-5531-8.2-a
        Ok(Self { flavour: decoder.u32()?, body: decoder.opaque(MAX_AUTH_BODY_BYTES)? })
    }
}

/// Which procedure a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    /// The call's XID.
    pub xid: u32,
    /// The program.
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
}

/// The header of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// XID, program, version, procedure.
    pub id: CallId,
    /// The credential.
    pub credential: OpaqueAuth,
    /// The verifier.
    pub verifier: OpaqueAuth,
}

/// Why a received message is not a usable call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadCall {
    /// It is not a call, or too short to be recognised as one: it gets no reply.
    NotACall,
    /// It is a call that is answered with a rejection.
    Rejected {
        /// Its XID.
        xid: u32,
        /// The answer.
        rejection: Rejection,
    },
    /// There is a chunk in its header, where none may be.
    NotEligible,
}

impl CallHeader {
    /// Appends the header: xid, CALL, RPC version, program, version, procedure, credential, verifier.
    // V1-8.2.2-a, V2-11.2.2-a
    pub fn encode(&self, encoder: &mut Encoder) {
        self.encode_to_credential(encoder);
        self.verifier.encode(encoder);
    }

    /// The same without the verifier: what a verifier signs (RFC 2203 section 5.3.1).
    pub(crate) fn encode_to_credential(&self, encoder: &mut Encoder) {
        let CallId { xid, program, version, procedure } = self.id;
        encoder.words([xid, Word::CALL, RPC_VERSION, program, version, procedure]);
        self.credential.encode(encoder);
    }

    /// Reads the header; the arguments follow at the decoder's position.
    ///
    /// # Errors
    /// If it is not a call of this RPC version.
    pub fn decode(decoder: &mut Decoder) -> Result<Self, BadCall> {
        let silent = |error: DecodeError| if error.is_placement() { BadCall::NotEligible } else { BadCall::NotACall };
        let mut together = decoder.words(|_: &[u32; FIXED_WORDS]| true).map(IntoIterator::into_iter);
        let mut word = || match &mut together {
            Some(words) => Ok(words.next().unwrap_or_default()),
            None => decoder.u32(),
        };
        let xid = word().map_err(silent)?;
        if word().map_err(silent)? != Word::CALL {
            return Err(BadCall::NotACall);
        }
        let reject = |rejection: Rejection| {
            move |error: DecodeError| match error.is_placement() {
                true => BadCall::NotEligible,
                false => BadCall::Rejected { xid, rejection },
            }
        };
        // RPC-5531-9-b
        if word().map_err(reject(Rejection::GarbageArgs))? != RPC_VERSION {
            return Err(BadCall::Rejected {
                xid,
                rejection: Rejection::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION },
            });
        }
        let mut word = || word().map_err(reject(Rejection::GarbageArgs));
        let id = CallId { xid, program: word()?, version: word()?, procedure: word()? };
        // RPC-5531-8.2-b
        let credential = OpaqueAuth::decode(decoder).map_err(reject(Rejection::Auth(AuthStat::BAD_CREDENTIAL)))?;
        let verifier = OpaqueAuth::decode(decoder).map_err(reject(Rejection::Auth(AuthStat::BAD_VERIFIER)))?;
        Ok(Self { id, credential, verifier })
    }
}

/// Why a call was not authenticated (RFC 5531 section 9, `auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// The credential is malformed.
    pub const BAD_CREDENTIAL: Self = Self(1);
    /// The client must begin a new session, or the flavour is not accepted.
    pub const REJECTED_CREDENTIAL: Self = Self(2);
    /// The verifier is malformed.
    pub const BAD_VERIFIER: Self = Self(3);
    /// The verifier is expired or was replayed.
    pub const REJECTED_VERIFIER: Self = Self(4);
    /// The service asks for a stronger flavour.
    pub const TOO_WEAK: Self = Self(5);
    /// The reply's verifier is wrong (found by the client).
    pub const INVALID_RESPONSE: Self = Self(6);
    /// An unknown reason.
    pub const FAILED: Self = Self(7);
    /// There is no such context of RPCSEC_GSS, or the call is not its owner's (RFC 2203 section 5.3.3.3).
    pub const GSS_CREDENTIAL_PROBLEM: Self = Self(13);
    /// The context of RPCSEC_GSS has come to its end.
    pub const GSS_CONTEXT_PROBLEM: Self = Self(14);

    /// The reasons above, with their names.
    const NAMES: [(Self, &str); 9] = [
        (Self::BAD_CREDENTIAL, "AUTH_BADCRED"),
        (Self::REJECTED_CREDENTIAL, "AUTH_REJECTEDCRED"),
        (Self::BAD_VERIFIER, "AUTH_BADVERF"),
        (Self::REJECTED_VERIFIER, "AUTH_REJECTEDVERF"),
        (Self::TOO_WEAK, "AUTH_TOOWEAK"),
        (Self::INVALID_RESPONSE, "AUTH_INVALIDRESP"),
        (Self::FAILED, "AUTH_FAILED"),
        (Self::GSS_CREDENTIAL_PROBLEM, "RPCSEC_GSS_CREDPROBLEM"),
        (Self::GSS_CONTEXT_PROBLEM, "RPCSEC_GSS_CTXPROBLEM"),
    ];
}

/// A reply without results: the server did not execute the call.
// RPC-5531-9-c
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// PROG_UNAVAIL.
    #[error("the server does not export the program")]
    ProgramUnavailable,
    /// PROG_MISMATCH.
    #[error("the server supports versions {low} to {high} of the program")]
    ProgramMismatch {
        /// The lowest version supported.
        low: u32,
        /// The highest version supported.
        high: u32,
    },
    /// PROC_UNAVAIL.
    #[error("the program has no such procedure")]
    ProcedureUnavailable,
    /// GARBAGE_ARGS. Permanent: the same arguments fail again, and part of the call may have been executed (V2-7.2-c).
    #[error("the server could not decode the arguments")]
    GarbageArgs,
    /// SYSTEM_ERR.
    #[error("the server failed")]
    SystemError,
    /// RPC_MISMATCH.
    #[error("the server supports versions {low} to {high} of RPC")]
    RpcMismatch {
        /// The lowest version supported.
        low: u32,
        /// The highest version supported.
        high: u32,
    },
    /// AUTH_ERROR.
    #[error("the server did not accept the credential (reason {})", .0.0)]
    Auth(AuthStat),
}

impl Rejection {
    /// All that [`name`](Self::name) can say, each once.
    pub fn names() -> impl Iterator<Item = &'static str> {
        const OTHERS: [&str; 7] = [
            "PROG_UNAVAIL",
            "PROG_MISMATCH",
            "PROC_UNAVAIL",
            "GARBAGE_ARGS",
            "SYSTEM_ERR",
            "RPC_MISMATCH",
            "AUTH_ERROR",
        ];
        OTHERS.into_iter().chain(AuthStat::NAMES.map(|(_, name)| name))
    }

    /// How an accepted call was answered, by its `accept_stat` and the words behind that. `None` if the specification
    /// has no such status.
    // RPC-5531-9-c
    pub(crate) fn of_accepted<E>(
        stat: u32,
        word: &mut impl FnMut() -> Result<u32, E>,
    ) -> Result<Option<Result<(), Self>>, E> {
        Ok(Some(match stat {
            Word::SUCCESS => Ok(()),
            Word::PROG_UNAVAIL => Err(Self::ProgramUnavailable),
            Word::PROG_MISMATCH => Err(Self::ProgramMismatch { low: word()?, high: word()? }),
            Word::PROC_UNAVAIL => Err(Self::ProcedureUnavailable),
            Word::GARBAGE_ARGS => Err(Self::GarbageArgs),
            Word::SYSTEM_ERR => Err(Self::SystemError),
            _ => return Ok(None),
        }))
    }

    /// Why a call was denied, by its `reject_stat` and the words behind that.
    pub(crate) fn of_denied<E>(stat: u32, word: &mut impl FnMut() -> Result<u32, E>) -> Result<Option<Self>, E> {
        Ok(Some(match stat {
            Word::RPC_MISMATCH => Self::RpcMismatch { low: word()?, high: word()? },
            Word::AUTH_ERROR => Self::Auth(AuthStat(word()?)),
            _ => return Ok(None),
        }))
    }

    /// The name that RFC 5531 section 9 or RFC 2203 gives it; for AUTH_ERROR, the name of its reason.
    pub fn name(self) -> &'static str {
        match self {
            Rejection::ProgramUnavailable => "PROG_UNAVAIL",
            Rejection::ProgramMismatch { .. } => "PROG_MISMATCH",
            Rejection::ProcedureUnavailable => "PROC_UNAVAIL",
            Rejection::GarbageArgs => "GARBAGE_ARGS",
            Rejection::SystemError => "SYSTEM_ERR",
            Rejection::RpcMismatch { .. } => "RPC_MISMATCH",
            Rejection::Auth(reason) => {
                AuthStat::NAMES.iter().find(|(named, _)| *named == reason).map_or("AUTH_ERROR", |(_, name)| name)
            }
        }
    }
}

/// The header of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The call's XID.
    pub xid: u32,
    /// The server's verifier; AUTH_NONE in a denied reply, which has none.
    pub verifier: OpaqueAuth,
    /// Whether results follow.
    pub status: Result<(), Rejection>,
}

impl ReplyHeader {
    /// A header without a verifier.
    pub(crate) fn plain(xid: u32, status: Result<(), Rejection>) -> Self {
        Self { xid, verifier: OpaqueAuth::none(), status }
    }

    /// Appends the header; results follow if its status is success.
    pub fn encode(&self, encoder: &mut Encoder) {
        if self.status.is_ok() && self.verifier.body.is_empty() {
            let flavour = self.verifier.flavour;
            return encoder.words([self.xid, Word::REPLY, Word::MSG_ACCEPTED, flavour, 0, Word::SUCCESS]);
        }
        encoder.u32(self.xid);
        encoder.u32(Word::REPLY);
        match self.status {
            Err(Rejection::RpcMismatch { low, high }) => {
                [Word::MSG_DENIED, Word::RPC_MISMATCH, low, high].into_iter().for_each(|word| encoder.u32(word));
            }
            Err(Rejection::Auth(stat)) => {
                [Word::MSG_DENIED, Word::AUTH_ERROR, stat.0].into_iter().for_each(|word| encoder.u32(word));
            }
            accepted => {
                encoder.u32(Word::MSG_ACCEPTED);
                self.verifier.encode(encoder);
                match accepted {
                    Ok(()) => encoder.u32(Word::SUCCESS),
                    Err(Rejection::ProgramUnavailable) => encoder.u32(Word::PROG_UNAVAIL),
                    Err(Rejection::ProgramMismatch { low, high }) => {
                        [Word::PROG_MISMATCH, low, high].into_iter().for_each(|word| encoder.u32(word));
                    }
                    Err(Rejection::ProcedureUnavailable) => encoder.u32(Word::PROC_UNAVAIL),
                    Err(Rejection::GarbageArgs) => encoder.u32(Word::GARBAGE_ARGS),
                    Err(_) => encoder.u32(Word::SYSTEM_ERR),
                }
            }
        }
    }

    /// Reads the header; results follow at the decoder's position if its status is success.
    ///
    /// # Errors
    /// If it is not a reply.
    pub fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        // Most replies begin so.
        let usual = |words: &[u32; 6]| words[1..] == [Word::REPLY, Word::MSG_ACCEPTED, AUTH_NONE, 0, Word::SUCCESS];
        if let Some([xid, ..]) = decoder.words(usual) {
            return Ok(Self { xid, verifier: OpaqueAuth::none(), status: Ok(()) });
        }
        let xid = decoder.u32()?;
        match decoder.u32()? {
            Word::REPLY => {}
            other => return Err(decoder.bad_value(other, "reply")),
        }
        match decoder.u32()? {
            Word::MSG_ACCEPTED => {
                let verifier = OpaqueAuth::decode(decoder)?;
                let stat = decoder.u32()?;
                let status = Rejection::of_accepted(stat, &mut || decoder.u32())?;
                let status = status.ok_or_else(|| decoder.bad_value(stat, "accept_stat"))?;
                Ok(Self { xid, verifier, status })
            }
            Word::MSG_DENIED => {
                let stat = decoder.u32()?;
                let rejection = Rejection::of_denied(stat, &mut || decoder.u32())?;
                let rejection = rejection.ok_or_else(|| decoder.bad_value(stat, "reject_stat"))?;
                Ok(Self { xid, verifier: OpaqueAuth::none(), status: Err(rejection) })
            }
            other => Err(decoder.bad_value(other, "reply_stat")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rpcrdma_xdr::Stream;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn decode_call(octets: Vec<u8>) -> Result<CallHeader, BadCall> {
        CallHeader::decode(&mut Decoder::new(Stream::from(Bytes::from(octets))))
    }

    fn rejected(xid: u32, rejection: Rejection) -> Result<CallHeader, BadCall> {
        Err(BadCall::Rejected { xid, rejection })
    }

    #[test]
    fn a_call_header_has_the_layout_of_the_specification() {
        let header = CallHeader {
            id: CallId { xid: 7, program: 100_003, version: 3, procedure: 6 },
            credential: OpaqueAuth { flavour: 1, body: Bytes::from_static(b"12345") },
            verifier: OpaqueAuth::none(),
        };
        let mut encoder = Encoder::new();
        header.encode(&mut encoder);
        let octets = encoder.finish().to_bytes();
        let expected = [words(&[7, 0, 2, 100_003, 3, 6, 1, 5]), b"12345\0\0\0".to_vec(), words(&[0, 0])].concat();
        assert_eq!(&octets[..], &expected[..]);
        assert_eq!(octets.len(), CALL_HEADER_BYTES + 8);
        assert_eq!(decode_call(expected), Ok(header));
    }

    /// proves: RPC-5531-9-b
    #[test]
    fn another_rpc_version_is_told_ours() {
        let mismatch = Rejection::RpcMismatch { low: 2, high: 2 };
        assert_eq!(decode_call(words(&[9, 0, 3, 1, 1, 1, 0, 0, 0, 0])), rejected(9, mismatch));
        assert_eq!(decode_call(words(&[9, 0, 1])), rejected(9, mismatch));
    }

    #[test]
    fn what_is_no_call_gets_no_answer() {
        assert_eq!(decode_call(words(&[9])), Err(BadCall::NotACall));
        assert_eq!(decode_call(words(&[9, 1, 2, 1, 1, 1, 0, 0, 0, 0])), Err(BadCall::NotACall));
        assert_eq!(decode_call(words(&[9, 2, 2, 1, 1, 1, 0, 0, 0, 0])), Err(BadCall::NotACall));
        assert_eq!(decode_call(words(&[9, 0, 2, 1])), rejected(9, Rejection::GarbageArgs));
    }

    /// proves: RPC-5531-8.2-a
    #[test]
    fn credentials_of_400_octets_pass_and_longer_ones_do_not() {
        let with = |flavour_at: &[u32], len: usize, rest: &[u32]| {
            [words(&[1, 0, 2, 5, 5, 5]), words(flavour_at), vec![0; len.next_multiple_of(4)], words(rest)].concat()
        };
        assert!(decode_call(with(&[1, 400], 400, &[0, 0])).is_ok());
        assert_eq!(decode_call(with(&[1, 401], 401, &[0, 0])), rejected(1, Rejection::Auth(AuthStat::BAD_CREDENTIAL)));
        assert!(decode_call(with(&[0, 0, 0, 400], 400, &[])).is_ok());
        assert_eq!(decode_call(with(&[0, 0, 0, 401], 401, &[])), rejected(1, Rejection::Auth(AuthStat::BAD_VERIFIER)));
    }

    /// proves: V1-6.1-a
    #[test]
    fn a_chunk_in_the_header_is_not_eligible() {
        let mut stream = Stream::from(Bytes::from(words(&[1, 0, 2])));
        stream.push_chunk(Bytes::from(words(&[5, 5, 5, 0, 0, 0, 0])));
        assert_eq!(CallHeader::decode(&mut Decoder::new(stream)), Err(BadCall::NotEligible));
    }

    /// proves: RPC-5531-9-c
    #[test]
    fn every_reply_survives_its_own_encoding() {
        let rejections = [
            Rejection::ProgramUnavailable,
            Rejection::ProgramMismatch { low: 1, high: 3 },
            Rejection::ProcedureUnavailable,
            Rejection::GarbageArgs,
            Rejection::SystemError,
            Rejection::RpcMismatch { low: 2, high: 2 },
            Rejection::Auth(AuthStat::TOO_WEAK),
        ];
        for status in rejections.into_iter().map(Err).chain([Ok(())]) {
            let header = ReplyHeader { xid: 5, verifier: OpaqueAuth::none(), status };
            let mut encoder = Encoder::new();
            header.encode(&mut encoder);
            let payload = encoder.finish();
            assert!(payload.len() <= REPLY_HEADER_BYTES + MISMATCH_BYTES);
            let mut decoder = Decoder::new(Stream::from(payload.to_bytes()));
            assert_eq!(ReplyHeader::decode(&mut decoder), Ok(header));
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn a_reply_with_unknown_words_is_refused() {
        for octets in [&[1, 0, 0][..], &[1, 1, 2], &[1, 1, 0, 0, 0, 6], &[1, 1, 1, 2]] {
            let mut decoder = Decoder::new(Stream::from(Bytes::from(words(octets))));
            assert!(matches!(ReplyHeader::decode(&mut decoder), Err(DecodeError::BadValue { .. })), "{octets:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..200), call in any::<bool>()) {
            let mut octets = octets;
            if call && octets.len() >= 12 {
                octets[4..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 2]);
            }
            let octets = Bytes::from(octets);
            let _ = CallHeader::decode(&mut Decoder::new(Stream::from(octets.clone())));
            let _ = ReplyHeader::decode(&mut Decoder::new(Stream::from(octets)));
        }
    }
}
