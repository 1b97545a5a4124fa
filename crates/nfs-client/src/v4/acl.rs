//! Access control lists: attribute `acl` (RFC 8881 section 6.2.1).

use super::{
    Error, Nfs4, attributes,
    compound::{Plan, get, put},
    reply::done,
};
use rpcrdma_nfs::v4::{Acl, Args, Attribute, Bitmap, FileAttributes, Handle, Op, StateId, Status, Value, ops};

const ASKED: Bitmap = Bitmap::of(&[Attribute::Acl]);

impl Nfs4 {
    /// The access control list of a file. The client does not know its size in advance (ULB-5.2-a), so the call has
    /// room for a session's largest reply. Minor version 0 has no sessions: there, if a reply does not fit, the
    /// transport asks again or continues the reply (ULB-5.2.1-a).
    ///
    /// # Errors
    /// With `ATTRNOTSUPP` if the file has none; see [`Error`].
    pub async fn acl(&self, file: &Handle) -> Result<Acl, Error> {
        let ops = [put(file), get(ASKED)];
        let plan = Plan::looks(Op::GetAttr).guessed();
        let mut reply = self.inner.perform(plan, None, &mut |_| Ok(ops.to_vec())).await?;
        let told = done!(reply, GetAttr)?.attributes;
        match attributes::values(&told, ASKED)?.pop() {
            Some(Value::Acl(acl)) => Ok(acl),
            _ => Err(self.inner.refused(Op::GetAttr, Status::ATTRNOTSUPP)),
        }
    }

    /// Sets the access control list of a file.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_acl(&self, file: &Handle, acl: &Acl) -> Result<(), Error> {
        let attributes = FileAttributes::of(&[Value::Acl(acl.clone())]);
        let set = Args::SetAttr(ops::SetAttr { state: StateId::ANONYMOUS, attributes });
        let ops = [put(file), set];
        let mut reply = self.inner.perform(Plan::changes(Op::SetAttr), None, &mut |_| Ok(ops.to_vec())).await?;
        done!(reply, SetAttr).map(drop)
    }
}
