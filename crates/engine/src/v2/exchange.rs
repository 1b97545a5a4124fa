//! The exchange of transport properties (draft sections 5 and 6.3.4).
//!
//! Each end announces its own properties in one or more messages, with TPMORE set in all but the last; a property that
//! fits no message is cut into pieces. What the peer announces counts from its arrival, one whole message at a time: a
//! message that is wrong changes nothing. Owns both ends' properties, and our messages that are not sent yet.

use crate::{
    Config, Link, Side,
    extension::Extension,
    host_auth::{AUTHENTICATION_TIMEOUT, AuthenticationStep, HostAuthenticator, Verdict},
};
use bytes::{Bytes, BytesMut};
use rpcrdma_env::Timestamp;
use rpcrdma_wire::v2::{
    Credits, Header, MIN_SIZE_OCTETS, PREFIX_OCTETS, Properties, Property, PropertySet, ReverseSupport,
};
use std::{collections::VecDeque, time::Duration};

/// The most bytes of a client's message of the exchange: the first may go to a server that knows version 1 only.
// V2-4.2.3-d, V2-4.2.3-f
const CLIENT_BYTES: usize = MIN_SIZE_OCTETS as usize;

/// The most bytes of a server's message of the exchange: version 2's default threshold.
// V2-6.3.4-c, V2-4.2.3.1-b, V2-4.2.3-f
const SERVER_BYTES: usize = 4096;

/// How long the peer's part of the exchange may take. After that, we make calls with what we know.
// V2-6.2.2.3-h
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// The most messages of the exchange that we accept from the peer. The draft's six properties need at most two.
const MAX_PEER_SETS: usize = 64;

/// One message of ours that is not sent yet.
#[derive(Debug)]
enum Unsent {
    Set(PropertySet),
    Piece { octets: Bytes, more: bool },
}

#[derive(Debug)]
pub(crate) struct Exchange {
    ours: Properties,
    theirs: Properties,
    unsent: VecDeque<Unsent>,
    /// The XID of our messages, by which we recognise errors about them. Zero until it is set.
    xid: u32,
    heard: usize,
    heard_all: bool,
    /// Our messages that were unsent when the peer skipped the exchange, in case that it begins the exchange later.
    late: Option<VecDeque<Unsent>>,
    /// The latest time that we know.
    now: Timestamp,
    authenticator: Option<Box<dyn HostAuthenticator>>,
    verdict: Verdict,
    /// The most bytes of a set in one message.
    max: usize,
    /// When to continue without the rest of the exchange.
    deadline: Option<Timestamp>,
}

impl Exchange {
    pub(crate) fn new(config: &Config) -> Self {
        let mut ours = Properties::default();
        ours.send_size = config.send_bytes;
        ours.receive_size = config.receive_bytes;
        ours.segment_size = u32::try_from(config.max_transfer_bytes).unwrap_or(u32::MAX);
        ours.segment_count = u32::try_from(config.limits.segments).unwrap_or(u32::MAX);
        ours.reverse = reverse_of(config);
        let mut authenticator = config.host_authentication.as_ref().map(|made| made.begin(config.side));
        let verdict = if authenticator.is_some() { Verdict::Pending } else { Verdict::NotAsked };
        let mut set = ours.to_set();
        set.0.extend(authenticator.as_mut().and_then(|made| made.start()).map(Property::HostAuth));
        let announced = config.extension.iter().flat_map(|extension| extension.announced());
        set.0.extend(announced.map(Property::Other));
        let max = match config.side {
            Side::Client => CLIENT_BYTES,
            Side::Server => SERVER_BYTES,
        } - PREFIX_OCTETS;
        let unsent = set.split(max).into_iter().flat_map(|set| in_messages(set, max)).collect();
        // V2-4.5.3-d
        let theirs = Properties::default();
        Self {
            ours,
            theirs,
            unsent,
            xid: 0,
            heard: 0,
            heard_all: false,
            late: None,
            now: Timestamp::from_nanos(0),
            authenticator,
            verdict,
            max,
            deadline: None,
        }
    }

    /// Whether our messages have an XID yet.
    pub(crate) fn has_xid(&self) -> bool {
        self.xid != 0
    }

    pub(crate) fn set_xid(&mut self, xid: u32) {
        self.xid = xid.max(1);
    }

    /// Whether our messages have this XID.
    pub(crate) fn is_about(&self, xid: u32) -> bool {
        self.xid == xid && xid != 0
    }

    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// What the peer has announced so far.
    pub(crate) fn theirs(&self) -> &Properties {
        &self.theirs
    }

    /// The present limits. Before the exchange is over these follow from the defaults, and our own values are never
    /// below them.
    // V2-4.2.2-b, V2-4.2.2-c, V2-4.2.3.2-f, V2-C.7-a
    pub(crate) fn link(&self, config: &Config) -> Link {
        let default = Properties::default();
        let (ours, theirs) = if self.is_over() { (&self.ours, &self.theirs) } else { (&default, &default) };
        let octets = |octets: u32| usize::try_from(octets).unwrap_or(usize::MAX);
        Link {
            send_inline: octets(ours.inline_threshold_to(theirs)),
            receive_inline: octets(theirs.inline_threshold_to(ours)),
            send_invalidates: config.remote_invalidation,
        }
    }

    /// Whether something is to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether further sets follow the one that was just taken.
    // V2-6.2.2.3-c, V2-6.3.4-d
    fn says_more(&self) -> bool {
        self.has_unsent() || self.verdict == Verdict::Pending
    }

    /// What authentication has decided about the peer.
    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    fn say(&mut self, material: Option<Bytes>) {
        let set = PropertySet(material.map(Property::HostAuth).into_iter().collect());
        self.unsent.extend(in_messages(set, self.max));
    }

    /// Handles the peer's authentication material.
    // V2-5.2.6-a, V2-5.2.6-b
    fn authenticate(&mut self, material: &Bytes) {
        if self.verdict != Verdict::Pending || material.is_empty() {
            return;
        }
        let Some(authenticator) = &mut self.authenticator else { return };
        match authenticator.hear(material) {
            AuthenticationStep::Say(material) => self.say(Some(material)),
            AuthenticationStep::Accept(material) => {
                self.verdict = Verdict::Accepted;
                self.say(material);
            }
            AuthenticationStep::Reject => self.verdict = Verdict::Rejected,
        }
    }

    /// The peer announces nothing more: the verdict is due.
    fn conclude(&mut self) {
        if self.verdict == Verdict::Pending {
            let may_go_on = self.authenticator.as_mut().is_some_and(|authenticator| authenticator.silent());
            self.verdict = if may_go_on { Verdict::NotAsked } else { Verdict::Rejected };
            self.say(None);
        }
    }

    /// Takes our next message.
    // V2-6.3.4-b, V2-6.2.2.3-a
    pub(crate) fn next(&mut self, credits: Credits) -> Option<Header> {
        let next = self.unsent.pop_front()?;
        Some(match next {
            Unsent::Set(set) => Header::connprop(self.xid, credits, self.says_more(), set),
            Unsent::Piece { octets, more } => {
                // All pieces of one set say whether another set follows.
                let end = |unsent: &Unsent| matches!(unsent, Unsent::Piece { more: false, .. });
                let rest = if more { self.unsent.iter().position(end).map_or(0, |at| at + 1) } else { 0 };
                let tpmore = self.unsent.len() > rest || self.verdict == Verdict::Pending;
                Header::connprop_piece(self.xid, credits, more, tpmore, octets)
            }
        })
    }

    /// Whether the peer may send another message of the exchange: after its last, none.
    // V2-6.2.2.3-d
    pub(crate) fn may_hear(&self) -> bool {
        (!self.heard_all || self.late.is_some()) && self.heard < MAX_PEER_SETS
    }

    /// A set of the peer.
    pub(crate) fn hear(&mut self, set: &PropertySet, tpmore: bool) {
        self.reopen();
        self.theirs.apply(set);
        // The material shares the receive buffer, so we copy it.
        self.theirs.host_auth = self.theirs.host_auth.as_ref().map(|octets| Bytes::copy_from_slice(octets));
        for property in &set.0 {
            if let Property::HostAuth(material) = property {
                self.authenticate(&Bytes::copy_from_slice(material));
            }
        }
        self.heard_set(tpmore);
    }

    /// A message of the exchange has come, whatever its contents.
    pub(crate) fn heard_set(&mut self, tpmore: bool) {
        self.reopen();
        self.heard += 1;
        self.heard_all |= !tpmore;
        if self.heard_all {
            self.conclude();
        }
    }

    /// The peer skips the exchange: its properties have their defaults, and we do not send ours. If it has announced
    /// nothing yet, it may do so later, once, unless there is an authenticator (V2-6.3.4-b, V2-4.2.3-f).
    // V2-6.2.2.3-h
    pub(crate) fn skip(&mut self) {
        let may_be_late = self.heard == 0 && !self.heard_all && self.authenticator.is_none();
        self.conclude();
        let unsent = std::mem::take(&mut self.unsent);
        self.late = may_be_late.then_some(unsent);
        self.heard_all = true;
    }

    /// The peer begins the exchange late: we send ours, and the defaults hold until both ends have announced
    /// everything.
    fn reopen(&mut self) {
        if let Some(unsent) = self.late.take() {
            self.unsent = unsent;
            self.heard_all = false;
            self.deadline = Some(self.now + EXCHANGE_TIMEOUT);
        }
    }

    /// Whether both ends have announced everything.
    // V2-6.2.2.3-e
    pub(crate) fn is_over(&self) -> bool {
        self.heard_all && self.unsent.is_empty() && !matches!(self.verdict, Verdict::Pending | Verdict::Rejected)
    }

    /// Whether the peer has announced nothing yet.
    pub(crate) fn is_unheard(&self) -> bool {
        self.heard == 0 && !self.heard_all
    }

    /// The peer's first message has come, or our own exchange has begun.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        let timeout = if self.authenticator.is_some() { AUTHENTICATION_TIMEOUT } else { EXCHANGE_TIMEOUT };
        self.deadline.get_or_insert(now + timeout);
        self.now = now;
    }

    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.deadline.filter(|_| !self.is_over())
    }

    /// Continues without the rest, if the deadline is over. Returns whether it is.
    pub(crate) fn wake(&mut self, now: Timestamp) -> bool {
        let due = self.next_wake().is_some_and(|when| when <= now);
        if due {
            self.skip();
        }
        due
    }
}

/// A set as one message, or in pieces if it is a single property that fits no message.
// V2-6.3.4-c, V2-6.2.2.2-n
fn in_messages(set: PropertySet, max: usize) -> Vec<Unsent> {
    if set.encoded_len() <= max {
        return vec![Unsent::Set(set)];
    }
    let mut octets = BytesMut::with_capacity(set.encoded_len());
    set.encode(&mut octets);
    let mut octets = octets.freeze();
    let mut pieces = Vec::new();
    while octets.len() > max {
        pieces.push(Unsent::Piece { octets: octets.split_to(max), more: true });
    }
    pieces.push(Unsent::Piece { octets, more: false });
    pieces
}

/// What a client can do in the reverse direction. A server serves the forward direction.
// V2-5.2.5-a, V2-4.5.3-a, V2-4.5.3-b
pub(crate) fn reverse_of(config: &Config) -> ReverseSupport {
    match config.side {
        Side::Client if config.credits_granted == 0 => ReverseSupport::None,
        Side::Client => config.reverse,
        Side::Server => ReverseSupport::General,
    }
}

/// Whether `extension` knows a property.
pub(crate) fn knows(extension: &dyn Extension, property: &rpcrdma_wire::v2::OtherProperty) -> bool {
    !property.data().is_empty() && extension.property(property) == rpcrdma_wire::v2::Fit::Fits
}
