//! Peers that stop in the middle of an exchange; each leaves something undone.

use crate::{
    peer::{Asked, Heard, Peer},
    rpc::{self, Header, Xdr},
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use socket2::{SockFilter, SockRef};
use std::{
    io::{ErrorKind, Read},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// One of the loopback addresses of this machine.
pub type From4 = [u8; 4];

/// A receive buffer that a few replies fill, in bytes.
const SMALL_BUFFER_OCTETS: usize = 4096;

/// The instruction of a packet filter that says how many bytes of a packet to keep; here none.
const BPF_RETURN: u16 = 0x06;

/// A connection from an address of choice.
pub fn dial_from(from: From4, to: &str) -> TcpStream {
    dial_buffered(from, to, None)
}

fn dial_buffered(from: From4, to: &str, receive_bytes: Option<usize>) -> TcpStream {
    // Programs that are started meanwhile must not inherit the socket: it would stay open there.
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    if let Some(octets) = receive_bytes {
        sockopt::set_socket_recv_buffer_size(&socket, octets).unwrap();
    }
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to.parse::<SocketAddr>().unwrap()).unwrap();
    TcpStream::from(socket)
}

/// An established connection to which the server has granted all credits.
pub fn ready(from: From4, to: &str) -> Peer {
    let mut peer = Peer::over(dial_from(from, to), 16, 16);
    peer.send(&rpc::inline(&rpc::null(1)));
    peer.message().unwrap();
    peer
}

/// Half a frame.
pub fn half_frame(from: From4, to: &str) -> Peer {
    let mut peer = ready(from, to);
    let frame = peer.next_send(&rpc::inline(&rpc::null(2)));
    peer.raw(&frame[..frame.len() / 2]);
    peer
}

/// READs whose replies the peer never takes from its socket: more than the socket's buffers hold.
pub fn deaf(from: From4, to: &str, file: &[u8], calls: u32) -> Peer {
    let mut peer = Peer::over(dial_buffered(from, to, Some(SMALL_BUFFER_OCTETS)), 16, 16);
    peer.send(&rpc::inline(&rpc::null(1)));
    peer.message().unwrap();
    for xid in 2..2 + calls {
        let stream = read_call(xid, file, 64 << 10).0;
        let header = Header { writes: vec![vec![(0x5EED, 64 << 10, 0)]], ..Header::default() };
        peer.send(&header.message(xid, &stream));
    }
    peer
}

/// READ from the file's beginning.
pub fn read_call(xid: u32, file: &[u8], count: u32) -> Xdr {
    let mut stream = rpc::call(xid, rpc::NFS, 3, 6);
    stream.0.extend(Xdr::default().opaque(file).u64(0).u32(count).0);
    stream
}

/// WRITEs whose data the server must fetch by RDMA Read, which the peer never answers. [`asked`] reads the Read
/// Requests.
pub fn withholding(from: From4, to: &str, file: &[u8], calls: u32, octets: u32) -> Peer {
    let mut peer = ready(from, to);
    for xid in 2..2 + calls {
        let stream = rpc::write_call(xid, file, octets).0;
        let header = Header { reads: vec![(stream.len() as u32, (xid, octets, 0))], ..Header::default() };
        peer.send(&header.message(xid, &stream));
    }
    peer
}

/// The next Read Request.
pub fn asked(peer: &mut Peer) -> Asked {
    match peer.hear() {
        Heard::ReadRequest(asked) => asked,
        other => panic!("no Read Request: {other:?}"),
    }
}

/// A host that has vanished: every packet for this connection is dropped before TCP sees it.
pub fn vanished(from: From4, to: &str) -> Peer {
    let mut peer = ready(from, to);
    vanish(&peer.stream);
    // The server's reply will not arrive.
    peer.send(&rpc::inline(&rpc::null(2)));
    peer
}

/// From now on this connection's host has vanished.
pub fn vanish(stream: &TcpStream) {
    SockRef::from(stream).attach_filter(&[SockFilter::new(BPF_RETURN, 0, 0, 0)]).unwrap();
}

/// Waits until the server has ended the connection, and returns how long that took. Discards all bytes before the end.
pub fn ended(stream: &mut TcpStream, since: Instant, patience: Duration) -> Duration {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return since.elapsed(),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return since.elapsed(),
        }
        assert!(since.elapsed() < patience, "the server does not end the connection");
    }
}
