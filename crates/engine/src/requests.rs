//! The table of the peer's calls, of both versions: from the header to the service's answer.
//!
//! Owns shares of received messages until they are delivered, and the chunks that a call offers for its result until it
//! is answered. When the answer is sent, the peer may use the credit again, but the answer's memory is in use until the
//! peer has taken it. So if answers and calls together reach `most`, further calls are held until an answer is taken: a
//! peer that does not read pins memory for no more than twice its credits.

use crate::{Action, Link, Piece, Pieces, RequestId, pull::Layout};
use bytes::Bytes;
use foldhash::HashMap;
use rpcrdma_wire::{
    chunk::{Lists, WriteChunk, WriteList},
    rpc::has_xid,
};
use std::collections::VecDeque;

/// For how many calls an idle connection keeps places, of some 200 bytes each: a peer that has had many calls once must
/// not cost more for ever.
const KEPT_REQUESTS: usize = 56;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) xid: u32,
    pub(crate) writes: WriteList,
    pub(crate) reply: Option<WriteChunk>,
    /// A handle of the call that the reply may invalidate.
    pub(crate) handle: Option<u32>,
    stage: Stage,
}

impl Request {
    /// Whether the reply needs no chunk: the call offers none, and one Send carries these bytes of header and stream.
    pub(crate) fn takes_inline(&self, octets: usize, link: &Link) -> bool {
        self.writes.is_empty() && self.reply.is_none() && octets <= link.send_inline
    }
}

#[derive(Debug)]
enum Stage {
    /// Held, because its memory would exceed the limit: what to pull, and how to put it together. In a box, as most
    /// calls are never held, and the table moves a smaller request.
    Held(Box<Layout>),
    /// The driver is fetching its chunks.
    Pulling { pieces: Box<Pieces>, long: bool },
    /// The service executes it.
    Delivered,
}

/// The outcome for a call whose chunks have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulled {
    /// It is delivered.
    Delivered,
    /// Its XID is not its header's, so it must be refused.
    OtherXid,
    /// The call no longer exists.
    Unknown,
}

#[derive(Debug, Default)]
pub(crate) struct Requests {
    requests: HashMap<RequestId, Request>,
    held: VecDeque<RequestId>,
    /// Answers that were sent and that the peer has not taken.
    pub(crate) undrained: usize,
    next_request: u64,
}

impl Requests {
    /// Calls that are not answered.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a call and names it. It starts at once, or is held until [`admit`](Self::admit).
    pub(crate) fn insert(
        &mut self,
        xid: u32,
        Lists { writes, reply, .. }: Lists,
        handle: Option<u32>,
        layout: Layout,
        most: usize,
        actions: &mut VecDeque<Action>,
    ) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        // What would follow below as well, in fewer steps: most calls wait for nothing and have nothing to pull.
        if layout.octets == 0 && self.held.is_empty() && self.has_room(most) {
            self.requests.insert(id, Request { xid, writes, reply, handle, stage: Stage::Delivered });
            actions.push_back(Action::Deliver { request: id, xid, pieces: layout.pieces });
            return id;
        }
        self.requests.insert(id, Request { xid, writes, reply, handle, stage: Stage::Held(layout.into()) });
        self.held.push_back(id);
        self.admit(most, actions);
        id
    }

    /// Whether fewer than `most` calls and answers pin memory.
    fn has_room(&self, most: usize) -> bool {
        self.requests.len() - self.held.len() + self.undrained < most
    }

    /// Starts held calls until `most` calls and answers pin memory.
    pub(crate) fn admit(&mut self, most: usize, actions: &mut VecDeque<Action>) {
        while !self.held.is_empty() && self.has_room(most) {
            let Some(id) = self.held.pop_front() else { break };
            self.begin(id, actions);
        }
    }

    fn begin(&mut self, id: RequestId, actions: &mut VecDeque<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Stage::Held(layout) = std::mem::replace(&mut request.stage, Stage::Delivered) else { return };
        let layout = *layout;
        if layout.octets == 0 {
            actions.push_back(Action::Deliver { request: id, xid: request.xid, pieces: layout.pieces });
            return;
        }
        let pieces = &layout.pieces;
        let head = if let Some(Piece::Inline(head)) = pieces.first() { head.clone() } else { Bytes::new() };
        let (octets, sources) = (layout.octets, layout.sources);
        request.stage = Stage::Pulling { pieces: layout.pieces.into(), long: layout.long };
        // V1-3.5.2-b, V1-3.4.5.1-a
        actions.push_back(Action::Pull { request: id, xid: request.xid, head, octets, sources });
    }

    /// The call's chunks have come. `head` is the beginning of the pulled bytes.
    pub(crate) fn pulled(&mut self, id: RequestId, head: &[u8], actions: &mut VecDeque<Action>) -> Pulled {
        let Some(request) = self.requests.get_mut(&id) else { return Pulled::Unknown };
        let Stage::Pulling { pieces, long } = &mut request.stage else { return Pulled::Unknown };
        // A long call must begin with its header's XID, like any other.
        // V1-4.2.1-c, IE-3.6.1-a
        // V1-4.2.1-a
        if *long && !has_xid(head, request.xid) {
            return Pulled::OtherXid;
        }
        let pieces = std::mem::take(&mut **pieces);
        request.stage = Stage::Delivered;
        actions.push_back(Action::Deliver { request: id, xid: request.xid, pieces });
        Pulled::Delivered
    }

    /// Removes a call, to answer it.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(&id);
        if self.requests.is_empty() {
            self.requests.shrink_to(KEPT_REQUESTS);
        }
        request
    }

    /// The peer has taken an answer.
    pub(crate) fn drained(&mut self) {
        self.undrained = self.undrained.saturating_sub(1);
    }

    /// The connection is over: no call can be answered any more.
    pub(crate) fn closed(&mut self) {
        self.requests.clear();
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::SmallVec;

    #[test]
    fn an_idle_connection_keeps_few_places() {
        let mut requests = Requests::default();
        let layout = || Layout { octets: 0, sources: SmallVec::new(), pieces: Pieces::new(), long: false };
        let mut actions = VecDeque::new();
        let insert = |_| requests.insert(7, Lists::default(), None, layout(), 1_000, &mut actions);
        let ids: Vec<_> = (0..1_000).map(insert).collect();
        assert!(requests.requests.capacity() >= 1_000);
        for id in ids {
            requests.take(id);
        }
        assert_eq!(requests.requests.capacity(), KEPT_REQUESTS);
    }
}
