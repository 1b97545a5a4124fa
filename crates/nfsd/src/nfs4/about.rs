//! What an operation of a COMPOUND is about, for warnings about its failure: a file, or a name in a directory.
//!
//! Executing an operation uses up its arguments, so this module keeps what they name until the status is known. Most
//! operations succeed: a file's handle is made only for a failure whose cause an operator can remove.

use super::compound::Compound;
use crate::trouble::{Subject, is_told};
use bytes::Bytes;
use rpcrdma_nfs::{
    v3,
    v4::{Args, Handle, Op, Status, ops::Claim},
};

/// What the arguments of an operation name.
pub(super) enum About {
    /// The current file, or a name in it.
    Current(Option<Bytes>),
    /// A name in the saved directory.
    Saved(Bytes),
    /// The file of this handle.
    Handle(Handle),
}

impl About {
    pub(super) fn of(args: &Args) -> Self {
        let name = match args {
            Args::PutFh(args) => return Self::Handle(args.file.clone()),
            Args::Rename(args) => return Self::Saved(args.from.0.clone()),
            Args::Create(args) => &args.name,
            Args::Link(args) => &args.name,
            Args::Lookup(args) => &args.name,
            Args::Remove(args) => &args.name,
            Args::SecInfo(args) => &args.name,
            Args::Open(args) => match &args.claim {
                Claim::Null(name) | Claim::DelegatePrevious(name) => name,
                Claim::DelegateCurrent(claim) => &claim.name,
                _ => return Self::Current(None),
            },
            _ => return Self::Current(None),
        };
        Self::Current(Some(name.0.clone()))
    }
}

impl Compound {
    /// An operation has failed with this status: warns the operator, if the operator can remove the cause.
    pub(super) fn warn(&self, op: Op, status: Status, about: About) {
        // The logged statuses have the same numbers in both versions.
        let status = v3::Status(status.0);
        if !is_told(status) {
            return;
        }
        let (place, name) = match about {
            About::Handle(handle) => return self.warn_of(op, status, v3::Handle::new(handle.as_slice()).ok(), None),
            About::Current(name) => (&self.current, name),
            About::Saved(name) => (&self.saved, Some(name)),
        };
        let file = place.as_ref().map(|place| self.server.handle(&place.file, place.file.file));
        // A name without a file would look like the path of an export.
        let name = name.filter(|_| file.is_some());
        self.warn_of(op, status, file, name);
    }

    fn warn_of(&self, op: Op, status: v3::Status, file: Option<v3::Handle>, name: Option<Bytes>) {
        let client = self.context.connection.peer;
        self.server.answered(status, || Subject { procedure: op.name(), errors: "NFS4ERR_", client, file, name });
    }
}
