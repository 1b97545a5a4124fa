//! A session on several connections, and the description of a session and its server for people.

use crate::{
    every::{contents, mode, name},
    house::{Fate, House, Shared, Wire},
};
use futures_util::future::join_all;
use rpcrdma_nfs::v4::{
    Args, Op, Outcome, PROGRAM, Status, VERSION,
    ops::{Stability, sequence_status},
};
use rpcrdma_nfs_client::v4::{Access, BackChannel, Feature, How, Nfs4, Options, served_minors};
use rpcrdma_oncrpc::{Client, ClientTransport, Spread, SysAuth, SysCredential, XidSource};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering},
};

/// All blocks together are enough for several connections, and fit into one call.
const BLOCK: usize = 16_000;
const BLOCKS: usize = 60;
/// With so much room for data, each call goes over another connection.
const LARGE: u32 = 256 << 10;

/// A client whose calls are spread over three wires.
async fn spread(house: &House, minor: u32) -> (Nfs4, Vec<Arc<Wire>>) {
    let wires: Vec<_> = (0..3).map(|_| house.wire()).collect();
    let mut all = wires.iter().map(|wire| Arc::new(Shared(wire.clone())) as Arc<dyn ClientTransport>);
    let first = all.next().unwrap();
    let spread = Spread::new(first, all, Arc::new(XidSource::new(&*house.env.random)));
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let client = Client::new(Arc::new(spread), identity, PROGRAM, VERSION);
    let nfs = Nfs4::connect(client, &house.env, Options::new("test").with_minors(minor..=minor)).await.unwrap();
    tokio::spawn(nfs.driver());
    wires.iter().for_each(|wire| drop(wire.calls()));
    (nfs, wires)
}

/// For each wire, the slots and sequence numbers of its calls.
fn slots(wires: &[Arc<Wire>]) -> Vec<Vec<(u32, u32)>> {
    let of = |wire: &Arc<Wire>| {
        let calls = wire.calls().into_iter();
        let slots = calls.filter_map(|call| match call.ops.first() {
            Some(Args::Sequence(sequence)) => Some((sequence.slot, sequence.sequence)),
            _ => None,
        });
        slots.collect()
    };
    wires.iter().map(of).collect()
}

/// proves: ULB-5.5-b, ULB-5.5-c
#[tokio::test(start_paused = true)]
async fn replies_of_slots_do_not_mix_over_several_connections() {
    for minor in [1, 2] {
        let house = House::new();
        let (nfs, wires) = spread(&house, minor).await;
        let root = nfs.root().await.unwrap().file;
        let (file, _) = nfs.open(&root, &name("file"), Access::Both, How::Unchecked(mode(0o644))).await.unwrap();
        let data = contents(BLOCK * BLOCKS);
        nfs.write(&file, 0, Stability::FileSync, data.clone()).await.unwrap();
        slots(&wires);
        let read = async |block: usize| {
            let offset = block * BLOCK;
            nfs.read(&file, offset as u64, BLOCK as u32).await.map(|ok| ok.data == data[offset..offset + BLOCK])
        };
        let done = join_all((0..BLOCKS).map(read)).await;
        assert!(done.into_iter().all(|right| right.unwrap()), "each has the answer to its own call");
        let went = slots(&wires);
        assert!(went.iter().all(|wire| wire.len() >= BLOCKS / 6), "all wires are used: {went:?}");
        let all: Vec<_> = went.concat();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "no slot has two calls of one number");

        // One wire loses calls: their slots are doubtful, and the client probes them over any wire.
        let mut lost = 0;
        wires[1].before(move |_| {
            lost += 1;
            if lost <= 5 { Fate::Fails } else { Fate::Arrives }
        });
        let done = join_all((0..BLOCKS).map(read)).await;
        assert_eq!(done.iter().filter(|done| done.is_err()).count(), 5);
        assert!(done.into_iter().flatten().all(|right| right));
        let done = join_all((0..BLOCKS).map(read)).await;
        assert!(done.into_iter().all(|right| right.unwrap()));
        assert!(wires.iter().flat_map(|wire| wire.calls()).any(|call| call.ops.len() == 1), "probes");
        nfs.close(file).await.unwrap();
        nfs.end().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_connection_is_bound_when_the_server_misses_one() {
    let house = House::new();
    let (nfs, wires) = spread(&house, 2).await;
    let is_bound = Arc::new(AtomicBool::new(false));
    let bound = is_bound.clone();
    wires[1].after(move |call, results| {
        match call.ops.first() {
            Some(Args::BindConnToSession(_)) => bound.store(true, Ordering::Relaxed),
            Some(Args::Sequence(_)) if !bound.load(Ordering::Relaxed) => {
                results.results = vec![Outcome::Sequence(Err(Status::CONN_NOT_BOUND_TO_SESSION))];
                results.status = Status::CONN_NOT_BOUND_TO_SESSION;
            }
            _ => {}
        }
        Fate::Arrives
    });
    let root = nfs.root().await.unwrap().file;
    let (file, _) = nfs.open(&root, &name("file"), Access::Both, How::Unchecked(mode(0o644))).await.unwrap();
    let asked = join_all((0..6).map(|_| nfs.read(&file, 0, LARGE))).await;
    assert!(asked.iter().all(Result::is_ok), "{asked:?}");
    assert!(is_bound.load(Ordering::Relaxed));
    let binds = |wire: &Arc<Wire>| {
        let calls = wire.calls();
        calls.iter().filter(|call| call.ops.first().is_some_and(|args| args.op() == Op::BindConnToSession)).count()
    };
    assert_eq!(wires.iter().map(binds).collect::<Vec<_>>(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_told() {
    let house = House::new();
    for minor in 0..=2 {
        let (nfs, _) = house.client(minor).await;
        let about = nfs.about().await.unwrap();
        assert_eq!((about.minor, about.lease), (minor, crate::house::LEASE));
        let Some(session) = about.session else {
            assert_eq!(minor, 0);
            continue;
        };
        assert_eq!((session.slots, session.back_channel), (64, BackChannel::NotAsked));
        assert!(session.max_call > 1 << 20 && session.max_reply > 1 << 20 && session.max_kept_reply >= 1_024);
    }
    let (nfs, wire, _) = house.client_called(2).await;
    let back = async || nfs.about().await.unwrap().session.unwrap().back_channel;
    assert_eq!(back().await, BackChannel::Works);
    wire.after(|_, results| {
        if let Some(Outcome::Sequence(Ok(told))) = results.results.first_mut() {
            told.status |= sequence_status::CB_PATH_DOWN;
        }
        Fate::Arrives
    });
    assert_eq!(back().await, BackChannel::Broken);
}

#[tokio::test(start_paused = true)]
async fn features_are_found_without_changing_anything() {
    let house = House::new();
    for minor in 0..=2 {
        let (nfs, wire) = house.client(minor).await;
        let root = nfs.root().await.unwrap().file;
        let before = nfs.getattr(&root).await.unwrap();
        for feature in [Feature::Seek, Feature::Allocate, Feature::Deallocate, Feature::Copy, Feature::Clone] {
            assert_eq!(nfs.has(&root, feature).await.unwrap(), minor == 2, "{feature:?} in {minor}");
        }
        for feature in [Feature::Acl, Feature::Xattr] {
            nfs.has(&root, feature).await.unwrap();
        }
        let after = nfs.getattr(&root).await.unwrap();
        assert_eq!((before.changed, before.modified), (after.changed, after.modified));
        let seen = Arc::new(Mutex::new(false));
        let told = seen.clone();
        wire.after(move |call, results| {
            if call.ops.iter().any(|args| args.op() == Op::Seek) {
                *told.lock().unwrap() = true;
                results.results.pop();
                results.results.push(Outcome::Seek(Err(Status::NOTSUPP)));
                results.status = Status::NOTSUPP;
            }
            Fate::Arrives
        });
        assert!(!nfs.has(&root, Feature::Seek).await.unwrap());
        assert_eq!(*seen.lock().unwrap(), minor == 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_minor_versions_of_a_server_are_found() {
    let house = House::new();
    assert_eq!(served_minors(&house.rpc(&house.wire())).await.unwrap(), [0, 1, 2]);
    let old = House::with(|version_4| version_4.with_minors(1..=1));
    assert_eq!(served_minors(&old.rpc(&old.wire())).await.unwrap(), [1]);
    let none =
        Client::new(Arc::new(Shared(house.wire())), Arc::new(SysAuth::new(SysCredential::default())), PROGRAM, 5);
    assert!(served_minors(&none).await.unwrap_err().is_no_version_4());
}
