//! A peer of version 2 that sends what a test orders, and counts credits and messages.
#![allow(dead_code, unreachable_pub)]

use crate::common::End;
use bytes::Bytes;
use rpcrdma_wire::v2::{Body, Chunks, Credits, ErrorBody, Header, Lists, PropertySet};
use std::collections::VecDeque;

/// The XID of the peer's properties.
pub const EXCHANGE: u32 = 0x5555;

/// The credits that the peer grants, unless a test sets others.
pub const GRANT: Credits = Credits { granted: 32, maximum: 32 };

pub struct Peer {
    pub end: End,
    /// How many messages the peer may send.
    pub credits: usize,
    /// The credits in the peer's next message.
    pub word: Credits,
    heard: VecDeque<(Header, Bytes)>,
    /// How many messages have arrived, errors included.
    pub messages: usize,
    pub errors: Vec<(u32, ErrorBody)>,
}

/// A server's end.
impl From<End> for Peer {
    fn from(end: End) -> Self {
        Self { credits: 0, ..Self::new(end) }
    }
}

impl Peer {
    /// A client's end, with the one credit of the beginning.
    pub fn new(end: End) -> Self {
        Self { end, credits: 1, word: GRANT, heard: VecDeque::new(), messages: 0, errors: Vec::new() }
    }

    /// Looks at the messages that the connection's end has kept.
    fn took(&mut self) {
        while let Some(message) = self.end.next() {
            self.messages += 1;
            let Ok((header, at)) = Header::decode(&message) else { continue };
            self.credits += usize::from(header.credits.granted);
            self.credits = self.credits.min(usize::from(header.credits.maximum.max(1)));
            if let Body::Error(error) = header.body {
                self.errors.push((header.xid, error));
            }
            self.heard.push_back((header, message.slice(at..)));
        }
    }

    pub fn closed(&self) -> bool {
        self.end.closed
    }

    /// Takes what has arrived, without waiting.
    pub async fn look(&mut self) {
        self.end.look().await;
        self.took();
    }

    async fn wait(&mut self) {
        self.end.wait().await;
        self.took();
    }

    /// The next message that the test wants, or `None` when the connection ends first.
    pub async fn hear(&mut self, wanted: impl Fn(&Header) -> bool) -> Option<(Header, Bytes)> {
        loop {
            while let Some((header, payload)) = self.heard.pop_front() {
                if wanted(&header) {
                    return Some((header, payload));
                }
            }
            if self.closed() {
                return None;
            }
            self.wait().await;
        }
    }

    /// The next message that has arrived.
    pub fn waiting(&mut self) -> Option<(Header, Bytes)> {
        self.heard.pop_front()
    }

    /// The next call, of any form.
    pub async fn call(&mut self) -> Option<(Header, Bytes)> {
        self.hear(|header| match &header.body {
            Body::Msg(_) => !header.flags.response,
            Body::Nomsg(chunks) => !header.flags.response && !chunks.is_empty(),
            _ => false,
        })
        .await
    }

    /// The next reply to this call.
    pub async fn reply(&mut self, xid: u32) -> Option<(Header, Bytes)> {
        let is_reply = |header: &Header| matches!(header.body, Body::Msg(_) | Body::Nomsg(_)) && header.flags.response;
        self.hear(|header| header.xid == xid && is_reply(header)).await
    }

    /// Waits until the connection has ended.
    pub async fn ends(&mut self) {
        self.end.ends().await;
        self.took();
    }

    /// Posts bytes, whether there is a credit or not.
    pub fn post(&mut self, octets: Bytes) {
        self.credits = self.credits.saturating_sub(1);
        self.end.post(vec![octets], None);
    }

    /// Sends a message when there is a credit. Returns whether the connection still exists.
    pub async fn say(&mut self, header: Header, payload: &[u8]) -> bool {
        self.look().await;
        while self.credits == 0 && !self.closed() {
            self.wait().await;
        }
        let mut octets = Header { credits: self.word, ..header }.to_bytes().to_vec();
        octets.extend_from_slice(payload);
        self.post(octets.into());
        // A queue pair sends nothing until it is polled.
        self.look().await;
        !self.closed()
    }

    /// The exchange of properties: none here.
    pub async fn exchange(&mut self) {
        self.say(Header::connprop(EXCHANGE, GRANT, false, PropertySet::default()), &[]).await;
    }

    /// Sends a part of a message; if `more` is unset, the last part.
    pub async fn part(&mut self, xid: u32, response: bool, more: bool, payload: &[u8]) -> bool {
        self.say(Header::msg(xid, GRANT, response, more, Chunks::default()), payload).await
    }
}

/// A call as bytes behind a header.
pub fn rpc(xid: u32, procedure: u32, args: &[u32]) -> Bytes {
    let head = [xid, 0, 2, crate::common::PROGRAM, 1, procedure, 0, 0, 0, 0];
    head.iter().chain(args).flat_map(|word| word.to_be_bytes()).collect()
}

/// A successful reply with these results.
pub fn rpc_reply(xid: u32, results: &[u32]) -> Bytes {
    [xid, 1, 0, 0, 0, 0].iter().chain(results).flat_map(|word| word.to_be_bytes()).collect()
}

pub fn header(xid: u32, response: bool, lists: Lists) -> Header {
    Header::msg(xid, GRANT, response, false, lists.into())
}
