//! Share reservations: what a file is opened for, and what is denied others meanwhile. Not in version 1.

use super::{
    basic::{CallerName, Cookie, OwnerHandle},
    status::Status,
};
use crate::v3::Handle;

xdr_enum! {
    /// What is denied others (`fsh_mode`): bits of reading and writing.
    pub enum ShareDeny: "what a share denies" {
        /// Nothing.
        None = 0,
        /// Reading.
        Read = 1,
        /// Writing.
        Write = 2,
        /// Both.
        Both = 3,
    }

    /// What the file is opened for (`fsh_access`): bits of reading and writing.
    pub enum ShareAccess: "what a share is for" {
        /// Nothing.
        None = 0,
        /// Reading.
        Read = 1,
        /// Writing.
        Write = 2,
        /// Both.
        Both = 3,
    }
}

xdr_struct! {
    /// Which file, for whom and how (`nlm_share`).
    pub struct Share {
        /// The caller's host, by its own account.
        pub caller: CallerName,
        /// The file.
        pub file: Handle,
        /// The owner on that host.
        pub owner: OwnerHandle,
        /// What is denied others.
        pub deny: ShareDeny,
        /// What the file is opened for.
        pub access: ShareAccess,
    }

    /// SHARE and UNSHARE.
    pub struct ShareArguments {
        /// Comes back with the answer.
        pub cookie: Cookie,
        /// What the caller wants, or gives back.
        pub share: Share,
        /// Whether the caller had it before the server started again.
        pub reclaim: bool,
    }

    /// What SHARE and UNSHARE answer (`nlm_shareres`).
    pub struct ShareResponse {
        /// The cookie of the call.
        pub cookie: Cookie,
        /// What came of it.
        pub status: Status,
        /// A value without use.
        pub sequence: i32,
    }
}
