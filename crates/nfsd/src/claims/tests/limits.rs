//! Floods: each limit at its edge, and how much work one client's many claims make for another client.

use super::{super::tree::STEPS, *};
use std::io;

/// How many nodes `act` looks at.
fn steps(act: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    act();
    STEPS.get() - before
}

/// proves: NFS4-LIMIT-a
#[test]
fn a_client_has_so_many_shares_and_all_have_so_many() {
    let claims = limited(Limits { shares_of_client: 3, shares: 5, ..Limits::default() });
    let share = |client, number| {
        claims.share(file(number), &owner(client, &number.to_string()), Access::READ, Deny::NONE).map_err(Some)
    };
    let too_many = Some(ShareRefused::TooMany(TooMany));
    let mut first: Vec<_> = (0..3).map(|number| share(1, number).unwrap()).collect();
    assert_eq!(share(1, 3).unwrap_err(), too_many);
    assert!(share(1, 2).is_ok(), "what it has can be opened again");
    let _second: Vec<_> = (0..2).map(|number| share(2, number).unwrap()).collect();
    assert_eq!(share(2, 2).unwrap_err(), too_many);
    drop(first.pop());
    assert!(share(2, 2).is_ok() && share(1, 2).is_ok());
}

/// proves: NFS4-LIMIT-a
#[test]
fn a_client_has_so_many_ranges_and_all_have_so_many() {
    let claims = limited(Limits { ranges_of_client: 4, ranges: 6, ..Limits::default() });
    let lock = |client, at| claims.lock_as(file(1), &owner(client, "a"), range(at, at), Kind::Read);
    (0..4).for_each(|at| lock(1, at * 2).unwrap());
    assert!(is_too_many(lock(1, 8)));
    let whole = |kind| claims.lock_as(file(1), &owner(1, "a"), range(0, 6), kind);
    // Locks that replace others need no further room; after that there is room for a split.
    whole(Kind::Read).unwrap();
    assert_eq!(claims.held_by(Client::V4(1)).1, 1);
    claims.lock_as(file(1), &owner(1, "a"), range(2, 2), Kind::Write).unwrap();
    assert_eq!(claims.held_by(Client::V4(1)).1, 3);
    claims.unlock(file(1), &owner(1, "a"), range(5, 5)).unwrap();
    claims.unlock(file(1), &owner(1, "a"), range(1, 1)).unwrap();
    assert!(is_too_many(lock(1, 9)));
    claims.unlock(file(1), &owner(1, "a"), Range::ALL).unwrap();
    assert_eq!(claims.held_by(Client::V4(1)).1, 0);
    (0..4).for_each(|at| lock(1, at * 2).unwrap());
    assert!(lock(2, 0).is_ok() && lock(2, 2).is_ok() && is_too_many(lock(2, 4)), "all have six");
    assert!(is_too_many(lock(1, 8)));
    claims.release_client(Client::V4(1));
    lock(2, 4).unwrap();
    claims.release_client(Client::V4(2));
    assert!(claims.is_empty());
}

/// At the limit, an unlock that splits a range is refused, and no other unlock ever is.
#[test]
fn what_is_locked_can_be_unlocked_at_the_limit() {
    let claims = limited(Limits { ranges_of_client: 2, ..Limits::default() });
    let holder = owner(1, "a");
    claims.lock_as(file(1), &holder, range(0, 9), Kind::Write).unwrap();
    claims.lock_as(file(2), &holder, range(0, 9), Kind::Write).unwrap();
    assert!(is_too_many(claims.unlock(file(1), &holder, range(5, 5))));
    assert_eq!(claims.owned(file(1)), [(holder.clone(), range(0, 9), Kind::Write)]);
    claims.unlock(file(1), &holder, range(5, 9)).unwrap();
    claims.unlock(file(1), &holder, range(0, 9)).unwrap();
    claims.unlock(file(2), &holder, range(5, 5)).unwrap();
}

/// A host on which everything succeeds.
struct Willing;

impl HostLocks for Willing {
    fn set(&self, _: Range, _: Option<Kind>) -> Result<(), HostDenied> {
        Ok(())
    }

    fn test(&self, _: Range, _: Kind) -> io::Result<Option<HostLock>> {
        Ok(None)
    }
}

/// proves: NFS4-LIMIT-a
#[test]
fn a_file_whose_locks_the_host_knows_has_fewer() {
    let claims = limited(Limits { ranges_of_mirrored_file: 8, ..Limits::default() });
    let willing: Arc<dyn HostLocks> = Arc::new(Willing);
    let lock = |client, number, at, host| {
        let holder = owner(client, "a");
        claims.lock(&LockRequest { host, ..request(file(number), &holder, range(at, at), Kind::Read) })
    };
    (0..6).for_each(|at| lock(1, 1, at * 2, Some(&willing)).unwrap());
    assert!(is_too_many(lock(1, 1, 12, Some(&willing))) && is_too_many(lock(1, 1, 12, None)), "three quarters");
    (0..2).for_each(|at| lock(2, 1, at * 2, Some(&willing)).unwrap());
    assert!(is_too_many(lock(2, 1, 4, Some(&willing))));
    (0..9).for_each(|at| lock(1, 2, at * 2, None).unwrap());
    // The ranges locked without the host are too many to add to the host.
    assert!(is_too_many(lock(2, 2, 20, Some(&willing))));
    lock(2, 2, 20, None).unwrap();
}

/// The work for a decent client beside clients at their limits: some dozens of steps, however many claims the others
/// have. Here they have a million ranges on the one file: read locks of many owners that overlap, and write locks.
///
/// proves: NFS4-LIMIT-a
#[test]
fn a_million_locks_of_others_slow_nobody() {
    const RANGES: usize = 1 << 20;
    let claims = limited(Limits { ranges: 2 * RANGES, ..Limits::default() });
    let base = 1 << 40;
    let clients = (RANGES / MAX_RANGES_OF_CLIENT) as u64;
    let each = MAX_RANGES_OF_CLIENT as u64;
    let flood = steps(|| {
        for client in 0..clients {
            let owners = [0, 1, 2, 3].map(|number| owner(client, &number.to_string()));
            for at in 0..each {
                let number = client * each + at;
                let (wanted, kind) = match client % 2 {
                    0 => (range(base + number * 4, base + number * 4), Kind::Write),
                    // Each reaches far over ranges of other owners.
                    _ => (range(2 * base + number * 8 + at % 4, 2 * base + number * 8 + 5), Kind::Read),
                };
                claims.lock_as(file(1), &owners[at as usize % 4], wanted, kind).unwrap();
            }
            assert!(is_too_many(claims.lock_as(file(1), &owners[0], range(0, 0), Kind::Read)));
        }
    });
    let per_lock = flood as f64 / RANGES as f64;
    assert!(per_lock < 100.0, "{per_lock} steps for each of a million");
    let decent = owner(100, "decent");
    for kind in [Kind::Write, Kind::Read] {
        let work = steps(|| {
            for at in 0..1000 {
                claims.lock_as(file(1), &decent, range(at * 10, at * 10 + 5), kind).unwrap();
                claims.unlock(file(1), &decent, range(at * 10, at * 10 + 5)).unwrap();
                denied(claims.lock_as(file(1), &decent, range(at * 10, u64::MAX), kind));
                denied(claims.test(&request(file(1), &decent, range(base + 3, base + 4), kind)));
            }
        });
        assert!(work < 4 * 1000 * 150, "{work} steps for 4,000 calls");
    }
    // A client with many ranges of its own also finds a conflict with another client in few steps.
    let greedy = owner(0, "0");
    let work = steps(|| drop(denied(claims.lock_as(file(1), &greedy, range(0, u64::MAX), Kind::Read))));
    assert!(work < 150, "{work}");
    (0..clients).for_each(|client| claims.release_client(Client::V4(client)));
    assert!(claims.is_empty());
}

/// proves: NFS4-LIMIT-a
#[test]
fn a_client_is_released_in_time_proportional_to_what_it_has() {
    let claims = claims();
    for client in 0..2 {
        for at in 0..if client == 0 { 20_000 } else { 10 } {
            claims
                .lock_as(file(at % 100), &owner(client, "a"), range(u64::from(at), u64::from(at)), Kind::Read)
                .unwrap();
        }
    }
    let work = steps(|| claims.release_client(Client::V4(1)));
    assert!(work < 10 * 60, "{work} steps for ten ranges");
    assert_eq!(claims.held_by(Client::V4(0)).1, 20_000);
}
