//! Data of files: READ, WRITE, COMMIT.

use super::{
    Error, Nfs4, Opened,
    compound::{Plan, put, with_file},
    held::Held,
    reply::done,
    standing::Ground,
};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::v4::{
    Args, Handle, Op, StateId, Verifier,
    ops::{self, ReadOk, Stability, WriteOk},
};
use rpcrdma_xdr::ItemData;
use std::sync::Arc;

/// How to read and write a file.
#[derive(Clone, Copy, Debug)]
pub enum By<'a> {
    /// By an open.
    Open(&'a Opened),
    /// Without an open: the server checks the caller's rights, unless another client's open denies the access.
    File(&'a Handle),
}

impl<'a> From<&'a Opened> for By<'a> {
    fn from(opened: &'a Opened) -> Self {
        Self::Open(opened)
    }
}

impl<'a> From<&'a Handle> for By<'a> {
    fn from(file: &'a Handle) -> Self {
        Self::File(file)
    }
}

impl<'a> By<'a> {
    pub(super) fn file(self) -> &'a Handle {
        match self {
            Self::Open(opened) => opened.file(),
            Self::File(file) => file,
        }
    }

    pub(super) fn held(self) -> Option<&'a Arc<Held>> {
        match self {
            Self::Open(opened) => Some(&opened.held),
            Self::File(_) => None,
        }
    }
}

impl Nfs4 {
    /// The present stateid of `by`.
    pub(super) fn state_of(&self, operation: Op, by: By<'_>, ground: &Ground) -> Result<StateId, Error> {
        match by.held() {
            Some(held) => {
                self.inner.still_held(operation, held)?;
                Ok(held.io_state(ground))
            }
            None => Ok(StateId::ANONYMOUS),
        }
    }

    /// READ: up to `count` bytes.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn read<'a>(&self, by: impl Into<By<'a>>, offset: u64, count: u32) -> Result<ReadOk, Error> {
        let ReadOk { end, data } = self.read_with(by.into(), offset, count, None).await?;
        Ok(ReadOk { end, data: data.into_bytes() })
    }

    /// READ into the caller's buffer, as many bytes as it holds. If the transport places data directly, the bytes
    /// arrive in this very buffer, and it comes back as [`ItemData::Placed`], unless the client had to make the call
    /// more than once.
    pub async fn read_into<'a>(
        &self,
        by: impl Into<By<'a>>,
        offset: u64,
        buffer: Buffer,
    ) -> Result<ReadOk<ItemData>, Error> {
        let count = u32::try_from(buffer.capacity()).unwrap_or(u32::MAX);
        self.read_with(by.into(), offset, count, Some(buffer)).await
    }

    async fn read_with(
        &self,
        by: By<'_>,
        offset: u64,
        count: u32,
        buffer: Option<Buffer>,
    ) -> Result<ReadOk<ItemData>, Error> {
        let mut build = |ground: &Ground| {
            let state = self.state_of(Op::Read, by, ground)?;
            Ok(with_file(by.file(), Args::Read(ops::Read { state, offset, count })))
        };
        let plan = Plan::looks(Op::Read);
        let mut reply = self.inner.perform_with(plan, by.held(), buffer, &mut build, &mut |_| false).await?;
        let read = done!(reply, Read)?;
        check_read(&read, count)?;
        Ok(read)
    }

    /// WRITE: puts bytes into a file. The server may take fewer.
    pub async fn write<'a>(
        &self,
        by: impl Into<By<'a>>,
        offset: u64,
        stability: Stability,
        data: Bytes,
    ) -> Result<WriteOk, Error> {
        let (by, len) = (by.into(), data.len());
        let mut build = |ground: &Ground| {
            let state = self.state_of(Op::Write, by, ground)?;
            let write = ops::Write { state, offset, stability, data: data.clone() };
            Ok(with_file(by.file(), Args::Write(write)))
        };
        // To write the same bytes twice does no harm: the server need not remember its reply.
        let mut reply = self.inner.perform(Plan::looks(Op::Write), by.held(), &mut build).await?;
        let written = done!(reply, Write)?;
        check_written(&written, len, stability)?;
        Ok(written)
    }

    /// COMMIT: makes unstable writes durable; `count` 0 means up to the end. The verifier equals the verifier of the
    /// writes, unless the server has lost them.
    pub async fn commit(&self, file: &Handle, offset: u64, count: u32) -> Result<Verifier, Error> {
        let ops = [put(file), Args::Commit(ops::Commit { offset, count })];
        let mut reply = self.inner.perform(Plan::looks(Op::Commit), None, &mut |_| Ok(ops.to_vec())).await?;
        Ok(done!(reply, Commit)?.verifier)
    }
}

/// Fails if a READ of `count` bytes cannot have these results.
pub(super) fn check_read(read: &ReadOk<ItemData>, count: u32) -> Result<(), Error> {
    let len = read.data.as_slice().len();
    if len > count as usize {
        return Err(Error::nonsense(Op::Read, "returned more bytes than were asked for"));
    }
    if len == 0 && count > 0 && !read.end {
        return Err(Error::nonsense(Op::Read, "returned nothing before the end of the file"));
    }
    Ok(())
}

/// Fails if a WRITE of `len` bytes cannot have these results.
pub(super) fn check_written(written: &WriteOk, len: usize, asked: Stability) -> Result<(), Error> {
    if written.count as usize > len {
        return Err(Error::nonsense(Op::Write, "wrote more bytes than it was given"));
    }
    if written.count == 0 && len > 0 {
        return Err(Error::nonsense(Op::Write, "wrote nothing and gave no reason"));
    }
    if rank(written.committed) < rank(asked) {
        return Err(Error::nonsense(Op::Write, "made the bytes less durable than it was asked to"));
    }
    Ok(())
}

fn rank(stability: Stability) -> u8 {
    match stability {
        Stability::Unstable => 0,
        Stability::DataSync => 1,
        Stability::FileSync => 2,
    }
}
