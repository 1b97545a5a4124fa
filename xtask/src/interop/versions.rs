//! Which version of RPC-over-RDMA each connection of a capture speaks, and whether both ends kept within version 2's
//! credits.
//!
//! A client that speaks both begins with its properties (RDMA2_CONNPROP). A server without version 2, such as Linux's,
//! answers with a version error in version 1's form that names version 1 alone; the same connection goes on with calls
//! of version 1.

use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};

/// How many messages of version 2 each end may send before it gets a grant: the client one, the server none.
const FIRST_MESSAGES: [u64; 2] = [1, 0];

/// All connections of a capture.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Versions {
    /// Connections that began with the client's properties.
    pub(super) asked: u64,
    /// How many of them the server refused version 2 on.
    pub(super) refused: u64,
    /// Calls answered on these connections after the refusal.
    pub(super) calls_after: u64,
    /// Calls answered in version 1 and in version 2.
    pub(super) calls: [u64; 2],
    /// Connections on which calls were answered in version 1 and in version 2.
    pub(super) connections: [u64; 2],
    /// The end that connected, for each connection on which the server spoke version 2.
    pub(super) in_version_2: BTreeSet<String>,
    /// What was wrong: messages of another version than the connection had agreed on, and messages of version 2 without
    /// credit.
    pub(super) wrong: Vec<String>,
}

/// One connection, while it is read. Side 0 connected, side 1 listened.
pub(super) struct Spoken {
    /// Messages that each side may send in version 2, by the grants that it must have read already.
    messages: [u64; 2],
    /// Grants to each side that may still be on the way to it.
    unread: [VecDeque<Grant>; 2],
    /// The XID of the properties with which the connection began.
    asked: Option<u64>,
    /// Whether the server has refused them.
    refused: bool,
    /// Whether calls were answered in version 1, and in version 2.
    answered: [bool; 2],
    /// Whether the first message was seen.
    began: bool,
}

/// What a message of version 2 grants to its reader.
struct Grant {
    xid: Option<u64>,
    more: u64,
    most: u64,
}

impl Default for Spoken {
    fn default() -> Self {
        Self {
            messages: FIRST_MESSAGES,
            unread: Default::default(),
            asked: None,
            refused: false,
            answered: [false; 2],
            began: false,
        }
    }
}

impl Spoken {
    /// A side reads the next grant: it cannot save up more than the maximum. Returns whether there was one.
    fn read(&mut self, side: usize) -> bool {
        let Some(grant) = self.unread[side].pop_front() else { return false };
        self.messages[side] = (self.messages[side] + grant.more).min(grant.most.max(grant.more));
        true
    }

    /// The listener answers a message: so it has read that message and all before it.
    fn read_up_to(&mut self, xid: u64) {
        if let Some(index) = self.unread[1].iter().position(|grant| grant.xid == Some(xid)) {
            (0..=index).for_each(|_| _ = self.read(1));
        }
    }
}

/// Whether a transport header is one of version 2: its credits have two halves.
pub(super) fn is_version_2(header: &Value) -> bool {
    header["credit"].is_object()
}

impl Versions {
    /// Takes a Send whose transport header our reader has read.
    pub(super) fn message(&mut self, record: &Value, connection: &mut Spoken, side: usize) {
        let header = &record["header"];
        if is_version_2(header) {
            self.credits(record, connection, side);
            if side == 1 {
                self.in_version_2.extend(record["to"].as_str().map(str::to_owned));
            }
        }
        let first = !std::mem::replace(&mut connection.began, true);
        if first && side == 0 && header["type"] == "RDMA2_CONNPROP" {
            connection.asked = header["xid"].as_u64();
            self.asked += 1;
            return;
        }
        let is_refusal = header["type"] == "RDMA_ERROR" && header["error"] == "ERR_VERS" && header["vers_high"] == 1;
        if side == 1 && is_refusal && connection.asked.is_some() && header["xid"].as_u64() == connection.asked {
            connection.refused = true;
            self.refused += 1;
            return;
        }
        // A refusal decides for version 1, and so does a first message in version 1.
        let settled_2 = connection.asked.is_some() && !connection.refused;
        if is_version_2(header) != settled_2 {
            let version = if settled_2 { 1 } else { 2 };
            let words = format!("connection {}: a message of version {version}", record["connection"]);
            self.wrong.push(format!("{words}, which is not what was settled"));
        }
    }

    /// Every message of version 2 costs one credit, except that an end may send a lone grant without credit. Every
    /// message grants credits.
    ///
    /// A capture is made at one end: a grant that was recorded before a message of the other end may have crossed it on
    /// the way. So we assume that a side has read a grant as late as possible: what we find wrong then is wrong in any
    /// case.
    fn credits(&mut self, record: &Value, connection: &mut Spoken, side: usize) {
        let header = &record["header"];
        let xid = header["xid"].as_u64();
        let is_grant = header["type"] == "RDMA2_NOMSG" && xid == Some(0);
        if let Some(xid) = xid.filter(|_| side == 1 && !is_grant) {
            connection.read_up_to(xid);
        }
        while connection.messages[side] == 0 && connection.read(side) {}
        match connection.messages[side].checked_sub(1) {
            Some(left) => connection.messages[side] = left,
            None if is_grant => {}
            None => {
                let (number, xid) = (&record["connection"], &header["xid"]);
                self.wrong.push(format!("connection {number}, xid {xid}: a message of version 2 without credit"));
            }
        }
        let half = |name: &str| header["credit"][name].as_u64().unwrap_or(0);
        let grant = Grant { xid, more: half("granted"), most: half("maximum") };
        connection.unread[1 - side].push_back(grant);
    }

    /// A call was answered.
    pub(super) fn answered(&mut self, header: &Value, connection: &mut Spoken) {
        let version = usize::from(is_version_2(header));
        self.calls[version] += 1;
        self.calls_after += u64::from(connection.refused);
        if !std::mem::replace(&mut connection.answered[version], true) {
            self.connections[version] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Spoken, Versions};
    use serde_json::{Value, json};

    /// A message from the client (0) or the server.
    type Sent = (usize, Value);

    fn of_1(side: usize, xid: u32) -> Sent {
        (side, json!({"type": "RDMA_MSG", "credit": 9, "xid": xid}))
    }

    fn of_2(side: usize, kind: &str, xid: u32, granted: u32) -> Sent {
        (side, json!({"type": kind, "credit": {"granted": granted, "maximum": 3}, "xid": xid}))
    }

    fn properties(side: usize, granted: u32) -> Sent {
        of_2(side, "RDMA2_CONNPROP", 7, granted)
    }

    fn refusal(xid: u32) -> Sent {
        (1, json!({"type": "RDMA_ERROR", "error": "ERR_VERS", "vers_low": 1, "vers_high": 1, "credit": 9, "xid": xid}))
    }

    fn read(messages: &[Sent]) -> Versions {
        let (mut versions, mut connection) = (Versions::default(), Spoken::default());
        for (side, header) in messages {
            versions.message(&json!({"connection": 1, "header": header}), &mut connection, *side);
            if *side == 1 && header["type"].as_str().unwrap().ends_with("_MSG") {
                versions.answered(header, &mut connection);
            }
        }
        versions
    }

    #[test]
    fn a_refusal_of_version_2_and_what_follows_is_read() {
        let versions = read(&[properties(0, 3), refusal(7), of_1(0, 8), of_1(1, 8)]);
        let expected = Versions {
            asked: 1,
            refused: 1,
            calls_after: 1,
            calls: [1, 0],
            connections: [1, 0],
            ..Versions::default()
        };
        assert_eq!(versions, expected);
        assert_eq!(read(&[of_1(0, 8), of_1(1, 8), of_1(0, 9), of_1(1, 9)]).calls, [2, 0]);
    }

    #[test]
    fn a_version_that_was_not_settled_is_seen() {
        // An error about something else refuses nothing: so the later messages of version 1 are wrong.
        assert_eq!(read(&[properties(0, 3), refusal(8), of_1(0, 9)]).wrong.len(), 2);
        assert_eq!(
            read(&[properties(0, 3), refusal(7), properties(0, 3)]).wrong.len(),
            2,
            "nor is there a credit for it"
        );
        assert_eq!(read(&[of_1(0, 9), of_2(0, "RDMA2_MSG", 10, 1)]).wrong.len(), 1);
    }

    #[test]
    fn a_message_of_version_2_without_credit_is_seen() {
        let call = |xid| of_2(0, "RDMA2_MSG", xid, 1);
        let reply = |xid| of_2(1, "RDMA2_MSG", xid, 1);
        let grant = |side| of_2(side, "RDMA2_NOMSG", 0, 1);
        let begin = [properties(0, 3), properties(1, 2)];
        let served = [call(1), call(2), reply(1), reply(2), call(3), grant(0), grant(0)];
        let versions = read(&[&begin[..], &served].concat());
        assert_eq!((versions.calls, versions.connections, versions.wrong.len()), ([0, 2], [0, 1], 0));
        assert_eq!(read(&[&begin[..], &[call(1), call(2), call(3)]].concat()).wrong.len(), 1);
        // A grant may have crossed messages that are recorded after it.
        let saved: Vec<_> = (1..=5).map(|_| grant(1)).collect();
        let calls = |count| (1..=count).map(call).collect::<Vec<_>>();
        assert_eq!(read(&[&begin[..], &saved, &calls(7)].concat()).wrong.len(), 0);
        assert_eq!(read(&[&begin[..], &saved, &calls(8)].concat()).wrong.len(), 1);
        // The listener has read all messages before the call that it answers.
        let many = calls(6);
        let answers = |last| (1..=last).map(reply).collect::<Vec<_>>();
        let server = |answers: &[Sent]| {
            let mut connection = Spoken { messages: [9, 0], ..Spoken::default() };
            let mut versions = Versions::default();
            for (side, header) in many.iter().chain(answers) {
                versions.credits(&json!({"connection": 1, "header": header}), &mut connection, *side);
            }
            versions.wrong.len()
        };
        assert_eq!(server(&answers(6)), 0, "each answer after the grant of its own call");
        let backwards: Vec<_> = (1..=6).rev().map(reply).collect();
        assert_eq!(server(&backwards), 3, "all six had been read: three could be saved up");
    }
}
