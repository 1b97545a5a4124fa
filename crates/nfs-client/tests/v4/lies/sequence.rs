//! SEQUENCE: the call to which the reply belongs, the server's wishes about slots, and its flags.

use super::{Does, Lie, Must, Row, begin, lie, play, row};
use crate::{
    every::{mode, name},
    house::{Fate, House},
};
use rpcrdma_nfs::v4::{Args, Op, Outcome, SessionId, Status, ops::SequenceOk};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn an_answer_for_another_call_is_none() {
    let session = Must::Refuse(Op::Sequence, "answered for another session");
    let slot = Must::Refuse(Op::Sequence, "answered for another slot");
    let number = Must::Refuse(Op::Sequence, "answered for another number of the slot");
    for minor in [1, 2] {
        let rows = vec![
            row!(Sequence, "session", session, |ok: &mut SequenceOk| ok.session.0[15] ^= 1),
            row!(Sequence, "session, none", session, |ok: &mut SequenceOk| ok.session = SessionId([0; 16])),
            row!(Sequence, "number, the last", number, |ok: &mut SequenceOk| ok.sequence -= 1),
            row!(Sequence, "number, the next", number, |ok: &mut SequenceOk| ok.sequence += 1),
            row!(Sequence, "number, the first", number, |ok: &mut SequenceOk| ok.sequence = 0),
            row!(Sequence, "slot, the next", slot, |ok: &mut SequenceOk| ok.slot += 1),
            row!(Sequence, "slot, the last there can be", slot, |ok: &mut SequenceOk| ok.slot = u32::MAX),
        ];
        play(minor, Does::Look, rows).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_server_wants_of_slots_is_followed_within_reason() {
    let mut rows = Vec::new();
    for highest in [0, 1, 63, 64, u32::MAX] {
        for target in [0, 1, 63, 64, u32::MAX] {
            rows.push(row!(Sequence, "highest slot, and the target", Must::GoOn, move |ok: &mut SequenceOk| {
                (ok.highest_slot, ok.target_highest_slot) = (highest, target);
            }));
        }
    }
    play(2, Does::Look, rows).await;
}

/// Each flag, an unknown flag, and all flags, with every reply: calls go on, and the client does little about them.
#[tokio::test(start_paused = true)]
async fn flags_cost_little_however_often_they_are_told() {
    for has_callbacks in [false, true] {
        for flags in (0..32).map(|bit| 1 << bit).chain([u32::MAX]) {
            let house = House::new();
            let (nfs, wire) = match has_callbacks {
                false => house.client(2).await,
                true => {
                    let (nfs, wire, _) = house.client_called(2).await;
                    (nfs, wire)
                }
            };
            begin(&wire, Op::Sequence, lie!(Sequence, move |ok: &mut SequenceOk| ok.status |= flags));
            for _ in 0..10 {
                nfs.root().await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let calls = wire.calls().len();
            // A server that reports this each second may get a new session each second, but not more often.
            assert!((10..=120).contains(&calls), "{flags:#x}: {calls} calls in ten seconds");
            wire.honest();
            super::is_served(&nfs).await;
        }
    }
}

/// A server says that it has given up a slot, and has not. It answers a call with number 1 by the reply to the slot's
/// first call: so it would report another directory than the one that it has made. So the client probes the slot first.
#[tokio::test(start_paused = true)]
async fn a_slot_that_was_given_up_is_probed_before_it_is_used_again() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    let both = async |one: &str, other: &str| {
        let (one, other) = (name(one), name(other));
        let (mode_of_one, mode_of_other) = (mode(0o755), mode(0o755));
        tokio::join!(nfs.mkdir(&root, &one, &mode_of_one), nfs.mkdir(&root, &other, &mode_of_other))
    };
    let (a, b) = both("a", "b").await;
    let (a, b) = (a.unwrap(), b.unwrap());
    wire.calls();
    begin(&wire, Op::Sequence, lie!(Sequence, |ok: &mut SequenceOk| ok.highest_slot = 0));
    nfs.root().await.unwrap();
    begin(
        &wire,
        Op::Sequence,
        lie!(Sequence, |ok: &mut SequenceOk| {
            (ok.highest_slot, ok.target_highest_slot) = (63, 63);
        }),
    );
    nfs.root().await.unwrap();
    wire.honest();
    wire.calls();
    let (c, d) = both("c", "d").await;
    let (c, d) = (c.unwrap(), d.unwrap());
    for (made, called) in [(&a, "a"), (&b, "b"), (&c, "c"), (&d, "d")] {
        assert_eq!(nfs.lookup(&root, &name(called)).await.unwrap().file, made.file, "{called}");
    }
    let first = wire.calls().into_iter().find_map(|call| match call.ops.first() {
        Some(Args::Sequence(sequence)) if sequence.slot == 1 => Some((sequence.sequence, call.ops.len())),
        _ => None,
    });
    assert_eq!(first, Some((1, 1)), "SEQUENCE alone, with the first number");
}

/// A probe without a right reply is no proof: the client uses nothing of it.
#[tokio::test(start_paused = true)]
async fn a_probe_is_believed_no_more_than_a_call() {
    let empty = |results: &mut rpcrdma_nfs::v4::Results| (results.status, results.results) = (Status::OK, Vec::new());
    let other = |results: &mut rpcrdma_nfs::v4::Results| results.results = vec![Outcome::LookupP(Ok(()))];
    for change in [empty as fn(&mut _), other] {
        let house = House::new();
        let (nfs, wire) = house.client(2).await;
        wire.before(|_| Fate::Fails);
        nfs.root().await.unwrap_err();
        wire.honest();
        begin(&wire, Op::Sequence, Lie::Answer(Box::new(change)));
        for _ in 0..3 {
            let error = nfs.root().await.unwrap_err();
            let rpcrdma_nfs_client::v4::Error::Nonsense { operation: Op::Sequence, what } = error else {
                panic!("{error:?}");
            };
            assert_eq!(what, "returned no results");
        }
        wire.honest();
        super::is_served(&nfs).await;
    }
}

/// However SEQUENCE fails, the client repeats the call, if need be in another session; no status makes that go on for
/// ever.
#[tokio::test(start_paused = true)]
async fn a_sequence_that_always_fails_ends_in_an_error() {
    for status in [Status::IO, Status::NOENT, Status::SERVERFAULT, Status::OP_ILLEGAL, Status(0x7FFF_FFFF)] {
        let lie = Lie::Answer(Box::new(move |results: &mut rpcrdma_nfs::v4::Results| {
            (results.status, results.results) = (status, vec![Outcome::Sequence(Err(status))]);
        }));
        play(2, Does::Look, vec![Row { field: "status", lie, must: Must::Tell(status) }]).await;
    }
}
