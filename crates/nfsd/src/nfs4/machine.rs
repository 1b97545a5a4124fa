//! Operations that require the machine's own credential (RFC 8881 sections 2.10.8.3, 18.35.3): SP4_MACH_CRED.
//!
//! A client names the operations that require the credential by which it sent EXCHANGE_ID, with integrity protection.
//! So a user of that machine, or an attacker that claims to be one, cannot end its sessions or bind connections to
//! them. Only operations without a file handle can be named; exports decide on the flavours for files.

use super::{compound::Compound, service::Pin, state::clients::Client};
use rpcrdma_nfs::v4::{Args, Bitmap, Op, Status, ops};
use rpcrdma_oncrpc::{Credential, gss::GssService};
use std::sync::Arc;

/// The operations that a client can name. NFS4-8881-18.35-i
fn enforceable() -> Bitmap {
    let ops = [
        Op::BackchannelCtl,
        Op::BindConnToSession,
        Op::ExchangeId,
        Op::CreateSession,
        Op::DestroySession,
        Op::DelegPurge,
        Op::DestroyClientId,
    ];
    Bitmap::of_numbers(ops.map(|op| op as u32))
}

impl Compound {
    /// The operations that the server reserves for the machine, from a client's wish for protection.
    ///
    /// # Errors
    /// INVAL if the call itself is not protected; ENCR_ALG_UNSUPP for a shared secret (SSV).
    pub(super) fn protection(&self, wish: &ops::StateProtection) -> Result<Option<Bitmap>, Status> {
        match wish {
            ops::StateProtection::None => Ok(None),
            // NFS4-8881-18.35-h
            ops::StateProtection::MachineCredential(_) if !self.is_protected() => Err(Status::INVAL),
            ops::StateProtection::MachineCredential(asked) => Ok(Some(asked.must_enforce.and(&enforceable()))),
            ops::StateProtection::Ssv(_) => Err(Status::ENCR_ALG_UNSUPP),
        }
    }

    /// Whether nobody can have changed the call on its way.
    pub(super) fn is_protected(&self) -> bool {
        match &self.context.credential {
            Credential::Gss(caller) => matches!(caller.service, GssService::Integrity | GssService::Privacy),
            _ => false,
        }
    }

    /// Checks that a reserved operation comes from the machine. EXCHANGE_ID checks for itself.
    ///
    /// # Errors
    /// WRONG_CRED if it does not. NFS4-8881-18.35-j
    pub(super) fn check_machine(&self, args: &Args) -> Result<(), Status> {
        let state = &self.shared.state;
        let of_session = |id| state.session(id).ok().map(|session| session.client().clone());
        let client: Option<Arc<Client<Pin>>> = match args {
            Args::CreateSession(args) => state.client(args.client).ok(),
            Args::DestroyClientId(args) => state.client(args.client).ok(),
            Args::DestroySession(args) => of_session(args.session),
            Args::BindConnToSession(args) => of_session(args.session),
            Args::BackchannelCtl(_) | Args::DelegPurge(_) => self.client().ok(),
            _ => None,
        };
        let Some(client) = client.filter(|client| client.keeps_for_machine(args.op())) else { return Ok(()) };
        let is_machine = self.is_protected() && self.principal() == client.principal();
        if is_machine { Ok(()) } else { Err(Status::WRONG_CRED) }
    }
}
