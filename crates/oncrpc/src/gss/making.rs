//! How a context is made: the token has its turn on a thread, then the machine's users are looked up if necessary.
//!
//! Tokens and look-ups of users have threads and turns of their own, so that a slow directory of users on another host
//! delays only callers whose user must be looked up. The bytes of waiting work are limited. A call for which no caller
//! waits any more costs no work.

use super::{
    Failure, GssObserver, GssUser, Handshake, Known, Peer, Progress, Protection, RPCSEC_GSS, Refused, WINDOW, Work,
    queue::{Bounds, Queue, Turn},
    server::House,
    table::{Established, Handle, Live},
    window::Window,
};
use crate::{Answered, ClientNetwork, OpaqueAuth, Rejection, Verdict};
use bytes::Bytes;
use rpcrdma_xdr::{Encoder, Payload};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::sync::oneshot;

/// How many tokens are worked on at a time. They compute, and read files.
pub const TOKENS_AT_ONCE: usize = 4;
/// How many users are looked up at a time. Each look-up may wait long for another host.
pub const USERS_AT_ONCE: usize = 8;

/// The memory of a waiting call, in bytes, without its token.
const CALL_BYTES: usize = 4 << 10;
/// Tokens of a few KiB are usual: two thousand fit, and some hundred of one client, whose users may all come at once
/// after a restart of the server.
pub(super) const TOKENS: Bounds =
    Bounds { at_once: TOKENS_AT_ONCE, at_once_of_client: 2, waiting: 16 << 20, waiting_of_client: 4 << 20 };
/// Each waiting look-up has weight one: a context, and the call that makes it.
pub(super) const USERS: Bounds =
    Bounds { at_once: USERS_AT_ONCE, at_once_of_client: 2, waiting: 4_096, waiting_of_client: 1_024 };

/// GSS_S_COMPLETE, GSS_S_CONTINUE_NEEDED, GSS_S_NO_CONTEXT, GSS_S_UNAVAILABLE (RFC 2203 appendix A).
const COMPLETE: u32 = 0;
const CONTINUE_NEEDED: u32 = 1;
pub(super) const NO_CONTEXT: u32 = 8 << 16;
const UNAVAILABLE: u32 = 16 << 16;

/// The threads that make contexts.
pub struct Workshop {
    /// Works on tokens, with at least [`TOKENS_AT_ONCE`] threads.
    pub tokens: Arc<dyn Work>,
    /// Looks up users, with at least [`USERS_AT_ONCE`] threads.
    pub users: Arc<dyn Work>,
}

impl Workshop {
    pub(super) fn queues(self) -> (Arc<Queue>, Arc<Queue>) {
        (Queue::new(self.tokens, TOKENS), Queue::new(self.users, USERS))
    }
}

/// A client's request for a context, and the channel for the answer.
pub(super) struct Making {
    house: Arc<House>,
    observer: Arc<dyn GssObserver>,
    peer: SocketAddr,
    client: ClientNetwork,
    answer: oneshot::Sender<Answered>,
}

/// A context whose user is not known yet.
struct Made {
    handle: Handle,
    protection: Box<dyn Protection>,
    peer: Peer,
    token: Bytes,
}

/// A context that was begun, or `None` for a new one, and the token for it.
type Step = (Option<(Handle, Box<dyn Handshake>)>, Bytes);

impl Making {
    /// Takes a token in its turn.
    pub(super) fn begin(
        house: Arc<House>,
        observer: Arc<dyn GssObserver>,
        peer: SocketAddr,
        (begun, token): Step,
    ) -> Verdict {
        let (answer, receiver) = oneshot::channel();
        let client = ClientNetwork::of(peer.ip());
        let queue = house.tokens.clone();
        let making = Self { house, observer, peer, client, answer };
        let weight = CALL_BYTES + token.len();
        // A copy: the token may be a slice of more memory, which would not be counted.
        let token = Bytes::copy_from_slice(&token);
        let job = move |turn| match turn {
            Turn::Comes => making.step(begun, &token),
            Turn::Never => making.crowd_out(),
        };
        queue.enter(client, weight, Box::new(job));
        Verdict::Later(Box::pin(async move {
            receiver.await.unwrap_or_else(|_| Answered::rejected(Rejection::SystemError))
        }))
    }

    fn step(self, begun: Option<(Handle, Box<dyn Handshake>)>, token: &[u8]) {
        if self.answer.is_closed() {
            return;
        }
        // The handshake begins only here, so that there are no more of them than threads work on.
        let (handle, handshake) =
            begun.unwrap_or_else(|| (Handle::new(&*self.house.random), self.house.mechanism.begin()));
        match handshake.step(token) {
            Err(failure) => self.refuse(&failure),
            Ok(Progress::More { handshake, token }) => {
                self.house.table.wait(handle, self.client, handshake);
                self.tell(OpaqueAuth::none(), told(handle.octets(), CONTINUE_NEEDED, 0, &token));
            }
            Ok(Progress::Done { protection, peer, token }) => self.find(Made { handle, protection, peer, token }),
        }
    }

    /// Finds out to which user a context belongs.
    fn find(self, made: Made) {
        let house = &self.house;
        let (principal, local) = (&made.peer.principal, made.peer.local.as_deref());
        if let Known::Now(user) = house.names.known(principal, local) {
            return self.keep(made, Ok(user));
        }
        let (queue, client) = (house.users.clone(), self.client);
        let job = move |turn| match turn {
            Turn::Comes if self.answer.is_closed() => {}
            Turn::Comes => {
                let user = self.house.names.user(&made.peer.principal, made.peer.local.as_deref());
                self.keep(made, user);
            }
            Turn::Never => self.crowd_out(),
        };
        queue.enter(client, 1, Box::new(job));
    }

    /// Keeps a context, unless its user cannot be looked up: it would have no user for as long as it lasts.
    // GSS-2203-5.2.3.1-b
    fn keep(self, made: Made, user: io::Result<Option<GssUser>>) {
        let Made { handle, mut protection, peer: Peer { principal, lifetime, .. }, token } = made;
        let user = user.map_err(|error| Failure {
            major: UNAVAILABLE,
            minor: 0,
            text: format!("cannot look up in this machine's databases which user {principal} is: {error}"),
        });
        let signed = user.and_then(|user| Ok((user, protection.sign(&WINDOW.to_be_bytes())?)));
        let (user, body) = match signed {
            Ok(signed) => signed,
            Err(failure) => return self.refuse(&failure),
        };
        let mut hasher = DefaultHasher::new();
        (self.house.secret, &*principal).hash(&mut hasher);
        let now = self.house.clock.now();
        let until = lifetime.map(|lifetime| now + lifetime);
        let live = Mutex::new(Live { window: Window::new(), back: 1, protection });
        let context = Established { principal: principal.clone(), user, caller: hasher.finish(), until, live };
        self.house.table.insert(handle, self.client, context, now);
        self.observer.made(self.peer, &principal);
        let verifier = OpaqueAuth { flavour: RPCSEC_GSS, body };
        self.tell(verifier, told(handle.octets(), COMPLETE, 0, &token));
    }

    fn refuse(self, failure: &Failure) {
        self.observer.refused(self.peer, Refused::Token(failure));
        self.tell(OpaqueAuth::none(), no_context(failure.major, failure.minor));
    }

    fn crowd_out(self) {
        self.observer.refused(self.peer, Refused::Busy);
        self.tell(OpaqueAuth::none(), no_context(UNAVAILABLE, 0));
    }

    fn tell(self, verifier: OpaqueAuth, results: Payload) {
        // The caller may have gone.
        let _ = self.answer.send(Answered { verifier, result: Ok(results) });
    }
}

/// The answer to an initiator (RFC 2203 section 5.2.3.1): handle, major and minor status, window, token.
fn told(handle: &[u8], major: u32, minor: u32, token: &[u8]) -> Payload {
    let mut encoder = Encoder::with_capacity(40 + token.len());
    encoder.opaque(handle);
    [major, minor, WINDOW].into_iter().for_each(|word| encoder.u32(word));
    encoder.opaque(token);
    encoder.finish()
}

/// An answer without handle and token. GSS-2203-5.2.3.1-a.
pub(super) fn no_context(major: u32, minor: u32) -> Payload {
    told(b"", major, minor, b"")
}
