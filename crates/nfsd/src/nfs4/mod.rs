//! NFS version 4.
//!
//! What stands so far is the state that its minor versions 1 and 2 keep between calls: clients, sessions, opens, locks and what
//! of them survives a restart. The service that speaks the protocol will stand on it.

pub(crate) mod state;
