//! Two ends of a connection, driven together by one task.

use super::{
    Given, PATIENCE,
    end::End,
    ledger::{Ledger, number},
};
use crate::{
    BoxFuture, Buffer, CloseReason, Completion, ConnectError, Connected, ConnectionParams, FenceCause, Incoming, Lent,
    Listener, Receives, Token,
};
use bytes::Bytes;
use rpcrdma_env::Env;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll},
};

/// The size of receives, unless a case wants another.
pub(super) const RECEIVE_BYTES: usize = 1024;

/// The parameters of a connection.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// Receives at the connecting end.
    pub(super) at_a: usize,
    /// Receives at the accepting end.
    pub(super) at_b: usize,
    /// Their size.
    pub(super) octets: usize,
    /// IRD and ORD of both.
    pub(super) reads: u16,
}

impl Default for Wish {
    fn default() -> Self {
        Self { at_a: 4, at_b: 4, octets: RECEIVE_BYTES, reads: 4 }
    }
}

/// A connection under test.
pub(super) struct Pair {
    pub(super) a: End,
    pub(super) b: End,
    pub(super) ledger: Ledger,
    pub(super) env: Env,
    pub(super) exact_reasons: bool,
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    A,
    B,
}

/// Runs two futures to completion, within the suite's patience.
pub(super) async fn both<A, B>(
    env: &Env,
    what: &str,
    a: impl Future<Output = A>,
    b: impl Future<Output = B>,
) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    within(env, what, |cx| {
        if of_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            of_b = Some(output);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Polls until ready; panics after the suite's patience.
pub(super) async fn within<T>(env: &Env, what: &str, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let mut sleep = env.clock.sleep_until(env.clock.now() + PATIENCE);
    poll_fn(|cx| {
        if let Poll::Ready(output) = poll(cx) {
            return Poll::Ready(output);
        }
        assert!(sleep.as_mut().poll(cx).is_pending(), "waited too long for {what}");
        Poll::Pending
    })
    .await
}

/// The next request at a listener.
pub(super) async fn incoming(listener: &mut dyn Listener) -> Box<dyn Incoming> {
    let pending = poll_fn(|cx| listener.poll_accept(cx)).await.expect("a peer connects");
    pending.request().await.expect("it asks for a connection")
}

/// A listener at the set-up's address.
pub(super) async fn listen(setup: &Given) -> Box<dyn Listener> {
    setup.b.listen(setup.listen).await.expect("the address can be listened on")
}

/// Parameters without private data.
pub(super) fn params(receives: Vec<Buffer>, reads: u16) -> ConnectionParams {
    ConnectionParams { private_data: Bytes::new(), ird: reads, ord: reads, receives: Receives::Own(receives) }
}

/// Connects and accepts with these parameters.
pub(super) async fn join(
    setup: &Given,
    listener: &mut dyn Listener,
    of_a: ConnectionParams,
    of_b: ConnectionParams,
) -> (Connected, Connected) {
    let to = listener.local_addr();
    let accepting = async { incoming(listener).await.accept(of_b).await.expect("the request can be accepted") };
    let (a, b) = both(&setup.env, "a connection", setup.a.connect(to, of_a), accepting).await;
    (a.expect("the connection comes about"), b)
}

impl Pair {
    /// A connection whose first message has arrived.
    pub(super) async fn connect(setup: &Given, wish: Wish) -> Self {
        let mut listener = listen(setup).await;
        Self::connect_at(setup, &mut *listener, wish).await
    }

    pub(super) async fn connect_at(setup: &Given, listener: &mut dyn Listener, wish: Wish) -> Self {
        let ledger = Ledger::default();
        let at_a = ledger.buffers(wish.at_a, wish.octets);
        let at_b = ledger.buffers(wish.at_b + 1, wish.octets);
        let (of_a, of_b) = (at_a.iter().map(number).collect(), at_b.iter().map(number).collect());
        let reads_a = wish.reads.min(setup.a.capabilities().max_ird).min(setup.a.capabilities().max_ord);
        let reads_b = wish.reads.min(setup.b.capabilities().max_ird).min(setup.b.capabilities().max_ord);
        let (a, b) = join(setup, listener, params(at_a, reads_a), params(at_b, reads_b)).await;
        let mut pair = Self::of(setup, End::new("a", a, of_a, false), End::new("b", b, of_b, false), ledger);
        pair.greet().await;
        pair
    }

    /// Two ends that are connected.
    pub(super) fn of(setup: &Given, a: End, b: End, ledger: Ledger) -> Self {
        Self { a, b, ledger, env: setup.env.clone(), exact_reasons: setup.exact_reasons }
    }

    /// The connecting end sends first. After this call nothing is under way.
    pub(super) async fn greet(&mut self) {
        let token = self.a.send(vec![Bytes::from_static(b"!")], None, true);
        let (message, _) = self.received(At::B).await;
        assert_eq!(message.filled(), b"!");
        self.done(At::A, token).await;
    }

    pub(super) fn end(&mut self, at: At) -> &mut End {
        match at {
            At::A => &mut self.a,
            At::B => &mut self.b,
        }
    }

    /// Drives both ends until `done` returns something.
    pub(super) async fn drive<T>(&mut self, what: &str, mut done: impl FnMut(&mut End, &mut End) -> Option<T>) -> T {
        let (a, b) = (&mut self.a, &mut self.b);
        drive(&self.env, &mut [a, b], what, |ends| match ends {
            [a, b] => done(a, b),
            _ => None,
        })
        .await
    }

    /// The next completion at an end for which `which` is true.
    pub(super) async fn event(&mut self, at: At, what: &str, which: impl Fn(&Completion) -> bool) -> Completion {
        self.drive(what, |a, b| if at == At::A { a } else { b }.take(&which)).await
    }

    /// The next message, and the handle that it invalidated.
    pub(super) async fn received(&mut self, at: At) -> (Buffer, Option<u32>) {
        self.drive("a message", |a, b| if at == At::A { a } else { b }.take_received()).await
    }

    /// Waits until a signaled Send or Write is done.
    pub(super) async fn done(&mut self, at: At, token: Token) {
        self.event(at, "a completion", |c| matches!(c, Completion::Done { token: t, .. } if *t == token)).await;
    }

    /// The filled sink of a Read.
    pub(super) async fn read(&mut self, at: At, token: Token) -> Buffer {
        let wanted = |c: &Completion| matches!(c, Completion::Read { token: t, .. } if *t == token);
        match self.event(at, "a Read", wanted).await {
            Completion::Read { sink, .. } => sink,
            other => panic!("{other:?}"),
        }
    }

    /// The memory of an exposure, once it is fenced.
    pub(super) async fn fenced(&mut self, at: At, token: Token) -> (Lent, FenceCause) {
        let wanted = |c: &Completion| matches!(c, Completion::Fenced { token: t, .. } if *t == token);
        match self.event(at, "a fence", wanted).await {
            Completion::Fenced { memory, cause, .. } => (memory, cause),
            other => panic!("{other:?}"),
        }
    }

    /// Invalidates a sink and returns what the peer has written there.
    pub(super) async fn take_sink(&mut self, at: At, token: Token, handle: u32) -> Vec<u8> {
        self.end(at).invalidate(handle);
        match self.fenced(at, token).await {
            (Lent::Sink(mut buffer), FenceCause::Local) => buffer.bytes_mut().to_vec(),
            other => panic!("not a sink that was fenced here: {other:?}"),
        }
    }

    /// Waits until both ends are closed, and returns the reason that each reports.
    pub(super) async fn closed(&mut self) -> (CloseReason, CloseReason) {
        self.drive("the end", |a, b| Some((a.closed.clone()?, b.closed.clone()?))).await
    }

    /// Waits until both ends are closed, which b has caused because a broke a rule.
    pub(super) async fn closed_by_violation(&mut self) {
        let (at_a, at_b) = self.closed().await;
        if self.exact_reasons {
            assert!(matches!(at_b, CloseReason::Violation(_)), "at b: {at_b:?}");
            assert!(!matches!(at_a, CloseReason::Local), "at a: {at_a:?}");
        }
    }

    /// Waits until both ends are closed, for which the end at `by` has asked.
    pub(super) async fn closed_in_order(&mut self, by: At) {
        let (at_a, at_b) = self.closed().await;
        if self.exact_reasons {
            let (active, passive) = if by == At::A { (at_a, at_b) } else { (at_b, at_a) };
            assert_eq!((active, passive), (CloseReason::Local, CloseReason::Remote));
        }
    }

    /// Shows that the connection still works.
    pub(super) async fn still_works(&mut self) {
        self.b.receive(self.ledger.buffer(RECEIVE_BYTES));
        self.a.say(b"still here");
        let (message, _) = self.received(At::B).await;
        assert_eq!(message.filled(), b"still here");
    }

    /// Ends the connection in order, and checks that no memory is left.
    pub(super) async fn finish(mut self) {
        if self.a.closed.is_none() {
            self.a.disconnect();
        }
        self.closed().await;
        self.drop_and_settle().await;
    }

    /// Drops both ends, and checks that no memory is left.
    pub(super) async fn drop_and_settle(self) {
        let Self { a, b, ledger, env, .. } = self;
        drop((a, b));
        ledger.settle(&env).await;
    }
}

/// Drives many ends until `done` returns something. Work that `done` posts starts at once.
pub(super) async fn drive<T>(
    env: &Env,
    ends: &mut [&mut End],
    what: &str,
    mut done: impl FnMut(&mut [&mut End]) -> Option<T>,
) -> T {
    let mut sleep = env.clock.sleep_until(env.clock.now() + PATIENCE);
    poll_fn(|cx| {
        loop {
            for end in ends.iter_mut() {
                end.take_dirty();
                end.poll(cx);
            }
            if let Some(output) = done(ends) {
                return Poll::Ready(output);
            }
            if !ends.iter_mut().any(|end| end.take_dirty()) {
                break;
            }
        }
        if sleep.as_mut().poll(cx).is_ready() {
            let ends: Vec<String> = ends.iter().map(|end| end.describe()).collect();
            panic!("waited too long for {what}: {}", ends.join("; "));
        }
        Poll::Pending
    })
    .await
}

/// A connect future whose failure is expected.
pub(super) async fn fails(
    connecting: BoxFuture<'_, Result<Connected, ConnectError>>,
    env: &Env,
    what: &str,
) -> ConnectError {
    match both(env, what, connecting, std::future::ready(())).await.0 {
        Ok(_) => panic!("{what}: the connection came about"),
        Err(error) => error,
    }
}
