//! One transport made of several connections to the same server: each call goes over the one with the least load.
//!
//! As long as all bytes under way are fewer than [`SHARE_BYTES`], one member carries them: small calls are then read
//! and written many at a time, and wake one thread at each end. Two members with half of them each would cost more
//! system calls and twice the wake-ups, and would be slower than one on few processors. Only a member whose last call
//! was answered, or that has no call, gets calls in this way: if one hangs, the others are used.
//!
//! Each member has a driver of its own, replaces its connection by itself, and repeats its calls on the new one: a call
//! never moves from one member to another, so that its reply comes where the call was made. A caller that makes one
//! call at a time uses the first member alone. If a member's connection is cut, it keeps its calls, which count as
//! under way, so that it gets few more until it is connected again.
//!
//! It owns the members; the buffers that a call lends belong to the member that carries it.

use crate::{
    ClientTransport, Limits, PendingCall, Request, TransportKind, XidSource,
    under_way::{Load, UnderWay},
};
use std::{fmt, net::SocketAddr, sync::Arc};

/// The bytes under way above which a second member helps: moving them takes a thread longer than waking another.
const SHARE_BYTES: usize = 256 << 10;
/// The least number of bytes for which a call counts: without any data it costs both ends as much as moving them.
const CALL_BYTES: usize = 4 << 10;

/// A connection, and what it has to carry.
struct Member {
    transport: Arc<dyn ClientTransport>,
    load: Arc<Load>,
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
        let member = |transport| Member { transport, load: Arc::default() };
        Self { first: member(first), others: others.into_iter().map(member).collect(), xids }
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The member for the next call: the first that answers if little is under way, else the one with the least.
    fn next(&self) -> &Member {
        let under_way = self.members().map(|member| member.load.octets()).fold(0, usize::saturating_add);
        let free = self.members().find(|member| under_way < SHARE_BYTES && member.load.is_free());
        free.or_else(|| self.members().min_by_key(|member| member.load.octets())).unwrap_or(&self.first)
    }
}

impl ClientTransport for Spread {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        let member = self.next();
        let octets = request.message.len().saturating_add(request.reply.max_len).max(CALL_BYTES);
        let under_way = UnderWay::begin(&member.load, octets);
        member.transport.call(request).counted(under_way)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallInFlight, Cancelled, Reply, ReplyShape, TransportError};
    use rpcrdma_env::{BoxFuture, SeededRandom};
    use rpcrdma_xdr::{Payload, Stream};
    use std::{
        pin::Pin,
        sync::Mutex,
        task::{Context, Poll},
    };
    use tokio::sync::oneshot;

    /// Keeps calls until the test lets it answer them.
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

    /// A call whose reply has at most this many bytes.
    fn call(spread: &Spread, octets: usize) -> PendingCall {
        let (xid, reply) = (spread.next_xid(), ReplyShape::inline(octets));
        spread.call(Request { xid, message: Payload::new(), reply, repeatable: false, anew: None })
    }

    fn counts(members: &[Arc<Held>]) -> Vec<usize> {
        members.iter().map(|member| member.calls.lock().unwrap().len()).collect()
    }

    #[tokio::test]
    async fn a_large_call_goes_where_the_least_is_under_way() {
        let (spread, members) = spread(3);
        let mut pending: Vec<_> = (0..7).map(|_| call(&spread, SHARE_BYTES)).collect();
        assert_eq!(counts(&members), [3, 2, 2]);
        let mut xids: Vec<_> = members
            .iter()
            .flat_map(|member| member.calls.lock().unwrap().iter().map(|c| c.0).collect::<Vec<_>>())
            .collect();
        xids.sort_unstable();
        xids.dedup();
        assert_eq!(xids.len(), 7, "no XID twice");
        // Answered, dropped or cancelled, each call makes room. The second member's calls stay.
        let (_, sender) = members[0].calls.lock().unwrap().remove(0);
        assert!(sender.send(Reply { stream: Stream::default(), retransmitted: true }).is_ok());
        assert!(pending.remove(0).await.unwrap().retransmitted);
        let third = pending.remove(1);
        assert_eq!(third.cancel().await.buffers.len(), 1, "what was lent comes back");
        drop(pending.remove(1));
        assert_eq!(counts(&members), [2, 2, 2]);
        let _more: Vec<_> = (0..2).map(|_| call(&spread, SHARE_BYTES)).collect();
        assert_eq!(counts(&members), [3, 2, 3], "one is under way at the first, and one at the third");
    }

    /// Makes a small call, which this member answers.
    async fn answered_by(spread: &Spread, member: &Held) {
        let pending = call(spread, 8);
        let (_, sender) = member.calls.lock().unwrap().pop().unwrap();
        sender.send(Reply { stream: Stream::default(), retransmitted: false }).unwrap();
        pending.await.unwrap();
    }

    #[tokio::test]
    async fn who_calls_one_after_the_other_uses_one_member() {
        let (spread, members) = spread(2);
        for _ in 0..5 {
            answered_by(&spread, &members[0]).await;
        }
        assert_eq!(counts(&members), [0, 0]);
    }

    #[tokio::test]
    async fn small_calls_stay_together_until_they_are_a_share() {
        const SHARE: usize = SHARE_BYTES / CALL_BYTES;
        let (spread, members) = spread(2);
        answered_by(&spread, &members[0]).await;
        let mut pending: Vec<_> = (0..SHARE).map(|_| call(&spread, 8)).collect();
        assert_eq!(counts(&members), [SHARE, 0]);
        pending.push(call(&spread, 8));
        assert_eq!(counts(&members), [SHARE, 1], "the first has a share");
        drop(pending.drain(..2));
        pending.push(call(&spread, 8));
        assert_eq!(counts(&members), [SHARE + 1, 1], "and no longer");
    }

    #[tokio::test]
    async fn a_member_that_does_not_answer_gets_no_share() {
        let (spread, members) = spread(2);
        let held = call(&spread, 8);
        for _ in 0..5 {
            answered_by(&spread, &members[1]).await;
        }
        // Its connection ends, and its next call fails as well.
        members[0].calls.lock().unwrap().clear();
        assert!(held.await.is_err());
        let again = call(&spread, 8);
        answered_by(&spread, &members[1]).await;
        members[0].calls.lock().unwrap().clear();
        assert!(again.await.is_err());
        answered_by(&spread, &members[0]).await;
        let _share: Vec<_> = (0..3).map(|_| call(&spread, 8)).collect();
        assert_eq!(counts(&members), [3, 0], "it answers again");
    }

    #[test]
    fn a_spread_carries_what_each_member_can() {
        let (spread, _) = spread(3);
        assert_eq!((spread.limits(), spread.kind()), (Limits::new(98, 100), TransportKind::Tcp));
        assert_eq!(ClientTransport::members(&spread).len(), 3);
    }
}
