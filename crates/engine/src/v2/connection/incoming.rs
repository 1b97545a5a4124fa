//! How a connection of version 2 handles a message of the peer (draft sections 6.2.2, 6.3 and 7).
//!
//! It counts credits first, even if something else is wrong; then it uses the wire's judgement; then it checks what
//! only this connection knows: sequences of parts, the state of the exchange, and which message an error answers. Owns
//! nothing beyond its connection's data.

use super::Connection;
use crate::{
    Action, CloseCause, PeerFault, Side,
    extension::Received,
    host_auth::Verdict,
    v2::{
        ErrorBody, OtherBody,
        exchange::{knows, reverse_of},
        responder::Serving,
        sequence::Step,
    },
};
use bytes::{Buf as _, Bytes};
use rpcrdma_wire::v2::{
    Body, Chunks, Discard, Extensions, Header, HeaderType, Judgement, NO_CHUNKS_OCTETS, NoExtensions, OtherProperty,
    Place, Prefix, PropertySet, Receiver, ReverseSupport, Role, VERSION, judge_after,
};

/// The most header types of an extension that we remember as unknown to the peer.
const MAX_UNSUPPORTED: usize = 64;

impl Connection {
    /// Handles a message. Returns whether it is a call that was accepted.
    pub(super) fn take(&mut self, mut message: Bytes) -> bool {
        self.only_grants = false;
        let Ok(prefix) = Prefix::decode(&message) else {
            self.discarded += 1;
            return false;
        };
        let bare_grant = prefix.is_grant(&message);
        if prefix.version == VERSION {
            self.only_grants = bare_grant;
            // V2-6.3.2-f, V2-4.2.1.1-h
            if !self.credits.heard(prefix.credits, bare_grant) {
                self.close(CloseCause::Peer(PeerFault::CreditsOverrun));
                return false;
            }
            let rpc = matches!(HeaderType::from_code(prefix.header_type), Some(HeaderType::Msg | HeaderType::Nomsg));
            if rpc
                && prefix.flags.response
                && let Some(mark) = self.requester.mark(prefix.xid)
            {
                self.credits.acknowledged(mark);
            }
            // V2-6.2.2.3-h, V2-4.2.3-f
            if rpc && !bare_grant && self.config.side == Side::Server && self.exchange.is_unheard() {
                // The peer skips the exchange for now, and so do we: its one credit may be for our reply.
                self.exchange.skip();
            }
        }
        let can_continue = HeaderType::from_code(prefix.header_type).is_some_and(HeaderType::can_continue);
        // V2-7.1.3-b
        if can_continue && self.parts.passes_over(&prefix) {
            self.discarded += 1;
            self.owes_grant |= self.credits.peer_is_short();
            return false;
        }
        if !self.parts.is_open() && prefix.is_plain(&message) && self.trusts() {
            // What would follow below as well, in fewer steps: most messages are like this.
            message.advance(NO_CHUNKS_OCTETS);
            let taken = self.rpc(&prefix, Chunks::default(), message, false);
            self.owes_grant |= !taken && self.credits.peer_is_short();
            return taken;
        }
        let extension = self.config.extension.clone();
        let none = NoExtensions;
        let extensions: &dyn Extensions = match &extension {
            Some(extension) => &**extension,
            None => &none,
        };
        let role = match self.config.side {
            Side::Client => Role::Requester,
            Side::Server => Role::Responder,
        };
        let receiver = Receiver { role, extensions, place: self.parts.place(&prefix) };
        let taken = match judge_after(&prefix, &receiver, &message) {
            Judgement::Accept { header, payload_offset } => {
                message.advance(payload_offset.min(message.len()));
                self.accepted(&prefix, header, message)
            }
            Judgement::Discard { why, .. } => {
                self.discarded += 1;
                if why != Discard::Version {
                    self.dropped(&prefix);
                }
                false
            }
            Judgement::Reply { xid, version, error, .. } => {
                self.outbox.error(xid, version, error);
                if prefix.version == VERSION {
                    self.dropped(&prefix);
                }
                false
            }
        };
        // A call gets an answer, which grants credits. Only `Credits::peer_is_stuck` answers a grant with another
        // grant.
        self.owes_grant |= !taken && !bare_grant && self.credits.peer_is_short();
        taken
    }

    /// A message was dropped because the message alone is wrong.
    fn dropped(&mut self, prefix: &Prefix) {
        let header_type = HeaderType::from_code(prefix.header_type);
        if header_type.is_some_and(HeaderType::can_continue) {
            let was_part = prefix.flags.more || self.parts.place(prefix) != Place::First;
            self.parts.breaks(prefix);
            if was_part && prefix.flags.response {
                self.requester.spoiled(prefix.xid, PeerFault::BrokenSequence, &mut self.actions);
            }
        }
        // The set is rejected, but if it is the last one, it still ends the exchange (V2-7.2.2-c).
        if header_type == Some(HeaderType::Connprop) && !prefix.flags.more && self.exchange.may_hear() {
            self.exchange.heard_set(prefix.flags.tpmore);
        }
    }

    fn accepted(&mut self, prefix: &Prefix, header: Header, payload: Bytes) -> bool {
        let xid = header.xid;
        let trusted = self.trusts();
        match header.body {
            // V2-6.3.2-c, V2-4.2.1.2-d
            Body::Nomsg(chunks) if chunks.is_empty() => false,
            // Before authentication has a verdict, nothing of an RPC or of an extension is passed on.
            Body::Msg(_) | Body::Nomsg(_) | Body::Other(_) if !trusted => {
                self.discarded += 1;
                if !header.flags.response {
                    self.outbox.error(xid, VERSION, ErrorBody::System);
                }
                false
            }
            // V2-6.2.2.2-b, V2-4.1-i
            Body::Nomsg(_) if self.parts.is_open() => {
                self.parts.breaks(prefix);
                self.broken(prefix);
                false
            }
            Body::Nomsg(chunks) if header.flags.response => {
                let known = self.requester.replied(xid, &chunks.lists, None, &mut self.actions);
                self.discarded += u64::from(!known);
                false
            }
            Body::Nomsg(chunks) => self.responder.received(xid, chunks, None, false, &mut serving!(self)),
            Body::Msg(chunks) => {
                if header.flags.more && !self.takes_parts(prefix) {
                    return false;
                }
                let joined = self.parts.is_open();
                let Some(stream) = self.part(prefix, payload) else { return false };
                self.rpc(prefix, chunks, stream, joined)
            }
            Body::Connprop(set) => {
                if self.part(prefix, Bytes::new()).is_some() {
                    self.properties(prefix, &set);
                }
                false
            }
            Body::ConnpropPiece(octets) => {
                if let Some(octets) = self.part(prefix, octets) {
                    self.joined_properties(prefix, &octets);
                }
                false
            }
            Body::Error(error) => {
                self.error(xid, error);
                false
            }
            Body::Other(body) => {
                // The body shares the receive buffer, so we copy it.
                let octets = Bytes::copy_from_slice(body.octets());
                if let Some(body) = OtherBody::new(body.header_type(), octets) {
                    let response = header.flags.response;
                    self.actions.push_back(Action::Extension(Received::Message { xid, response, body }));
                }
                false
            }
            _ => false,
        }
    }

    /// Whether authentication lets this end pass on what the peer sends.
    fn trusts(&self) -> bool {
        !matches!(self.exchange.verdict(), Verdict::Pending | Verdict::Rejected)
    }

    /// Handles a whole RPC message, which was `joined` if it came in parts. Returns whether it is a call that is taken.
    fn rpc(&mut self, prefix: &Prefix, chunks: Chunks, stream: Bytes, joined: bool) -> bool {
        if !prefix.flags.response {
            return self.responder.received(prefix.xid, chunks, Some(stream), joined, &mut serving!(self));
        }
        let known = self.requester.replied(prefix.xid, &chunks.lists, Some(stream), &mut self.actions);
        self.discarded += u64::from(!known);
        false
    }

    /// Whether we accept the first part of a message: a client that has announced Simple Format accepts none.
    // V2-5.2.5-b, V2-4.5.4-c
    fn takes_parts(&mut self, prefix: &Prefix) -> bool {
        let simple = self.config.side == Side::Client && reverse_of(&self.config) == ReverseSupport::Simple;
        if simple && !prefix.flags.response {
            self.parts.breaks(prefix);
            self.broken(prefix);
        }
        !simple || prefix.flags.response
    }

    /// Handles a message that may be one of several. Returns the payload when it is complete.
    fn part(&mut self, prefix: &Prefix, payload: Bytes) -> Option<Bytes> {
        match self.parts.part(prefix, payload) {
            Step::Whole(octets) => return Some(octets),
            Step::Waits => {}
            Step::Broken => self.broken(prefix),
            Step::TooLong => {
                self.discarded += 1;
                if prefix.flags.response {
                    self.requester.spoiled(prefix.xid, PeerFault::TooLong, &mut self.actions);
                } else {
                    self.outbox.error(prefix.xid, VERSION, ErrorBody::System);
                }
            }
        }
        None
    }

    /// This message breaks a sequence.
    // V2-6.2.2.2-b, V2-6.2.2.2-c, V2-7.1.3-a
    fn broken(&mut self, prefix: &Prefix) {
        self.discarded += 1;
        if prefix.flags.response {
            self.requester.spoiled(prefix.xid, PeerFault::BrokenSequence, &mut self.actions);
        } else {
            self.outbox.error(prefix.xid, VERSION, ErrorBody::InvalidContinuation);
        }
    }

    /// Handles properties that came in several messages, which the wire has not judged.
    // V2-5.1-k, V2-7.2.2-b, V2-7.2.2-c
    fn joined_properties(&mut self, prefix: &Prefix, octets: &Bytes) {
        let set = PropertySet::decode(octets).map(|(set, _)| set);
        let fits = |set: &PropertySet| self.config.extension.as_ref().is_none_or(|extension| set.fits(&**extension));
        let error = match set {
            Ok(set) if fits(&set) => return self.properties(prefix, &set),
            Err(error) if !error.is_value() => ErrorBody::BadXdr,
            _ => ErrorBody::BadPropertyValue,
        };
        self.outbox.error(prefix.xid, VERSION, error);
        if self.exchange.may_hear() {
            self.exchange.heard_set(prefix.flags.tpmore);
        }
    }

    fn properties(&mut self, prefix: &Prefix, set: &PropertySet) {
        if !self.exchange.may_hear() {
            // V2-6.2.2.3-d
            self.outbox.error(prefix.xid, VERSION, ErrorBody::InvalidHeaderType);
            return;
        }
        self.exchange.hear(set, prefix.flags.tpmore);
        if prefix.flags.tpmore {
            // A peer that has one credit and more to send waits for this grant (V2-6.2.2.3-g).
            self.owes_grant = true;
        }
        if let Some(extension) = &self.config.extension {
            for other in set.others().filter(|other| knows(&**extension, other)) {
                let data = Bytes::copy_from_slice(other.data());
                let copy = OtherProperty::new(other.code(), data);
                self.actions.extend(copy.map(|other| Action::Extension(Received::Property(other))));
            }
        }
    }

    /// Handles an error of the peer about a message of ours.
    // V2-7-g, V2-7.1.2-d
    fn error(&mut self, xid: u32, error: ErrorBody) {
        if self.requester.refused(xid, error, &self.config, &mut self.actions) {
            return;
        }
        if let Some(at) = self.extension_sent.iter().position(|(of, _)| *of == xid) {
            let sent = self.extension_sent.remove(at);
            if let (ErrorBody::InvalidHeaderType, Some((_, header_type))) = (error, sent)
                && self.unsupported.len() < MAX_UNSUPPORTED
            {
                // V2-7.1.2-c, V2-7.1.2-e, V2-B.2-a
                self.unsupported.insert(header_type);
            }
            self.actions.push_back(Action::Extension(Received::Error { xid, error }));
            return;
        }
        // It answers our properties, or nothing: there is nothing to do.
        self.discarded += u64::from(!self.exchange.is_about(xid));
    }
}
