//! RPC calls that the server cannot serve, over RDMA and over TCP.

use crate::{
    peer::{Peer, dial},
    rpc::{self, MOUNT, NFS, Reply, Status, Xdr, call, call_as, status},
    stage::Stage,
};
use std::net::TcpStream;

/// The transport of a call.
pub(crate) enum Way {
    Rdma(Box<Peer>),
    Tcp(TcpStream),
}

impl Way {
    pub(crate) fn both(stage: &Stage) -> [Self; 2] {
        [
            Way::Rdma(Box::new(Peer::connect(&stage.server.rdma))),
            Way::Tcp(dial(stage.server.tcp.as_deref().expect("NFS over TCP"))),
        ]
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        match self {
            Way::Rdma(peer) => peer.send(&rpc::inline(message)),
            Way::Tcp(stream) => rpc::send_record(stream, message),
        }
    }

    /// The next RPC reply.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        match self {
            Way::Rdma(peer) => match Reply::read(&peer.message().expect("a reply")) {
                Reply::Rpc(reply) => reply,
                other => panic!("{other:?}"),
            },
            Way::Tcp(stream) => rpc::read_record(stream).expect("a reply"),
        }
    }

    /// Sends a call and returns its status.
    pub(crate) fn call(&mut self, message: &[u8]) -> Status {
        self.send(message);
        let reply = self.reply();
        assert_eq!(reply[..4], message[..4], "the call's XID");
        status(&reply)
    }
}

fn cases() -> Vec<(&'static str, Vec<u8>, Status)> {
    let sys = Xdr::default().u32(0).opaque(b"machine").words(&[0, 0, 0]).0;
    let groups =
        |count: u32| Xdr::default().u32(0).opaque(b"m").words(&[0, 0, count]).words(&vec![5; count as usize]).0;
    let version =
        |version: u32| [&call(9, NFS, 3, 0).0[..8], &version.to_be_bytes(), &call(9, NFS, 3, 0).0[12..]].concat();
    let cut = |octets: usize| call(9, NFS, 3, 0).0[..octets].to_vec();
    let body =
        |len: u32| Xdr::default().words(&[9, 0, 2, NFS, 3, 0, 1, len]).raw(&vec![0; len as usize]).words(&[0, 0]).0;
    let verifier = |flavour: u32, len: u32| {
        let mut message = call(9, NFS, 3, 0).0;
        message.truncate(message.len() - 8);
        message.extend(Xdr::default().words(&[flavour, len]).raw(&vec![0; len.min(500) as usize]).0);
        message
    };
    vec![
        ("RPC version 0", version(0), Status::RpcMismatch(2, 2)),
        ("RPC version 3", version(3), Status::RpcMismatch(2, 2)),
        ("a program that is not here", call(9, 100_000, 2, 0).0, Status::ProgUnavail),
        ("program 0", call(9, 0, 0, 0).0, Status::ProgUnavail),
        ("the last program", call(9, u32::MAX, 1, 0).0, Status::ProgUnavail),
        ("NFS version 2", call(9, NFS, 2, 0).0, Status::ProgMismatch(3, 4)),
        ("NFS version 5", call(9, NFS, 5, 1).0, Status::ProgMismatch(3, 4)),
        ("NFS version 2^32-1", call(9, NFS, u32::MAX, 1).0, Status::ProgMismatch(3, 4)),
        ("procedure 2 of NFS version 4", call(9, NFS, 4, 2).0, Status::ProcUnavail),
        ("a COMPOUND of nothing at all", call(9, NFS, 4, 1).0, Status::GarbageArgs),
        ("procedure 22", call(9, NFS, 3, 22).0, Status::ProcUnavail),
        ("procedure 2^32-1", call(9, NFS, 3, u32::MAX).0, Status::ProcUnavail),
        ("GETATTR of nothing", call(9, NFS, 3, 1).0, Status::GarbageArgs),
        ("GETATTR of 65 bytes", call(9, NFS, 3, 1).opaque(&[1; 65]).0, Status::GarbageArgs),
        ("GETATTR of more than there is", call(9, NFS, 3, 1).u32(64).raw(&[1; 60]).0, Status::GarbageArgs),
        ("GETATTR of 2^32-1 bytes", call(9, NFS, 3, 1).u32(u32::MAX).0, Status::GarbageArgs),
        ("GETATTR and something more", call(9, NFS, 3, 1).opaque(&[1; 32]).u32(0).0, Status::GarbageArgs),
        ("NULL of something", call(9, NFS, 3, 0).u32(0).0, Status::GarbageArgs),
        ("RPCSEC_GSS", call_as(9, NFS, 3, 1, 6, &[0; 20]).0, Status::AuthError(2)),
        ("flavour 2^32-1", call_as(9, NFS, 3, 1, u32::MAX, &[]).0, Status::AuthError(2)),
        ("AUTH_SYS without a body", call_as(9, NFS, 3, 1, 1, &[]).0, Status::AuthError(1)),
        ("AUTH_SYS cut short", call_as(9, NFS, 3, 1, 1, &sys[..sys.len() - 4]).0, Status::AuthError(1)),
        (
            "AUTH_SYS and something more",
            call_as(9, NFS, 3, 1, 1, &[&sys[..], &[0; 4]].concat()).0,
            Status::AuthError(1),
        ),
        ("17 groups", call_as(9, NFS, 3, 1, 1, &groups(17)).0, Status::AuthError(1)),
        ("a credential of 401 bytes", body(401), Status::AuthError(1)),
        ("a credential of 2,000 bytes", body(2000), Status::AuthError(1)),
        ("a verifier of 401 bytes", verifier(0, 401), Status::AuthError(3)),
        ("a verifier of 2^32-1 bytes", verifier(1, u32::MAX), Status::AuthError(3)),
        ("a call without a version", cut(8), Status::GarbageArgs),
        ("a call without a procedure", cut(20), Status::GarbageArgs),
        ("a call without a credential", cut(24), Status::AuthError(1)),
    ]
}

/// proves: RPC-5531-9-b, RPC-5531-9-c, RPC-5531-8.2-a, RPC-5531-8.2-b
#[test]
fn calls_that_cannot_be_served_are_answered_as_rpc_says() {
    let stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    for mut way in Way::both(&stage) {
        for (what, message, expected) in cases() {
            assert_eq!(way.call(&message), expected, "{what}");
        }
        // A message that is no call gets no answer: the next answer belongs to the next call.
        let reply = [&rpc::null(5)[..4], &1_u32.to_be_bytes(), &[0; 16]].concat();
        for silent in [&rpc::null(5)[..4], &reply, &[&rpc::null(5)[..4], &7_u32.to_be_bytes()].concat()] {
            way.send(silent);
            assert_eq!(way.call(&rpc::null(6)), Status::Success(Vec::new()));
        }
    }
    stage.finish();
}

#[test]
fn mount_refuses_what_is_not_exported() {
    let stage = Stage::new(&[]);
    let mut way = Way::Tcp(dial(&stage.server.mount));
    let mount = |path: &[u8]| call(9, MOUNT, 3, 1).opaque(path).0;
    let long = [b'a'; 1024];
    for path in
        [&b"/.."[..], b"/../etc", b"..", b"", b"/out", b"/out/", b"/nowhere", b"/\0", b"//../", b"/file/..", &long]
    {
        let Status::Success(results) = way.call(&mount(path)) else { panic!("{}", path.escape_ascii()) };
        let refused = rpc::word(&results, 0);
        // MNT3ERR_NOENT, _ACCES, _NOTDIR, _INVAL, _NAMETOOLONG: any of these, but never a handle.
        assert!([2, 13, 20, 22, 63].contains(&refused), "{}: {refused}", path.escape_ascii());
        assert_eq!(results.len(), 4);
    }
    assert_eq!(way.call(&mount(&[b'a'; 1025])), Status::GarbageArgs, "RFC 1813: MNTPATHLEN is 1024");
    assert_eq!(way.call(&call(9, MOUNT, 4, 0).0), Status::ProgMismatch(1, 3));
    assert_eq!(way.call(&call(9, MOUNT, 3, 6).0), Status::ProcUnavail);
    assert_eq!(way.call(&call(9, NFS, 3, 0).0), Status::ProgUnavail, "NFS has a port of its own");
    drop(way);
    stage.finish();
}
