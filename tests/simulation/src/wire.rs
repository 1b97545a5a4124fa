//! One end's account of messages: its credits, its open calls and the replies that it gets.
//!
//! It reads the bytes to and from the provider, and nothing of the engine. In version 1 an end may have as many open
//! calls as the peer last granted, and one before the first grant (RFC 8166 section 3.3.1). In version 2 each message
//! costs a credit, except a message that only grants, and a client begins with one (draft sections 4.2.1.1 and
//! 4.2.1.2). This account ignores that a ceiling limits grants, because that depends on when an end reads them.

use bytes::Bytes;
use rpcrdma_wire::{v1, v2, version};
use std::collections::BTreeSet;

/// What one end of a connection may do.
#[derive(Debug)]
pub struct Account {
    initiator: bool,
    /// Unanswered calls of this end.
    open: BTreeSet<u32>,
    /// Calls that a version error may have ended, or not, if the error made no sense.
    doubtful: BTreeSet<u32>,
    /// Version 1: how many calls may be open.
    granted: u32,
    /// The version of this end, once it has sent something. An error may have the version of the message that it
    /// answers.
    spoken: Option<u32>,
    /// Version 2: how many messages were sent, and how many were allowed so far.
    sent: u64,
    allowed: u64,
}

/// The kind of a message.
enum Kind {
    Call(u32),
    Reply(u32),
    Error(u32),
    Neither,
}

struct Message {
    version: u32,
    kind: Kind,
    /// The credit word on the wire.
    credit: u32,
    /// Version 2: grants credits and says nothing else.
    only_grants: bool,
    /// Whether it is an error about an unknown version: its credits mean nothing.
    of_version: bool,
}

impl Account {
    /// The account of a new connection.
    pub fn new(initiator: bool) -> Self {
        Self {
            initiator,
            open: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            granted: 1,
            spoken: None,
            sent: 0,
            allowed: u64::from(initiator),
        }
    }

    /// A message goes out.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn sent(&mut self, octets: &[u8]) -> Result<(), String> {
        let message =
            read(octets, self.initiator, None).ok_or_else(|| format!("{} bytes that are no message", octets.len()))?;
        if !matches!(message.kind, Kind::Error(_)) {
            self.spoken = Some(message.version);
        }
        if self.spoken == Some(v2::VERSION) && !message.only_grants {
            self.sent += 1;
            if self.sent > self.allowed {
                return Err(format!("message {} was sent with {} allowed", self.sent, self.allowed));
            }
        }
        if let Kind::Call(xid) = message.kind {
            self.open.insert(xid);
            if message.version == v1::VERSION && self.open.len() > self.granted as usize {
                return Err(format!("call {xid:#010x} is number {} with {} granted", self.open.len(), self.granted));
            }
        }
        Ok(())
    }

    /// A message has come.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn received(&mut self, octets: &[u8]) -> Result<(), String> {
        // The grant of a version 2 message counts, whatever else is wrong with the message.
        if let Ok(prefix) = v2::Prefix::decode(octets)
            && prefix.version == v2::VERSION
        {
            self.allowed += u64::from(prefix.credits.granted);
        }
        let message = read(octets, !self.initiator, self.spoken)
            .ok_or_else(|| format!("{} bytes that are no message came", octets.len()))?;
        if !matches!(message.kind, Kind::Error(_)) && self.spoken.is_some_and(|spoken| spoken != message.version) {
            return Err(format!("a message of version {} came", message.version));
        }
        match message.kind {
            Kind::Reply(xid) => {
                if self.open.remove(&xid) {
                    self.grant(&message);
                } else if self.doubtful.remove(&xid) {
                    // An end that took the error for the reply ignores this reply: so the larger grant counts.
                    self.granted = self.granted.max(message.credit);
                } else {
                    // Such a reply grants nothing.
                    return Err(format!("a reply {xid:#010x} came that no open call has"));
                }
            }
            Kind::Error(xid) => {
                let open = self.open.remove(&xid);
                if open && message.of_version {
                    self.doubtful.insert(xid);
                } else if open {
                    self.grant(&message);
                }
            }
            Kind::Call(_) | Kind::Neither => {}
        }
        Ok(())
    }

    /// Takes version 1's grant in a reply: zero counts as one.
    fn grant(&mut self, message: &Message) {
        if message.version == v1::VERSION {
            self.granted = message.credit.max(1);
        }
    }
}

/// Reads a message: which end sent it, and which version the reading end speaks, decide its meaning.
fn read(octets: &[u8], from_initiator: bool, spoken: Option<u32>) -> Option<Message> {
    // An end that speaks version 1 reads every error as one of version 1, whatever version it names.
    let error = octets.get(12..16) == Some(&v2::HeaderType::Error.code().to_be_bytes());
    let as_one = error && spoken == Some(v1::VERSION);
    if version(octets)? == v2::VERSION && octets.len() >= v2::PREFIX_OCTETS && !as_one {
        let prefix = v2::Prefix::decode(octets).ok()?;
        let header_type = v2::HeaderType::from_code(prefix.header_type)?;
        let (xid, response, more) = (prefix.xid, prefix.flags.response, prefix.flags.more);
        let carries = matches!(header_type, v2::HeaderType::Msg | v2::HeaderType::Nomsg);
        let kind = match header_type {
            v2::HeaderType::Error => Kind::Error(xid),
            _ if !carries || xid == 0 || (response && more) => Kind::Neither,
            _ if response => Kind::Reply(xid),
            _ => Kind::Call(xid),
        };
        let only_grants = header_type == v2::HeaderType::Nomsg && xid == 0;
        return Some(Message {
            version: v2::VERSION,
            kind,
            credit: prefix.credits.word(),
            only_grants,
            of_version: false,
        });
    }
    let (header, len) = v1::Header::decode(octets).ok()?;
    let of_version = matches!(header.body, v1::Body::Error(v1::ErrorBody::Version { .. }));
    let calls = match &header.body {
        v1::Body::Error(_) => None,
        // The message type follows the XID. If it is missing, the forward direction decides: the initiator's messages
        // are calls.
        v1::Body::Msg(_) => Some(match octets.get(len..)?.get(4..8) {
            Some([0, 0, 0, 0]) => true,
            Some([0, 0, 0, 1]) => false,
            _ => from_initiator,
        }),
        _ => Some(from_initiator),
    };
    let kind = match calls {
        None => Kind::Error(header.xid),
        // Valid, but neither call nor reply.
        _ if matches!(header.body, v1::Body::Done | v1::Body::Msgp { .. }) => Kind::Neither,
        Some(true) => Kind::Call(header.xid),
        Some(false) if !is_answer(&header, octets.get(len..)?) => Kind::Neither,
        Some(false) => Kind::Reply(header.xid),
    };
    Some(Message { version: v1::VERSION, kind, credit: header.credit, only_grants: false, of_version })
}

/// Whether a message of version 1 can be a reply: it has no Read chunks, and it contains a message with its XID or has
/// put it into a Reply chunk.
fn is_answer(header: &v1::Header, payload: &[u8]) -> bool {
    let Some(lists) = header.body.lists() else { return false };
    let brings = match header.body {
        v1::Body::Msg(_) => payload.get(..4) == Some(&header.xid.to_be_bytes()),
        _ => lists.reply.as_ref().is_some_and(|reply| !reply.is_empty()),
    };
    brings && lists.reads.is_empty()
}

/// The features of a message that are counted.
pub fn traits(octets: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let (version, name, lists) = match version(octets) {
        Some(v2::VERSION) => {
            let Ok((header, _)) = v2::Header::decode_piece(&Bytes::copy_from_slice(octets)) else { return found };
            if header.flags.more {
                found.push("message: version 2, more follows".to_owned());
            }
            let name = header.prefix().type_name().unwrap_or("another header type");
            (2, name, header.body.chunks().map(|chunks| chunks.lists.clone()))
        }
        _ => {
            let Ok((header, _)) = v1::Header::decode(octets) else { return found };
            (1, header.body.procedure().name(), header.body.lists().cloned())
        }
    };
    found.push(format!("message: version {version}, {name}"));
    let Some(lists) = lists else { return found };
    let many = lists.writes.chunks().iter().chain(&lists.reply).any(|chunk| chunk.segments().len() > 1);
    for (what, has) in [
        ("a Read chunk", !lists.reads.is_empty()),
        ("a Read chunk at Position zero", lists.reads.segments().iter().any(|read| read.position == 0)),
        ("several Read chunks", lists.reads.chunks().len() > 1),
        ("a Write chunk", !lists.writes.chunks().is_empty()),
        ("several Write chunks", lists.writes.chunks().len() > 1),
        ("a Reply chunk", lists.reply.is_some()),
        ("several segments in a chunk", many),
    ] {
        if has {
            found.push(format!("message: version {version}, {what}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_wire::v1::Lists;

    fn one(xid: u32, credit: u32, reply: bool) -> Vec<u8> {
        let mut octets = v1::Header::new(xid, credit, v1::Body::Msg(Lists::default())).to_bytes().to_vec();
        octets.extend_from_slice(&xid.to_be_bytes());
        octets.extend_from_slice(&u32::from(reply).to_be_bytes());
        octets
    }

    fn two(xid: u32, granted: u16, response: bool) -> Vec<u8> {
        let lists = Lists::default().into();
        v2::Header::msg(xid, v2::Credits::new(granted, 64), response, false, lists).to_bytes().to_vec()
    }

    #[test]
    fn version_1_has_one_call_until_more_are_granted_and_no_more_than_that() {
        let mut account = Account::new(true);
        account.sent(&one(1, 9, false)).unwrap();
        account.sent(&one(2, 9, false)).unwrap_err();
        let mut account = Account::new(true);
        account.sent(&one(1, 9, false)).unwrap();
        account.received(&one(1, 2, true)).unwrap();
        account.sent(&one(2, 9, false)).unwrap();
        account.sent(&one(3, 9, false)).unwrap();
        account.sent(&one(4, 9, false)).unwrap_err();
    }

    #[test]
    fn a_call_that_is_answered_twice_is_found_in_either_version() {
        for message in [one, |xid, credit, reply| two(xid, credit as u16, reply)] {
            let mut account = Account::new(true);
            account.sent(&message(1, 9, false)).unwrap();
            account.received(&message(1, 9, true)).unwrap();
            account.received(&message(1, 9, true)).unwrap_err();
        }
    }

    #[test]
    fn version_2_spends_a_credit_with_each_message() {
        let mut account = Account::new(true);
        account.sent(&two(1, 4, false)).unwrap();
        account.received(&two(1, 2, true)).unwrap();
        account.sent(&two(2, 4, false)).unwrap();
        account.sent(&two(3, 4, false)).unwrap();
        account.sent(&two(4, 4, false)).unwrap_err();
        Account::new(false).sent(&two(4, 4, true)).unwrap_err();
    }

    /// A reply in another version than the connection's, or to a call that is not open, grants nothing and answers
    /// nothing.
    #[test]
    fn what_is_no_answer_grants_nothing() {
        let mut account = Account::new(true);
        account.sent(&one(1, 9, false)).unwrap();
        account.received(&two(1, 9, true)).unwrap_err();
        account.received(&one(7, 9, true)).unwrap_err();
        account.sent(&one(2, 9, false)).unwrap_err();
    }

    /// With no credit at all an end could never send again: version 1 takes zero for one.
    #[test]
    fn a_grant_of_nothing_is_one_in_version_1() {
        let mut account = Account::new(true);
        account.sent(&one(1, 9, false)).unwrap();
        account.received(&one(1, 0, true)).unwrap();
        account.sent(&one(2, 9, false)).unwrap();
        account.sent(&one(3, 9, false)).unwrap_err();
    }
}
