//! The NFS version 4 service, minor versions 0, 1 and 2 (RFC 7530, RFC 8881, RFC 7862): from a COMPOUND to the file
//! system and back.
//!
//! ```text
//! service.rs    the call: decodes it, finds its session and slot, keeps the answer
//! compound.rs   the operations one after the other; what may stand where; whether results fit
//! missing.rs    operations that are not there     about.rs   what one is about, for warnings of how it ended
//! current.rs    the current and the saved file and stateid
//! session.rs    clients and sessions            pseudo.rs  the tree above the exports
//! machine.rs    what only the client's machine may do          security.rs  which flavours files want
//! client40.rs sequenced40.rs                    minor version 0: clients, and calls in the sequence of an owner
//! look.rs change.rs directory.rs                names
//! attributes.rs settable.rs told.rs             attributes: the operations, what is set, what is told
//! acl.rs        access control lists                xattr.rs   extended attributes
//! open_arguments.rs                             which arguments of OPEN are understood
//! open.rs open_create.rs reservations.rs lock.rs data.rs     what is held, read and written
//! ahead.rs      READs of many small files, by one job
//! space.rs copy.rs offload.rs                   holes and space; copies, and those that go on after their call
//! delegate.rs delegations.rs                    what clients use by themselves
//! state/        what is kept between calls, without any network
//! callback/     calls to clients: by which slot and connection, whether they answer; recalls, CB_NOTIFY_LOCK,
//!               CB_OFFLOAD
//! tasks.rs      what goes on after its call was answered
//! losses.rs     what clients have lost that were away: told, and counted
//! ```
//!
//! A COMPOUND is one future on its connection's thread, and runs to its end even if the connection is gone; no lock is
//! held across an await. Work that waits for the disk on its own (the journal of clients) runs on the program's
//! workers.

mod about;
mod acl;
mod ahead;
mod at_once;
mod attributes;
mod callback;
mod change;
mod client40;
mod compound;
mod conflicts;
mod copy;
mod current;
mod data;
mod delegate;
mod delegations;
mod directory;
mod lock;
mod look;
mod losses;
mod machine;
mod missing;
mod observer;
mod offload;
mod open;
mod open_arguments;
mod open_create;
mod owned;
mod pseudo;
mod reservations;
mod security;
mod sequenced40;
mod service;
mod session;
mod settable;
mod space;
pub(crate) mod state;
mod tasks;
mod tell;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) mod testing40;
#[cfg(test)]
mod tests;
mod told;
mod version4;
mod xattr;

pub use acl::{posix as posix_of_acl, told as acl_of_posix};
pub use callback::Dial;
pub(crate) use conflicts::InTheWay;
pub use observer::{CallbackEvent, HealthEvent, Observer, is_timed};
pub(crate) use pseudo::PseudoFs;
pub(crate) use service::{Nfs4, Shared};
pub use state::counts::Counts;
pub(crate) use tasks::Tasks;
pub use version4::{Version4, Version4Error};
