//! Many threads at once: a write lock excludes all others, the counts agree, and no thread waits for ever for another.

use super::*;
use std::{sync::atomic::AtomicU32, thread};

/// Bytes, each of which belongs to one owner alone while it has a write lock on it.
const OCTETS: u64 = 8;

/// Draws numbers from a fixed sequence.
struct Draws(u64);

impl Draws {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Writers and readers of each byte, as the lock holders count themselves.
#[derive(Default)]
struct Counted([(AtomicU32, AtomicU32); OCTETS as usize]);

fn act(claims: &Claims, counted: &[Counted; 2], client: u64, draws: &mut Draws) {
    let (number, holder) = (draws.next(2), owner(client, "a"));
    let (file, at) = (file(number as u32), draws.next(OCTETS));
    let (writers, readers) = &counted[number as usize].0[at as usize];
    match draws.next(8) {
        0 => {
            let deny = Deny::from_bits(draws.next(4) as u32).unwrap();
            let share = claims.share(file, &holder, Access::READ, deny);
            let _ = claims.may(file, Access::BOTH, Asker::Anonymous);
            drop(share);
        }
        1 => claims.release_client(holder.client()),
        2..5 => {
            if claims.lock_as(file, &holder, range(at, at), Kind::Write).is_ok() {
                assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0, "two write");
                assert_eq!(readers.load(Ordering::SeqCst), 0, "somebody reads what is written");
                thread::yield_now();
                writers.fetch_sub(1, Ordering::SeqCst);
                claims.unlock(file, &holder, range(at, at)).unwrap();
            }
        }
        _ => {
            if claims.lock_as(file, &holder, range(at, at), Kind::Read).is_ok() {
                readers.fetch_add(1, Ordering::SeqCst);
                assert_eq!(writers.load(Ordering::SeqCst), 0, "somebody writes what is read");
                thread::yield_now();
                readers.fetch_sub(1, Ordering::SeqCst);
                claims.unlock(file, &holder, range(at, at)).unwrap();
            }
        }
    }
}

#[test]
fn what_is_locked_is_had_alone_and_nothing_is_left() {
    let (claims, counted) = (claims(), <[Counted; 2]>::default());
    thread::scope(|scope| {
        for client in 0..4 {
            let (claims, counted) = (&claims, &counted);
            scope.spawn(move || {
                let mut draws = Draws(client);
                (0..5_000).for_each(|_| act(claims, counted, client, &mut draws));
            });
        }
    });
    assert!(claims.is_empty());
}

/// A client is released while its calls are still under way: the claims that they add are counted, and the next release
/// ends them.
#[test]
fn a_release_beside_calls_of_the_same_client_loses_no_count() {
    let claims = claims();
    thread::scope(|scope| {
        for number in 0..3 {
            let claims = &claims;
            scope.spawn(move || {
                let holder = owner(1, &number.to_string());
                for at in 0..3_000 {
                    let file = file(at % 5);
                    let _ =
                        claims.lock_as(file, &holder, range(u64::from(at % 50), u64::from(at % 50 + 9)), Kind::Read);
                    let share = claims.share(file, &holder, Access::READ, Deny::WRITE);
                    if at % 3 == 0 {
                        claims.release_client(Client::V4(1));
                    }
                    drop(share);
                }
            });
        }
    });
    claims.release_client(Client::V4(1));
    assert!(claims.is_empty());
}
