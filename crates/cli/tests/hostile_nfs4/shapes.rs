//! The forms of a COMPOUND: minor versions, places and numbers of operations, tags, bitmaps and counts.

use crate::honest::{Honest, places, stage};
use rpcrdma_peers::{
    nfs4::{
        Compound,
        client::{self, Client},
        op, status,
    },
    rpc::{Status, Xdr},
};

/// RFC 8881 section 16.2: the most operations of a session here, and bytes of a tag.
const MAX_OPS: u32 = 64;
const MAX_TAG_BYTES: usize = 1_024;
/// The most words of a bitmap that the server reads.
const MAX_BITMAP_WORDS: usize = 128;

/// proves: NFS4-8881-16.2-b, NFS4-8178-8-a
#[test]
fn minor_versions_and_their_operations_are_told_apart() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::new(&place, b"hostile", 1);
        for minor in [0, 3, 4, u32::MAX] {
            let call = Compound::new(minor).op(op::EXCHANGE_ID, client::exchange_id(b"x", 1)).plain(op::PUTROOTFH);
            assert_eq!(client.link.call(&call).short(), (status::MINOR_VERS_MISMATCH, 0), "{minor}");
        }
        // In a session, with a minor version that is not served.
        let mut call = client.next(0, true, &Compound::new(1).plain(op::PUTROOTFH));
        call.minor = 3;
        assert_eq!(client.link.call(&call).short(), (status::MINOR_VERS_MISMATCH, 0));
        call.minor = 1;
        assert_eq!(client.link.call(&call).short(), (status::OK, 2), "that was not the slot's call");
        let zeros = || Xdr(vec![0; 64]);
        for (minor, number, expected, told) in [
            (1, op::SEEK, status::OP_ILLEGAL, op::ILLEGAL),
            (1, op::SETCLIENTID, status::NOTSUPP, op::SETCLIENTID),
            (2, op::SETCLIENTID, status::NOTSUPP, op::SETCLIENTID),
            (2, 0, status::OP_ILLEGAL, op::ILLEGAL),
            (2, 2, status::OP_ILLEGAL, op::ILLEGAL),
            (2, 76, status::OP_ILLEGAL, op::ILLEGAL),
            (2, u32::MAX, status::OP_ILLEGAL, op::ILLEGAL),
        ] {
            let mut call = client.next(0, false, &Compound::new(minor).plain(op::PUTROOTFH).op(number, zeros()));
            call.minor = minor;
            let results = client.link.call(&call);
            let last = results.outcomes.last().unwrap();
            assert_eq!(
                (results.short(), last.op),
                ((expected, 3), told),
                "operation {number} of minor version {minor}"
            );
        }
        honest.works();
    }
    stage.finish();
}

#[test]
fn operations_stand_where_they_may() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::new(&place, b"hostile", 2);
        let root = || Compound::new(2).plain(op::PUTROOTFH);
        let bare = |number| client::sequence(&[7; 16], number, 0, true);
        let exchange = || client::exchange_id(b"hostile", 1);
        assert_eq!(client.link.call(&Compound::new(2)).short(), (status::OK, 0), "nothing at all");
        for (what, call, expected, answered) in [
            ("no session", root(), status::OP_NOT_IN_SESSION, 1),
            ("SEQUENCE too late", root().op(op::SEQUENCE, bare(1)), status::OP_NOT_IN_SESSION, 1),
            (
                "more behind EXCHANGE_ID",
                Compound::new(2).op(op::EXCHANGE_ID, exchange()).then(&root()),
                status::NOT_ONLY_OP,
                1,
            ),
            (
                "twice EXCHANGE_ID",
                Compound::new(2).op(op::EXCHANGE_ID, exchange()).op(op::EXCHANGE_ID, exchange()),
                status::NOT_ONLY_OP,
                1,
            ),
            (
                "RECLAIM_COMPLETE alone",
                Compound::new(2).op(op::RECLAIM_COMPLETE, Xdr::default().u32(0)),
                status::OP_NOT_IN_SESSION,
                1,
            ),
        ] {
            assert_eq!(client.link.call(&call).short(), (expected, answered), "{what}");
        }
        let session = client.session;
        let again = client::sequence(&session, client.slots[0] + 2, 0, true);
        let bind = Xdr::default().raw(&session).words(&[1, 0]);
        let destroy = Xdr::default().raw(&session);
        for (what, behind, expected, answered) in [
            ("SEQUENCE twice", Compound::new(2).op(op::SEQUENCE, again), status::SEQUENCE_POS, 2),
            ("SEQUENCE in the middle", root().op(op::SEQUENCE, bare(9)).then(&root()), status::SEQUENCE_POS, 3),
            ("BIND_CONN_TO_SESSION", Compound::new(2).op(op::BIND_CONN_TO_SESSION, bind), status::NOT_ONLY_OP, 2),
            (
                "its own end before others",
                Compound::new(2).op(op::DESTROY_SESSION, destroy).then(&root()),
                status::NOT_ONLY_OP,
                2,
            ),
        ] {
            let call = client.next(0, false, &behind);
            assert_eq!(client.link.call(&call).short(), (expected, answered), "{what}");
        }
        assert_eq!(client.call(&root()).status, status::OK, "the session is as it was");
        honest.works();
    }
    stage.finish();
}

#[test]
fn operations_and_tags_end_at_their_limits() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::new(&place, b"hostile", 2);
        let many = |count: u32| (0..count).fold(Compound::new(2), |call, _| call.plain(op::PUTROOTFH));
        let at = client.next(0, false, &many(MAX_OPS - 1));
        assert_eq!(client.link.call(&at).short(), (status::OK, MAX_OPS as usize));
        let refused = |call: &Compound, client: &mut Client| {
            let last = client.slots[0];
            assert_eq!(client.link.call(call).short(), (status::TOO_MANY_OPS, 1));
            client.slots[0] = last - 1;
        };
        let past = client.next(0, false, &many(MAX_OPS));
        refused(&past, &mut client);
        // Two operations in a call that announces more.
        for announced in [MAX_OPS + 1, 1 << 16, u32::MAX] {
            let mut call = client.next(0, false, &many(1));
            call.announced = announced;
            refused(&call, &mut client);
        }
        let mut call = client.next(0, false, &many(1));
        call.announced = 3;
        let results = client.link.call(&call);
        assert_eq!(results.short(), (status::BADXDR, 3), "what is missing: {results:?}");
        for octets in [0, 1, MAX_TAG_BYTES] {
            let mut call = client.next(0, false, &many(1));
            call.tag = vec![b't'; octets];
            assert_eq!(client.link.call(&call).short(), (status::OK, 2), "{octets}");
        }
        let mut call = client.next(0, false, &many(1));
        call.tag = vec![b't'; MAX_TAG_BYTES + 1];
        assert_eq!(client.link.call_bytes(&call.args()), Status::GarbageArgs);
        for len in [1, 1 << 20, 1 << 31, u32::MAX] {
            assert_eq!(client.link.call_bytes(&Xdr::default().u32(len).0), Status::GarbageArgs, "a tag without end");
        }
        client.slots[0] -= 1;
        assert_eq!(client.call(&many(1)).status, status::OK, "the slot waits for the call that was none");
        honest.works();
    }
    stage.finish();
}

/// Bitmaps at their limit and one past it, and of 2^32 words; and each operation with impossible counts.
#[test]
fn counts_without_end_cost_nothing() {
    let mut stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::new(&place, b"hostile", 2);
        let bitmap = |words: u32, there: usize| {
            let bits = Xdr::default().u32(words).words(&vec![0; there]);
            Compound::new(2).plain(op::PUTROOTFH).op(op::GETATTR, bits)
        };
        assert_eq!(client.call(&bitmap(MAX_BITMAP_WORDS as u32, MAX_BITMAP_WORDS)).status, status::OK);
        let past = MAX_BITMAP_WORDS + 1;
        for (words, there) in [(past as u32, past), (1 << 30, 4), (u32::MAX, 0), (u32::MAX, 200)] {
            assert_eq!(client.call(&bitmap(words, there)).short(), (status::BADXDR, 2), "{words}");
        }
        let grown = stage.grown_kib();
        for number in 0..=80 {
            for body in
                [vec![0xFF; 512], vec![0; 512], Vec::new(), vec![0x7F; 96], [vec![0; 16], vec![0xFF; 64]].concat()]
            {
                // For CLOSE and similar operations zeros are valid arguments: any status is allowed here.
                let call = client.next(0, false, &Compound::new(2).plain(op::PUTROOTFH).op(number, Xdr(body)));
                client.link.send(&call);
                let octets = match client.link.hear().1 {
                    Status::Success(octets) => octets,
                    // More bytes than the operation has: this is no valid call, and the slot has not seen it.
                    Status::GarbageArgs => {
                        client.slots[0] -= 1;
                        continue;
                    }
                    other => panic!("operation {number}: {other:?}"),
                };
                assert!(octets.len() < 4_096, "operation {number}");
            }
        }
        assert!(stage.grown_kib() < grown + 8_192, "{} KiB more", stage.grown_kib() - grown);
        assert_eq!(client.call(&Compound::new(2).plain(op::PUTROOTFH)).status, status::OK, "the session is there");
        honest.works();
    }
    stage.the_open_connection_works();
    stage.finish();
}
