//! One transport made of several connections to the same server: each call goes over the one that has the fewest under
//! way.
//!
//! Each member has a driver of its own, replaces its connection by itself, and repeats on it what it had sent there: a
//! call never moves from one member to another, so that its reply comes where it was asked for. Who calls one thing
//! after the other uses the first member alone. A member that is cut keeps the calls that it has, and gets few more
//! until it stands again, as these count as under way.
//!
//! Owns the members; what a call lends belongs to the member that carries it.

use crate::{
    CallInFlight, Cancelled, ClientTransport, Limits, PendingCall, Reply, Request, TransportError, TransportKind,
    XidSource,
};
use rpcrdma_env::BoxFuture;
use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

/// A member, and how many calls it has under way.
struct Member {
    transport: Arc<dyn ClientTransport>,
    under_way: Arc<AtomicUsize>,
}

/// Several transports to one server that are used as one.
pub struct Spread {
    first: Member,
    others: Vec<Member>,
    xids: Arc<XidSource>,
}

impl Spread {
    /// Spreads calls over these transports, which lead to one server. All of them take their XIDs from `xids`, so that
    /// a call may go over any.
    pub fn new(
        first: Arc<dyn ClientTransport>,
        others: impl IntoIterator<Item = Arc<dyn ClientTransport>>,
        xids: Arc<XidSource>,
    ) -> Self {
        let member = |transport| Member { transport, under_way: Arc::default() };
        Self { first: member(first), others: others.into_iter().map(member).collect(), xids }
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The member with the fewest calls under way; the first of those.
    fn idlest(&self) -> &Member {
        let idlest = self.members().min_by_key(|member| member.under_way.load(Ordering::Relaxed));
        idlest.unwrap_or(&self.first)
    }
}

impl ClientTransport for Spread {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        let member = self.idlest();
        let under_way = UnderWay::begin(&member.under_way);
        PendingCall::new(Spreading { pending: Some(member.transport.call(request)), under_way: Some(under_way) })
    }

    fn kind(&self) -> TransportKind {
        self.first.transport.kind()
    }

    /// What every member can carry.
    fn limits(&self) -> Limits {
        let least = |one: Limits, other: Limits| {
            Limits::new(one.max_call.min(other.max_call), one.max_reply.min(other.max_reply))
        };
        self.others.iter().fold(self.first.transport.limits(), |one, other| least(one, other.transport.limits()))
    }

    fn server(&self) -> SocketAddr {
        self.first.transport.server()
    }

    fn members(&self) -> Vec<Arc<dyn ClientTransport>> {
        Spread::members(self).map(|member| member.transport.clone()).collect()
    }
}

impl fmt::Debug for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spread({} connections to {})", self.others.len() + 1, self.server())
    }
}

/// Counts a call until it is dropped.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn begin(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call on its way over a member.
struct Spreading {
    /// None once it has ended.
    pending: Option<PendingCall>,
    under_way: Option<UnderWay>,
}

impl Future for Spreading {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Err(TransportError::Closed)) };
        let answered = Pin::new(pending).poll(cx);
        if answered.is_ready() {
            (self.pending, self.under_way) = (None, None);
        }
        answered
    }
}

impl CallInFlight for Spreading {
    fn cancel(mut self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        match self.pending.take() {
            Some(pending) => Box::pin(pending.cancel()),
            None => Box::pin(std::future::ready(Cancelled::default())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReplyShape;
    use rpcrdma_env::SeededRandom;
    use rpcrdma_xdr::{Payload, Stream};
    use std::sync::Mutex;
    use tokio::sync::oneshot;

    /// Keeps calls until it is told to answer them.
    struct Held {
        limits: Limits,
        calls: Mutex<Vec<(u32, oneshot::Sender<Reply>)>>,
    }

    struct Waits(oneshot::Receiver<Reply>);

    impl Future for Waits {
        type Output = Result<Reply, TransportError>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            Pin::new(&mut self.0).poll(cx).map_err(|_| TransportError::Closed)
        }
    }

    impl CallInFlight for Waits {
        fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
            Box::pin(std::future::ready(Cancelled { buffers: vec![rpcrdma_env::Buffer::from_vec(vec![0; 7])] }))
        }
    }

    impl ClientTransport for Held {
        fn next_xid(&self) -> u32 {
            unreachable!("the spread hands out XIDs")
        }

        fn call(&self, request: Request) -> PendingCall {
            let (sender, receiver) = oneshot::channel();
            self.calls.lock().unwrap().push((request.xid, sender));
            PendingCall::new(Waits(receiver))
        }

        fn kind(&self) -> TransportKind {
            TransportKind::Tcp
        }

        fn limits(&self) -> Limits {
            self.limits
        }

        fn server(&self) -> SocketAddr {
            ([127, 0, 0, 1], 1).into()
        }
    }

    fn spread(count: usize) -> (Spread, Vec<Arc<Held>>) {
        let held = |number| Arc::new(Held { limits: Limits::new(100 - number, 100 + number), calls: Mutex::default() });
        let members: Vec<_> = (0..count).map(held).collect();
        let mut all = members.iter().map(|member| member.clone() as Arc<dyn ClientTransport>);
        let first = all.next().unwrap();
        (Spread::new(first, all, Arc::new(XidSource::new(&SeededRandom::new(1)))), members)
    }

    fn call(spread: &Spread) -> PendingCall {
        let (xid, reply) = (spread.next_xid(), ReplyShape::inline(8));
        spread.call(Request { xid, message: Payload::new(), reply, repeatable: false, anew: None })
    }

    fn counts(members: &[Arc<Held>]) -> Vec<usize> {
        members.iter().map(|member| member.calls.lock().unwrap().len()).collect()
    }

    #[tokio::test]
    async fn a_call_goes_where_the_fewest_are_under_way() {
        let (spread, members) = spread(3);
        let mut pending: Vec<_> = (0..7).map(|_| call(&spread)).collect();
        assert_eq!(counts(&members), [3, 2, 2]);
        let mut xids: Vec<_> = members
            .iter()
            .flat_map(|member| member.calls.lock().unwrap().iter().map(|c| c.0).collect::<Vec<_>>())
            .collect();
        xids.sort_unstable();
        xids.dedup();
        assert_eq!(xids.len(), 7, "no XID twice");
        // Answered, dropped, cancelled: each makes room, and the second's calls stay.
        let (_, sender) = members[0].calls.lock().unwrap().remove(0);
        assert!(sender.send(Reply { stream: Stream::default(), retransmitted: true }).is_ok());
        assert!(pending.remove(0).await.unwrap().retransmitted);
        let third = pending.remove(1);
        assert_eq!(third.cancel().await.buffers.len(), 1, "what was lent comes back");
        drop(pending.remove(1));
        assert_eq!(counts(&members), [2, 2, 2]);
        let _more: Vec<_> = (0..2).map(|_| call(&spread)).collect();
        assert_eq!(counts(&members), [3, 2, 3], "one is under way at the first, and one at the third");
    }

    #[tokio::test]
    async fn who_calls_one_after_the_other_uses_one_member() {
        let (spread, members) = spread(2);
        for _ in 0..5 {
            let pending = call(&spread);
            let (_, sender) = members[0].calls.lock().unwrap().pop().unwrap();
            sender.send(Reply { stream: Stream::default(), retransmitted: false }).unwrap();
            pending.await.unwrap();
        }
        assert_eq!(counts(&members), [0, 0]);
    }

    #[test]
    fn a_spread_carries_what_each_member_can() {
        let (spread, _) = spread(3);
        assert_eq!((spread.limits(), spread.kind()), (Limits::new(98, 100), TransportKind::Tcp));
        assert_eq!(ClientTransport::members(&spread).len(), 3);
    }
}
