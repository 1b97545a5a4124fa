//! A peer of version 2 that is nothing but a queue pair: it says what a test has it say.
#![allow(dead_code, unreachable_pub)]

use bytes::Bytes;
use rpcrdma_fabric::{Buffer, Completion, Connected, ConnectionParams, Pending, Receives, Send, Token};
use rpcrdma_wire::v2::{Body, Chunks, Credits, ErrorBody, Header, Lists, PropertySet};
use std::{collections::VecDeque, future::poll_fn, task::Poll};

/// The XID of the peer's properties.
pub const EXCHANGE: u32 = 0x5555;

/// Credits that it grants, unless a test has it grant others.
pub const GRANT: Credits = Credits { granted: 32, maximum: 32 };

pub struct Peer {
    pub qp: Connected,
    /// What it may send.
    pub credits: usize,
    /// What it says about credits in its next message.
    pub word: Credits,
    heard: VecDeque<(Header, Bytes)>,
    /// How many messages came, errors among them.
    pub messages: usize,
    pub errors: Vec<(u32, ErrorBody)>,
    pub closed: bool,
}

pub fn params(receives: usize) -> ConnectionParams {
    let receives = (0..receives).map(|_| Buffer::from_vec(vec![0; 4096])).collect();
    ConnectionParams { private_data: Bytes::new(), ird: 4, ord: 4, receives: Receives::Own(receives) }
}

pub async fn accepted(pending: Box<dyn Pending>) -> Peer {
    let qp = pending.request().await.unwrap().accept(params(128)).await.unwrap();
    Peer { credits: 0, ..Peer::new(qp) }
}

impl Peer {
    /// A client's end, with the one credit that it begins with.
    pub fn new(qp: Connected) -> Self {
        let (heard, errors) = (VecDeque::new(), Vec::new());
        Self { qp, credits: 1, word: GRANT, heard, messages: 0, errors, closed: false }
    }

    fn took(&mut self, completion: Completion) {
        match completion {
            Completion::Received { buffer, .. } => {
                let _ = self.qp.post_receive(Buffer::from_vec(vec![0; 4096]));
                self.messages += 1;
                let message = buffer.freeze();
                let Ok((header, at)) = Header::decode(&message) else { return };
                self.credits += usize::from(header.credits.granted);
                self.credits = self.credits.min(usize::from(header.credits.maximum.max(1)));
                if let Body::Error(error) = header.body {
                    self.errors.push((header.xid, error));
                }
                self.heard.push_back((header, message.slice(at..)));
            }
            Completion::Closed { .. } => self.closed = true,
            _ => {}
        }
    }

    /// Takes what has come, without waiting.
    pub async fn look(&mut self) {
        poll_fn(|cx| {
            while !self.closed
                && let Poll::Ready(completion) = self.qp.poll(cx)
            {
                self.took(completion);
            }
            Poll::Ready(())
        })
        .await;
    }

    async fn wait(&mut self) {
        let completion = poll_fn(|cx| self.qp.poll(cx)).await;
        self.took(completion);
    }

    /// The next message that the test wants, or `None` when the connection ends first.
    pub async fn hear(&mut self, wanted: impl Fn(&Header) -> bool) -> Option<(Header, Bytes)> {
        loop {
            while let Some((header, payload)) = self.heard.pop_front() {
                if wanted(&header) {
                    return Some((header, payload));
                }
            }
            if self.closed {
                return None;
            }
            self.wait().await;
        }
    }

    /// A message that has come.
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
        while !self.closed {
            self.wait().await;
        }
    }

    /// Posts octets, whether there is a credit or not.
    pub fn post(&mut self, octets: Bytes) {
        self.credits = self.credits.saturating_sub(1);
        let _ = self.qp.post_send(Send { token: Token(1), octets: vec![octets], ..Send::default() });
    }

    /// Sends a message when there is a credit. Returns whether the connection still stands.
    pub async fn say(&mut self, header: Header, payload: &[u8]) -> bool {
        self.look().await;
        while self.credits == 0 && !self.closed {
            self.wait().await;
        }
        let mut octets = Header { credits: self.word, ..header }.to_bytes().to_vec();
        octets.extend_from_slice(payload);
        self.post(octets.into());
        // Nothing is sent by a queue pair that is not polled.
        self.look().await;
        !self.closed
    }

    /// The exchange of properties: none here.
    pub async fn exchange(&mut self) {
        self.say(Header::connprop(EXCHANGE, GRANT, false, PropertySet::default()), &[]).await;
    }

    /// Says a part of a message, or with `more` unset the last.
    pub async fn part(&mut self, xid: u32, response: bool, more: bool, payload: &[u8]) -> bool {
        self.say(Header::msg(xid, GRANT, response, more, Chunks::default()), payload).await
    }
}

/// A call as octets behind a header.
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
