//! Kerberos as RPCSEC_GSS asks for it.

use crate::{Acceptor, Context, Credential, Error, Gss, Octets, Progress, error::UNSEALED};
use bytes::Bytes;
use rpcrdma_oncrpc::gss::{Failure, Handshake, Mechanism, Peer, Progress as Advance, Protection};
use std::path::Path;

/// Accepts contexts of Kerberos with the keys of a keytab.
pub struct Kerberos {
    gss: Gss,
    credential: Credential,
}

impl Kerberos {
    /// Accepts with the keys of any service in `keytab`; without a path in the machine's own.
    ///
    /// # Errors
    /// If the keytab cannot be read, or has no key.
    pub fn with_keytab(gss: Gss, keytab: Option<&Path>) -> Result<Self, Error> {
        Ok(Self { gss, credential: gss.accept_with(keytab)? })
    }
}

impl Mechanism for Kerberos {
    fn begin(&self) -> Box<dyn Handshake> {
        Box::new(self.gss.acceptor(&self.credential))
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
                let peer = Peer {
                    principal: name.display()?.into(),
                    local: name.local().ok().map(Into::into),
                    lifetime: context.lifetime()?,
                };
                Advance::Done { protection: Box::new(context), peer, token: token.into() }
            }
        })
    }
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
