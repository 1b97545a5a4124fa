//! Share reservations: the access for which a file is opened, and the access that others are denied meanwhile. Not in
//! version 1.

use super::{
    basic::{CallerName, Cookie, OwnerHandle},
    status::Status,
};
use crate::v3::Handle;

xdr_enum! {
    /// The access that others are denied (`fsh_mode`): bits of reading and writing.
    pub enum ShareDeny: "deny mode of a share" {
        /// Nothing.
        None = 0,
        /// Reading.
        Read = 1,
        /// Writing.
        Write = 2,
        /// Both.
        Both = 3,
    }

    /// The access for which the file is opened (`fsh_access`): bits of reading and writing.
    pub enum ShareAccess: "access mode of a share" {
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
    /// A reservation: file, owner and access (`nlm_share`).
    pub struct Share {
        /// The caller's host, as it names itself.
        pub caller: CallerName,
        /// The file.
        pub file: Handle,
        /// The owner on that host.
        pub owner: OwnerHandle,
        /// The access that others are denied.
        pub deny: ShareDeny,
        /// The access for which the file is opened.
        pub access: ShareAccess,
    }

    /// SHARE and UNSHARE.
    pub struct ShareArguments {
        /// Comes back with the answer.
        pub cookie: Cookie,
        /// The reservation that the caller wants, or gives back.
        pub share: Share,
        /// Whether the caller had it before the server started again.
        pub reclaim: bool,
    }

    /// The results of SHARE and UNSHARE (`nlm_shareres`).
    pub struct ShareResponse {
        /// The cookie of the call.
        pub cookie: Cookie,
        /// The outcome.
        pub status: Status,
        /// A value without use.
        pub sequence: i32,
    }
}
