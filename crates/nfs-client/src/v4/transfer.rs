//! The server's description of itself, which the client asks for once: its lease, and how much it moves in a call.

use super::{
    Error, Inner, Nfs4,
    compound::{Plan, get},
    reply::done,
};
use crate::Transfer;
use rpcrdma_nfs::v4::{Args, Attribute, Bitmap, MAX_TRANSFER_BYTES, Op, Status, Value};
use std::{
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

/// Bytes of a READ or WRITE without the data: the head of the results, and of the arguments.
const AROUND_DATA_BYTES: usize = 1_024;
/// The largest READDIR that the client asks for.
const DIRECTORY_BYTES: usize = 256 << 10;
/// The client renews a lease three times before it ends, but not more often than this.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(300);
/// And not less often than this.
const LONGEST_RENEWAL: Duration = Duration::from_secs(60);

/// The server's description of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) lease: Duration,
    pub(super) max_read: u64,
    pub(super) max_write: u64,
    /// The attributes that it supports.
    pub(super) supported: Bitmap,
}

impl Default for Server {
    fn default() -> Self {
        let most = MAX_TRANSFER_BYTES as u64;
        Self { lease: Duration::from_secs(90), max_read: most, max_write: most, supported: Bitmap::EMPTY }
    }
}

impl Server {
    /// How often the client renews the lease.
    pub(super) fn renewal(&self) -> Duration {
        (self.lease / 3).clamp(SHORTEST_RENEWAL, LONGEST_RENEWAL)
    }
}

impl Inner {
    pub(super) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server to describe itself. If the server's root takes other flavours of credentials, it does not answer
    /// yet: the caller will get that error, and can ask for the flavours.
    pub(super) async fn describe(&self) -> Result<(), Error> {
        let asked = Bitmap::of(&[
            Attribute::SupportedAttributes,
            Attribute::LeaseTime,
            Attribute::MaxRead,
            Attribute::MaxWrite,
        ]);
        let ops = [Args::PutRootFh, get(asked)];
        let mut reply = self.perform(Plan::looks(Op::GetAttr), None, &mut |_| Ok(ops.to_vec())).await?;
        if reply.failed.is_some_and(|failed| failed.status == Status::WRONGSEC) {
            return Ok(());
        }
        let told = done!(reply, GetAttr)?.attributes;
        let values = super::attributes::values(&told, asked)?;
        let mut server = Server::default();
        for value in values {
            match value {
                Value::SupportedAttributes(supported) => server.supported = supported,
                Value::LeaseTime(seconds) => server.lease = Duration::from_secs(seconds.into()),
                Value::MaxRead(octets) if octets > 0 => server.max_read = octets,
                Value::MaxWrite(octets) if octets > 0 => server.max_write = octets,
                _ => {}
            }
        }
        *self.server() = server;
        Ok(())
    }
}

impl Nfs4 {
    /// The best sizes of calls.
    pub fn transfer(&self) -> Transfer {
        let inner = &self.inner;
        let session = inner.standing().session.clone();
        let (args, results) = match &session {
            Some(session) => (inner.most_args(session), inner.most_results(session)),
            None => (inner.client.max_args(), inner.client.max_results()),
        };
        let server = *inner.server();
        let most = |allowed: usize, told: u64| {
            let allowed = allowed.saturating_sub(AROUND_DATA_BYTES).min(MAX_TRANSFER_BYTES);
            // Whole pages, if at least one fits.
            let allowed = if allowed >= 4_096 { allowed & !4_095 } else { allowed };
            u32::try_from(told.min(allowed as u64)).unwrap_or(u32::MAX).max(1)
        };
        Transfer {
            read: most(results, server.max_read),
            write: most(args, server.max_write),
            directory: most(results.min(DIRECTORY_BYTES + AROUND_DATA_BYTES), u64::MAX),
        }
    }

    /// How long the server keeps what this client holds while the client is silent.
    pub fn lease(&self) -> Duration {
        self.inner.server().lease
    }
}
