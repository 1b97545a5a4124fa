//! A call whose memory does not exist, repeated on one connection after another, to a server with several threads.

use crate::{
    peer::{Asked, Heard, Peer},
    rpc::{Header, Reply},
    stage::Stage,
    wire::{READ_REQUEST, TERMINATE, Untagged, read_request},
};

/// Calls at the same time, so that all of the server's threads accept connections.
const CALLS: u32 = 48;

/// Answers a Read of memory that does not exist, as a peer does: RDMAP's protection error, invalid STag, with the Read
/// Request quoted (RFC 5040 section 4.8).
fn refuse(peer: &mut Peer, asked: &Asked, msn: u32) {
    let request = read_request(asked.sink, asked.sink_offset, asked.size, asked.source, asked.source_offset);
    let quoted = Untagged::new(READ_REQUEST, msn).ulpdu(&request);
    let mut payload = vec![0x01, 0x00, 0xE0, 0x00];
    payload.extend((quoted.len() as u16).to_be_bytes());
    payload.extend(&quoted);
    peer.raw(&Untagged::new(TERMINATE, 1).fpdu(&payload));
}

/// Sends the call, refuses its memory, and sends it again on another connection.
fn refused_then_told(server: &str, xid: u32) {
    // The server must read the whole call, from memory that does not exist.
    let call = Header { reads: vec![(0, (0xBAD0_0000 | xid, 200, 0))], long: true, ..Header::default() };
    let call = call.message(xid, &[]);
    let mut peer = Peer::connect(server);
    peer.send(&call);
    match peer.hear() {
        Heard::ReadRequest(asked) => refuse(&mut peer, &asked, 1),
        other => panic!("call {xid}: {other:?}"),
    }
    peer.finish();
    let mut peer = Peer::connect(server);
    peer.send(&call);
    let answer = match peer.hear() {
        Heard::Send { payload, .. } => Reply::read(&payload),
        other => panic!("call {xid} again: {other:?}"),
    };
    assert_eq!(answer, Reply::ErrChunk { xid });
}

/// proves: V1-4.5.3-b
#[test]
fn a_call_whose_memory_is_not_there_costs_one_connection_whichever_thread_has_it() {
    let mut stage = Stage::new(&["--threads", "4"]);
    let server = &stage.server.rdma;
    std::thread::scope(|scope| {
        for xid in 1..=CALLS {
            scope.spawn(move || refused_then_told(server, xid));
        }
    });
    stage.a_good_client_is_served();
}
