//! Kerberos as a client of RPCSEC_GSS asks for it: contexts with a service, by a user's tickets.

use crate::{Credential, Error, Gss, Initiator, NameKind, Progress, advice};
use rpcrdma_oncrpc::gss::{Failure, Handshake, Mechanism, Peer, Progress as Advance};
use std::sync::Arc;

/// Begins contexts of Kerberos with one service. It looks for the tickets whenever it makes a context, so that it finds
/// those that `kinit` has got in the meantime.
#[derive(Clone, Debug)]
pub struct Tickets {
    gss: Gss,
    /// `nfs@host` or `nfs/host@REALM`.
    service: Arc<str>,
    kind: NameKind,
    /// `None` for the user's own cache.
    credential: Option<Credential>,
}

impl Tickets {
    /// Begins contexts with the NFS service of `host`, by the tickets of the user's own cache, as `kinit` has left it.
    /// `host` is the name by which the realm knows the host.
    pub fn of_user(gss: Gss, host: &str) -> Self {
        Self { gss, service: format!("nfs@{host}").into(), kind: NameKind::Service, credential: None }
    }

    /// The same with the service of this principal, `nfs/host` or `nfs/host@REALM`, whichever host answers.
    pub fn of_user_for(gss: Gss, principal: &str) -> Self {
        Self { gss, service: principal.into(), kind: NameKind::Principal, credential: None }
    }

    /// The same with this credential.
    pub fn with_credential(gss: Gss, host: &str, credential: Credential) -> Self {
        Self { credential: Some(credential), ..Self::of_user(gss, host) }
    }

    /// The service's principal, as administrators write it.
    fn principal(&self) -> String {
        match self.kind {
            NameKind::Service => self.service.replacen('@', "/", 1),
            NameKind::Principal => self.service.to_string(),
        }
    }

    fn failure(&self, error: Error) -> Failure {
        let text = advice::with_advice(&error.to_string(), error.major, error.minor, &self.principal());
        Failure { major: error.major, minor: error.minor, text }
    }
}

impl Mechanism for Tickets {
    // OPS-SEC-g
    fn begin(&self) -> Box<dyn Handshake> {
        Box::new(Beginning(self.clone()))
    }

    fn explain(&self, major: u32, minor: u32) -> String {
        advice::with_advice(&self.gss.explain(major, minor), major, minor, &self.principal())
    }
}

/// A context whose first token is not made yet.
struct Beginning(Tickets);

/// A context that waits for the service's token.
struct Waiting {
    tickets: Tickets,
    initiator: Initiator,
}

impl Handshake for Beginning {
    fn step(self: Box<Self>, _: &[u8]) -> Result<Advance, Failure> {
        let tickets = self.0;
        let begun = || {
            let credential = match &tickets.credential {
                Some(credential) => credential.clone(),
                None => tickets.gss.initiate_with_cache()?,
            };
            let service = tickets.gss.name(&tickets.service, tickets.kind)?;
            tickets.gss.initiator(&credential, service).step(&[])
        };
        match begun() {
            Ok(progress) => advance(tickets, progress),
            Err(error) => Err(tickets.failure(error)),
        }
    }
}

impl Handshake for Waiting {
    fn step(self: Box<Self>, token: &[u8]) -> Result<Advance, Failure> {
        let Self { tickets, initiator } = *self;
        match initiator.step(token) {
            Ok(progress) => advance(tickets, progress),
            Err(error) => Err(tickets.failure(error)),
        }
    }
}

fn advance(tickets: Tickets, progress: Progress<Initiator>) -> Result<Advance, Failure> {
    match progress {
        Progress::More { unfinished: initiator, token } => {
            Ok(Advance::More { handshake: Box::new(Waiting { tickets, initiator }), token: token.into() })
        }
        Progress::Done { context, token } => {
            let about = || Ok((context.initiator()?.display()?, context.acceptor()?.display()?, context.lifetime()?));
            let (principal, acceptor, lifetime) = about().map_err(|error| tickets.failure(error))?;
            let (principal, acceptor) = (principal.into(), acceptor.into());
            let peer = Peer { principal, acceptor, local: None, lifetime };
            Ok(Advance::Done { protection: Box::new(context), peer, token: token.into() })
        }
    }
}
