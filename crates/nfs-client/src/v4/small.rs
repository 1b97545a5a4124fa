//! Small files in one call: OPEN, READ or WRITE, and CLOSE (the current stateid of minor versions from 1 on: RFC 8881
//! section 16.2.3.1.2).
//!
//! Minor version 0 has no current stateid: there a small file is read without an open, and written in the usual way.

use super::{
    Access, Error, How, Nfs4, Opened, attributes,
    compound::{Plan, get_attributes, lookup, put},
    data::{check_read, check_written},
    open::{Opening, Target},
    reply::done,
};
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::Attributes,
    v4::{
        Args, Handle, Name, Op, StateId,
        ops::{self, ReadOk, Stability, WriteOk},
    },
};

/// A file and its first bytes, in one call.
#[derive(Clone, Debug)]
pub struct Small {
    /// The file.
    pub file: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// The first bytes.
    pub data: Bytes,
    /// Whether these are all bytes of the file.
    pub end: bool,
}

fn read_first(count: u32) -> Args {
    Args::Read(ops::Read { state: StateId::CURRENT, offset: 0, count })
}

fn close_current() -> Args {
    Args::Close(ops::Close { sequence: 0, state: StateId::CURRENT })
}

impl Nfs4 {
    /// The first `count` bytes of the file of a name. Nothing stays open.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn read_small(&self, directory: &Handle, name: &Name, count: u32) -> Result<Small, Error> {
        if self.inner.minor == 0 {
            return self.read_unopened(directory, name, count).await;
        }
        let more = vec![read_first(count), close_current()];
        let target = Target::Name(directory, name);
        let mut opening = self.opening(target, Access::Read, How::Existing, more).await?;
        let (attributes, ReadOk { end, data }) = self.first_read(&mut opening, count).await?;
        let file = opening.opened.file().clone();
        self.close_unless(opening).await?;
        Ok(Small { file, attributes, data, end })
    }

    /// Opens the file of a name and reads its first `count` bytes. It stays open.
    pub async fn open_and_read(
        &self,
        directory: &Handle,
        name: &Name,
        count: u32,
    ) -> Result<(Opened, Attributes, ReadOk), Error> {
        if self.inner.minor == 0 {
            let (opened, attributes) = self.open(directory, name, Access::Read, How::Existing).await?;
            let read = self.read(&opened, 0, count).await?;
            return Ok((opened, attributes, read));
        }
        let target = Target::Name(directory, name);
        let mut opening = self.opening(target, Access::Read, How::Existing, vec![read_first(count)]).await?;
        let (attributes, read) = self.first_read(&mut opening, count).await?;
        Ok((opening.opened, attributes, read))
    }

    /// Opens the file of a name, as `how` says, writes all of `data` to its beginning, and closes it.
    pub async fn write_small(
        &self,
        directory: &Handle,
        name: &Name,
        how: How,
        stability: Stability,
        data: Bytes,
    ) -> Result<(Handle, WriteOk), Error> {
        let write = ops::Write { state: StateId::CURRENT, offset: 0, stability, data: data.clone() };
        let more = match self.inner.minor {
            0 => Vec::new(),
            _ => vec![Args::Write(write), close_current()],
        };
        let mut opening = self.opening(Target::Name(directory, name), Access::Write, how, more).await?;
        let written = match done!(opening.reply, Write) {
            Ok(written) => {
                check_written(&written, data.len(), stability)?;
                written
            }
            // The WRITE in this call has failed: it gets its own call.
            Err(_) => self.write(&opening.opened, 0, stability, data.clone()).await?,
        };
        let file = opening.opened.file().clone();
        let rest = data.slice(written.count as usize..);
        if rest.is_empty() {
            self.close_unless(opening).await?;
            return Ok((file, written));
        }
        self.close_unless(opening).await?;
        let written = self.write_rest(&file, written, stability, rest).await?;
        Ok((file, written))
    }

    /// Writes the bytes that the server did not take at once. The file is already closed.
    async fn write_rest(
        &self,
        file: &Handle,
        mut written: WriteOk,
        stability: Stability,
        mut rest: Bytes,
    ) -> Result<WriteOk, Error> {
        while !rest.is_empty() {
            let next = self.write(file, written.count.into(), stability, rest.clone()).await?;
            if next.verifier != written.verifier && stability == Stability::Unstable {
                return Err(Error::nonsense(Op::Write, "restarted while a small file was written"));
            }
            rest = rest.slice(next.count as usize..);
            written.count = written.count.saturating_add(next.count);
        }
        Ok(written)
    }

    /// The results of the READ in the call that has opened the file, or of one more call.
    async fn first_read(&self, opening: &mut Opening, count: u32) -> Result<(Attributes, ReadOk), Error> {
        let attributes = match opening.attributes.clone() {
            Ok(attributes) => attributes,
            Err(_) => self.getattr(opening.opened.file()).await?,
        };
        match done!(opening.reply, Read) {
            Ok(read) => {
                check_read(&read, count)?;
                Ok((attributes, ReadOk { end: read.end, data: read.data.into_bytes() }))
            }
            Err(_) => Ok((attributes, self.read(&opening.opened, 0, count).await?)),
        }
    }

    /// Closes the file, unless the call that opened it has already closed it.
    async fn close_unless(&self, mut opening: Opening) -> Result<(), Error> {
        let is_open = done!(opening.reply, Close).is_err();
        self.close_if(opening, is_open).await
    }

    /// Closes a file that is still open, or else records that it is closed.
    pub(super) async fn close_if(&self, opening: Opening, is_open: bool) -> Result<(), Error> {
        if !is_open {
            let held = &opening.opened.held;
            held.closed();
            self.inner.opens.remove(held);
            self.inner.owners.put(held.owner.clone());
            return Ok(());
        }
        self.close(opening.opened).await
    }

    async fn read_unopened(&self, directory: &Handle, name: &Name, count: u32) -> Result<Small, Error> {
        let read = Args::Read(ops::Read { state: StateId::ANONYMOUS, offset: 0, count });
        let ops = [put(directory), lookup(name), Args::GetFh, get_attributes(), read];
        let mut reply = self.inner.perform(Plan::looks(Op::Read), None, &mut |_| Ok(ops.to_vec())).await?;
        let file = done!(reply, GetFh)?.file;
        let attributes = attributes::next(&mut reply)?;
        let read = done!(reply, Read)?;
        check_read(&read, count)?;
        Ok(Small { file, attributes, data: read.data.into_bytes(), end: read.end })
    }
}
