//! Sessions: BACKCHANNEL_CTL, BIND_CONN_TO_SESSION, CREATE_SESSION, DESTROY_SESSION, SEQUENCE, SET_SSV, FREE_STATEID,
//! TEST_STATEID (RFC 8881 sections 18.33, 18.34, 18.36 to 18.38, 18.46 to 18.48).

use super::{ExchangeIdOk, GssService, MAX_GSS_HANDLE_BYTES};
use crate::v4::{ClientId, List, MAX_OPAQUE_BYTES, Opaque, SessionId, StateId, Status};
use rpcrdma_oncrpc::SysCredential;

/// The most forms of security for callbacks that a client offers.
pub const MAX_CALLBACK_SECURITY: usize = 16;

/// The most stateids of one TEST_STATEID.
pub const MAX_TESTED_STATES: usize = 4096;

xdr_enum! {
    /// In which directions a client wants to use a connection (`channel_dir_from_client4`).
    pub enum ClientDirection: "direction of a channel" {
        /// For its calls.
        Fore = 1,
        /// For the server's calls.
        Back = 2,
        /// For its calls, or both.
        ForeOrBoth = 3,
        /// For the server's calls, or both.
        BackOrBoth = 7,
    }

    /// In which directions a connection will be used (`channel_dir_from_server4`).
    pub enum ServerDirection: "direction of a channel" {
        /// For the client's calls.
        Fore = 1,
        /// For the server's calls.
        Back = 2,
        /// Both.
        Both = 3,
    }
}

xdr_union! {
    /// The credential with which the server may call (`callback_sec_parms4`).
    pub enum CallbackSecurity: "callback security flavour" {
        /// None.
        None = 0,
        /// This one of AUTH_SYS.
        Sys(credential: Box<SysCredential>) = 1,
        /// One of RPCSEC_GSS.
        Gss(handles: Box<GssHandles>) = 6,
    }
}

xdr_struct! {
    /// Handles of RPCSEC_GSS for callbacks (`gss_cb_handles4`).
    pub struct GssHandles {
        /// How calls are protected.
        pub service: GssService,
        /// The server's handle.
        pub from_server: Opaque<MAX_GSS_HANDLE_BYTES>,
        /// The client's handle.
        pub from_client: Opaque<MAX_GSS_HANDLE_BYTES>,
    }

    /// BACKCHANNEL_CTL: changes how the server calls.
    pub struct BackchannelCtl {
        /// The program to call.
        pub program: u32,
        /// The credentials for calls.
        pub security: List<CallbackSecurity, MAX_CALLBACK_SECURITY>,
    }

    /// BIND_CONN_TO_SESSION: uses a connection for a session.
    #[derive(Copy)]
    pub struct BindConnToSession {
        /// The session.
        pub session: SessionId,
        /// The directions that the client wants.
        pub direction: ClientDirection,
        /// Whether to go on with RDMA.
        pub rdma_mode: bool,
    }

    /// What BIND_CONN_TO_SESSION returns.
    #[derive(Copy)]
    pub struct BindConnToSessionOk {
        /// The session.
        pub session: SessionId,
        /// The directions that will be used.
        pub direction: ServerDirection,
        /// Whether to go on with RDMA.
        pub rdma_mode: bool,
    }

    /// What a channel of a session can do (`channel_attrs4`). Sizes are of whole RPC messages in octets.
    #[derive(Copy)]
    pub struct ChannelAttributes {
        /// Padding before data.
        pub header_padding: u32,
        /// The largest call.
        pub max_request: u32,
        /// The largest reply.
        pub max_response: u32,
        /// The largest reply that is remembered.
        pub max_response_cached: u32,
        /// The most operations of a call.
        pub max_operations: u32,
        /// The most calls at a time: slots.
        pub max_requests: u32,
        /// RDMA Reads at a time, over RDMA.
        pub rdma_ird: Option<u32>,
    }

    /// CREATE_SESSION: makes a session, and confirms the client.
    pub struct CreateSession {
        /// The client.
        pub client: ClientId,
        /// The sequence number from EXCHANGE_ID, one more each time.
        pub sequence: u32,
        /// Flags of [`create_session`].
        pub flags: u32,
        /// What the client asks of the channel for its calls.
        pub fore: ChannelAttributes,
        /// What the client asks of the channel for the server's calls.
        pub back: ChannelAttributes,
        /// The program to call.
        pub callback_program: u32,
        /// The credentials for calls.
        pub callback_security: List<CallbackSecurity, MAX_CALLBACK_SECURITY>,
    }

    /// What CREATE_SESSION returns.
    #[derive(Copy)]
    pub struct CreateSessionOk {
        /// Names the session.
        pub session: SessionId,
        /// As in the arguments.
        pub sequence: u32,
        /// Flags of [`create_session`].
        pub flags: u32,
        /// The channel for the client's calls.
        pub fore: ChannelAttributes,
        /// The channel for the server's calls.
        pub back: ChannelAttributes,
    }

    /// DESTROY_SESSION: ends a session.
    #[derive(Copy)]
    pub struct DestroySession {
        /// The session.
        pub session: SessionId,
    }
}

xdr_words! {
    /// SEQUENCE: says by which slot of which session a call comes, and renews the lease.
    #[derive(Copy)]
    pub struct Sequence {
        /// The session.
        pub session: SessionId,
        /// One more than the slot's last number.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// The highest slot that the client uses now.
        pub highest_slot: u32,
        /// Whether the server must remember the reply.
        pub cache: bool,
    }

    /// What SEQUENCE returns.
    #[derive(Copy)]
    pub struct SequenceOk {
        /// As in the arguments.
        pub session: SessionId,
        /// As in the arguments.
        pub sequence: u32,
        /// As in the arguments.
        pub slot: u32,
        /// The highest slot that the server takes.
        pub highest_slot: u32,
        /// The highest slot that the client should use.
        pub target_highest_slot: u32,
        /// Flags of [`sequence_status`].
        pub status: u32,
    }
}

xdr_struct! {
    /// SET_SSV: changes the secret.
    pub struct SetSsv {
        /// The octets that are mixed into the secret.
        pub ssv: Opaque<MAX_OPAQUE_BYTES>,
        /// A proof that the client knows the secret.
        pub digest: Opaque<MAX_OPAQUE_BYTES>,
    }

    /// What SET_SSV returns.
    pub struct SetSsvOk {
        /// A proof that the server knows the secret.
        pub digest: Opaque<MAX_OPAQUE_BYTES>,
    }

    /// FREE_STATEID: the client knows that this stateid was revoked, or has no more use for it.
    #[derive(Copy)]
    pub struct FreeStateId {
        /// The stateid.
        pub state: StateId,
    }

    /// TEST_STATEID: asks which stateids are good.
    pub struct TestStateId {
        /// The stateids.
        pub states: List<StateId, MAX_TESTED_STATES>,
    }

    /// What TEST_STATEID returns.
    pub struct TestStateIdOk {
        /// A status for each stateid.
        pub statuses: List<Status, MAX_TESTED_STATES>,
    }
}

impl ChannelAttributes {
    /// Calls and replies of up to `octets` each, with up to `operations` operations in a call, and `slots` slots. The
    /// server remembers replies of up to `cached` octets.
    pub fn new(octets: u32, cached: u32, operations: u32, slots: u32) -> Self {
        Self {
            header_padding: 0,
            max_request: octets,
            max_response: octets,
            max_response_cached: cached,
            max_operations: operations,
            max_requests: slots,
            rdma_ird: None,
        }
    }
}

/// The first program number that RFC 5531 (section 13) leaves to programs that need one for a while.
pub const TRANSIENT_PROGRAM: u32 = 0x4000_0000;

impl CreateSession {
    /// The next session of a client, as EXCHANGE_ID returned it, with both channels alike. The server may call
    /// [`TRANSIENT_PROGRAM`] without a credential.
    pub fn new(known: &ExchangeIdOk, channel: ChannelAttributes) -> Self {
        Self {
            client: known.client,
            sequence: known.sequence,
            flags: 0,
            fore: channel,
            back: channel,
            callback_program: TRANSIENT_PROGRAM,
            callback_security: List(vec![CallbackSecurity::None]),
        }
    }
}

/// Flags of CREATE_SESSION.
pub mod create_session {
    /// What is remembered survives a restart of the server.
    pub const PERSIST: u32 = 1;
    /// The server calls over this connection.
    pub const CONN_BACK_CHAN: u32 = 2;
    /// The connection goes on with RDMA.
    pub const CONN_RDMA: u32 = 4;
}

/// The flags that SEQUENCE returns.
pub mod sequence_status {
    /// The server cannot call the client.
    pub const CB_PATH_DOWN: u32 = 0x01;
    /// Contexts for callbacks will expire soon.
    pub const CB_GSS_CONTEXTS_EXPIRING: u32 = 0x02;
    /// Contexts for callbacks have expired.
    pub const CB_GSS_CONTEXTS_EXPIRED: u32 = 0x04;
    /// The lease has expired, and everything is lost.
    pub const EXPIRED_ALL_STATE_REVOKED: u32 = 0x08;
    /// The lease has expired, and something is lost.
    pub const EXPIRED_SOME_STATE_REVOKED: u32 = 0x10;
    /// An administrator took something away.
    pub const ADMIN_STATE_REVOKED: u32 = 0x20;
    /// A delegation or layout was not returned in time, and is lost.
    pub const RECALLABLE_STATE_REVOKED: u32 = 0x40;
    /// A file system of this lease is on another server.
    pub const LEASE_MOVED: u32 = 0x80;
    /// The server has restarted: the client should reclaim what it held.
    pub const RESTART_RECLAIM_NEEDED: u32 = 0x100;
    /// The client cannot be called over this session.
    pub const CB_PATH_DOWN_SESSION: u32 = 0x200;
    /// The back channel has failed for good.
    pub const BACKCHANNEL_FAULT: u32 = 0x400;
    /// A device of a layout has changed.
    pub const DEVID_CHANGED: u32 = 0x800;
    /// A device of a layout no longer exists.
    pub const DEVID_DELETED: u32 = 0x1000;
}
