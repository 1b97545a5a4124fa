//! Carries COMPOUNDs: a connection over TCP, or over RPC-over-RDMA on iWARP with everything inline. The server may call
//! over it: its calls wait here until the test asks for them, and so do early replies.

use super::{Compound, Results};
use crate::{
    peer::{Peer, dial},
    rpc::{self, NFS, Reply, Status, Xdr, status},
};
use std::{collections::VecDeque, net::TcpStream};

/// COMPOUND's number.
const COMPOUND: u32 = 1;

enum Carrier {
    Tcp(TcpStream),
    Rdma(Box<Peer>),
}

/// A connection.
pub struct Link {
    carrier: Carrier,
    /// The user of the calls, unless the test changes it.
    pub user: u32,
    xid: u32,
    /// Calls of the server, and replies, that the test has not asked for yet: whole RPC messages.
    calls: VecDeque<Vec<u8>>,
    replies: VecDeque<Vec<u8>>,
}

/// A call of the server.
#[derive(Clone, Debug)]
pub struct Called {
    pub xid: u32,
    pub program: u32,
    pub procedure: u32,
    /// The arguments, behind the header.
    pub args: Vec<u8>,
}

impl Called {
    /// Reads a call of the server.
    fn read(message: &[u8]) -> Self {
        let at = |index: usize| rpc::word(message, 4 * index);
        assert_eq!((at(1), at(2)), (0, 2), "a call of RPC version 2");
        let args = 40 + at(7) as usize;
        assert_eq!(message[args - 8..args], [0; 8], "no verifier");
        Self { xid: at(0), program: at(3), procedure: at(5), args: message[args..].to_vec() }
    }
}

/// `msg_type` of an RPC call.
const CALL: u32 = 0;

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Place {
    Tcp(String),
    Rdma(String),
}

impl Link {
    /// Connects.
    pub fn to(place: &Place) -> Self {
        let carrier = match place {
            Place::Tcp(address) => Carrier::Tcp(dial(address)),
            Place::Rdma(address) => Carrier::Rdma(Box::new(Peer::connect(address))),
        };
        Self { carrier, user: 0, xid: 0, calls: VecDeque::new(), replies: VecDeque::new() }
    }

    /// Sends a COMPOUND, and returns its XID.
    pub fn send(&mut self, call: &Compound) -> u32 {
        self.send_args(&call.args())
    }

    /// Sends a COMPOUND whose arguments may be any bytes.
    pub fn send_args(&mut self, args: &[u8]) -> u32 {
        let message = self.message(args);
        self.say(&message);
        self.xid
    }

    /// The whole RPC message of the next call. A test may send it several times: each time it is the same call.
    pub fn message(&mut self, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let user = Xdr::default().u32(0).opaque(b"hostile").words(&[self.user, self.user, 0]).0;
        let mut message = rpc::call_as(self.xid, NFS, 4, COMPOUND, 1, &user).0;
        message.extend(args);
        message
    }

    /// Sends a whole RPC message.
    pub fn say(&mut self, message: &[u8]) {
        match &mut self.carrier {
            Carrier::Tcp(stream) => rpc::send_record(stream, message),
            Carrier::Rdma(peer) => peer.send(&rpc::inline(message)),
        }
    }

    /// Answers a call of the server with these results.
    pub fn answer(&mut self, xid: u32, results: &[u8]) {
        let mut message = Xdr::default().words(&[xid, 1, 0, 0, 0, 0]).0;
        message.extend(results);
        self.say(&message);
    }

    /// Reads the next message, and keeps it as a call or a reply.
    fn read(&mut self) {
        let message = match &mut self.carrier {
            Carrier::Tcp(stream) => rpc::read_record(stream).expect("the server answers"),
            Carrier::Rdma(peer) => match Reply::read(&peer.message().expect("the server answers")) {
                Reply::Rpc(reply) => reply,
                other => panic!("{other:?}"),
            },
        };
        match rpc::word(&message, 4) {
            CALL => self.calls.push_back(message),
            _ => self.replies.push_back(message),
        }
    }

    /// The next call of the server.
    pub fn next_call(&mut self) -> Called {
        loop {
            match self.calls.pop_front() {
                Some(call) => return Called::read(&call),
                None => self.read(),
            }
        }
    }

    /// Whether a call of the server has arrived that the test has not asked for.
    pub fn has_call(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The next reply: its XID and status.
    pub fn hear(&mut self) -> (u32, Status) {
        loop {
            match self.replies.pop_front() {
                Some(reply) => return (rpc::word(&reply, 0), status(&reply)),
                None => self.read(),
            }
        }
    }

    /// The results of the next reply.
    pub fn results(&mut self) -> (u32, Results) {
        match self.hear() {
            (xid, Status::Success(octets)) => (xid, Results::read(&octets)),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a COMPOUND and returns its results.
    pub fn call(&mut self, call: &Compound) -> Results {
        let sent = self.send(call);
        let (xid, results) = self.results();
        assert_eq!(xid, sent, "the reply to another call");
        assert_eq!(results.tag, call.tag, "the tag comes back");
        results
    }

    /// Sends any bytes as arguments, and returns the status of the reply.
    pub fn call_bytes(&mut self, args: &[u8]) -> Status {
        self.send_args(args);
        self.hear().1
    }
}
