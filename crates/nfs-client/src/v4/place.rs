//! A small file, made, written and put in its place by one call: OPEN, WRITE, VERIFY, SETATTR, CLOSE, RENAME.
//!
//! The call makes the file under a temporary name, so that its final name always stands for a whole file: if the server
//! did not take all bytes at once, VERIFY ends the call before RENAME. If the call is executed again because the server
//! restarted, it does the same again, unless the first execution ended between OPEN and RENAME: servers keep the
//! verifier of an exclusive create in the times of the file, so they do not accept the file once it was written to, and
//! the caller removes it. Minor version 0 has no current stateid, and so no such call.

use super::{
    Access, Error, How, Nfs4, attributes,
    compound::{get_attributes, put},
    data::check_written,
    open::{Opening, Target},
    reply::done,
};
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::{Attributes, NewAttributes},
    v4::{
        self, Args, Handle, Name, Op, StateId,
        ops::{self, Stability},
    },
};

/// Operations of the call, with SEQUENCE.
const OPERATIONS: u32 = 13;

/// A small file to make.
#[derive(Clone, Debug)]
pub struct NewFile<'a> {
    /// The directory.
    pub directory: &'a Handle,
    /// The temporary name, which no other program uses.
    pub temporary: &'a Name,
    /// The final name; an existing file of this name is replaced.
    pub name: &'a Name,
    /// The mode while the file has its temporary name.
    pub mode: u32,
    /// The final attributes. The size is the length of the data.
    pub attributes: &'a NewAttributes,
    /// All of its contents.
    pub data: Bytes,
}

impl Nfs4 {
    /// Whether the session allows [`place`](Self::place).
    pub fn can_place(&self) -> bool {
        let session = self.inner.standing().session.clone();
        self.inner.minor > 0 && session.is_some_and(|session| session.fore.max_operations >= OPERATIONS)
    }

    /// Makes a small file in one call. Returns its handle and its attributes.
    ///
    /// # Errors
    /// [`Error::AfterCreation`] if the file may exist under its temporary name: then the caller removes it; see
    /// [`Error`].
    pub async fn place(&self, new: &NewFile<'_>) -> Result<(Handle, Attributes), Error> {
        let more = self.after_open(new);
        let how = How::Exclusive(NewAttributes { mode: Some(new.mode), ..Default::default() });
        let mut opening = self.opening(Target::Name(new.directory, new.temporary), Access::Write, how, more).await?;
        let file = opening.opened.file().clone();
        let told = self.placed(new, &mut opening);
        let closed = done!(opening.reply, Close).is_ok();
        let renamed = done!(opening.reply, Rename);
        self.close_if(opening, !closed).await?;
        let told = told.map_err(Error::after_creation)?;
        renamed.map_err(Error::after_creation)?;
        Ok((file, told))
    }

    /// The operations after those that open the file.
    fn after_open(&self, new: &NewFile<'_>) -> Vec<Args> {
        let mut size = v4::NewAttributes::default();
        size.size = Some(new.data.len() as u64);
        let attributes = self.inner.changed(&NewAttributes { size: None, ..*new.attributes });
        let mut ops = Vec::with_capacity(OPERATIONS as usize);
        if !new.data.is_empty() {
            let stability = Stability::DataSync;
            let write = ops::Write { state: StateId::CURRENT, offset: 0, stability, data: new.data.clone() };
            ops.push(Args::Write(write));
        }
        ops.push(Args::Verify(ops::Verify { attributes: size.encoded() }));
        ops.push(Args::SetAttr(ops::SetAttr { state: StateId::CURRENT, attributes }));
        ops.push(get_attributes());
        ops.push(Args::Close(ops::Close { sequence: 0, state: StateId::CURRENT }));
        ops.push(put(new.directory));
        ops.push(Args::SaveFh);
        ops.push(Args::Rename(ops::Rename { from: new.temporary.clone(), to: new.name.clone() }));
        ops
    }

    /// Evaluates the results of the WRITE and of the attributes.
    fn placed(&self, new: &NewFile<'_>, opening: &mut Opening) -> Result<Attributes, Error> {
        if !new.data.is_empty() {
            check_written(&done!(opening.reply, Write)?, new.data.len(), Stability::DataSync)?;
        }
        done!(opening.reply, Verify)?;
        done!(opening.reply, SetAttr)?;
        let told = attributes::next(&mut opening.reply)?;
        if told.size != new.data.len() as u64 {
            return Err(Error::nonsense(Op::GetAttr, "gives another size of a file than it has just verified"));
        }
        Ok(told)
    }
}
