//! Share reservations.

use super::*;

fn modes() -> impl Iterator<Item = (Access, Deny)> {
    (0..16).filter_map(|bits| Some((Access::from_bits(bits & 3)?, Deny::from_bits(bits >> 2)?)))
}

/// proves: NFS4-8881-9.7-b, NFS4-8881-18.18.3-b
#[test]
fn nothing_is_opened_for_nothing() {
    assert_eq!([0, 4, 8, u32::MAX, 1 << 8 | 1].map(Access::from_bits), [None; 5]);
    assert_eq!([4, 8, u32::MAX, 1 << 8].map(Deny::from_bits), [None; 4]);
    assert_eq!(modes().count(), 12);
    assert!(modes().all(|(access, deny)| access.bits() & 3 != 0 && deny.bits() <= 3));
}

/// All pairs of the twelve kinds of opens: by one owner, by two owners of a client, and by two clients.
///
/// proves: NFS4-8881-9.7-c, NFS4-8881-9.9-c
#[test]
fn an_open_excludes_what_it_denies_and_what_denies_it() {
    let first = owner(1, "a");
    for second in [owner(1, "a"), owner(1, "b"), owner(2, "a")] {
        for (access, deny) in modes() {
            for (access_2, deny_2) in modes() {
                let claims = claims();
                let kept = claims.share(file(1), &first, access, deny).unwrap();
                let result = claims.share(file(1), &second, access_2, deny_2);
                let excluded = access_2.bits() & deny.bits() != 0 || deny_2.bits() & access.bits() != 0;
                let case = (access, deny, access_2, deny_2, &second);
                if excluded {
                    assert_eq!(result.unwrap_err(), Conflict { client: Client::V4(1) }.into(), "{case:?}");
                    assert_eq!(kept.modes(), Some((access, deny)), "{case:?}");
                } else {
                    let both = (access.union(access_2), deny.union(deny_2));
                    let expected = if first == second { both } else { (access_2, deny_2) };
                    assert_eq!(result.unwrap().modes(), Some(expected), "{case:?}");
                }
                assert!(claims.share(file(2), &second, access_2, deny_2).is_ok(), "another file is another");
                drop(kept);
                assert!(claims.is_empty(), "{case:?}");
                assert!(claims.share(file(1), &second, access_2, deny_2).is_ok(), "{case:?}");
            }
        }
    }
}

/// Every pair of opens that can coexist, against reading and writing by each possible asker.
///
/// proves: NFS4-8881-9.1.2-a, NFS4-8881-9.1.2-b
#[test]
fn what_is_denied_is_denied_to_all_but_who_denied_it() {
    let (first, second, third) = (owner(1, "a"), owner(1, "b"), owner(2, "a"));
    let mut pairs = 0;
    for (access, deny) in modes() {
        for (access_2, deny_2) in modes() {
            let claims = claims();
            let _first = claims.share(file(1), &first, access, deny).unwrap();
            let Ok(_second) = claims.share(file(1), &second, access_2, deny_2) else { continue };
            pairs += 1;
            for wanted in [Access::READ, Access::WRITE, Access::BOTH] {
                let may = |asker| claims.may(file(1), wanted, asker).is_ok();
                let bits = wanted.bits();
                assert_eq!(may(Asker::Anonymous), bits & (deny.bits() | deny_2.bits()) == 0);
                assert_eq!(may(Asker::Holder(&third)), bits & (deny.bits() | deny_2.bits()) == 0);
                assert_eq!(may(Asker::Holder(&first)), bits & deny_2.bits() == 0);
                assert_eq!(may(Asker::Holder(&second)), bits & deny.bits() == 0);
            }
            assert_eq!(claims.may(file(2), Access::BOTH, Asker::Anonymous), Ok(()));
        }
    }
    assert!(pairs > 12, "{pairs}");
}

/// proves: NFS4-8881-9.1.2-c, NFS4-8881-9.1.1-a
#[test]
fn byte_ranges_refuse_no_reading_and_no_open() {
    let claims = claims();
    let holder = owner(1, "a");
    claims.lock_as(file(1), &holder, Range::ALL, Kind::Write).unwrap();
    assert_eq!(claims.may(file(1), Access::BOTH, Asker::Anonymous), Ok(()));
    // Another client's owner of the same name opens the file; that gives it no range.
    let share = claims.share(file(1), &owner(2, "a"), Access::BOTH, Deny::BOTH).unwrap();
    assert!(!claims.has_locks(file(1), &owner(2, "a")) && claims.has_locks(file(1), &holder));
    assert!(claims.lock_as(file(1), &owner(2, "a"), range(0, 0), Kind::Read).is_err());
    claims.unlock_all(file(1), &holder);
    assert!(share.modes().is_some());
}

/// proves: NFS4-8881-18.18.3-a
#[test]
fn a_downgrade_leaves_what_it_names_and_adds_nothing() {
    for (access, deny) in modes() {
        for (to_access, to_deny) in modes() {
            let claims = claims();
            let mut share = claims.share(file(1), &owner(1, "a"), access, deny).unwrap();
            let is_less = access.contains(to_access) && deny.contains(to_deny);
            let result = share.downgrade(to_access, to_deny);
            assert_eq!(result, if is_less { Ok(()) } else { Err(NoDowngrade) });
            let expected = if is_less { (to_access, to_deny) } else { (access, deny) };
            assert_eq!(share.modes(), Some(expected));
            // The modes that the guard shows are the modes in force.
            for (other, other_deny) in modes() {
                let excluded = other.bits() & expected.1.bits() != 0 || other_deny.bits() & expected.0.bits() != 0;
                let opened = claims.share(file(1), &owner(2, "b"), other, other_deny);
                assert_eq!(opened.is_err(), excluded);
            }
            drop(share);
            assert!(claims.is_empty());
        }
    }
}

/// A guard that is dropped takes its modes away, and the modes of earlier guards stay.
///
/// proves: NFS4-8881-9.9-c
#[test]
fn a_guard_that_is_dropped_takes_with_it_what_no_other_has() {
    let holder = owner(1, "a");
    for (access, deny) in modes() {
        for (access_2, deny_2) in modes() {
            let claims = claims();
            let mut first = claims.share(file(1), &holder, access, deny).unwrap();
            let Ok(second) = claims.share(file(1), &holder, access_2, deny_2) else { continue };
            let union = (access.union(access_2), deny.union(deny_2));
            assert_eq!((first.modes(), second.modes()), (Some(union), Some(union)));
            assert_eq!(claims.held_by(holder.client()), (1, 0));
            drop(second);
            assert_eq!(first.modes(), Some((access, deny)));
            // Once the guards are merged, one guard has all modes.
            first.merge(claims.share(file(1), &holder, access_2, deny_2).unwrap());
            assert_eq!(first.modes(), Some(union));
            let stranger = |access, asker| claims.may(file(1), access, asker).is_ok();
            let wanted = [Access::READ, Access::WRITE];
            let denied = wanted.map(|access| access.bits() & union.1.bits() != 0);
            assert_eq!(wanted.map(|access| !stranger(access, Asker::Anonymous)), denied);
            assert!(wanted.into_iter().all(|access| stranger(access, Asker::Holder(&holder))));
            first.downgrade(access_2, deny_2).unwrap();
            assert_eq!(first.modes(), Some((access_2, deny_2)));
            drop(first);
            assert!(claims.is_empty());
        }
    }
}

#[test]
fn a_guard_may_be_merged_with_one_of_another_time() {
    let claims = claims();
    let holder = owner(1, "a");
    let mut old = claims.share(file(1), &holder, Access::READ, Deny::READ).unwrap();
    claims.release_client(holder.client());
    old.merge(claims.share(file(1), &holder, Access::WRITE, Deny::NONE).unwrap());
    assert_eq!(old.modes(), Some((Access::WRITE, Deny::NONE)));
    drop(old);
    assert!(claims.is_empty());
}

/// A guard whose share was released with its client has no part in a later share of the same owner.
#[test]
fn a_guard_that_outlives_its_client_does_nothing() {
    let claims = claims();
    let holder = owner(1, "a");
    let mut old = claims.share(file(1), &holder, Access::READ, Deny::READ).unwrap();
    claims.release_client(holder.client());
    assert!(claims.is_empty());
    assert_eq!((old.modes(), old.downgrade(Access::READ, Deny::NONE)), (None, Err(NoDowngrade)));
    let new = claims.share(file(1), &holder, Access::WRITE, Deny::WRITE).unwrap();
    assert_eq!((old.modes(), old.downgrade(Access::WRITE, Deny::NONE)), (None, Err(NoDowngrade)));
    drop(old);
    assert_eq!(new.modes(), Some((Access::WRITE, Deny::WRITE)));
    assert_eq!(claims.may(file(1), Access::WRITE, Asker::Anonymous), Err(Conflict { client: holder.client() }));
}
