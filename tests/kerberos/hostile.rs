//! A hostile server, or an attacker on the path, changes replies.

use super::{
    call,
    house::{House, PROGRAM, SERVICES, Wire},
    in_realm,
};
use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use rpcrdma_oncrpc::{
    AuthStat, CallError, CallInFlight, Cancelled, Client, ClientTransport, Limits, PendingCall, Rejection, Reply,
    Request, TransportError, TransportKind, gss::GssService,
};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream};
use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

type Change = Box<dyn FnMut(Bytes) -> Bytes + Send>;

/// A transport that changes replies.
struct Meddler {
    inner: Arc<dyn ClientTransport>,
    change: Arc<Mutex<Change>>,
}

struct Meddled {
    pending: Option<PendingCall>,
    change: Arc<Mutex<Change>>,
}

impl Future for Meddled {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = ready!(Pin::new(self.pending.as_mut().unwrap()).poll(cx))?;
        let mut decoder = Decoder::new(reply.stream);
        let octets = decoder.opaque_fixed(decoder.remaining()).unwrap();
        let stream = Stream::from((self.change.lock().unwrap())(octets));
        Poll::Ready(Ok(Reply { stream, ..reply }))
    }
}

impl CallInFlight for Meddled {
    fn cancel(mut self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        Box::pin(self.pending.take().unwrap().cancel())
    }
}

impl ClientTransport for Meddler {
    fn next_xid(&self) -> u32 {
        self.inner.next_xid()
    }
    fn call(&self, request: Request) -> PendingCall {
        PendingCall::new(Meddled { pending: Some(self.inner.call(request)), change: self.change.clone() })
    }
    fn kind(&self) -> TransportKind {
        self.inner.kind()
    }
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn server(&self) -> SocketAddr {
        self.inner.server()
    }
}

/// A client, and a function that sets how its replies are changed.
async fn meddled(house: &House<'_>, service: GssService) -> (Client, impl Fn(Change) + use<>) {
    let inner = house.transport(Wire::Tcp, Arc::default()).await;
    let change: Arc<Mutex<Change>> = Arc::new(Mutex::new(Box::new(|reply| reply)));
    let meddler = Arc::new(Meddler { inner, change: change.clone() });
    let client = Client::new(meddler, Arc::new(house.auth(service)), PROGRAM, 1);
    (client, move |with| *change.lock().unwrap() = with)
}

/// An accepted reply: XID, verifier, and what follows it.
struct Parts {
    xid: u32,
    flavour: u32,
    verifier: Bytes,
    rest: Bytes,
}

impl Parts {
    fn of(reply: Bytes) -> Self {
        let mut decoder = Decoder::new(Stream::from(reply));
        let xid = decoder.u32().unwrap();
        assert_eq!((decoder.u32(), decoder.u32()), (Ok(1), Ok(0)), "an accepted reply");
        let flavour = decoder.u32().unwrap();
        let verifier = decoder.opaque(400).unwrap();
        let rest = decoder.opaque_fixed(decoder.remaining()).unwrap();
        Self { xid, flavour, verifier, rest }
    }

    fn write(&self) -> Bytes {
        let mut encoder = Encoder::new();
        [self.xid, 1, 0, self.flavour].into_iter().for_each(|word| encoder.u32(word));
        encoder.opaque(&self.verifier);
        encoder.opaque_fixed(&self.rest);
        encoder.finish().to_bytes()
    }
}

fn changed(change: impl Fn(&mut Parts) + Send + 'static) -> Change {
    Box::new(move |reply| {
        let mut parts = Parts::of(reply);
        change(&mut parts);
        parts.write()
    })
}

fn flipped(octets: &Bytes, at: usize) -> Bytes {
    let mut octets = octets.to_vec();
    octets[at] ^= 1;
    octets.into()
}

async fn refused(client: &Client, what: &str) {
    match call(client, 1, 7).await {
        Err(CallError::BadVerifier(_)) => {}
        other => panic!("{what}: {other:?}"),
    }
}

/// proves: GSS-2203-5.3.3.2-b, GSS-2203-5.3.3.2-c, V2-11.2.2.3-d
#[test]
fn replies_that_are_not_the_servers_reach_nobody() {
    in_realm("hostile::replies_that_are_not_the_servers_reach_nobody", async |realm| {
        let house = House::new(realm).await;
        for service in SERVICES {
            let (client, meddle) = meddled(&house, service).await;
            meddle(Box::new(|reply| Parts::of(reply).write()));
            assert_eq!(call(&client, 1, 7).await.unwrap(), (7, false), "a reply that is not changed is taken");
            // Each byte of the verifier.
            for at in 0..28 {
                meddle(changed(move |reply| reply.verifier = flipped(&reply.verifier, at)));
                refused(&client, "a wrong checksum").await;
            }
            meddle(changed(|reply| reply.verifier.truncate(27)));
            refused(&client, "a short checksum").await;
            meddle(changed(|reply| (reply.flavour, reply.verifier) = (0, Bytes::new())));
            refused(&client, "no verifier").await;
            // Keeps the reply of one call, and sends it for the next call.
            let kept: Arc<Mutex<Option<Parts>>> = Arc::default();
            let keep = kept.clone();
            meddle(Box::new(move |reply| {
                *keep.lock().unwrap() = Some(Parts::of(reply.clone()));
                reply
            }));
            assert_eq!(call(&client, 1, 8).await.unwrap().0, 8);
            let replayed = kept.clone();
            meddle(changed(move |reply| reply.verifier = replayed.lock().unwrap().as_ref().unwrap().verifier.clone()));
            refused(&client, "a verifier of another number").await;
            let replayed = kept.clone();
            meddle(Box::new(move |reply| {
                let xid = Parts::of(reply).xid;
                Parts { xid, ..replayed.lock().unwrap().take().unwrap() }.write()
            }));
            refused(&client, "another call's reply").await;
            meddle(Box::new(|reply| reply));
            assert_eq!(call(&client, 1, 9).await.unwrap().0, 9, "the context is as good as before");
        }
        assert_eq!(house.contexts(), 3);
    });
}

/// proves: GSS-2203-5.3.3.2-c, V1-8.2.2.3-b
#[test]
fn results_that_are_not_the_calls_reach_nobody() {
    in_realm("hostile::results_that_are_not_the_calls_reach_nobody", async |realm| {
        let house = House::new(realm).await;
        for service in [GssService::Integrity, GssService::Privacy] {
            let (client, meddle) = meddled(&house, service).await;
            let kept: Arc<Mutex<Bytes>> = Arc::default();
            let keep = kept.clone();
            meddle(Box::new(move |reply| {
                let parts = Parts::of(reply.clone());
                *keep.lock().unwrap() = parts.rest;
                reply
            }));
            call(&client, 1, 8).await.unwrap();
            let len = kept.lock().unwrap().len();
            let others = kept.clone();
            meddle(changed(move |reply| reply.rest = others.lock().unwrap().clone()));
            refused(&client, "results of another call, well protected").await;
            // The first word says that there are results.
            for at in 4..len {
                meddle(changed(move |reply| reply.rest = flipped(&reply.rest, at)));
                refused(&client, "a changed byte").await;
            }
            meddle(changed(|reply| reply.rest.truncate(4)));
            refused(&client, "no results").await;
            meddle(changed(|reply| reply.rest = [&reply.rest[..], &[0; 4]].concat().into()));
            refused(&client, "bytes behind the results").await;
            meddle(changed(|reply| {
                let mut plain = Encoder::new();
                [0, 7].into_iter().for_each(|word| plain.u32(word));
                reply.rest = plain.finish().to_bytes();
            }));
            refused(&client, "results without protection").await;
            meddle(Box::new(|reply| reply));
            assert_eq!(call(&client, 1, 9).await.unwrap().0, 9);
        }
    });
}

/// A reply that says that the call was not executed must be signed, too.
#[test]
fn refusals_are_signed_too() {
    in_realm("hostile::refusals_are_signed_too", async |realm| {
        let house = House::new(realm).await;
        for service in SERVICES {
            let (client, meddle) = meddled(&house, service).await;
            call(&client, 1, 8).await.unwrap();
            let unknown = call(&client, 9, 8).await;
            assert!(matches!(unknown, Err(CallError::Rejected(Rejection::ProcedureUnavailable))), "{unknown:?}");
            meddle(changed(|reply| reply.verifier = flipped(&reply.verifier, 20)));
            let unknown = call(&client, 9, 8).await;
            assert!(matches!(unknown, Err(CallError::BadVerifier(_))), "{unknown:?}");
        }
    });
}

fn denial(xid: u32, stat: AuthStat) -> Bytes {
    let mut encoder = Encoder::new();
    [xid, 1, 1, 1, stat.0].into_iter().for_each(|word| encoder.u32(word));
    encoder.finish().to_bytes()
}

/// proves: GSS-2203-5.3.3.3-d
#[test]
fn a_server_that_knows_no_context_is_asked_twice() {
    in_realm("hostile::a_server_that_knows_no_context_is_asked_twice", async |realm| {
        let house = House::new(realm).await;
        for stat in [AuthStat::GSS_CREDENTIAL_PROBLEM, AuthStat::GSS_CONTEXT_PROBLEM] {
            let (client, meddle) = meddled(&house, GssService::Integrity).await;
            call(&client, 1, 8).await.unwrap();
            let before = house.contexts();
            let denied = Arc::new(Mutex::new(0));
            let count = denied.clone();
            meddle(Box::new(move |reply| {
                // A reply that completes a context has the length of its handle, 16 bytes, where results have their
                // length.
                let parts = Parts::of(reply.clone());
                if parts.rest[4..8] == [0, 0, 0, 16] {
                    return reply;
                }
                *count.lock().unwrap() += 1;
                denial(parts.xid, stat)
            }));
            let error = call(&client, 1, 7).await.unwrap_err();
            assert!(matches!(error, CallError::Rejected(Rejection::Auth(told)) if told == stat), "{error}");
            assert_eq!((*denied.lock().unwrap(), house.contexts()), (2, before + 1));
        }
    });
}

/// The reply that completes a context: handle, major and minor status, window, token.
struct Made {
    handle: Bytes,
    words: [u32; 3],
    token: Bytes,
}

fn with_made(change: impl Fn(&mut Made) + Send + 'static) -> Change {
    changed(move |reply| {
        let mut decoder = Decoder::new(Stream::from(reply.rest.clone()));
        let status = decoder.u32().unwrap();
        let handle = decoder.opaque(400).unwrap();
        let words = [0; 3].map(|_| decoder.u32().unwrap());
        let mut made = Made { handle, words, token: decoder.opaque(4096).unwrap() };
        decoder.finish().unwrap();
        change(&mut made);
        let mut encoder = Encoder::new();
        encoder.u32(status);
        encoder.opaque(&made.handle);
        made.words.into_iter().for_each(|word| encoder.u32(word));
        encoder.opaque(&made.token);
        reply.rest = Payload::to_bytes(&encoder.finish());
    })
}

/// proves: GSS-2203-5.2.3.1-c
#[test]
fn contexts_are_made_with_the_server_and_nobody_else() {
    in_realm("hostile::contexts_are_made_with_the_server_and_nobody_else", async |realm| {
        let house = House::new(realm).await;
        let cases: Vec<(&str, Change)> = vec![
            ("the token is cut", with_made(|made| made.token.truncate(made.token.len() - 5))),
            ("there is no token", with_made(|made| made.token = Bytes::new())),
            ("the token is changed", with_made(|made| made.token = flipped(&made.token, made.token.len() - 1))),
            ("the token is too long", with_made(|made| made.token = vec![0x60; 2049].into())),
            ("the window is changed", with_made(|made| made.words[2] = u32::MAX)),
            ("the window is nothing", with_made(|made| made.words[2] = 0)),
            ("there is no handle", with_made(|made| made.handle = Bytes::new())),
            ("the handle is too long", with_made(|made| made.handle = vec![1; 384].into())),
            ("there is more to come, for ever", with_made(|made| made.words[0] = 1)),
            ("the server refuses", with_made(|made| made.words[0] = 13 << 16)),
            ("the verifier is changed", changed(|reply| reply.verifier = flipped(&reply.verifier, 20))),
            ("there is no verifier", changed(|reply| (reply.flavour, reply.verifier) = (0, Bytes::new()))),
            ("the reply ends early", changed(|reply| reply.rest.truncate(20))),
        ];
        for (what, change) in cases {
            let (client, meddle) = meddled(&house, GssService::Authentication).await;
            meddle(change);
            let error = call(&client, 1, 7).await.expect_err(what);
            let is_expected =
                matches!(error, CallError::NotSigned(_) | CallError::BadVerifier(_) | CallError::Malformed(_));
            assert!(is_expected, "{what}: {error:?}");
            meddle(Box::new(|reply| reply));
            assert_eq!(call(&client, 1, 8).await.unwrap().0, 8, "{what}: the next call makes another context");
        }
        assert_eq!(house.sample.callers.lock().unwrap().len(), 13, "only what was signed is executed");
    });
}

/// nfsd loses a context in this way if its cache is flushed meanwhile.
#[test]
fn a_context_that_the_server_loses_while_it_is_made_is_made_again() {
    in_realm("hostile::a_context_that_the_server_loses_while_it_is_made_is_made_again", async |realm| {
        let house = House::new(realm).await;
        for (lost, is_made) in [(1, true), (2, true), (3, false)] {
            let (client, meddle) = meddled(&house, GssService::Integrity).await;
            let (mut left, mut lose) = (lost, with_made(|made| made.words[0] = 8 << 16));
            meddle(Box::new(move |reply| {
                let is_lost = left > 0;
                left -= i32::from(is_lost);
                if is_lost { lose(reply) } else { reply }
            }));
            let answer = call(&client, 1, 7).await;
            assert_eq!(answer.is_ok(), is_made, "{lost} times: {answer:?}");
        }
    });
}
