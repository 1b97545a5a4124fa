//! LOCK: the stateid, and each field of a conflicting lock.

use super::{Does, Lie, Must, Row, begin, play, row};
use crate::house::House;
use rpcrdma_nfs::v4::{
    ClientId, Op, Outcome, Owner, OwnerName, StateId, Status,
    ops::{LockDenied, LockFailure, LockKind, LockOk},
};
use rpcrdma_nfs_client::v4::Error;

const NAMELESS: Must = Must::Refuse(Op::Lock, "named the lock by a stateid that stands for no lock");
/// The longest text of an error about a lock: the owner's name is cut.
const LONGEST_TEXT: usize = 400;

#[tokio::test(start_paused = true)]
async fn a_stateid_that_names_nothing_is_no_lock() {
    for minor in [0, 1, 2] {
        let mut rows = Vec::new();
        for special in [StateId::ANONYMOUS, StateId::BYPASS, StateId::CURRENT, StateId::INVALID] {
            rows.push(row!(Lock, "stateid, special", NAMELESS, move |ok: &mut LockOk| ok.state = special));
        }
        rows.push(row!(Lock, "stateid, of nothing", Must::Lose, |ok: &mut LockOk| ok.state.other.0 = [0xAB; 12]));
        let number = if minor == 0 { Must::Lose } else { Must::GoOn };
        rows.push(row!(Lock, "stateid, a later number", number, |ok: &mut LockOk| ok.state.sequence = u32::MAX));
        play(minor, Does::Lock, rows).await;
    }
}

fn refuses(mut denied: impl FnMut() -> LockFailure + Send + 'static) -> Box<dyn FnMut(&mut Outcome) + Send> {
    Box::new(move |outcome| {
        if let Outcome::Lock(answer) = outcome {
            *answer = Err(denied());
        }
    })
}

fn whose(owner: &[u8]) -> Owner {
    Owner { client: ClientId(u64::MAX), name: OwnerName(owner.to_vec().into()) }
}

/// The error shows the conflicting lock as it came, in one short line that only prints on a terminal.
#[tokio::test(start_paused = true)]
async fn a_lock_in_the_way_is_told_and_not_believed() {
    let numbers = [0, 1, 9, 10, 1 << 63, u64::MAX - 1, u64::MAX];
    let ranges = numbers.into_iter().flat_map(|offset| numbers.map(|length| (offset, length)));
    let kinds = [LockKind::Read, LockKind::Write, LockKind::ReadWaiting, LockKind::WriteWaiting];
    let owners: [&[u8]; 6] = [b"", b"x", &[b'x'; 1_024], b"\x1b[2J\r\n", &[0xFF; 1_024], "ä".as_bytes()];
    let mut lies: Vec<(u64, u64, LockKind, &[u8])> = Vec::new();
    lies.extend(ranges.map(|(offset, length)| (offset, length, LockKind::Write, &b"x"[..])));
    lies.extend(kinds.map(|kind| (0, 10, kind, &b"x"[..])));
    lies.extend(owners.map(|owner| (0, 10, LockKind::Read, owner)));
    for minor in [0, 2] {
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        let opened = super::open(&nfs).await.unwrap();
        for (offset, length, kind, owner) in &lies {
            let (offset, length, kind, owner) = (*offset, *length, *kind, owner.to_vec());
            let told = owner.clone();
            let denied = move || LockFailure::Told(LockDenied { offset, length, kind, owner: whose(&told) });
            begin(&wire, Op::Lock, Lie::Results(refuses(denied)));
            let error = nfs.lock(&opened, LockKind::Write, 0, 10).await.unwrap_err();
            let text = error.to_string();
            let Error::Locked { operation: Op::Lock, denied } = error else { panic!("{error:?}") };
            assert_eq!((denied.offset, denied.length, denied.kind), (offset, length, kind));
            assert_eq!(denied.owner.as_slice(), owner);
            assert!(text.len() < LONGEST_TEXT && text.chars().all(|char| !char.is_control()), "{text:?}");
            // Whatever the server says, it now has the lock: closing the file unlocks it.
            wire.honest();
        }
        nfs.close(opened).await.unwrap();
        super::is_served(&nfs).await;
    }
}

/// The same for LOCKT: the conflict is what the server says.
#[tokio::test(start_paused = true)]
async fn a_test_of_a_lock_tells_what_the_server_says() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let opened = super::open(&nfs).await.unwrap();
    begin(
        &wire,
        Op::LockT,
        Lie::Results(Box::new(|outcome| {
            if let Outcome::LockT(answer) = outcome {
                let (offset, length, kind) = (u64::MAX, u64::MAX, LockKind::WriteWaiting);
                *answer = Err(LockFailure::Told(LockDenied { offset, length, kind, owner: whose(&[0; 1_024]) }));
            }
        })),
    );
    let conflict = nfs.test_lock(&opened, LockKind::Read, 0, 1).await.unwrap().unwrap();
    assert_eq!((conflict.offset, conflict.length), (u64::MAX, u64::MAX));
    assert!(conflict.to_string().len() < LONGEST_TEXT);
    wire.honest();
    assert_eq!(nfs.test_lock(&opened, LockKind::Read, 0, 1).await.unwrap(), None);
    nfs.close(opened).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_a_lock_that_cannot_be_read_is_an_error() {
    let denied = || {
        let (offset, length) = (0x1122_3344_5566_7788, 0x99AA_BBCC_DDEE_F011);
        LockFailure::Told(LockDenied { offset, length, kind: LockKind::Read, owner: whose(b"somebody") })
    };
    let told: [(&str, &[u8], &[u8]); 5] = [
        ("type 0", b"\xDD\xEE\xF0\x11\0\0\0\x01", b"\xDD\xEE\xF0\x11\0\0\0\0"),
        ("type 5", b"\xDD\xEE\xF0\x11\0\0\0\x01", b"\xDD\xEE\xF0\x11\0\0\0\x05"),
        ("owner, one byte too many", b"\0\0\0\x08somebody", b"\0\0\x04\x01somebody"),
        ("owner, without end", b"\0\0\0\x08somebody", b"\xFF\xFF\xFF\xFFsomebody"),
        ("length, without its end", b"\x99\xAA\xBB\xCC\xDD\xEE\xF0\x11", b"\x99\xAA\xBB\xCC"),
    ];
    for minor in [0, 2] {
        let rows = told.map(|(field, from, to)| Row {
            field,
            lie: Lie::Octets(refuses(denied), from, to),
            must: Must::NotRead,
        });
        play(minor, Does::Lock, rows.into()).await;
        let plain = [Status::DENIED, Status::DEADLOCK, Status::LOCK_RANGE, Status(0x7FFF_FFFF)].map(|status| Row {
            field: "status",
            lie: Lie::Results(refuses(move || LockFailure::from(status))),
            must: Must::Tell(status),
        });
        play(minor, Does::Lock, plain.into()).await;
    }
}
