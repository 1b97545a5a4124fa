//! Calls of hosts that mean harm.

use super::*;
use rpcrdma_nfs::nlm::{CallerName, Notice, OwnerHandle, PROGRAM, VERSION_4};
use rpcrdma_oncrpc::Rejection;
use rpcrdma_xdr::{Encode, Encoder, Payload};

const ALL: (u64, u64) = (0, 0);

/// A LOCK whose name, handle, owner and rest are these words and bytes.
fn written(write: impl FnOnce(&mut Encoder)) -> Payload {
    let mut encoder = Encoder::new();
    write(&mut encoder);
    encoder.finish()
}

/// proves: NLM-6.1.4-c
#[test]
fn owners_and_names_of_1024_octets_are_told_from_each_other_and_longer_ones_refused() {
    on_each(|world| {
        let (a, mut b, file) = two(world);
        let owner = |last: u8| OwnerHandle::from(&[&[7; 1023][..], &[last]].concat()[..]);
        let lock = |host: &TestHost, last: u8| {
            let mut place = host.place(&file, "", ALL);
            place.owner = owner(last);
            host.status(Procedure::Lock, &host.to_lock(place, WRITE, false))
        };
        assert_eq!(lock(&a, 1), Status::Granted);
        assert_eq!(lock(&a, 1), Status::Granted, "it has it");
        assert_eq!(lock(&a, 2), Status::Denied, "the last byte tells them apart");
        let holder = b.test(&file, "", ALL, READ).unwrap_err().unwrap();
        assert_eq!(holder.owner, owner(1));
        b.name = CallerName::from(&[b'n'; 1024][..]);
        assert_eq!(lock(&b, 1), Status::Denied);
        for (name, owner, handle) in [(1025, 4, 64), (4, 1025, 64), (4, 4, 65), (4, 4, 1024)] {
            let octets = written(|encoder| {
                encoder.opaque(b"cookie");
                encoder.bool(false);
                encoder.bool(true);
                encoder.opaque(&vec![b'n'; name]);
                encoder.opaque(&vec![0; handle]);
                encoder.opaque(&vec![0; owner]);
                [0u32; 7].iter().for_each(|word| encoder.u32(*word));
            });
            let refused = a.rpc.raw(PROGRAM, VERSION_4, Procedure::Lock as u32, octets);
            assert_eq!(refused.map(drop), Err(Rejection::GarbageArgs), "{name} {owner} {handle}");
        }
    });
}

/// A name whose length is more than what follows, cuts anywhere, and bytes behind the end.
#[test]
fn what_does_not_end_where_it_says_is_refused() {
    let world = World::memory();
    let (a, _, file) = two(&world);
    let args = a.to_lock(a.place(&file, "o", ALL), WRITE, true);
    let whole = super::super::testing::bytes_of(&args);
    let raw = |octets: &[u8]| {
        let payload = written(|encoder| encoder.opaque_fixed(octets));
        a.rpc.raw(PROGRAM, VERSION_4, Procedure::Lock as u32, payload).map(drop)
    };
    for end in (0..whole.len()).step_by(4) {
        assert_eq!(raw(&whole[..end]), Err(Rejection::GarbageArgs), "cut at {end}");
    }
    assert_eq!(raw(&[&whole[..], &[0; 4]].concat()), Err(Rejection::GarbageArgs));
    // The length of the name, after the cookie and two words.
    for length in [u32::MAX, 1 << 31, 1024, 1025, 200] {
        let mut octets = whole.to_vec();
        octets[20..24].copy_from_slice(&length.to_be_bytes());
        assert_eq!(raw(&octets), Err(Rejection::GarbageArgs), "{length}");
    }
    assert_eq!(world.counts().hosts, 0, "nothing is remembered of it");
    assert_eq!(raw(&whole), Ok(()));
}

/// proves: NLM-6.3.1-a
#[test]
fn locks_beyond_the_end_of_the_range_are_refused() {
    on_each(|world| {
        let (a, b, file) = two(world);
        for range in [(u64::MAX, 2), (2, u64::MAX), (1 << 63, (1 << 63) + 1)] {
            assert_eq!(a.lock(&file, "o", range, WRITE), Status::TooBig, "{range:?}");
            assert_eq!(a.wait(&file, "o", range, WRITE), Status::TooBig);
            assert_eq!(a.unlock(&file, "o", range), Status::TooBig);
            assert_eq!(a.cancel(&file, "o", range, WRITE), Status::TooBig);
            assert_eq!(a.test(&file, "o", range, WRITE), Err(Err(Status::TooBig)));
        }
        // At the end of the range, and beyond what programs of the host can lock.
        for range in [(u64::MAX, 1), (u64::MAX - 1, 1), ((1 << 63) - 1, 1), (1 << 63, 1 << 62), ((1 << 63) - 2, 9)] {
            assert_eq!(a.lock(&file, "o", range, WRITE), Status::Granted, "{range:?}");
            assert_eq!(b.lock(&file, "o", range, READ), Status::Denied, "{range:?}");
            assert_eq!(a.unlock(&file, "o", range), Status::Granted);
            assert_eq!(b.lock(&file, "o", range, READ), Status::Granted, "{range:?}");
            assert_eq!(b.unlock(&file, "o", range), Status::Granted);
        }
        assert_eq!(world.counts().owners, 0);
    });
}

/// A host is its address and its name: a caller with only one of them cannot touch what the host holds.
#[test]
fn nobody_acts_for_another_host() {
    on_each(|world| {
        let (a, _, file) = two(world);
        assert_eq!(a.lock(&file, "o", ALL, WRITE), Status::Granted);
        for other in [world.host(1, "alphb"), world.host(2, "alpha"), world.host(2, "")] {
            assert_eq!(other.unlock(&file, "o", ALL), Status::Granted, "it has nothing");
            other.free_all();
            assert_eq!(other.lock(&file, "o", ALL, READ), Status::Denied);
        }
        world.notify(2, "alpha", 3);
        world.notify(1, "alphb", 3);
        assert_eq!(world.host(3, "c").lock(&file, "o", ALL, READ), Status::Denied);
    });
}

#[test]
fn what_is_no_regular_file_of_ours_has_no_locks() {
    on_each(|world| {
        let (a, _, _) = two(world);
        let client = world.server.version_3();
        let root = client.root();
        let directory = client.new_directory(&root, "d");
        assert_eq!(a.lock(&directory, "o", ALL, READ), Status::Failed);
        assert_eq!(a.test(&directory, "o", ALL, READ), Err(Err(Status::Failed)));
        let mut forged = world.file("g").as_slice().to_vec();
        forged[9] ^= 1;
        for octets in [&forged[..], b"", &[0; 64]] {
            let forged = Handle::new(octets).unwrap();
            assert_eq!(a.lock(&forged, "o", ALL, READ), Status::StaleHandle);
            assert_eq!(a.wait(&forged, "o", ALL, READ), Status::StaleHandle);
            assert_eq!(a.unlock(&forged, "o", ALL), Status::StaleHandle);
            assert_eq!(a.cancel(&forged, "o", ALL, READ), Status::StaleHandle);
        }
        assert_eq!(world.counts().hosts, 1, "known, as its handle was of ours");
    });
}

#[test]
fn procedures_that_are_not_there_are_unavailable() {
    let world = World::memory();
    let (mut a, _, _) = two(&world);
    for version in [1, 3, 4] {
        a.version = version;
        for number in 0..64 {
            let is_there = Procedure::from_number(number).is_some_and(|procedure| procedure.is_in(version));
            let empty = a.rpc.raw(PROGRAM, version, number, Payload::new());
            let expected = match number {
                0 => Ok(()),
                _ if is_there => Err(Rejection::GarbageArgs),
                _ => Err(Rejection::ProcedureUnavailable),
            };
            assert_eq!(empty.map(drop), expected, "version {version} procedure {number}");
        }
    }
    let mismatch = a.rpc.raw(PROGRAM, 2, 1, Payload::new()).map(drop);
    // A version between those that exist.
    assert_eq!(mismatch, Err(Rejection::ProgramMismatch { low: 1, high: 4 }));
    let notice = Notice { name: CallerName::from("x"), state: -1 };
    let mut encoder = Encoder::new();
    notice.encode(&mut encoder);
    a.rpc.raw(PROGRAM, VERSION_4, Procedure::FreeAll as u32, encoder.finish()).unwrap();
}
