//! Clients: EXCHANGE_ID, DESTROY_CLIENTID, RECLAIM_COMPLETE (RFC 8881 sections 18.35, 18.50, 18.51); in minor version 0
//! SETCLIENTID, SETCLIENTID_CONFIRM, RENEW, RELEASE_LOCKOWNER (RFC 7530 sections 16.29, 16.33, 16.34, 16.37).

use super::{MAX_OID_BYTES, Refusal};
use crate::v4::{Bitmap, ClientId, ClientName, List, MAX_OPAQUE_BYTES, Opaque, Owner, Status, Time, Verifier};

/// The most algorithms that a client offers, and handles that a server makes, for SSV.
pub const MAX_SSV_CHOICES: usize = 32;

/// The most octets of a handle of RPCSEC_GSS.
pub const MAX_GSS_HANDLE_BYTES: usize = 128;

/// The most octets in each part of a network address: of an id as `tcp6` and of a universal address.
pub const MAX_ADDRESS_BYTES: usize = 128;

xdr_struct! {
    /// A client, as it names itself (`client_owner4`, in minor version 0 `nfs_client_id4`).
    pub struct ClientOwner {
        /// Differs after the client has restarted.
        pub verifier: Verifier,
        /// The name.
        pub name: ClientName,
    }

    /// A server, as it names itself (`server_owner4`): connections to servers with equal names may be used for the same
    /// sessions.
    pub struct ServerOwner {
        /// If equal, sessions may be used over both connections.
        pub minor_id: u64,
        /// If equal, client ids may be used over both connections.
        pub major_id: Opaque<MAX_OPAQUE_BYTES>,
    }

    /// The name and version of a program (`nfs_impl_id4`).
    pub struct Implementation {
        /// Its maker: a domain name.
        pub domain: Opaque<MAX_OPAQUE_BYTES>,
        /// Its name and version.
        pub name: Opaque<MAX_OPAQUE_BYTES>,
        /// When it was built.
        pub date: Time,
    }

    /// Operations that need the machine's credential (`state_protect_ops4`): sets of their numbers.
    #[derive(Copy, Default)]
    pub struct ProtectedOps {
        /// The operations that must have it.
        pub must_enforce: Bitmap,
        /// The operations that may have it.
        pub must_allow: Bitmap,
    }

    /// How a client wants to use SSV (`ssv_sp_parms4`).
    pub struct SsvParameters {
        /// The operations.
        pub ops: ProtectedOps,
        /// Hash algorithms, by object id.
        pub hash_algorithms: List<Opaque<MAX_OID_BYTES>, MAX_SSV_CHOICES>,
        /// Encryption algorithms, by object id.
        pub encryption_algorithms: List<Opaque<MAX_OID_BYTES>, MAX_SSV_CHOICES>,
        /// How many versions of the secret are kept.
        pub window: u32,
        /// How many handles the client wants.
        pub handles: u32,
    }

    /// How a server will use SSV (`ssv_prot_info4`).
    pub struct SsvInfo {
        /// The operations.
        pub ops: ProtectedOps,
        /// The chosen one of the client's hash algorithms.
        pub hash_algorithm: u32,
        /// The chosen one of the client's encryption algorithms.
        pub encryption_algorithm: u32,
        /// Octets of the secret.
        pub secret_bytes: u32,
        /// How many versions of the secret are kept.
        pub window: u32,
        /// The handles.
        pub handles: List<Opaque<MAX_GSS_HANDLE_BYTES>, MAX_SSV_CHOICES>,
    }

    /// EXCHANGE_ID: makes a client known, or asks what the server knows of it.
    pub struct ExchangeId {
        /// The client.
        pub owner: ClientOwner,
        /// Flags of [`exchange_id`].
        pub flags: u32,
        /// The calls that may change the client's state.
        pub protection: StateProtection,
        /// The client's program.
        pub implementation: Option<Implementation>,
    }

    /// What EXCHANGE_ID returns.
    pub struct ExchangeIdOk {
        /// The client's id.
        pub client: ClientId,
        /// The sequence number for CREATE_SESSION.
        pub sequence: u32,
        /// Flags of [`exchange_id`].
        pub flags: u32,
        /// The calls that may change the client's state.
        pub protection: StateProtectionOk,
        /// The server.
        pub server: ServerOwner,
        /// File handles of servers with equal scopes mean the same.
        pub scope: Opaque<MAX_OPAQUE_BYTES>,
        /// The server's program.
        pub implementation: Option<Implementation>,
    }

    /// DESTROY_CLIENTID: the client will not be back.
    #[derive(Copy)]
    pub struct DestroyClientId {
        /// The client.
        pub client: ClientId,
    }

    /// RECLAIM_COMPLETE: the client has reclaimed what it held.
    #[derive(Copy)]
    pub struct ReclaimComplete {
        /// Whether it is about the current file's file system alone, which has moved here.
        pub one_file_system: bool,
    }

    /// A network address (`netaddr4`).
    #[derive(Default)]
    pub struct NetAddress {
        /// The network id, as `tcp`.
        pub netid: Opaque<MAX_ADDRESS_BYTES>,
        /// The universal address.
        pub address: Opaque<MAX_ADDRESS_BYTES>,
    }

    /// The address at which a server can call a client of minor version 0 back (`cb_client4`).
    pub struct CallbackClient {
        /// The program.
        pub program: u32,
        /// The address.
        pub address: NetAddress,
    }

    /// SETCLIENTID: makes a client of minor version 0 known.
    pub struct SetClientId {
        /// The client.
        pub owner: ClientOwner,
        /// The program and the address for callbacks.
        pub callback: CallbackClient,
        /// The number that callbacks carry.
        pub callback_ident: u32,
    }

    /// What SETCLIENTID returns.
    #[derive(Copy)]
    pub struct SetClientIdOk {
        /// The client's id.
        pub client: ClientId,
        /// The verifier for SETCLIENTID_CONFIRM.
        pub confirm: Verifier,
    }

    /// SETCLIENTID_CONFIRM: the client has the answer to SETCLIENTID.
    #[derive(Copy)]
    pub struct SetClientIdConfirm {
        /// The client.
        pub client: ClientId,
        /// The verifier that SETCLIENTID returned.
        pub confirm: Verifier,
    }

    /// RENEW: the client is still there.
    #[derive(Copy)]
    pub struct Renew {
        /// The client.
        pub client: ClientId,
    }

    /// RELEASE_LOCKOWNER: the owner will lock nothing more.
    pub struct ReleaseLockOwner {
        /// The owner.
        pub owner: Owner,
    }
}

xdr_union! {
    /// The calls that may change a client's state (`state_protect4_a`).
    pub enum StateProtection: "way to protect state" {
        /// All calls.
        None = 0,
        /// For these operations, calls with the machine's credential.
        MachineCredential(ops: ProtectedOps) = 1,
        /// As `MachineCredential`, with a secret.
        Ssv(parameters: Box<SsvParameters>) = 2,
    }

    /// The protection that the server applies (`state_protect4_r`).
    pub enum StateProtectionOk: "way to protect state" {
        /// All calls.
        None = 0,
        /// For these operations, calls with the machine's credential.
        MachineCredential(ops: ProtectedOps) = 1,
        /// As `MachineCredential`, with a secret.
        Ssv(info: Box<SsvInfo>) = 2,
    }
}

/// SETCLIENTID has failed; with `CLID_INUSE` the server says which address has the name.
pub type SetClientIdFailure = Refusal<NetAddress, { Status::CLID_INUSE.0 }>;

impl ExchangeId {
    /// The arguments of a client that wants no protection of its state and does not say which program it is. `verifier`
    /// differs after the client has restarted.
    pub fn new(name: ClientName, verifier: Verifier, flags: u32) -> Self {
        let owner = ClientOwner { verifier, name };
        Self { owner, flags, protection: StateProtection::None, implementation: None }
    }
}

/// Flags of EXCHANGE_ID.
pub mod exchange_id {
    /// The client knows what to do when a file system is elsewhere.
    pub const SUPPORTS_MOVED_REFERRAL: u32 = 0x01;
    /// The client knows what to do when a file system moves.
    pub const SUPPORTS_MOVED_MIGRATION: u32 = 0x02;
    /// The client fences off a server that must not be written to.
    pub const SUPPORTS_FENCE_OPS: u32 = 0x04;
    /// Stateids belong to the principal that got them.
    pub const BIND_PRINCIPAL_STATEID: u32 = 0x100;
    /// The server can be used without layouts.
    pub const USE_NON_PNFS: u32 = 0x1_0000;
    /// The server hands out layouts.
    pub const USE_PNFS_MDS: u32 = 0x2_0000;
    /// The server holds data of layouts.
    pub const USE_PNFS_DS: u32 = 0x4_0000;
    /// The three `USE_` flags.
    pub const MASK_PNFS: u32 = 0x7_0000;
    /// The call is to change what the server knows of a confirmed client.
    pub const UPDATE_CONFIRMED_RECORD: u32 = 0x4000_0000;
    /// The client is confirmed. In answers alone.
    pub const CONFIRMED: u32 = 0x8000_0000;
    /// All flags that a client may set.
    pub const CLIENT_MASK: u32 = 0x4007_0107;
}
