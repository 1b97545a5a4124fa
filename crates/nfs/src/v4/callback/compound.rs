//! CB_COMPOUND: several operations in one call of the server (RFC 8881 section 20.2). Decoded as COMPOUND is.

use super::{Args, Op, Outcome};
use crate::v4::{Broken, Fault, List, MAX_COMPOUND_OPS, Status, Tag, compound::decode_ops, op, shape::WORD};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, padded};

/// The arguments of CB_COMPOUND. They are not a [`Call`](crate::Call), because the client chooses the number of the
/// callback program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The name that the server gives the call, for readers of captures.
    pub tag: Tag,
    /// The minor version. Of one above [`MAX_MINOR`](crate::v4::MAX_MINOR) no operation is decoded.
    pub minor: u32,
    /// The number of SETCLIENTID, in minor version 0; ignored in later ones.
    pub ident: u32,
    /// How many operations the call says that it has.
    pub announced: u32,
    /// The operations that could be decoded.
    pub ops: Vec<Args>,
    /// Why there are no more, if the call has more.
    pub broken: Option<Broken>,
}

impl Arguments {
    /// The procedure's number in the callback program.
    pub const PROCEDURE: u32 = 1;

    /// A call without a tag.
    pub fn new(minor: u32, ident: u32, ops: Vec<Args>) -> Self {
        let announced = u32::try_from(ops.len()).unwrap_or(u32::MAX);
        Self { tag: Tag::default(), minor, ident, announced, ops, broken: None }
    }

    /// The results to answer for the operation at fault, if one is.
    pub fn broken_outcome(&self) -> Option<Outcome> {
        let broken = self.broken.as_ref()?;
        let status = broken.fault.status(self.minor);
        Some(match broken.number.and_then(Op::from_number) {
            Some(op) if status != Status::OP_ILLEGAL => Outcome::failed(op, status),
            _ => Outcome::Illegal(status),
        })
    }

    /// The largest results that these arguments can have, in octets.
    pub fn largest_results(&self) -> usize {
        let ops = self.ops.iter().map(Args::largest_results).fold(0, usize::saturating_add);
        (WORD + WORD + padded(self.tag.0.len()) + WORD).saturating_add(ops)
    }
}

fn decode_op(minor: u32, number: u32, decoder: &mut Decoder, ops: &mut Vec<Args>) -> Result<(), Fault> {
    let op = Op::from_number(number).ok_or(Fault::Illegal)?;
    match op::refused(op.minors(), minor) {
        Some(status) => Err(status.into()),
        None => Args::decode_onto(op, decoder, ops).map_err(Fault::BadXdr),
    }
}

impl Decode for Arguments {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let tag = Tag::decode(decoder)?;
        let minor = decoder.u32()?;
        let ident = decoder.u32()?;
        let announced = decoder.u32()?;
        let decode_one = |number, decoder: &mut _, ops: &mut _| decode_op(minor, number, decoder, ops);
        let (ops, broken) = decode_ops(decoder, minor, announced, decode_one)?;
        Ok(Self { tag, minor, ident, announced, ops, broken })
    }
}

impl Encode for Arguments {
    /// The operations that are present, whatever number was announced.
    fn encode(&self, encoder: &mut Encoder) {
        self.tag.encode(encoder);
        encoder.u32(self.minor);
        encoder.u32(self.ident);
        encoder.array(&self.ops);
    }
}

/// The results of CB_COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// The status of the last operation.
    pub status: Status,
    /// As in the call.
    pub tag: Tag,
    /// The results of the operations, up to the first that failed.
    pub results: Vec<Outcome>,
}

impl Results {
    /// The results of operations, with the status of the last one.
    pub fn of(tag: Tag, results: Vec<Outcome>) -> Self {
        let status = results.last().map_or(Status::OK, Outcome::status);
        Self { status, tag, results }
    }
}

impl Encode for Results {
    fn encode(&self, encoder: &mut Encoder) {
        self.status.encode(encoder);
        self.tag.encode(encoder);
        encoder.array(&self.results);
    }
}

impl Decode for Results {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let status = Decode::decode(decoder)?;
        let tag = Decode::decode(decoder)?;
        let List(results) = List::<Outcome, MAX_COMPOUND_OPS>::decode(decoder)?;
        Ok(Self { status, tag, results })
    }
}
