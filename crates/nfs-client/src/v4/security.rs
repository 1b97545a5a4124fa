//! The flavours of credentials that a file takes: SECINFO and SECINFO_NO_NAME (RFC 8881 sections 18.29, 18.45).
//!
//! A server answers both in any flavour, so that a client that was refused (WRONGSEC) can find out which flavour to
//! use.

use super::{
    Error, Nfs4,
    compound::{Plan, lookup},
    reply::done,
};
use rpcrdma_nfs::v4::{Args, Name, Op, ops};

impl Nfs4 {
    /// The flavours that a file takes, the server's first choice first. The names lead to the file from the server's
    /// root; all directories on the way must take this client's flavour.
    ///
    /// # Errors
    /// [`Error::NotInMinor`] for the root itself in minor version 0, which has no operation for that.
    pub async fn flavours(&self, names: &[Name]) -> Result<Vec<ops::Flavour>, Error> {
        let (ask, above) = match names.split_last() {
            Some((last, above)) => (Args::SecInfo(ops::SecInfo { name: last.clone() }), above),
            None => (Args::SecInfoNoName(ops::SecInfoNoName { style: ops::SecInfoStyle::Current }), names),
        };
        let op = ask.op();
        if !op.exists_in(self.minor()) {
            return Err(Error::NotInMinor { operation: op, minor: self.minor() });
        }
        let ops: Vec<_> = [Args::PutRootFh].into_iter().chain(above.iter().map(lookup)).chain([ask]).collect();
        let mut reply = self.inner.perform(Plan::looks(op), None, &mut |_| Ok(ops.clone())).await?;
        let told = match op {
            Op::SecInfo => done!(reply, SecInfo)?,
            _ => done!(reply, SecInfoNoName)?,
        };
        Ok(told.flavours.0)
    }
}
