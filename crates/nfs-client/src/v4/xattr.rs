//! Extended attributes: GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR. Minor version 2, RFC 8276.

use super::{
    Error, Nfs4,
    compound::{Plan, put},
    reply::done,
};
use bytes::Bytes;
use rpcrdma_nfs::v4::{
    Args, Handle, Name, Op, Opaque,
    ops::{self, SetXattrOption},
};

/// How many bytes of names the client asks for in a call.
const LIST_BYTES: u32 = 64 << 10;
/// The most names that the client accepts from a server: Linux has no room for more.
const MAX_NAMES: usize = 65_536;

impl Nfs4 {
    /// GETXATTR: the value of an extended attribute; its name is without a namespace.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn xattr(&self, file: &Handle, name: &Name) -> Result<Bytes, Error> {
        let ops = [put(file), Args::GetXattr(ops::GetXattr { name: name.clone() })];
        let plan = Plan::looks(Op::GetXattr).guessed();
        let mut reply = self.inner.perform(plan, None, &mut |_| Ok(ops.to_vec())).await?;
        Ok(done!(reply, GetXattr)?.value.0)
    }

    /// SETXATTR: sets an extended attribute.
    pub async fn set_xattr(
        &self,
        file: &Handle,
        name: &Name,
        value: Bytes,
        option: SetXattrOption,
    ) -> Result<(), Error> {
        let set = ops::SetXattr { option, name: name.clone(), value: Opaque(value) };
        let ops = [put(file), Args::SetXattr(Box::new(set))];
        let mut reply = self.inner.perform(Plan::changes(Op::SetXattr), None, &mut |_| Ok(ops.to_vec())).await?;
        done!(reply, SetXattr).map(drop)
    }

    /// LISTXATTRS: the names of all extended attributes.
    pub async fn xattrs(&self, file: &Handle) -> Result<Vec<Name>, Error> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        let max_count = LIST_BYTES.min(self.transfer().directory);
        loop {
            let ops = [put(file), Args::ListXattrs(ops::ListXattrs { cookie, max_count })];
            let plan = Plan::looks(Op::ListXattrs);
            let mut reply = self.inner.perform(plan, None, &mut |_| Ok(ops.to_vec())).await?;
            let listed = done!(reply, ListXattrs)?;
            // Copied: otherwise names that are kept would keep the message in memory.
            names.extend(listed.names.iter().map(|name| Name::from(name.as_slice())));
            if listed.end {
                return Ok(names);
            }
            let nonsense = |what| Err(Error::nonsense(Op::ListXattrs, what));
            if listed.names.is_empty() || listed.cookie == cookie {
                return nonsense("does not advance in the list of extended attributes");
            }
            if names.len() > MAX_NAMES {
                return nonsense("lists extended attributes without end");
            }
            cookie = listed.cookie;
        }
    }

    /// REMOVEXATTR: removes an extended attribute.
    pub async fn remove_xattr(&self, file: &Handle, name: &Name) -> Result<(), Error> {
        let ops = [put(file), Args::RemoveXattr(ops::RemoveXattr { name: name.clone() })];
        let plan = Plan::changes(Op::RemoveXattr);
        let mut reply = self.inner.perform(plan, None, &mut |_| Ok(ops.to_vec())).await?;
        done!(reply, RemoveXattr).map(drop)
    }
}
