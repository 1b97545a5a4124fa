//! Credential flavours: they make credentials and verifiers, and check them.
//!
//! A flavour sees whole bodies: the arguments or results of a call as a [`Payload`] on the way out and as a [`Decoder`]
//! at the body's beginning on the way in. AUTH_NONE and AUTH_SYS pass them through; a flavour with integrity or privacy
//! rewrites them and calls [`Payload::without_placement`]. A flavour also states how large its credential and verifier
//! can become, so that the size of calls and replies is known before they are sent.
//!
//! For each call, a client's flavour says whether its message is made once ([`Wrapped::Plain`]), or again for each
//! transmission ([`Signed`]), which may have to wait for something.

use crate::{
    AUTH_NONE, AUTH_SYS, Accepted, Answered, AuthStat, CallError, CallHeader, CallId, ClientTransport, ContextError,
    Credential, MAX_AUTH_BODY_BYTES, OpaqueAuth, SysCredential, Verdict,
};
use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Payload, Stream};
use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

/// A call's body, and the credential and verifier that precede it.
#[derive(Debug)]
pub struct Protected {
    /// The credential.
    pub credential: OpaqueAuth,
    /// The verifier.
    pub verifier: OpaqueAuth,
    /// The body.
    pub body: Payload,
}

/// How a client's flavour protects a call.
pub enum Wrapped {
    /// It is protected once, and each transmission is the same.
    Plain(Protected),
    /// Each transmission has a protection of its own.
    Signed(Arc<dyn Signed>),
    /// The same, but the flavour must wait for something first, and fails if that does not come.
    Later(SignedLater),
}

/// A call that can be signed after a wait.
pub type SignedLater = BoxFuture<'static, Result<Arc<dyn Signed>, CallError>>;

/// A call whose transmissions are protected one by one. Dropped with the call.
pub trait Signed: fmt::Debug + Send + Sync {
    /// Makes credential, verifier and protected arguments for one transmission.
    ///
    /// # Errors
    /// If that is not possible any more, as when a ticket has expired.
    fn sign(&self) -> Result<Protected, ContextError>;

    /// Checks an accepted reply's verifier, and returns its results without protection, if it has results.
    ///
    /// # Errors
    /// If the verifier answers none of the transmissions, or the protection is wrong.
    fn unwrap(&self, verifier: &OpaqueAuth, results: Option<Decoder>) -> Result<Option<Decoder>, AuthStat>;

    /// Prepares the same call, with the same XID, to be sent once more: the server did not know the context that the
    /// call was signed with, or the context has ended.
    fn renew(&self, transport: &Arc<dyn ClientTransport>) -> SignedLater;
}

/// A flavour on the client's side.
pub trait ClientFlavour: Send + Sync {
    /// The largest body of its credential in bytes.
    fn max_credential(&self) -> usize;

    /// The most bytes that its verifier and its protection add to a call, without the credential.
    fn max_call_expansion(&self) -> usize {
        0
    }

    /// The largest body of a server's verifier in bytes.
    fn max_verifier(&self) -> usize;

    /// The most bytes that it adds to results.
    fn max_expansion(&self) -> usize {
        0
    }

    /// Whether arguments and results are rewritten, for integrity or privacy. Then nothing of a reply may be placed
    /// directly, and no memory is lent for its items (RFC 8166 section 8.2.2.3).
    fn protects_bodies(&self) -> bool {
        false
    }

    /// The user and the group that its credential names, if it names them: for errors that say which user made the
    /// call.
    fn caller(&self) -> Option<(u32, u32)> {
        None
    }

    /// Makes credential and verifier of a call that goes over `transport`, and protects its arguments; or returns what
    /// does so later.
    fn wrap(&self, call: &CallId, args: Payload, transport: &Arc<dyn ClientTransport>) -> Wrapped;

    /// Checks the verifier of a successful reply to a [plain](Wrapped::Plain) call and takes the protection from the
    /// results. The default implementation ignores the verifier.
    ///
    /// # Errors
    /// If the verifier or the protection is wrong.
    fn unwrap(&self, call: &CallId, verifier: &OpaqueAuth, results: Decoder) -> Result<Decoder, AuthStat> {
        let _ = (call, verifier);
        Ok(results)
    }
}

/// AUTH_NONE on the client's side.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAuth;

impl ClientFlavour for NoAuth {
    fn max_credential(&self) -> usize {
        0
    }

    /// A server may send any verifier; AUTH_NONE ignores it.
    fn max_verifier(&self) -> usize {
        MAX_AUTH_BODY_BYTES
    }

    fn wrap(&self, _: &CallId, args: Payload, _: &Arc<dyn ClientTransport>) -> Wrapped {
        Wrapped::Plain(Protected { credential: OpaqueAuth::none(), verifier: OpaqueAuth::none(), body: args })
    }
}

/// AUTH_SYS on the client's side: one identity, encoded once.
#[derive(Clone, Debug)]
pub struct SysAuth {
    body: Bytes,
    caller: (u32, u32),
}

impl SysAuth {
    /// The identity, cut to what AUTH_SYS can carry: a machine name of 255 bytes, 16 groups.
    pub fn new(mut identity: SysCredential) -> Self {
        identity.machine.truncate(crate::MAX_MACHINE_NAME_BYTES);
        identity.groups.truncate(crate::MAX_GROUPS);
        let mut encoder = Encoder::new();
        identity.encode(&mut encoder);
        Self { body: encoder.finish().to_bytes(), caller: (identity.uid, identity.gid) }
    }
}

impl ClientFlavour for SysAuth {
    fn max_credential(&self) -> usize {
        self.body.len()
    }

    fn caller(&self) -> Option<(u32, u32)> {
        Some(self.caller)
    }

    /// AUTH_SHORT verifiers are allowed and ignored.
    fn max_verifier(&self) -> usize {
        MAX_AUTH_BODY_BYTES
    }

    fn wrap(&self, _: &CallId, args: Payload, _: &Arc<dyn ClientTransport>) -> Wrapped {
        let credential = OpaqueAuth { flavour: AUTH_SYS, body: self.body.clone() };
        Wrapped::Plain(Protected { credential, verifier: OpaqueAuth::none(), body: args })
    }
}

/// A flavour on the server's side.
pub trait ServerFlavour: Send + Sync {
    /// The flavour's number.
    fn number(&self) -> u32;

    /// Whether each transmission of a call has another credential or verifier, or a body with another protection. The
    /// router then recognises a duplicate by the caller and the unprotected arguments, and keeps replies without their
    /// protection.
    fn signs_each_transmission(&self) -> bool {
        false
    }

    /// Checks a call's credential and verifier, and takes the protection from its arguments.
    fn accept(&self, peer: SocketAddr, call: &CallHeader, args: Decoder) -> Verdict;
}

/// AUTH_NONE on the server's side.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptNone;

impl ServerFlavour for AcceptNone {
    fn number(&self) -> u32 {
        AUTH_NONE
    }

    fn accept(&self, _: SocketAddr, _: &CallHeader, args: Decoder) -> Verdict {
        Verdict::Accepted(Accepted::plain(Credential::None, args))
    }
}

/// AUTH_SYS on the server's side.
///
/// Most calls of a connection have the same credential as the call before. So a few of the last credentials are kept,
/// by the caller's port, and are not decoded again.
#[derive(Debug, Default)]
pub struct AcceptSys {
    last: [Mutex<Option<Read>>; KEPT_CREDENTIALS],
}

/// How many credentials are kept. Callers whose ports share a place replace each other's credential.
const KEPT_CREDENTIALS: usize = 32;

/// A credential's body and what it says.
#[derive(Debug)]
struct Read {
    body: Bytes,
    identity: Arc<SysCredential>,
}

impl AcceptSys {
    /// The caller. Threads do not wait for each other: a thread that finds the place locked decodes for itself.
    fn identity(&self, peer: SocketAddr, body: &Bytes) -> Result<Arc<SysCredential>, DecodeError> {
        let mut last = self.last[usize::from(peer.port()) % KEPT_CREDENTIALS].try_lock().ok();
        if let Some(Some(read)) = last.as_deref()
            && read.body == *body
        {
            return Ok(read.identity.clone());
        }
        // A copy: a slice of the message would keep the whole message's memory.
        let body = Bytes::copy_from_slice(body);
        let mut decoder = Decoder::new(Stream::from(body.clone()));
        let identity = Arc::new(SysCredential::decode(&mut decoder)?);
        decoder.finish()?;
        if let Some(last) = &mut last {
            **last = Some(Read { body, identity: identity.clone() });
        }
        Ok(identity)
    }
}

impl ServerFlavour for AcceptSys {
    fn number(&self) -> u32 {
        AUTH_SYS
    }

    fn accept(&self, peer: SocketAddr, call: &CallHeader, args: Decoder) -> Verdict {
        match self.identity(peer, &call.credential.body) {
            Ok(identity) => Verdict::Accepted(Accepted::plain(Credential::Sys(identity), args)),
            Err(_) => Verdict::Answered(Answered::denied(AuthStat::BAD_CREDENTIAL)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn body(uid: u32) -> Bytes {
        let mut encoder = Encoder::new();
        SysCredential { uid, machine: Bytes::from_static(b"client"), ..SysCredential::default() }.encode(&mut encoder);
        encoder.finish().to_bytes()
    }

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1001);

    #[test]
    fn the_caller_is_who_this_call_says() {
        let flavour = AcceptSys::default();
        for uid in [7, 7, 8, 7, 7] {
            assert_eq!(flavour.identity(PEER, &body(uid)).unwrap().uid, uid);
        }
        // A shorter or longer credential with the same beginning is another credential.
        let octets = body(7);
        assert!(flavour.identity(PEER, &octets.slice(..octets.len() - 4)).is_err());
        let longer = Bytes::from([&octets[..], &[0; 4]].concat());
        assert!(flavour.identity(PEER, &longer).is_err());
        assert_eq!(flavour.identity(PEER, &octets).unwrap().uid, 7);
    }

    #[test]
    fn the_same_octets_are_read_once() {
        let flavour = AcceptSys::default();
        let first = flavour.identity(PEER, &body(7)).unwrap();
        // Another connection's calls in between change nothing.
        let other = SocketAddr::from(([192, 0, 2, 2], PEER.port() + 1));
        assert_eq!(flavour.identity(other, &body(8)).unwrap().uid, 8);
        assert!(Arc::ptr_eq(&first, &flavour.identity(PEER, &body(7)).unwrap()));
    }
}
