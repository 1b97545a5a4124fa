//! Copies that the server makes: CLONE, COPY, COPY_NOTIFY, OFFLOAD_CANCEL, OFFLOAD_STATUS (RFC 7862 sections 15.2,
//! 15.3, 15.8, 15.9, 15.13).

use super::{NetAddress, Refusal, Stability};
use crate::v4::{List, MAX_OPAQUE_BYTES, Opaque, StateId, Status, Time, Verifier};

/// The most addresses of a server.
pub const MAX_SERVERS: usize = 16;

xdr_union! {
    /// Where a server is (`netloc4`).
    pub enum ServerLocation: "kind of server location" {
        /// By name.
        Name(name: Opaque<MAX_OPAQUE_BYTES>) = 1,
        /// By URL.
        Url(url: Opaque<MAX_OPAQUE_BYTES>) = 2,
        /// By address.
        Address(address: NetAddress) = 3,
    }
}

xdr_struct! {
    /// CLONE: makes a range of the current file share what a range of the saved file holds.
    #[derive(Copy)]
    pub struct CloneRange {
        /// The open of the saved file.
        pub source_state: StateId,
        /// The open of the current file.
        pub state: StateId,
        /// Where to begin in the saved file.
        pub source_offset: u64,
        /// Where to begin in the current file.
        pub offset: u64,
        /// How many octets; 0 means up to the end.
        pub count: u64,
    }

    /// COPY: copies from the saved file, or from another server's, to the current file.
    pub struct CopyRange {
        /// The open of the source.
        pub source_state: StateId,
        /// The open of the current file.
        pub state: StateId,
        /// Where to begin in the source.
        pub source_offset: u64,
        /// Where to begin in the current file.
        pub offset: u64,
        /// How many octets; 0 means up to the end.
        pub count: u64,
        /// Whether octets must be copied one after the other.
        pub consecutive: bool,
        /// Whether the server must answer only when the copy is done.
        pub synchronous: bool,
        /// Where the source is, if on another server.
        pub source_servers: List<ServerLocation, MAX_SERVERS>,
    }

    /// How a copy is made (`copy_requirements4`).
    #[derive(Copy, Default)]
    pub struct CopyRequirements {
        /// One octet after the other.
        pub consecutive: bool,
        /// The answer comes when the copy is done.
        pub synchronous: bool,
    }

    /// How much was written, or the name of a copy that goes on (`write_response4`).
    #[derive(Copy)]
    pub struct WriteResponse {
        /// The name of a copy that continues and ends with CB_OFFLOAD.
        pub callback: Option<StateId>,
        /// How many octets were written.
        pub count: u64,
        /// How durable they are.
        pub committed: Stability,
        /// As in [`WriteOk`](super::WriteOk).
        pub verifier: Verifier,
    }

    /// What COPY returns.
    #[derive(Copy)]
    pub struct CopyOk {
        /// How much was copied, or the name of a copy that goes on.
        pub response: WriteResponse,
        /// How the copy is made.
        pub requirements: CopyRequirements,
    }

    /// COPY_NOTIFY: tells the source's server which server will read the current file.
    pub struct CopyNotify {
        /// The open of the file.
        pub state: StateId,
        /// The server that copies.
        pub destination: ServerLocation,
    }

    /// What COPY_NOTIFY returns.
    pub struct CopyNotifyOk {
        /// For how long the copy may begin.
        pub lease: Time,
        /// The name by which the other server reads.
        pub state: StateId,
        /// The addresses at which the other server finds this server.
        pub servers: List<ServerLocation, MAX_SERVERS>,
    }

    /// OFFLOAD_CANCEL: ends a copy that goes on.
    #[derive(Copy)]
    pub struct OffloadCancel {
        /// The copy.
        pub state: StateId,
    }

    /// OFFLOAD_STATUS: asks how far a copy has come.
    #[derive(Copy)]
    pub struct OffloadStatus {
        /// The copy.
        pub state: StateId,
    }

    /// What OFFLOAD_STATUS returns.
    #[derive(Copy)]
    pub struct OffloadStatusOk {
        /// Octets so far.
        pub count: u64,
        /// How it ended, if it has.
        pub complete: Option<Status>,
    }
}

/// COPY has failed; with `OFFLOAD_NO_REQS` the server says how it could copy.
pub type CopyFailure = Refusal<CopyRequirements, { Status::OFFLOAD_NO_REQS.0 }>;
