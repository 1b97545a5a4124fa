//! Attributes that calls which came together share.
//!
//! Clients that read a file in small pieces make many READs at a time, and each result has the file's attributes. To
//! ask the kernel for them takes nearly half as long as to read 4 KiB. So each thread keeps the attributes of the file
//! that it looked at last, for the other calls of the same [`Arrival`]: all of them are under way while it asks, so
//! each may say what the file was at that moment. A write through this server, or a change of the attributes, ends
//! that.

use super::{Object, attributes::stat};
use rpcrdma_oncrpc::Arrival;
use rustix::{fs::Statx, io::Errno};
use std::cell::RefCell;

/// The attributes that a thread has found last.
struct Recent {
    arrival: Arrival,
    object: u64,
    changes: u64,
    stat: Statx,
}

thread_local! {
    static RECENT: RefCell<Option<Recent>> = const { RefCell::new(None) };
}

/// The attributes that were found for a call with this mark, if they are of this object and `suits` takes them.
pub(super) fn recent(object: &Object, arrival: Option<Arrival>, suits: impl FnOnce(&Statx) -> bool) -> Option<Statx> {
    let arrival = arrival?;
    RECENT.with_borrow(|recent| {
        let recent = recent.as_ref().filter(|recent| {
            (recent.arrival, recent.object, recent.changes) == (arrival, object.number, object.changes())
        })?;
        suits(&recent.stat).then_some(recent.stat)
    })
}

/// The kernel's attributes now, which later calls with the same mark may share.
pub(super) fn stat_shared(object: &Object, arrival: Option<Arrival>) -> Result<Statx, Errno> {
    // Before the kernel is asked: a change during that time counts.
    let changes = object.changes();
    let stat = stat(&object.fd)?;
    if let Some(arrival) = arrival {
        RECENT.set(Some(Recent { arrival, object: object.number, changes, stat }));
    }
    Ok(stat)
}
