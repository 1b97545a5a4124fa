//! RPC headers at the beginning of a message, the status of NFS or MOUNT behind a reply's, and what the message says.

use super::calls::Called;
use crate::{
    content::{self, Body, Content, Gss},
    event::{Outcome, ProcedureName, Rpc, Status},
};
use bytes::Bytes;
use rpcrdma_nfs::{mount, v2, v3, v4};
use rpcrdma_oncrpc::{CallHeader, CallId, ReplyHeader};
use rpcrdma_wire::rpc::{Direction, direction};
use rpcrdma_xdr::{Decoder, Stream};

/// The procedure by which servers call back.
const CB_COMPOUND: u32 = v4::callback::Arguments::PROCEDURE;

/// The RPC header at the beginning of `body`, and what follows it. `called`: the call that a Reply answers, if it is
/// known. `may_call_back`: a Call may be one of NFS version 4's callbacks, whatever its program's number is.
pub(super) fn message(
    body: &Body<'_>,
    may_call_back: bool,
    called: impl FnOnce(u32) -> Option<Called>,
) -> Option<(Rpc, Option<Content>)> {
    let is_call = direction(&body.kept)? == Direction::Call;
    let mut decoder = Decoder::new(body.stream().unwrap_or_else(|_| run(&body.kept)));
    if is_call {
        let header = CallHeader::decode(&mut decoder).ok()?;
        let at = decoder.position();
        let read = |body: &Body<'_>, before| arguments(header.id, body, before, may_call_back);
        let content = match Gss::of_call(&header, body, at) {
            None => read(body, 0),
            Some(gss) => protected(gss, body, at, read),
        };
        return Some((Rpc::Call(header.id), content));
    }
    let header = ReplyHeader::decode(&mut decoder).ok()?;
    let at = decoder.position();
    let (outcome, content) = match (header.status, called(header.xid)) {
        (Err(rejection), _) => (Outcome::Rejected(rejection), None),
        (Ok(()), None) => (Outcome::Executed(None), None),
        (Ok(()), Some(Called { name, gss })) => {
            let mut found = None;
            let mut read = |body: &Body<'_>, before: usize| {
                // The status is shown even if what follows it cannot be read.
                found = body.kept.get(at.saturating_add(4 * before)..).and_then(|results| status(name, results));
                results(name, body, before)
            };
            let content = match gss {
                None => read(body, 0),
                Some(call) => protected(Gss::of_reply(call, &header, body, at), body, at, read),
            };
            (Outcome::Executed(found), content)
        }
    };
    Some((Rpc::Reply { xid: header.xid, outcome }, content))
}

/// The data of RPCSEC_GSS, and the content that `read` finds in the part that is not sealed. `read` gets a body, and
/// how many words precede this part behind the header.
fn protected(
    gss: Result<Gss, String>,
    body: &Body<'_>,
    at: usize,
    read: impl FnOnce(&Body<'_>, usize) -> Option<Content>,
) -> Option<Content> {
    Some(match gss {
        Ok(gss) => {
            let content = gss.inside(body, at).and_then(|inside| read(&inside.body, inside.words_before));
            Content { gss: Some(gss), ..content.unwrap_or_default() }
        }
        Err(problem) => Content { problem: Some(problem), ..Content::default() },
    })
}

/// The arguments of a Call, which begin `words_before` words behind its header.
fn arguments(id: CallId, body: &Body<'_>, words_before: usize, may_call_back: bool) -> Option<Content> {
    let name = ProcedureName::from(id);
    let may_call_back = may_call_back && name.program_name().is_none() && id.procedure == CB_COMPOUND;
    let mut decoder = match (body.stream(), may_call_back) {
        (Ok(stream), _) => Decoder::new(stream),
        (Err(_), true) => return None,
        (Err(problem), false) => return Some(Content { problem: Some(problem), ..Content::default() }),
    };
    CallHeader::decode(&mut decoder).ok()?;
    pass(&mut decoder, words_before)?;
    match may_call_back {
        true => content::callback_arguments(decoder, body),
        false => content::arguments(name, decoder, body),
    }
}

/// The results of a call, which begin `words_before` words behind the Reply's header.
fn results(called: ProcedureName, body: &Body<'_>, words_before: usize) -> Option<Content> {
    // Which of its items travelled in chunks shows only when the operations of a COMPOUND are read.
    let stream = if called.is_compound() { Ok(body.inline()) } else { body.stream() };
    let mut decoder = match stream {
        Ok(stream) => Decoder::new(stream),
        Err(problem) => return Some(Content { problem: Some(problem), ..Content::default() }),
    };
    ReplyHeader::decode(&mut decoder).ok()?;
    pass(&mut decoder, words_before)?;
    match called.is_compound() {
        true => Some(content::compound_results(called, decoder, body)),
        false => content::results(called, decoder, body),
    }
}

/// Passes over words.
fn pass(decoder: &mut Decoder, words: usize) -> Option<()> {
    (0..words).try_for_each(|_| decoder.u32().map(drop)).ok()
}

/// The same for a message whose other parts follow.
pub(super) fn beginning(octets: &Bytes, called: impl FnOnce(u32) -> Option<Called>) -> Option<Rpc> {
    let body = Body { kept: octets.clone(), missing_bytes: None, items: &[] };
    message(&body, false, called).map(|(rpc, _)| rpc)
}

fn run(octets: &Bytes) -> Stream {
    let mut stream = Stream::new();
    stream.push_run(octets.clone());
    stream
}

/// The status at the beginning of a call's results.
fn status(called: ProcedureName, results: &[u8]) -> Option<Status> {
    let word = u32::from_be_bytes(*results.first_chunk()?);
    if called.is_compound() {
        Some(Status::Nfs4(v4::Status(word)))
    } else if called.has_nfs2_status() {
        Some(Status::Nfs2(v2::Status(word)))
    } else if called.has_nfs3_status() {
        Some(Status::Nfs3(v3::Status(word)))
    } else if called.has_mount_status() {
        Some(Status::Mount(mount::Status(word)))
    } else {
        None
    }
}
