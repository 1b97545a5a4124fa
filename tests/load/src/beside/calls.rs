//! READ and WRITE of one file, in either version of NFS, over the same connection.
//!
//! Both do the same: they encode a call, lend memory for the data of a READ if the transport places it, and decode the
//! reply. Nothing stands between them and the transport, so only the versions differ.

use super::session::{Opened, Session};
use anyhow::{bail, ensure};
use bytes::Bytes;
use rpcrdma_env::Allocator as _;
use rpcrdma_fabric::pool::Pool;
use rpcrdma_nfs::{
    Call,
    v3::{self, Handle},
    v4::{Args, Arguments, Outcome, Results, ops},
};
use rpcrdma_oncrpc::{Client, ItemRoom, TransportKind};
use rpcrdma_xdr::{Encoder, ItemData};

/// Makes one call. If the transport places the data of a READ, its memory comes from `pool` and returns there.
///
/// # Errors
/// If no reply comes, or one that cannot be decoded.
pub(super) async fn exchange<C: Call>(client: &Client, call: &C, pool: &Pool) -> anyhow::Result<C::Reply> {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    let mut shape = call.reply_shape();
    if client.transport().kind() == TransportKind::Rdma
        && let Some(room) = shape.items.first_mut()
    {
        *room = ItemRoom { max_len: room.max_len, buffer: pool.try_allocate(room.max_len) };
    }
    Ok(client.call(C::PROCEDURE, encoder.finish(), shape).await?.decode()?)
}

/// A lane has one call under way at a time, and in version 4 its own slot.
#[derive(Debug)]
pub(super) struct Lane {
    /// The slot.
    pub(super) slot: u32,
    /// The slot's last sequence number.
    pub(super) sequence: u32,
}

/// A client of one version.
pub(super) struct Caller {
    pub(super) client: Client,
    pub(super) pool: Pool,
    pub(super) file: File,
}

/// The file, as a version names it.
pub(super) enum File {
    Three(Handle),
    Four { session: Session, opened: Opened },
}

impl Caller {
    /// READ. Returns how many bytes have come.
    pub(super) async fn read(&self, lane: &mut Lane, offset: u64, count: u32) -> anyhow::Result<usize> {
        let data: ItemData = match &self.file {
            File::Three(file) => {
                let read = v3::Read { file: file.clone(), offset, count };
                match exchange(&self.client, &read, &self.pool).await?.into_result() {
                    Ok(ok) => ok.data,
                    Err(failure) => bail!("READ of version 3: {:?}", failure.status),
                }
            }
            File::Four { session, opened } => {
                let read = Args::Read(ops::Read { state: opened.state, offset, count });
                match self.compound(session, opened, lane, read).await? {
                    Outcome::Read(Ok(ok)) => ok.data,
                    other => bail!("READ of version 4: {:?}", other.status()),
                }
            }
        };
        Ok(data.as_slice().len())
    }

    /// WRITE, unstable. Returns how many bytes the server has taken.
    pub(super) async fn write(&self, lane: &mut Lane, offset: u64, data: Bytes) -> anyhow::Result<usize> {
        let count = match &self.file {
            File::Three(file) => {
                let write = v3::Write { file: file.clone(), offset, stability: v3::Stability::Unstable, data };
                match exchange(&self.client, &write, &self.pool).await?.into_result() {
                    Ok(ok) => ok.count,
                    Err(failure) => bail!("WRITE of version 3: {:?}", failure.status),
                }
            }
            File::Four { session, opened } => {
                let stability = ops::Stability::Unstable;
                let write = Args::Write(ops::Write { state: opened.state, offset, stability, data });
                match self.compound(session, opened, lane, write).await? {
                    Outcome::Write(Ok(ok)) => ok.count,
                    other => bail!("WRITE of version 4: {:?}", other.status()),
                }
            }
        };
        Ok(count as usize)
    }

    /// SEQUENCE, PUTFH, and one operation, whose results it returns.
    async fn compound(
        &self,
        session: &Session,
        opened: &Opened,
        lane: &mut Lane,
        operation: Args,
    ) -> anyhow::Result<Outcome<ItemData>> {
        let file = Args::PutFh(ops::PutFh { file: opened.file.clone() });
        let call = Arguments::new(session.minor, vec![session.sequence(lane), file, operation]);
        let Results { status, mut results, .. } = exchange(&self.client, &call, &self.pool).await?;
        ensure!(results.len() == 3, "{:?} after {} operations of three", status, results.len());
        results.pop().ok_or_else(|| anyhow::anyhow!("no results"))
    }
}
