//! Kerberos as RPCSEC_GSS asks for it.

use crate::{Acceptor, Context, Credential, Error, Gss, NameKind, Octets, Progress, error::UNSEALED};
use bytes::Bytes;
use rpcrdma_oncrpc::gss::{Failure, Handshake, Mechanism, Peer, Progress as Advance, Protection, TOKENS_AT_ONCE};
use std::path::Path;

/// Accepts contexts of Kerberos with the keys of a keytab.
pub struct Kerberos {
    gss: Gss,
    /// The same keys several times: the library locks a credential for as long as it accepts a context with it, so each
    /// context that is under way has its own.
    credentials: Vec<Credential>,
}

impl Kerberos {
    /// Accepts with the keys of any service in `keytab`; without a path in the machine's own.
    ///
    /// # Errors
    /// If the keytab cannot be read, or has no key.
    pub fn with_keytab(gss: Gss, keytab: Option<&Path>) -> Result<Self, Error> {
        Self::several(gss, || gss.accept_with(keytab))
    }

    /// Accepts with the keys of one service alone, such as `nfs`, of any host: tickets for another service of the same
    /// machine are refused.
    ///
    /// # Errors
    /// If the keytab cannot be read, or has no key of that service.
    pub fn for_service(gss: Gss, service: &str, keytab: Option<&Path>) -> Result<Self, Error> {
        let name = gss.name(service, NameKind::Service)?;
        Self::several(gss, || gss.accept_as(&name, keytab))
    }

    fn several(gss: Gss, credential: impl Fn() -> Result<Credential, Error>) -> Result<Self, Error> {
        let credentials = (0..TOKENS_AT_ONCE).map(|_| credential()).collect::<Result<_, _>>()?;
        Ok(Self { gss, credentials })
    }

    /// The credential with which the fewest contexts are being made. If two threads ask at once, they may get the same
    /// one, and one thread waits for the other.
    fn credential(&self) -> &Credential {
        self.credentials.iter().min_by_key(|credential| credential.uses()).expect("several")
    }
}

impl Mechanism for Kerberos {
    fn begin(&self) -> Box<dyn Handshake> {
        Box::new(self.gss.acceptor(self.credential()))
    }
}

impl Handshake for Acceptor {
    fn step(self: Box<Self>, token: &[u8]) -> Result<Advance, Failure> {
        Ok(match Acceptor::step(*self, token)? {
            Progress::More { unfinished, token } => {
                Advance::More { handshake: Box::new(unfinished), token: token.into() }
            }
            Progress::Done { context, token } => {
                let name = context.initiator()?;
                let (principal, acceptor) = (name.display()?, context.acceptor()?.display()?);
                let local = match name.local() {
                    Ok(local) => Some(local),
                    Err(_) => machine(&principal, &acceptor).map(str::to_owned),
                };
                let (principal, acceptor, local) = (principal.into(), acceptor.into(), local.map(Into::into));
                let peer = Peer { principal, acceptor, local, lifetime: context.lifetime()? };
                Advance::Done { protection: Box::new(context), peer, token: token.into() }
            }
        })
    }
}

/// The local user that stands for a machine: root, if the machine is of the same realm as our service. Linux uses the
/// first of these keys that it finds in its keytab. The server squashes this user as it squashes root (OPS-SEC-k).
fn machine(principal: &str, service: &str) -> Option<&'static str> {
    // Names in which a backslash escapes a character cannot be split like this, and no machine has one.
    let (name, realm) = principal.rsplit_once('@').filter(|_| !principal.contains('\\'))?;
    let (kind, host) = name.split_once('/')?;
    let is_machine = matches!(kind, "nfs" | "host" | "root") && !host.is_empty() && !host.contains('/');
    let is_ours = service.rsplit_once('@').is_some_and(|(_, ours)| ours == realm);
    (is_machine && is_ours).then_some("root")
}

impl Protection for Context {
    fn sign(&mut self, message: &[u8]) -> Result<Bytes, Failure> {
        Ok(Context::sign(self, message)?.into())
    }

    fn verify(&mut self, message: &[u8], checksum: &[u8]) -> Result<(), Failure> {
        Ok(Context::verify(self, message, checksum)?)
    }

    fn seal(&mut self, message: &[u8]) -> Result<Bytes, Failure> {
        Ok(Context::seal(self, message)?.into())
    }

    fn open(&mut self, message: &[u8]) -> Result<Bytes, Failure> {
        let opened = Context::open(self, message)?;
        if !opened.is_confidential {
            return Err(Error::unfit("cannot open a message", UNSEALED).into());
        }
        Ok(opened.octets.into())
    }
}

impl From<Octets> for Bytes {
    /// Without a copy.
    fn from(octets: Octets) -> Self {
        Bytes::from_owner(octets)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { major: error.major, minor: error.minor, text: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_the_services_realm_are_root_and_nobody_else_is() {
        let service = "nfs/server.example@REALM";
        for name in ["nfs/client.example@REALM", "host/client.example@REALM", "root/client.example@REALM"] {
            assert_eq!(machine(name, service), Some("root"), "{name}");
        }
        for name in [
            "nfs/client.example@OTHER",
            "root@REALM",
            "http/client.example@REALM",
            "nfs/@REALM",
            "nfs/client.example/admin@REALM",
            "nfs/client.example",
            "alice/root@REALM",
            "nfs/client@REALM@OTHER",
            "nfs/client@OTHER\\@REALM",
        ] {
            assert_eq!(machine(name, service), None, "{name}");
        }
    }
}
