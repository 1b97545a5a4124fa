//! The data of RPCSEC_GSS around a message (RFC 2203): context, service, sequence number, and the part of the message
//! that its protection leaves readable.
//!
//! Signed arguments and results are readable, and are decoded; of sealed ones only the length is shown. Nothing is
//! verified, because a reader of captures has no keys. Owns a handle, whose length its credential limits.

use super::Body;
use bytes::Bytes;
use rpcrdma_oncrpc::{
    CallHeader, ReplyHeader,
    gss::{GssCredential, GssProcedure, GssService, RPCSEC_GSS},
};
use rpcrdma_xdr::{DecodeError, Decoder, Stream};

/// The largest handle of a context that is read: a credential has no room for a longer one.
const MAX_HANDLE_BYTES: usize = 400;
/// Bytes before what is signed: its length, and the sequence number.
const SIGNED_HEAD_BYTES: usize = 8;

/// The contents of a call's credential. Its reply is protected in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssCall {
    /// The purpose of the message.
    pub procedure: GssProcedure,
    /// What the protection covers; `None` in messages that make a context.
    pub service: Option<GssService>,
    /// The number of the call in its context.
    pub sequence: u32,
}

/// The data of RPCSEC_GSS in a call or in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gss {
    /// The contents of the call's credential.
    pub call: GssCall,
    /// The context's handle. A reply has one if it has made the context.
    pub context: Bytes,
    /// Bytes of the verifier.
    pub verifier_bytes: usize,
    /// What stands in the place of arguments or results.
    pub body: GssBody,
}

/// What stands in the place of arguments or results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GssBody {
    /// Arguments or results as they are.
    Plain,
    /// The same, signed together with the sequence number.
    Signed {
        /// Equal to the number in the credential, unless somebody has changed one of them.
        sequence: u32,
    },
    /// Sealed: only the other end can read it.
    Sealed {
        /// Its length in bytes.
        octets: u64,
    },
    /// A token of the exchange that makes a context.
    Token {
        /// Its length in bytes.
        octets: u64,
    },
    /// The answer to a token.
    Answer {
        /// The status of GSS-API: zero if the context is made, one if another token has to come.
        major: u32,
        /// The mechanism's own status.
        minor: u32,
        /// How far a number may stay behind the highest one.
        window: u32,
        /// Bytes of the server's token.
        token_bytes: u64,
    },
}

/// Arguments or results that can be read.
pub(crate) struct Inside<'a> {
    /// The message up to their end.
    pub(crate) body: Body<'a>,
    /// How many words stand between the header and the arguments or results.
    pub(crate) words_before: usize,
}

impl Gss {
    /// Reads a call, whose arguments begin at byte `at`. `None` if it has another credential, an error if its
    /// credential cannot be read.
    pub(crate) fn of_call(header: &CallHeader, body: &Body<'_>, at: usize) -> Option<Result<Self, String>> {
        let credential = &header.credential;
        (credential.flavour == RPCSEC_GSS).then(|| {
            let read = GssCredential::read(&credential.body);
            let GssCredential { procedure, service, sequence, handle } =
                read.map_err(|_| "a credential of RPCSEC_GSS that cannot be read".to_owned())?;
            let call = GssCall { procedure, service, sequence };
            let mut decoder = behind(body, at);
            let body = match procedure {
                GssProcedure::Init | GssProcedure::ContinueInit => {
                    length(&mut decoder).map(|octets| GssBody::Token { octets })
                }
                GssProcedure::Destroy => Ok(GssBody::Plain),
                GssProcedure::Data => protected(service, &mut decoder),
            };
            let body = body.map_err(|error| unread(&error))?;
            Ok(Self { call, context: handle, verifier_bytes: header.verifier.body.len(), body })
        })
    }

    /// Reads the reply to such a call, whose results begin at byte `at`.
    pub(crate) fn of_reply(call: GssCall, header: &ReplyHeader, body: &Body<'_>, at: usize) -> Result<Self, String> {
        let mut decoder = behind(body, at);
        let (context, body) = match call.procedure {
            GssProcedure::Init | GssProcedure::ContinueInit => answer(&mut decoder),
            GssProcedure::Destroy => Ok((Bytes::new(), GssBody::Plain)),
            GssProcedure::Data => protected(call.service, &mut decoder).map(|body| (Bytes::new(), body)),
        }
        .map_err(|error| unread(&error))?;
        Ok(Self { call, context, verifier_bytes: header.verifier.body.len(), body })
    }

    /// The arguments or results, if they can be read. They begin, with what protects them, at byte `at` of `body`.
    pub(crate) fn inside<'a>(&self, body: &Body<'a>, at: usize) -> Option<Inside<'a>> {
        match self.body {
            GssBody::Plain => Some(Inside { body: body.clone(), words_before: 0 }),
            GssBody::Signed { .. } => {
                let len = body.kept.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))?;
                // The number is part of what is signed.
                let end = at.checked_add(4)?.checked_add(usize::try_from(len).ok()?)?;
                let here = body.kept.len().min(end);
                let lacks = end.saturating_sub(here) as u64;
                let missing_bytes = match body.missing_bytes {
                    Some(missing) if missing >= lacks => Some(lacks),
                    _ if lacks == 0 => Some(0),
                    _ => None,
                };
                let body = Body { kept: body.kept.slice(..here), missing_bytes, items: body.items };
                Some(Inside { body, words_before: SIGNED_HEAD_BYTES / 4 })
            }
            GssBody::Sealed { .. } | GssBody::Token { .. } | GssBody::Answer { .. } => None,
        }
    }
}

/// The kept bytes from byte `at` on.
fn behind(body: &Body<'_>, at: usize) -> Decoder {
    Decoder::new(Stream::from(body.kept.slice(at.min(body.kept.len())..)))
}

fn unread(error: &DecodeError) -> String {
    format!("the fields of RPCSEC_GSS do not decode: {error}")
}

/// The length of the bytes that follow. The reader need not have all of them.
fn length(decoder: &mut Decoder) -> Result<u64, DecodeError> {
    decoder.u32().map(u64::from)
}

fn protected(service: Option<GssService>, decoder: &mut Decoder) -> Result<GssBody, DecodeError> {
    Ok(match service {
        None | Some(GssService::Authentication) => GssBody::Plain,
        Some(GssService::Integrity) => {
            length(decoder)?;
            GssBody::Signed { sequence: decoder.u32()? }
        }
        Some(GssService::Privacy) => GssBody::Sealed { octets: length(decoder)? },
    })
}

fn answer(decoder: &mut Decoder) -> Result<(Bytes, GssBody), DecodeError> {
    let context = decoder.opaque(MAX_HANDLE_BYTES)?;
    let [major, minor, window] = [decoder.u32()?, decoder.u32()?, decoder.u32()?];
    Ok((context, GssBody::Answer { major, minor, window, token_bytes: length(decoder)? }))
}
