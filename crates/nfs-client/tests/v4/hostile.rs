//! A server that lies: in each field of SEQUENCE, OPEN, LOCK and READDIR, and in the number of results. Each lie leads
//! to an error that says what the server did, or does no harm; afterwards the client works with an honest server as
//! before.

use crate::{
    every::{mode, name},
    house::{Fate, House, Wire},
};
use bytes::Bytes;
use rpcrdma_nfs::v4::{
    Attribute, Bitmap, FileAttributes, Name, Op, Outcome, Results, SessionId, StateId, Status, Value,
    ops::{
        self, Delegation, LockDenied, LockFailure, LockKind, OpenOk, ReadDelegation, SequenceOk, Stability,
        open_result, sequence_status,
    },
};
use rpcrdma_nfs_client::{
    self as client, Files,
    v4::{Access, Error, How, Nfs4, Opened},
};
use std::{sync::Arc, time::Duration};

/// Changes the outcomes of one kind in all replies.
fn lie(wire: &Arc<Wire>, mut change: impl FnMut(&mut Outcome) + Send + 'static) {
    wire.after(move |_, results| {
        results.results.iter_mut().for_each(&mut change);
        results.status = results.results.last().map_or(results.status, Outcome::status);
        if let Some(failed) = results.results.iter().position(|outcome| outcome.status() != Status::OK) {
            results.results.truncate(failed + 1);
            results.status = results.results[failed].status();
        }
        Fate::Arrives
    });
}

fn says(error: &Error, op: Op, what: &str) {
    let Error::Nonsense { operation, what: said } = error else { panic!("{error:?}") };
    assert_eq!((*operation, *said), (op, what));
}

#[tokio::test(start_paused = true)]
async fn sequence_answers_for_its_own_call() {
    type Change = fn(&mut SequenceOk);
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let lies: [(Change, &str); 3] = [
        (|told| told.session = SessionId([0xFF; 16]), "answered for another session"),
        (|told| told.slot += 1, "answered for another slot"),
        (|told| told.sequence = told.sequence.wrapping_sub(1), "answered for another number of the slot"),
    ];
    for (change, what) in lies {
        lie(&wire, move |outcome| {
            if let Outcome::Sequence(Ok(told)) = outcome {
                change(told);
            }
        });
        says(&nfs.root().await.unwrap_err(), Op::Sequence, what);
        wire.honest();
        nfs.root().await.unwrap();
    }
    // The client follows the server's wishes about slots, and its flags, within reason.
    for (highest, target, status) in [
        (0, 0, 0),
        (u32::MAX, u32::MAX, 0),
        (0, u32::MAX, 0),
        (u32::MAX, 0, !sequence_status::RESTART_RECLAIM_NEEDED),
        (63, 63, 0),
    ] {
        lie(&wire, move |outcome| {
            if let Outcome::Sequence(Ok(told)) = outcome {
                (told.highest_slot, told.target_highest_slot, told.status) = (highest, target, status);
            }
        });
        futures_util::future::join_all((0..5).map(|_| async { nfs.root().await.unwrap() })).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    wire.honest();
    nfs.root().await.unwrap();
}

/// If a server says with each reply that it has restarted, its client reclaims a bounded number of times.
#[tokio::test(start_paused = true)]
async fn a_server_that_always_restarts_makes_a_bounded_number_of_calls() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    lie(&wire, |outcome| {
        if let Outcome::Sequence(Ok(told)) = outcome {
            told.status |= sequence_status::RESTART_RECLAIM_NEEDED;
        }
    });
    wire.calls();
    for _ in 0..10 {
        nfs.root().await.unwrap();
    }
    let calls = wire.calls().len();
    assert!((10..60).contains(&calls), "{calls}");
}

async fn open(nfs: &Nfs4) -> Result<Opened, Error> {
    let root = nfs.root().await?.file;
    nfs.open(&root, &name("file"), Access::Both, How::Unchecked(mode(0o644))).await.map(|(opened, _)| opened)
}

#[tokio::test(start_paused = true)]
async fn open_is_believed_no_more_than_it_must() {
    type Change = fn(&mut OpenOk);
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    lie(&wire, |outcome| {
        if let Outcome::Open(Ok(opened)) = outcome {
            opened.flags |= open_result::NO_OPEN_STATEID;
        }
    });
    let error = open(&nfs).await.unwrap_err();
    says(&error, Op::Open, "gave a delegation in place of an open, without being asked");
    // The client asks for none of these, and none does harm.
    let harmless: [Change; 4] = [
        |opened| opened.flags = !open_result::NO_OPEN_STATEID,
        |opened| opened.set = Bitmap::of_numbers(0..96),
        |opened| (opened.directory.before, opened.directory.after) = (u64::MAX, 0),
        |opened| {
            let state = StateId { sequence: 7, ..opened.state };
            let permissions = rpcrdma_nfs::v4::Ace { kind: 0, flags: 0, rights: 0, who: "x".into() };
            opened.delegation = Delegation::Read(ReadDelegation { state, recalled: true, permissions });
        },
    ];
    for change in harmless {
        lie(&wire, move |outcome| {
            if let Outcome::Open(Ok(opened)) = outcome {
                change(opened);
            }
        });
        let opened = open(&nfs).await.unwrap();
        wire.honest();
        nfs.close(opened).await.unwrap();
    }
    // A stateid that names nothing is lost at its first use.
    lie(&wire, |outcome| {
        if let Outcome::Open(Ok(opened)) = outcome {
            opened.state.other.0 = [0xAB; 12];
        }
    });
    let opened = open(&nfs).await.unwrap();
    wire.honest();
    let lost = nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    // Attributes that the client did not ask for, attributes that are cut off, and no attributes.
    let attributes: [(FileAttributes, &str); 3] = [
        (FileAttributes::of(&[Value::MaxName(3)]), "gave attributes that were not asked for"),
        (
            FileAttributes { set: Bitmap::of(&[Attribute::Size]), octets: Bytes::from_static(&[1, 2]) },
            "gave attributes that cannot be read",
        ),
        (FileAttributes::of(&[Value::Size(3)]), "does not say which type the file has"),
    ];
    for (told, what) in attributes {
        lie(&wire, move |outcome| {
            if let Outcome::GetAttr(Ok(ok)) = outcome {
                ok.attributes = told.clone();
            }
        });
        says(&nfs.root().await.unwrap_err(), Op::GetAttr, what);
    }
}

#[tokio::test(start_paused = true)]
async fn lock_is_believed_no_more_than_it_must() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let opened = open(&nfs).await.unwrap();
    // An error shows a senseless conflict as the server sent it.
    lie(&wire, |outcome| {
        if let Outcome::Lock(answer) = outcome {
            let owner = rpcrdma_nfs::v4::Owner {
                client: rpcrdma_nfs::v4::ClientId(u64::MAX),
                name: rpcrdma_nfs::v4::OwnerName(vec![0xFF; 1024].into()),
            };
            let denied = LockDenied { offset: u64::MAX, length: u64::MAX, kind: LockKind::ReadWaiting, owner };
            *answer = Err(LockFailure::Told(denied));
        }
    });
    let locked = nfs.lock(&opened, LockKind::Write, 0, 10).await.unwrap_err();
    let text = "LOCK: somebody else has locked the file for reading from byte 18446744073709551615 to its end";
    assert_eq!(locked.to_string(), text);
    // A special stateid.
    lie(&wire, |outcome| {
        if let Outcome::Lock(Ok(ok)) = outcome {
            ok.state.other.0 = [0xAB; 12];
        }
    });
    nfs.lock(&opened, LockKind::Write, 100, 10).await.unwrap();
    wire.honest();
    let lost = nfs.unlock(&opened, 100, 10).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    // The results of another operation; too few; too many; a wrong status.
    let opened = open(&nfs).await.unwrap();
    type Change = fn(&mut Results);
    let lies: [(Change, &str); 5] = [
        (
            |results| *results.results.last_mut().unwrap() = Outcome::LookupP(Ok(())),
            "returned the results of another operation",
        ),
        (
            |results| {
                results.results.pop();
            },
            "returned fewer results than there were operations",
        ),
        (|results| results.results.push(Outcome::LookupP(Ok(()))), "returned more results than there were operations"),
        (|results| results.status = Status::IO, "returned another status than that of the last operation"),
        (|results| results.results[1] = Outcome::PutFh(Err(Status::STALE)), "went on after an operation that failed"),
    ];
    for (change, what) in lies {
        wire.after(move |call, results| {
            if call.ops.iter().any(|args| args.op() == Op::Lock) {
                change(results);
            }
            Fate::Arrives
        });
        says(&nfs.lock(&opened, LockKind::Write, 1_000, 10).await.unwrap_err(), Op::Lock, what);
    }
    wire.honest();
    nfs.close(opened).await.unwrap();
}

/// The same function makes every page.
fn pages(wire: &Arc<Wire>, mut page: impl FnMut(u64) -> ops::ReadDirOk + Send + 'static) {
    let mut number = 0;
    lie(wire, move |outcome| {
        if let Outcome::ReadDir(Ok(ok)) = outcome {
            *ok = page(number);
            number += 1;
        }
    });
}

fn entry(cookie: u64, name: &[u8]) -> ops::Entry {
    ops::Entry { cookie, name: Name::from(name), attributes: FileAttributes::default() }
}

fn page(entries: Vec<ops::Entry>, end: bool) -> ops::ReadDirOk {
    ops::ReadDirOk { verifier: Default::default(), entries, end }
}

#[tokio::test(start_paused = true)]
async fn readdir_leads_nobody_round() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    let files = Files::from(nfs.clone());
    let walk = async || {
        let mut listing = files.list(&client::Handle::from(&root), nfs.transfer()).with_max_entries(5_000);
        let mut names = 0;
        while let Some(_entry) = listing.next().await? {
            names += 1;
        }
        Ok::<u32, client::Error>(names)
    };
    let says = |error: &client::Error, op: Op, what: &str| {
        let client::Error::Nonsense { procedure, what: said } = error else { panic!("{error:?}") };
        assert_eq!((*procedure, *said), (op.name(), what));
    };
    pages(&wire, |_| page(vec![], false));
    says(&walk().await.unwrap_err(), Op::ReadDir, "returned no entry before the end");
    pages(&wire, |_| page(vec![entry(5, b"a")], false));
    says(&walk().await.unwrap_err(), Op::ReadDir, "does not advance in the directory");
    pages(&wire, |number| page(vec![entry(3 + number % 7, b"a")], false));
    says(&walk().await.unwrap_err(), Op::ReadDir, "gave a position in the directory for the second time");
    pages(&wire, |number| page(vec![entry(3 + number, b"a"); 100], false));
    assert!(matches!(walk().await.unwrap_err(), client::Error::TooManyEntries { max: 5_000, .. }));
    for bad in [&b""[..], b"a/b", b"a\0b"] {
        pages(&wire, move |_| page(vec![entry(3, bad)], true));
        says(&walk().await.unwrap_err(), Op::ReadDir, "returned a name that is not valid for a file");
    }
    pages(&wire, |_| {
        let attributes = FileAttributes { set: Bitmap::of_numbers([2]), octets: Bytes::from_static(&[0; 4]) };
        page(vec![ops::Entry { attributes, ..entry(3, b"a") }], true)
    });
    says(&walk().await.unwrap_err(), Op::GetAttr, "gave attributes that were not asked for");
    // If the server cannot return a file's attributes, its name still counts.
    pages(&wire, |_| {
        let attributes = FileAttributes::of(&[Value::ReadAttributesError(Status::ACCESS)]);
        page(vec![ops::Entry { attributes, ..entry(3, b"a") }, entry(4, b".")], true)
    });
    assert_eq!(walk().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn reads_and_writes_bring_what_was_asked_for() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let opened = open(&nfs).await.unwrap();
    let data = Bytes::from_static(b"0123456789");
    nfs.write(&opened, 0, Stability::FileSync, data.clone()).await.unwrap();
    for (len, end, what) in [
        (6, true, "returned more bytes than were asked for"),
        (0, false, "returned nothing before the end of the file"),
    ] {
        lie(&wire, move |outcome| {
            if let Outcome::Read(Ok(read)) = outcome {
                (read.data, read.end) = (vec![0; len].into(), end);
            }
        });
        says(&nfs.read(&opened, 0, 5).await.unwrap_err(), Op::Read, what);
    }
    for (count, committed, what) in [
        (11, Stability::FileSync, "wrote more bytes than it was given"),
        (0, Stability::FileSync, "wrote nothing and gave no reason"),
        (10, Stability::Unstable, "made the bytes less durable than it was asked to"),
    ] {
        lie(&wire, move |outcome| {
            if let Outcome::Write(Ok(written)) = outcome {
                (written.count, written.committed) = (count, committed);
            }
        });
        let error = nfs.write(&opened, 0, Stability::FileSync, data.clone()).await.unwrap_err();
        says(&error, Op::Write, what);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_allows_nothing_is_refused() {
    type Change = fn(&mut ops::CreateSessionOk);
    let lies: [(Change, &str); 5] = [
        (|made| made.sequence += 1, "answered for another session"),
        (|made| made.fore.max_request = u32::MAX, "allows larger messages than were asked for"),
        (|made| made.fore.max_response = 0, "allows too few bytes or operations in a call of the session"),
        (|made| made.fore.max_operations = 1, "allows too few bytes or operations in a call of the session"),
        (|made| made.fore.max_requests = 0, "allows no call in the session"),
    ];
    for (change, what) in lies {
        let house = House::new();
        let wire = house.wire();
        lie(&wire, move |outcome| {
            if let Outcome::CreateSession(Ok(made)) = outcome {
                change(made);
            }
        });
        let options = rpcrdma_nfs_client::v4::Options::new("test").with_minors(2..=2);
        let error = Nfs4::connect(house.rpc(&wire), &house.env, options).await.unwrap_err();
        says(&error, Op::CreateSession, what);
    }
    // With few operations in a call, the client does not send a call that has more.
    let house = House::new();
    let wire = house.wire();
    lie(&wire, |outcome| {
        if let Outcome::CreateSession(Ok(made)) = outcome {
            (made.fore.max_operations, made.fore.max_requests) = (4, u32::MAX);
        }
    });
    let nfs = house.client_over(&wire, rpcrdma_nfs_client::v4::Options::new("test")).await;
    let root = nfs.root().await.unwrap().file;
    wire.calls();
    let error = nfs.open(&root, &name("a"), Access::Read, How::Existing).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { operation: Op::Open, unit: "operations", wanted: 5, allowed: 4, .. }));
    assert!(wire.calls().is_empty());
}
