//! COMPOUND and CB_COMPOUND of NFS version 4: their operations, one after the other, up to the first that cannot be
//! read.
//!
//! Owns the walk through the operations, and what to do if data is not in the message: it travelled in a chunk, or the
//! reader did not keep it. The files beside this one show each operation's fields.

mod arguments;
mod attributes;
mod callback;
mod results;
#[cfg(test)]
mod tests;

use super::{
    Content, Operation,
    read::{Body, Item, zeros},
};
use bytes::Bytes;
use rpcrdma_nfs::v4::{self, MAX_COMPOUND_OPS, MAX_MINOR, Op, Status, Tag};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Stream};

/// What stands before the operations of a COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compound {
    /// Whether it is a CB_COMPOUND.
    pub callback: bool,
    /// The minor version; a reply does not say it.
    pub minor: Option<u32>,
    /// The requester's name for it, mostly empty.
    pub tag: Bytes,
}

/// Bytes of READ's results before the data: number, status, `eof`, length.
const READ_FRONT_BYTES: usize = 16;
/// Bytes of READLINK's results before the text: number, status, length.
const READLINK_FRONT_BYTES: usize = 12;
/// Bytes of WRITE's arguments before the data: number, stateid, offset, stability, length.
const WRITE_FRONT_BYTES: usize = 36;

/// Why an operation could not be read.
enum Fault {
    Xdr(DecodeError),
    /// The minor version does not have this operation.
    Version(u32, u32),
    /// The data of a chunk cannot stand there.
    Chunk(String),
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Fault::Xdr(error)
    }
}

/// Walks through a message.
struct Walk<'a> {
    body: &'a Body<'a>,
    decoder: Decoder,
    /// The end of the kept bytes, as a position in the message with its chunks.
    kept_end: usize,
    /// Items of Write chunks that the walk has not met yet; none in calls, since Read chunks say where they belong.
    items: &'a [Item],
    /// The bytes of each item that the walk has met, padding included.
    apart: Vec<usize>,
}

impl<'a> Walk<'a> {
    /// Walks on from where `decoder` stands.
    fn new(body: &'a Body<'a>, decoder: Decoder, items: &'a [Item]) -> Self {
        let end = decoder.position().saturating_add(decoder.remaining());
        let kept_end = end.saturating_sub(body.stood_for().map_or(0, |zeros| zeros.len()));
        Walk { body, decoder, kept_end, items, apart: Vec::new() }
    }

    /// The operations, and why there are no more if there should be.
    fn operations(
        mut self,
        one: impl Fn(&mut Decoder) -> Result<Operation, Fault>,
    ) -> (Vec<Operation>, Option<String>) {
        let mut operations = Vec::new();
        let announced = match self.decoder.u32() {
            Ok(announced) => announced,
            Err(error) => return (operations, Some(self.at_fault(&Fault::Xdr(error), None))),
        };
        for at in 0..announced as usize {
            if at == MAX_COMPOUND_OPS {
                let position = self.decoder.position();
                let problem = format!("not read: {announced} operations, the ones from byte {position} on");
                return (operations, Some(problem));
            }
            let begin = self.decoder.position();
            let read = self.place_item().and_then(|()| one(&mut self.decoder));
            let operation = match read {
                Ok(operation) => operation,
                Err(fault) => return (operations, Some(self.at_fault(&fault, Some((at, begin))))),
            };
            if self.decoder.position() > self.kept_end {
                // Data may end behind the kept bytes: only its length is shown.
                let front = match operation.name {
                    "READ" => READ_FRONT_BYTES,
                    "WRITE" => WRITE_FRONT_BYTES,
                    _ => usize::MAX,
                };
                if begin.saturating_add(front) <= self.kept_end {
                    operations.push(operation);
                }
                let is_last = operations.len() == announced as usize;
                let problem = self.body.incomplete(false).filter(|_| !is_last);
                return (operations, problem);
            }
            operations.push(operation);
        }
        let problem = self.body.incomplete(false);
        let problem = problem.or_else(|| self.decoder.finish().err().map(|error| format!("does not decode: {error}")));
        (operations, problem)
    }

    /// What is wrong with an operation. `operation`: its number, and where it begins.
    fn at_fault(&self, fault: &Fault, operation: Option<(usize, usize)>) -> String {
        let ends =
            matches!(fault, Fault::Xdr(DecodeError::Truncated { .. })) || self.decoder.position() > self.kept_end;
        if let Some(problem) = self.body.incomplete(false).filter(|_| ends) {
            return problem;
        }
        let which = operation.map(|(at, begin)| format!("operation {} at byte {begin} ", at.saturating_add(1)));
        let which = which.unwrap_or_default();
        match fault {
            Fault::Xdr(error) => format!("{which}does not decode: {error}"),
            Fault::Version(number, minor) => match Op::from_number(*number) {
                Some(op) => format!("{which}is {op}, which minor version {minor} does not have"),
                None => format!("{which}has number {number}, which is not an operation"),
            },
            Fault::Chunk(problem) => problem.clone(),
        }
    }

    /// If the results that come next have an item in a chunk: puts zeros in its place. The n-th Write chunk that was
    /// used belongs to the n-th item that is not empty (RFC 8166 section 3.4.6.1).
    fn place_item(&mut self) -> Result<(), Fault> {
        let Some((item, rest)) = self.items.split_first() else { return Ok(()) };
        let apart: usize = self.apart.iter().fold(0, |sum, octets| sum.saturating_add(*octets));
        let begin = self.decoder.position().saturating_sub(apart);
        let word = |at: usize| {
            let at = begin.saturating_add(at);
            self.body.kept.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
        };
        let front = match (word(0), word(4)) {
            (Some(number), Some(0)) if number == Op::Read as u32 => READ_FRONT_BYTES,
            (Some(number), Some(0)) if number == Op::ReadLink as u32 => READLINK_FRONT_BYTES,
            _ => return Ok(()),
        };
        let end = begin.saturating_add(front);
        if word(front.saturating_sub(4)).is_none_or(|octets| octets == 0) || end > self.body.kept.len() {
            return Ok(());
        }
        let octets = usize::try_from(item.octets).unwrap_or(usize::MAX);
        let data = zeros(octets).map_err(Fault::Chunk)?;
        let mut stream = Stream::new();
        stream.push_run(self.body.kept.slice(..begin));
        for octets in &self.apart {
            stream.push_run(zeros(*octets).map_err(Fault::Chunk)?);
        }
        stream.push_run(self.body.kept.slice(begin..end));
        stream.push_chunk(data);
        stream.push_run(self.body.kept.slice(end..));
        if let Some(zeros) = self.body.stood_for() {
            stream.push_run(zeros);
        }
        let mut decoder = Decoder::new(stream);
        decoder.opaque_fixed(begin)?;
        for octets in &self.apart {
            decoder.opaque_fixed(*octets)?;
        }
        self.decoder = decoder;
        self.items = rest;
        let octets = rpcrdma_xdr::padded(octets);
        self.apart.push(octets);
        self.kept_end = self.kept_end.saturating_add(octets);
        Ok(())
    }
}

/// The arguments of COMPOUND. The decoder stands behind the call's header.
pub(super) fn call(decoder: Decoder, body: &Body<'_>) -> Content {
    read_call(decoder, body, false, |minor, decoder| {
        let number = decoder.u32()?;
        let op = Op::from_number(number).filter(|op| op.exists_in(minor)).ok_or(Fault::Version(number, minor))?;
        let args = v4::Args::decode_of(op, decoder)?;
        match &args {
            v4::Args::Open(open) if !open.exists_in(minor) => {
                Err(Fault::Xdr(decoder.bad_value(number, "form of OPEN in this minor version")))
            }
            _ => Ok(arguments::operation(&args)),
        }
    })
}

/// The arguments of CB_COMPOUND.
pub(super) fn callback_call(decoder: Decoder, body: &Body<'_>) -> Content {
    read_call(decoder, body, true, |minor, decoder| {
        let number = decoder.u32()?;
        let op = v4::callback::Op::from_number(number).filter(|op| op.exists_in(minor));
        let op = op.ok_or_else(|| Fault::Xdr(decoder.bad_value(number, "callback operation of this minor version")))?;
        Ok(callback::arguments(&v4::callback::Args::decode_of(op, decoder)?))
    })
}

fn read_call(
    mut decoder: Decoder,
    body: &Body<'_>,
    callback: bool,
    one: impl Fn(u32, &mut Decoder) -> Result<Operation, Fault>,
) -> Content {
    let mut front = || {
        let tag = Tag::decode(&mut decoder)?;
        let minor = decoder.u32()?;
        if callback {
            // `callback_ident`, which the client has set by SETCLIENTID in minor version 0.
            decoder.u32()?;
        }
        Ok::<_, DecodeError>((tag, minor))
    };
    let (tag, minor) = match front() {
        Ok(front) => front,
        Err(error) => return unread(body, &error),
    };
    let compound = Compound { callback, minor: Some(minor), tag: Bytes::copy_from_slice(tag.as_slice()) };
    let (operations, problem) = match minor {
        0..=MAX_MINOR => Walk::new(body, decoder, &[]).operations(|decoder| one(minor, decoder)),
        _ => (Vec::new(), Some(format!("minor version {minor} is not read"))),
    };
    Content { operations, problem, compound: Some(compound), gss: None }
}

/// The results of COMPOUND or CB_COMPOUND. `decoder` reads what was kept of `body`, chunks not counted, and stands
/// behind the reply's header.
pub(super) fn reply(mut decoder: Decoder, body: &Body<'_>, callback: bool) -> Content {
    let mut front = || {
        Status::decode(&mut decoder)?;
        Tag::decode(&mut decoder)
    };
    let tag = match front() {
        Ok(tag) => tag,
        Err(error) => return unread(body, &error),
    };
    let compound = Compound { callback, minor: None, tag: Bytes::copy_from_slice(tag.as_slice()) };
    let walk = Walk::new(body, decoder, body.items);
    let (operations, problem) = match callback {
        false => walk.operations(|decoder| Ok(results::operation(&Decode::decode(decoder)?))),
        true => walk.operations(|decoder| Ok(callback::results(&Decode::decode(decoder)?))),
    };
    Content { operations, problem, compound: Some(compound), gss: None }
}

/// The content if not even the part before the operations can be read.
fn unread(body: &Body<'_>, error: &DecodeError) -> Content {
    let problem = body.incomplete(false).unwrap_or_else(|| format!("does not decode: {error}"));
    Content { problem: Some(problem), ..Content::default() }
}
