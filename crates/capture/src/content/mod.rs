//! What a call asks for and what its results say, by the types of `rpcrdma-nfs`: one [`Operation`] for each.
//!
//! A procedure of NFS version 2 or 3, of MOUNT, NLM, NSM, NFSACL or the portmapper is one operation. A COMPOUND of NFS
//! version 4 has several. Owns what it shows. Names and handles come from the capture, which anybody may have made:
//! their types limit them, and `show` escapes them.

mod field;
mod files;
mod gss;
mod info;
mod mount;
mod names;
mod nfs2;
mod nfsacl;
mod nlm;
mod nsm;
mod read;
mod rpcbind;
mod v4;

pub use field::{Field, Operation, Value};
pub use gss::{Gss, GssBody, GssCall};
pub(crate) use read::{Body, Item, arguments, callback_arguments, compound_results, results};
pub use v4::Compound;

/// The contents of an RPC message behind its header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The operations, in their order. Empty if nothing could be decoded.
    pub operations: Vec<Operation>,
    /// Why something of it could not be decoded, and where: positions count from the RPC message's first byte.
    pub problem: Option<String>,
    /// What stands before the operations of a COMPOUND of NFS version 4.
    pub compound: Option<Compound>,
    /// The data of RPCSEC_GSS around all of it, if RPCSEC_GSS proves the caller.
    pub gss: Option<Gss>,
}

impl Content {
    /// Whether it belongs to a CB_COMPOUND.
    pub fn is_callback(&self) -> bool {
        self.compound.as_ref().is_some_and(|compound| compound.callback)
    }
}

/// Adds its fields, in the order in which a person reads them.
trait Describe {
    fn describe(&self, to: &mut Operation);
}

impl Describe for () {
    fn describe(&self, _: &mut Operation) {}
}
