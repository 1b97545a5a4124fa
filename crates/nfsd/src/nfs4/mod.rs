//! The NFS version 4 service, minor versions 1 and 2 (RFC 8881, RFC 7862): from a COMPOUND to the file system and back.
//!
//! ```text
//! service.rs    the call: decodes it, finds its session and slot, keeps the answer
//! compound.rs   the operations one after the other; what may stand where; whether results fit
//! missing.rs    operations that are not there
//! current.rs    the current and the saved file and stateid
//! session.rs    clients and sessions            pseudo.rs  the tree above the exports
//! look.rs change.rs directory.rs                names
//! attributes.rs settable.rs told.rs             attributes: the operations, what is set, what is told
//! open.rs open_create.rs reservations.rs lock.rs data.rs     what is held, read and written
//! state/        what is kept between calls, without any network
//! callback/     calls to clients: by which slot and connection, whether they answer, CB_NOTIFY_LOCK
//! tasks.rs      what goes on after its call was answered
//! ```
//!
//! A COMPOUND is one future on its connection's thread and runs to its end though the connection is gone; no lock is held
//! across an await. What waits for the disk by itself (the journal of clients) runs on the program's workers.

mod attributes;
mod callback;
mod change;
mod compound;
mod conflicts;
mod current;
mod data;
mod directory;
mod lock;
mod look;
mod missing;
mod observer;
mod open;
mod open_create;
mod pseudo;
mod reservations;
mod security;
mod service;
mod session;
mod settable;
pub(crate) mod state;
mod tasks;
mod tell;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod told;
mod version4;

pub(crate) use conflicts::InTheWay;
pub use observer::{CallbackEvent, Observer};
pub(crate) use pseudo::PseudoFs;
pub(crate) use service::{Nfs4, Shared};
pub use state::counts::Counts;
pub use version4::{Version4, Version4Error};
