//! The results of each operation of a COMPOUND.

use super::attributes::{attributes, delegation, lock, range, slot, stability, state};
use crate::content::{Operation, Value, info, read};
use rpcrdma_nfs::v4::{self, Status, ops};
use rpcrdma_xdr::ItemData;

type Outcome = v4::Outcome<ItemData>;

/// The operation with its status and the results in which a person is interested.
pub(super) fn operation(outcome: &Outcome) -> Operation {
    let name = outcome.op().map_or("ILLEGAL", v4::Op::name);
    let mut operation = Operation { status: Some(outcome.status()), ..Operation::new(name) };
    describe(outcome, &mut operation);
    operation
}

fn describe(outcome: &Outcome, to: &mut Operation) {
    match outcome {
        Outcome::Access(Ok(ok)) => info::rights(ok.rights, to),
        Outcome::GetAttr(Ok(ok)) => attributes(&ok.attributes, to),
        Outcome::GetFh(Ok(ok)) => {
            to.octets("file", ok.file.as_slice());
        }
        Outcome::Read(Ok(ok)) => {
            to.put("count", Value::Count(ok.data.as_slice().len() as u64)).flag("eof", ok.end);
        }
        Outcome::ReadPlus(Ok(ok)) => {
            to.number("pieces", ok.pieces.len() as u64).flag("eof", ok.end);
        }
        Outcome::ReadLink(Ok(ok)) => {
            to.put("path", read::path(&ok.text.0)).is_target();
        }
        Outcome::ReadDir(Ok(ok)) => {
            to.number("entries", ok.entries.len() as u64).flag("eof", ok.end);
            to.put("verifier", Value::Verifier(ok.verifier.0));
        }
        Outcome::Write(Ok(ok)) => {
            to.put("count", Value::Count(ok.count.into())).put("committed", stability(ok.committed));
            to.put("verifier", Value::Verifier(ok.verifier.0));
        }
        Outcome::Commit(Ok(ok)) => {
            to.put("verifier", Value::Verifier(ok.verifier.0));
        }
        Outcome::Open(Ok(ok)) => {
            state(to, &ok.state);
            to.flag("confirm", ok.flags & ops::open_result::CONFIRM != 0);
            delegation(to, &ok.delegation);
        }
        Outcome::OpenConfirm(Ok(ok)) => state(to, &ok.state),
        Outcome::OpenDowngrade(Ok(ok)) => state(to, &ok.state),
        Outcome::Lock(Ok(ok)) => state(to, &ok.state),
        Outcome::LockU(Ok(ok)) => state(to, &ok.state),
        Outcome::Lock(Err(failure)) | Outcome::LockT(Err(failure)) => denied(failure, to),
        Outcome::TestStateId(Ok(ok)) => {
            let bad = ok.statuses.iter().filter(|status| **status != Status::OK).count();
            to.number("states", ok.statuses.len() as u64).number("bad", bad as u64);
        }
        _ => clients(outcome, to),
    }
}

/// The conflicting lock and its owner.
fn denied(failure: &ops::LockFailure, to: &mut Operation) {
    if let ops::Refusal::Told(denied) = failure {
        lock(to, denied.kind);
        range(to, denied.offset, denied.length);
        to.name("owner", denied.owner.name.as_slice());
    }
}

/// Clients and sessions, and operations of minor version 2.
fn clients(outcome: &Outcome, to: &mut Operation) {
    match outcome {
        Outcome::Sequence(Ok(ok)) => {
            slot(to, &ok.session, ok.slot, ok.sequence);
            if ok.status != 0 {
                to.put("flags", Value::Flags(ok.status));
            }
        }
        Outcome::ExchangeId(Ok(ok)) => {
            to.put("client", Value::Client(ok.client.0)).put("seq", Value::Keyed(ok.sequence.into()));
            to.put("flags", Value::Flags(ok.flags));
        }
        Outcome::CreateSession(Ok(ok)) => {
            to.put("session", Value::Session(ok.session.0));
            to.number("slots", ok.fore.max_requests).number("back_slots", ok.back.max_requests);
        }
        Outcome::BindConnToSession(Ok(ok)) => {
            to.put("session", Value::Session(ok.session.0));
        }
        Outcome::SetClientId(Ok(ok)) => {
            to.put("client", Value::Client(ok.client.0));
        }
        Outcome::Copy(Ok(ok)) => written(&ok.response, to),
        Outcome::WriteSame(Ok(ok)) => written(&ok.response, to),
        Outcome::OffloadStatus(Ok(ok)) => {
            to.put("count", Value::Count(ok.count)).flag("complete", ok.complete.is_some());
        }
        Outcome::Seek(Ok(ok)) => {
            to.put("offset", Value::Offset(ok.offset)).flag("eof", ok.end);
        }
        Outcome::GetXattr(Ok(ok)) => {
            to.put("count", Value::Count(ok.value.0.len() as u64));
        }
        Outcome::ListXattrs(Ok(ok)) => {
            to.number("entries", ok.names.len() as u64).flag("eof", ok.end);
        }
        _ => {}
    }
}

fn written(response: &ops::WriteResponse, to: &mut Operation) {
    to.put("count", Value::Count(response.count)).put("committed", stability(response.committed));
    if let Some(callback) = &response.callback {
        state(to, callback);
    }
}
