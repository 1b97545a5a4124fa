//! The table as protocols use it.

mod courtesy;
mod delegations;
mod host;
mod limits;
mod locks;
mod model;
mod shares;
mod threads;
mod waiting;

use super::*;
use crate::FileId;
use rpcrdma_env::{BoxFuture, Timestamp};
use std::{collections::HashMap, sync::atomic::Ordering, time::Duration};

/// A clock that stands still until a test sets it.
#[derive(Default)]
struct Hands(AtomicU64);

impl Hands {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn unix_time(&self) -> Duration {
        Duration::ZERO
    }
}

fn claims() -> Claims {
    Claims::new(Arc::new(Hands::default()))
}

fn limited(limits: Limits) -> Claims {
    Claims::with_limits(Arc::new(Hands::default()), limits)
}

fn file(number: u32) -> FileKey {
    FileKey { file_system: 1, file: FileId::new(&number.to_be_bytes()).unwrap() }
}

fn owner(client: u64, name: &str) -> Holder {
    Holder::new(Client::V4(client), name.as_bytes())
}

fn range(first: u64, last: u64) -> Range {
    Range::between(first, last).unwrap()
}

fn request(file: FileKey, holder: &Holder, range: Range, kind: Kind) -> LockRequest<'_> {
    LockRequest { file, holder, range, kind, host: None, wake: None }
}

impl Claims {
    fn lock_as(&self, file: FileKey, holder: &Holder, range: Range, kind: Kind) -> Result<(), LockRefused> {
        self.lock(&request(file, holder, range, kind))
    }

    /// Whether the table is empty in every respect.
    fn is_empty(&self) -> bool {
        let table = &self.table;
        table.shares.len() == 0
            && table.locks.len() == 0
            && table.denying.load(Ordering::Relaxed) == 0
            && table.waited.lock().unwrap().is_empty()
            && table.delegations.is_empty()
            && table.clients.is_empty()
    }
}

/// The conflicting lock.
fn denied(result: Result<(), LockRefused>) -> Denied {
    match result {
        Err(LockRefused::Denied(denied)) => denied,
        other => panic!("{other:?}"),
    }
}

fn is_too_many<T>(result: Result<T, LockRefused>) -> bool {
    matches!(result, Err(LockRefused::TooMany(TooMany)))
}
