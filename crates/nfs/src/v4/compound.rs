//! COMPOUND: several operations in one call (RFC 8881 section 16.2).
//!
//! A call that stops being decodable is not refused as a whole: the operations before the fault are kept and can be
//! executed, and [`Broken`] says what to answer for the operation at fault. Two faults do refuse it: a tag without end,
//! and a chunk where nothing may be placed directly.

use super::{Args, MAX_MINOR, Op, Outcome, Status, op, shape};
use crate::Call;
use bytes::Bytes;
use rpcrdma_oncrpc::{ItemRoom, ReplyShape};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, ItemData, UNIT};

/// The most operations of a call that are decoded. Linux's client sends 16 at most; a server may allow fewer.
pub const MAX_COMPOUND_OPS: usize = 64;

/// The most octets of a tag. Linux's client sends none; it comes back in the reply, so that it may not be long.
pub const MAX_TAG_BYTES: usize = 1024;

xdr_bytes! {
    /// A client's name for a COMPOUND, for readers of captures: at most [`MAX_TAG_BYTES`].
    pub struct Tag: MAX_TAG_BYTES, copied;
}

/// The arguments of COMPOUND.
///
/// ```
/// use rpcrdma_nfs::v4::{Args, Arguments, ops};
/// let read = ops::Read { state: rpcrdma_nfs::v4::StateId::ANONYMOUS, offset: 0, count: 4096 };
/// let call = Arguments::new(2, vec![Args::PutRootFh, Args::Read(read)]);
/// assert_eq!(call.announced, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The name that the client gives the call.
    pub tag: Tag,
    /// The minor version. Of one above [`MAX_MINOR`] no operation is decoded.
    pub minor: u32,
    /// How many operations the call says that it has.
    pub announced: u32,
    /// The operations that could be decoded.
    pub ops: Vec<Args>,
    /// Why there are no more, if the call has more.
    pub broken: Option<Broken>,
}

/// The operation at which decoding ended: the one after those that were decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number, unless that could not be decoded or was not looked at.
    pub number: Option<u32>,
    /// What is wrong with it.
    pub fault: Fault,
}

/// Why an operation was not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The octets are not arguments of it: `BADXDR`.
    BadXdr(DecodeError),
    /// No minor version, or not this one, has such an operation: `OP_ILLEGAL`.
    Illegal,
    /// This minor version forbids an operation of an earlier one: `NOTSUPP`.
    NotSupported,
    /// It stands behind [`MAX_COMPOUND_OPS`] others: `TOO_MANY_OPS` in minor versions with sessions, else `RESOURCE`.
    TooMany,
}

impl Arguments {
    /// A call without a tag.
    pub fn new(minor: u32, ops: Vec<Args>) -> Self {
        let announced = u32::try_from(ops.len()).unwrap_or(u32::MAX);
        Self { tag: Tag::default(), minor, announced, ops, broken: None }
    }

    /// The results to answer for the operation at fault, if one is.
    pub fn broken_outcome<D>(&self) -> Option<Outcome<D>> {
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
        let tag = shape::WORD + rpcrdma_xdr::padded(self.tag.0.len());
        (shape::WORD + tag + shape::WORD).saturating_add(ops)
    }
}

impl Fault {
    /// The status that the protocol has for it, in a minor version.
    pub fn status(&self, minor: u32) -> Status {
        match self {
            Self::BadXdr(_) => Status::BADXDR,
            Self::Illegal => Status::OP_ILLEGAL,
            Self::NotSupported => Status::NOTSUPP,
            Self::TooMany if minor == 0 => Status::RESOURCE,
            Self::TooMany => Status::TOO_MANY_OPS,
        }
    }
}

impl From<Status> for Fault {
    /// The fault of an operation that a minor version refuses with `status`.
    fn from(status: Status) -> Self {
        if status == Status::NOTSUPP { Self::NotSupported } else { Self::Illegal }
    }
}

/// Reads as many operations as were announced, or until the rest is not decodable. The rest is passed over.
///
/// # Errors
/// If a chunk stands where nothing may be placed directly.
// NFS4-8881-16.2-a
pub(super) fn decode_ops<A>(
    decoder: &mut Decoder,
    minor: u32,
    announced: u32,
    decode_one: impl Fn(u32, &mut Decoder, &mut Vec<A>) -> Result<(), Fault>,
) -> Result<(Vec<A>, Option<Broken>), DecodeError> {
    let mut ops = Vec::new();
    if minor > MAX_MINOR {
        decoder.discard_rest();
        return Ok((ops, None));
    }
    for at in 0..announced {
        // NFS4-LIM-a
        let broken = if ops.len() == MAX_COMPOUND_OPS {
            // Its number alone is read, for the answer.
            Broken { number: decoder.u32().ok(), fault: Fault::TooMany }
        } else {
            let (number, fault) = match decoder.u32() {
                Err(error) => (None, Fault::BadXdr(error)),
                Ok(number) => {
                    if at == 0 {
                        ops.reserve_exact((announced as usize).min(USUAL_OPS));
                    }
                    match decode_one(number, decoder, &mut ops) {
                        Ok(()) => continue,
                        Err(fault) => (Some(number), fault),
                    }
                }
            };
            Broken { number, fault }
        };
        if let Fault::BadXdr(error) = &broken.fault
            && error.is_placement()
        {
            return Err(error.clone());
        }
        decoder.discard_rest();
        return Ok((ops, Some(broken)));
    }
    Ok((ops, None))
}

/// Operations for which room is made at once: SEQUENCE, PUTFH, one or two that do something, GETFH, GETATTR.
const USUAL_OPS: usize = 8;

/// Reads the arguments of one operation of a minor version, whose number was read before, and appends them.
fn decode_op(minor: u32, number: u32, decoder: &mut Decoder, ops: &mut Vec<Args>) -> Result<(), Fault> {
    let op = Op::from_number(number).ok_or(Fault::Illegal)?;
    if let Some(status) = op::refused(op.minors(), minor) {
        return Err(status.into());
    }
    Args::decode_onto(op, decoder, ops).map_err(Fault::BadXdr)?;
    // A form that the minor version does not have is not decodable in it (RFC 8178 section 8).
    // NFS4-8178-8-b
    if ops.pop_if(|args| matches!(args, Args::Open(open) if !open.exists_in(minor))).is_some() {
        return Err(Fault::BadXdr(decoder.bad_value(number, "form of OPEN")));
    }
    Ok(())
}

impl Decode for Arguments {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        // Most calls have no tag: then three words are read at once, which costs less.
        let (tag, minor, announced) = match decoder.words(|&[tag_octets, _, _]| tag_octets == 0) {
            Some([_, minor, announced]) => (Tag::default(), minor, announced),
            None => (Tag::decode(decoder)?, decoder.u32()?, decoder.u32()?),
        };
        let decode_one = |number, decoder: &mut _, ops: &mut _| decode_op(minor, number, decoder, ops);
        let (ops, broken) = decode_ops(decoder, minor, announced, decode_one)?;
        Ok(Self { tag, minor, announced, ops, broken })
    }
}

impl Encode for Arguments {
    /// The operations that are present, whatever number was announced.
    fn encode(&self, encoder: &mut Encoder) {
        self.tag.encode(encoder);
        encoder.u32(self.minor);
        encoder.array(&self.ops);
    }
}

impl Call for Arguments {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 1;
    type Reply = Results<ItemData>;

    /// Only in minor version 0, and if nothing in it changes anything: in later ones the slot decides (RFC 8881 section
    /// 2.10.6).
    fn is_repeatable(&self) -> bool {
        // NFS4-REPEAT-a
        self.minor == 0 && self.ops.iter().all(|args| args.op().only_looks())
    }

    fn reply_shape(&self) -> ReplyShape {
        let items = self.ops.iter().filter_map(|args| match args {
            Args::Read(read) => Some(ItemRoom::new(shape::transfer(read.count))),
            Args::ReadLink => Some(ItemRoom::new(super::MAX_LINK_BYTES)),
            _ => None,
        });
        ReplyShape { max_len: self.largest_results(), items: items.collect() }
    }
}

impl Op {
    /// Whether it changes nothing on the server, nor what the server knows of its clients, except how long a lease
    /// lasts and what a session remembers of a call. The server may then execute it first, and find that its results do
    /// not fit.
    pub fn only_looks(self) -> bool {
        matches!(
            self,
            Op::Access
                | Op::GetAttr
                | Op::GetFh
                | Op::LockT
                | Op::Lookup
                | Op::LookupP
                | Op::NVerify
                | Op::PutFh
                | Op::PutPubFh
                | Op::PutRootFh
                | Op::Read
                | Op::ReadDir
                | Op::ReadLink
                | Op::Renew
                | Op::RestoreFh
                | Op::SaveFh
                | Op::SecInfo
                | Op::SecInfoNoName
                | Op::Verify
                | Op::ReadPlus
                | Op::Seek
                | Op::GetXattr
                | Op::ListXattrs
                | Op::IoAdvise
                | Op::OffloadStatus
                | Op::Sequence
                | Op::TestStateId
        )
    }
}

/// The results of COMPOUND. `D` is how the data of READ is held: [`Bytes`] where it is encoded, [`ItemData`] where
/// memory was lent for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results<D = Bytes> {
    /// The status of the last operation.
    pub status: Status,
    /// As in the call.
    pub tag: Tag,
    /// The results of the operations, up to the first that failed.
    pub results: Vec<Outcome<D>>,
}

impl<D> Results<D> {
    /// The results of operations, with the status of the last one.
    pub fn of(tag: Tag, results: Vec<Outcome<D>>) -> Self {
        let status = results.last().map_or(Status::OK, Outcome::status);
        Self { status, tag, results }
    }

    /// The answer to a call that executes nothing, as for a minor version that is not served.
    pub fn refused(tag: Tag, status: Status) -> Self {
        Self { status, tag, results: Vec::new() }
    }
}

impl Encode for Results {
    fn encode(&self, encoder: &mut Encoder) {
        self.status.encode(encoder);
        self.tag.encode(encoder);
        encoder.array(&self.results);
    }
}

impl<D: From<ItemData>> Decode for Results<D> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let is_usual = |&[_, tag_octets, count]: &[u32; 3]| tag_octets == 0 && count as usize <= MAX_COMPOUND_OPS;
        let (status, tag, count) = match decoder.words(is_usual) {
            Some([status, _, count]) => (Status(status), Tag::default(), count as usize),
            None => (Status::decode(decoder)?, Tag::decode(decoder)?, decoder.count(MAX_COMPOUND_OPS)?),
        };
        let mut results = Vec::with_capacity(count.min(decoder.remaining() / UNIT));
        for _ in 0..count {
            Outcome::decode_onto(decoder, &mut results)?;
        }
        Ok(Self { status, tag, results })
    }
}

/// NULL: does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Null;

impl Encode for Null {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for Null {
    fn decode(_: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

impl Call for Null {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 0;
    type Reply = ();

    fn is_repeatable(&self) -> bool {
        true
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(0)
    }
}
