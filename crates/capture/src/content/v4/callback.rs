//! The arguments and the results of each operation of a CB_COMPOUND.

use super::attributes::{attributes, range, slot, state};
use crate::content::{Operation, Value};
use rpcrdma_nfs::v4::{
    Handle,
    callback::{Args, LayoutsRecalled, OffloadOutcome, Op, Outcome},
};

/// The operation with the arguments in which a person is interested.
pub(super) fn arguments(args: &Args) -> Operation {
    let mut operation = Operation::new(args.op().name());
    let to = &mut operation;
    match args {
        Args::GetAttr(of) => file(to, &of.file),
        Args::Recall(of) => {
            file(to, &of.file);
            state(to, &of.state);
            to.flag("truncate", of.truncate);
        }
        Args::LayoutRecall(of) => match &of.recalled {
            LayoutsRecalled::File(of) => {
                file(to, &of.file);
                range(to, of.offset, of.length);
                state(to, &of.state);
            }
            LayoutsRecalled::FileSystem(_) => {
                to.put("recalled", Value::Word("of a file system"));
            }
            LayoutsRecalled::All => {
                to.put("recalled", Value::Word("all"));
            }
        },
        Args::Notify(of) => {
            file(to, &of.directory);
            to.number("changes", of.changes.len() as u64);
        }
        Args::PushDeleg(of) => {
            file(to, &of.file);
            super::attributes::delegation(to, &of.delegation);
        }
        Args::RecallAny(of) => {
            to.number("keep", of.keep);
        }
        Args::RecallSlot(of) => {
            to.number("target_highest_slot", of.target_highest_slot);
        }
        Args::Sequence(of) => {
            slot(to, &of.session, of.slot, of.sequence);
            to.flag("cache", of.cache);
        }
        Args::NotifyLock(of) => {
            file(to, &of.file);
            to.name("owner", of.owner.name.as_slice());
        }
        Args::NotifyDeviceId(of) => {
            to.number("changes", of.changes.len() as u64);
        }
        Args::Offload(of) => {
            file(to, &of.file);
            state(to, &of.state);
            let octets = match &of.outcome {
                OffloadOutcome::Done(response) => response.count,
                OffloadOutcome::Failed { status, copied } => {
                    to.number("copy_status", status.0);
                    *copied
                }
            };
            to.put("count", Value::Count(octets));
        }
        Args::RecallableObjAvail(_) | Args::WantsCancelled(_) => {}
    }
    operation
}

fn file(to: &mut Operation, file: &Handle) {
    to.octets("file", file.as_slice());
}

/// The operation with its status and the results in which a person is interested.
pub(super) fn results(outcome: &Outcome) -> Operation {
    let name = outcome.op().map_or("CB_ILLEGAL", Op::name);
    let mut operation = Operation { status: Some(outcome.status()), ..Operation::new(name) };
    match outcome {
        Outcome::GetAttr(Ok(ok)) => attributes(&ok.attributes, &mut operation),
        Outcome::Sequence(Ok(ok)) => slot(&mut operation, &ok.session, ok.slot, ok.sequence),
        _ => {}
    }
    operation
}
