//! What carries COMPOUNDs: a connection of TCP, or of RPC-over-RDMA over iWARP with all of it inline.

use super::{Compound, Results};
use crate::{
    peer::{Peer, dial},
    rpc::{self, NFS, Reply, Status, Xdr, status},
};
use std::net::TcpStream;

/// COMPOUND's number.
const COMPOUND: u32 = 1;

enum Carrier {
    Tcp(TcpStream),
    Rdma(Box<Peer>),
}

/// A connection.
pub struct Link {
    carrier: Carrier,
    /// Whose calls these are, unless it is said otherwise.
    pub user: u32,
    xid: u32,
}

/// Where a server is.
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
        Self { carrier, user: 0, xid: 0 }
    }

    /// Sends a COMPOUND, and says its XID.
    pub fn send(&mut self, call: &Compound) -> u32 {
        self.send_args(&call.args())
    }

    /// Sends a COMPOUND whose arguments may be any octets.
    pub fn send_args(&mut self, args: &[u8]) -> u32 {
        self.xid += 1;
        let user = Xdr::default().u32(0).opaque(b"hostile").words(&[self.user, self.user, 0]).0;
        let mut message = rpc::call_as(self.xid, NFS, 4, COMPOUND, 1, &user).0;
        message.extend(args);
        match &mut self.carrier {
            Carrier::Tcp(stream) => rpc::send_record(stream, &message),
            Carrier::Rdma(peer) => peer.send(&rpc::inline(&message)),
        }
        self.xid
    }

    /// The next reply: its XID and how the call was answered.
    pub fn hear(&mut self) -> (u32, Status) {
        let reply = match &mut self.carrier {
            Carrier::Tcp(stream) => rpc::read_record(stream).expect("the server answers"),
            Carrier::Rdma(peer) => match Reply::read(&peer.message().expect("the server answers")) {
                Reply::Rpc(reply) => reply,
                other => panic!("{other:?}"),
            },
        };
        (rpc::word(&reply, 0), status(&reply))
    }

    /// The results of the next reply.
    pub fn results(&mut self) -> (u32, Results) {
        match self.hear() {
            (xid, Status::Success(octets)) => (xid, Results::read(&octets)),
            other => panic!("{other:?}"),
        }
    }

    /// A COMPOUND and its results.
    pub fn call(&mut self, call: &Compound) -> Results {
        let sent = self.send(call);
        let (xid, results) = self.results();
        assert_eq!(xid, sent, "the reply to another call");
        assert_eq!(results.tag, call.tag, "the tag comes back");
        results
    }

    /// Octets in the place of arguments, and how they are answered.
    pub fn call_octets(&mut self, args: &[u8]) -> Status {
        self.send_args(args);
        self.hear().1
    }
}
