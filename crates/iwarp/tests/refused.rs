//! Which of our Writes has failed, according to a peer's Terminate.

mod common;

use common::wire::{AGREED, completions, endpoint, untagged};
use rpcrdma_fabric::{Completion, Token, WorkError, WorkKind, WriteWork};
use rpcrdma_iwarp::protocol::{
    Role,
    ddp::{Header, Placement},
    rdmap::Opcode,
};

/// If a Terminate quotes a segment of a Write that exists and whose bytes had left, that Write has failed. No other
/// quotation makes a Write fail.
/// proves: RDMAP-5040-4.8-d
#[test]
fn the_write_that_a_terminate_quotes_has_failed() {
    let write = |token: u64, stag: u32, offset: u64, octets: usize| WriteWork {
        token: Token(token),
        octets: vec![vec![7; octets].into()].into(),
        handle: stag,
        offset,
        signaled: token == 9,
    };
    let told = |out_octets: usize, layer_and_type: u8, opcode: Opcode, stag: u32, offset: u64| {
        let mut endpoint = endpoint(Role::Initiator, AGREED, 1, 1448);
        for (token, stag, offset, octets) in [
            (1, 5, 1000, 3000),
            (2, 6, 0, 10),
            (9, 8, 0, 10),
            (3, 5, 4000, 10),
            (4, 5, 1000, 10),
            (5, 7, u64::MAX - 4, 5),
            (6, 3, 0, 0),
        ] {
            endpoint.post_write(write(token, stag, offset, octets)).unwrap();
        }
        let octets: usize = endpoint.write_slices().iter().map(|slice| slice.len()).sum();
        assert!(octets > 3000);
        endpoint.written(octets.min(out_octets));
        // This Write is not yet framed, and has not left.
        endpoint.post_write(write(7, 4, 0, 10)).unwrap();
        let header = Header { opcode, last: true, placement: Placement::Tagged { stag, offset } };
        let mut quoted = [0; 18];
        let len = header.encode(&mut quoted);
        let payload = [&[layer_and_type, 0, 0xC0, 0, 0, 20], &quoted[..len]].concat();
        endpoint.feed(&untagged(Opcode::Terminate, true, (2, 1, 0, 0), &payload));
        let mut tokens = Vec::new();
        let mut failed = Vec::new();
        for completion in completions(&mut endpoint) {
            if let Completion::Failed { token, kind: WorkKind::Write, error, .. } = completion {
                tokens.push(token.0);
                if error == WorkError::RemoteAccess {
                    failed.push(token.0);
                } else {
                    assert_eq!(error, WorkError::Flushed);
                }
            }
        }
        tokens.sort();
        tokens.dedup();
        (failed, tokens)
    };
    const ALL: usize = usize::MAX;
    use Opcode::Write as W;
    // All Writes but one have left: only that one and the blamed Write complete now, both as failed.
    for (stag, offset, guilty) in [
        (5, 1000, Some(4)),
        (5, 1009, Some(4)),
        (5, 1010, Some(1)),
        (5, 3999, Some(1)),
        (5, 4000, Some(3)),
        (5, 4010, None),
        (5, 999, None),
        (6, 0, Some(2)),
        (7, u64::MAX, Some(5)),
        (7, 0, None),
        (8, 0, None), // This Write was already reported as done.
        (3, 0, None), // This Write had no bytes.
        (4, 0, None), // This Write has not left.
        (99, 1000, None),
    ] {
        let expected: Vec<u64> = guilty.into_iter().collect();
        let (failed, tokens) = told(ALL, 0x11, W, stag, offset);
        assert_eq!(failed, expected, "{stag} {offset}");
        assert_eq!(tokens, expected.into_iter().chain([7]).collect::<Vec<_>>(), "{stag} {offset}");
    }
    // Only the first Write has begun to leave: it is not done, and the peer cannot have refused the others.
    for (stag, offset, guilty) in [(5, 1000, Some(1)), (5, 4000, None), (6, 0, None)] {
        let (failed, tokens) = told(100, 0x11, W, stag, offset);
        assert_eq!(failed, guilty.into_iter().collect::<Vec<_>>(), "{stag} {offset}");
        assert_eq!(tokens, [1, 2, 3, 4, 5, 6, 7, 9], "each once");
    }
    assert_eq!(told(0, 0x11, W, 5, 1000).0, [], "nothing has left");
    assert_eq!(told(ALL, 0x01, W, 6, 0).0, [2], "rights are RDMAP's to judge");
    assert_eq!(told(ALL, 0x20, W, 6, 0).0, [], "no access error");
    assert_eq!(told(ALL, 0x12, W, 6, 0).0, [], "nor this");
    assert_eq!(told(ALL, 0x11, Opcode::ReadResponse, 6, 0).0, [], "no Write is quoted");
}
