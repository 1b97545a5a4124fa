//! OPEN: the stateid, the directory's change, the flags, the set attributes, and each kind of delegation.

use super::{Does, Lie, Must, Row, begin, lie, on, play, row};
use crate::{
    every::{mode, name},
    house::{Fate, House, Wire},
};
use rpcrdma_nfs::v4::{
    Ace, Args, Bitmap, Op, Outcome, StateId, StateIdOther, Status,
    ops::{BlockLimit, Delegation, OpenOk, ReadDelegation, SpaceLimit, WhyNoDelegation, WriteDelegation, open_result},
};
use rpcrdma_nfs_client::v4::{Access, How, Options};
use std::sync::Arc;

/// The stateid of the delegations in the lies.
const GIVEN: StateId = StateId { sequence: 1, other: StateIdOther([0xD1; 12]) };
const NAMELESS: Must = Must::Refuse(Op::Open, "named the open by a stateid that stands for no open");
const MINORS: [u32; 3] = [0, 1, 2];

fn anybody() -> Ace {
    Ace { kind: 0, flags: 0, rights: 0, who: "EVERYONE@".into() }
}

fn to_read(state: StateId, recalled: bool, permissions: Ace) -> ReadDelegation {
    ReadDelegation { state, recalled, permissions }
}

fn to_write(recalled: bool, limit: SpaceLimit, permissions: Ace) -> Box<WriteDelegation> {
    Box::new(WriteDelegation { state: GIVEN, recalled, limit, permissions })
}

#[tokio::test(start_paused = true)]
async fn a_stateid_that_names_nothing_is_no_open() {
    for minor in MINORS {
        let mut rows = Vec::new();
        for special in [StateId::ANONYMOUS, StateId::BYPASS, StateId::CURRENT, StateId::INVALID] {
            rows.push(row!(Open, "stateid, special", NAMELESS, move |ok: &mut OpenOk| ok.state = special));
        }
        rows.push(row!(Open, "stateid, of nothing", Must::Lose, |ok: &mut OpenOk| ok.state.other.0 = [0xAB; 12]));
        // From minor version 1 on the client sends no number, but "the current one".
        let number = if minor == 0 { Must::Lose } else { Must::GoOn };
        rows.push(row!(Open, "stateid, a later number", number, |ok: &mut OpenOk| ok.state.sequence = u32::MAX));
        play(minor, Does::Open, rows).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_else_an_open_tells_does_no_harm() {
    for minor in MINORS {
        let mut rows = vec![
            row!(Open, "change, backwards", Must::GoOn, |ok: &mut OpenOk| {
                (ok.directory.before, ok.directory.after) = (u64::MAX, 0);
            }),
            row!(Open, "change, not atomic", Must::GoOn, |ok: &mut OpenOk| ok.directory.atomic ^= true),
            row!(Open, "set, nothing", Must::GoOn, |ok: &mut OpenOk| ok.set = Bitmap::EMPTY),
            row!(Open, "set, all there are and more", Must::GoOn, |ok: &mut OpenOk| ok.set = Bitmap::of_numbers(0..96)),
        ];
        for bit in 0..32 {
            let flag = 1 << bit;
            let must = match flag {
                open_result::NO_OPEN_STATEID => {
                    Must::Refuse(Op::Open, "gave a delegation in place of an open, without being asked")
                }
                _ => Must::GoOn,
            };
            rows.push(row!(Open, "flag", must, move |ok: &mut OpenOk| ok.flags ^= flag));
        }
        // In minor version 0 an owner is confirmed with its first open: if the server does not ask for that, the use of
        // the open fails, and the server is at fault.
        if minor == 0 {
            rows.retain(|row| row.field != "flag");
        }
        play(minor, Does::Open, rows).await;
    }
}

/// The client returns all delegations, also those of unknown kinds, and makes no use of them.
fn delegations() -> Vec<(&'static str, Delegation, bool)> {
    let mut all = vec![("none", Delegation::None, false)];
    for why in [
        WhyNoDelegation::NotWanted,
        WhyNoDelegation::Contention(true),
        WhyNoDelegation::Resource(true),
        WhyNoDelegation::NotSupportedType,
        WhyNoDelegation::WriteNotSupportedType,
        WhyNoDelegation::NotSupportedUpgrade,
        WhyNoDelegation::NotSupportedDowngrade,
        WhyNoDelegation::Cancelled,
        WhyNoDelegation::IsDirectory,
        WhyNoDelegation::Other(u32::MAX),
    ] {
        all.push(("none, with a reason", Delegation::NoneExtended(why), false));
    }
    let long = || Ace { kind: u32::MAX, flags: u32::MAX, rights: u32::MAX, who: "x".repeat(250).as_str().into() };
    for recalled in [false, true] {
        all.push(("to read", Delegation::Read(to_read(GIVEN, recalled, anybody())), true));
        all.push(("to read, permissions", Delegation::Read(to_read(GIVEN, recalled, long())), true));
        all.push(("to read and times", Delegation::ReadAttributes(to_read(GIVEN, recalled, anybody())), true));
        for limit in [
            SpaceLimit::Size(0),
            SpaceLimit::Size(u64::MAX),
            SpaceLimit::Blocks(BlockLimit { blocks: u32::MAX, block_bytes: u32::MAX }),
            SpaceLimit::Blocks(BlockLimit { blocks: 0, block_bytes: 0 }),
        ] {
            all.push(("to write, limit", Delegation::Write(to_write(recalled, limit.clone(), long())), true));
            all.push(("to write and times", Delegation::WriteAttributes(to_write(recalled, limit, anybody())), true));
        }
    }
    all
}

fn returned(wire: &Arc<Wire>) -> Vec<StateId> {
    let ops = wire.calls().into_iter().flat_map(|call| call.ops);
    let returned = ops.filter_map(|args| match args {
        Args::DelegReturn(returned) => Some(returned.state),
        _ => None,
    });
    returned.collect()
}

#[tokio::test(start_paused = true)]
async fn each_delegation_that_nobody_asked_for_goes_back() {
    for minor in MINORS {
        for (field, delegation, goes_back) in delegations() {
            // Minor version 0 has neither reasons nor the kinds of RFC 9754; the client understands a server that still
            // sends them.
            let given = delegation.clone();
            let row = row!(Open, field, Must::GoOn, move |ok: &mut OpenOk| ok.delegation.clone_from(&given));
            play(minor, Does::Open, vec![row]).await;
            let house = House::new();
            let (nfs, wire) = house.client(minor).await;
            let given = delegation.clone();
            begin(&wire, Op::Open, lie!(Open, move |ok: &mut OpenOk| ok.delegation.clone_from(&given)));
            let opened = super::open(&nfs).await.unwrap();
            let wanted = if goes_back { vec![GIVEN] } else { vec![] };
            assert_eq!((returned(&wire), nfs.delegations()), (wanted, 0), "4.{minor}, {field}: {delegation:?}");
            wire.honest();
            nfs.close(opened).await.unwrap();
        }
    }
}

/// A client that keeps delegations does not keep one that the server already recalls, because the server will not call
/// for it.
#[tokio::test(start_paused = true)]
async fn a_delegation_that_is_recalled_as_it_comes_is_not_kept() {
    for (field, delegation, goes_back) in delegations() {
        let is_recalled = match &delegation {
            Delegation::Read(given) | Delegation::ReadAttributes(given) => given.recalled,
            Delegation::Write(given) | Delegation::WriteAttributes(given) => given.recalled,
            Delegation::None | Delegation::NoneExtended(_) => false,
        };
        let house = House::new();
        let wire = house.wire();
        let nfs = house.client_over(&wire, Options::new("test").with_delegations()).await;
        let given = delegation.clone();
        begin(&wire, Op::Open, lie!(Open, move |ok: &mut OpenOk| ok.delegation.clone_from(&given)));
        let opened = super::open(&nfs).await.unwrap();
        let kept = usize::from(goes_back && !is_recalled);
        let back = if is_recalled { vec![GIVEN] } else { vec![] };
        assert_eq!((nfs.delegations(), returned(&wire)), (kept, back), "{field}: {delegation:?}");
        wire.honest();
        nfs.close(opened).await.unwrap();
    }
}

/// A server that grants a delegation with each open does not fill the memory of a client that keeps them.
#[tokio::test(start_paused = true)]
async fn no_more_delegations_are_kept_than_there_is_room_for() {
    const KEPT: usize = 4_096;
    let house = House::new();
    let wire = house.wire();
    let nfs = house.client_over(&wire, Options::new("test").with_delegations()).await;
    let root = nfs.root().await.unwrap().file;
    let mut number = 0u64;
    wire.after(move |_, results| {
        for outcome in &mut results.results {
            match outcome {
                Outcome::Open(Ok(opened)) => {
                    number += 1;
                    let mut state = GIVEN;
                    state.other.0[..8].copy_from_slice(&number.to_be_bytes());
                    opened.delegation = Delegation::Read(to_read(state, false, anybody()));
                }
                // The real server does not know these delegations.
                Outcome::DelegReturn(returned) => (*returned, results.status) = (Ok(()), Status::OK),
                _ => {}
            }
        }
        Fate::Arrives
    });
    let mut most = 0;
    for _ in 0..KEPT + 10 {
        let how = How::Unchecked(mode(0o644));
        let (opened, _) = nfs.open(&root, &name("file"), Access::Read, how).await.unwrap();
        nfs.close(opened).await.unwrap();
        most = most.max(nfs.delegations());
    }
    assert_eq!((most, nfs.delegations(), returned(&wire).len()), (KEPT, KEPT, 10));
}

/// Results that no client can read: a delegation, a limit or a length that does not exist.
#[tokio::test(start_paused = true)]
async fn an_open_that_cannot_be_read_is_an_error() {
    type Change = fn(&mut OpenOk);
    let reads: Change = |ok| ok.delegation = Delegation::Read(to_read(GIVEN, false, anybody()));
    let writes: Change = |ok| {
        let limit = SpaceLimit::Size(0x1122_3344_5566_7788);
        ok.delegation = Delegation::Write(to_write(false, limit, anybody()));
    };
    let sets: Change = |ok| ok.set = Bitmap::of_numbers([0x5F, 0x5A, 0x55]);
    let kinds: [(&str, Change, &[u8], &[u8]); 7] = [
        ("kind of delegation", reads, b"\0\0\0\x01\0\0\0\x01\xD1\xD1\xD1\xD1", b"\0\0\0\x06\0\0\0\x01\xD1\xD1\xD1\xD1"),
        ("recalled, neither", reads, b"\xD1\xD1\xD1\xD1\0\0\0\0", b"\xD1\xD1\xD1\xD1\0\0\0\x02"),
        ("who, too long", reads, b"\0\0\0\x09EVERYONE@", b"\0\0\x04\x01EVERYONE@"),
        ("who, without end", reads, b"\0\0\0\x09EVERYONE@", b"\xFF\xFF\xFF\xFFEVERYONE@"),
        ("kind of limit", writes, b"\0\0\0\x01\x11\x22\x33\x44", b"\0\0\0\x03\x11\x22\x33\x44"),
        ("a limit that ends", writes, b"\0\0\0\x01\x11\x22\x33\x44\x55\x66\x77\x88", b"\0\0\0\x01"),
        (
            "set, words",
            sets,
            b"\0\0\0\x03\0\0\0\0\0\0\0\0\x84\x20\0\0",
            b"\xFF\xFF\xFF\xFF\0\0\0\0\0\0\0\0\x84\x20\0\0",
        ),
    ];
    for minor in MINORS {
        let rows = kinds.iter().map(|(field, change, from, to)| {
            let change = *change;
            Row { field, lie: Lie::Octets(on!(Open, change), from, to), must: Must::NotRead }
        });
        play(minor, Does::Open, rows.collect()).await;
    }
}
