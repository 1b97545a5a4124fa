//! Clients that wait for locks, and the notices that they get.

use super::*;

/// Writes down who gets a notice, in order.
#[derive(Clone, Default)]
struct Bell(Arc<Mutex<Vec<&'static str>>>);

struct Rope(Bell, &'static str);

impl Wake for Rope {
    fn wake(&self) {
        self.0.0.lock().unwrap().push(self.1);
    }
}

struct Fixture {
    claims: Claims,
    clock: Arc<Hands>,
    bell: Bell,
}

impl Fixture {
    fn new(limits: Limits) -> Self {
        let clock = Arc::new(Hands::default());
        Self { claims: Claims::with_limits(clock.clone(), limits), clock, bell: Bell::default() }
    }

    /// Owner `name` of client `client` asks for a lock, and waits if it is denied.
    fn waits(&self, client: u64, name: &'static str, range: Range, kind: Kind) -> bool {
        let wake: Option<Arc<dyn Wake>> = Some(Arc::new(Rope(self.bell.clone(), name)));
        self.claims.lock(&LockRequest { wake, ..request(file(1), &owner(client, name), range, kind) }).is_ok()
    }

    fn told(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.bell.0.lock().unwrap())
    }

    fn unlock(&self, client: u64, name: &str) {
        self.claims.unlock(file(1), &owner(client, name), Range::ALL).unwrap();
    }
}

/// proves: NFS4-8881-9.6-a
#[test]
fn who_came_first_is_told_first_and_alone_if_he_excludes_the_others() {
    let it = Fixture::new(Limits::default());
    assert!(it.waits(1, "holder", range(0, 99), Kind::Write));
    assert!(!it.waits(2, "reader", range(0, 9), Kind::Read));
    assert!(!it.waits(3, "writer", range(5, 9), Kind::Write));
    assert!(!it.waits(4, "second reader", range(0, 9), Kind::Read));
    assert!(!it.waits(5, "elsewhere", range(50, 59), Kind::Write));
    assert_eq!(it.told(), [""; 0]);
    it.unlock(1, "holder");
    assert_eq!(it.told(), ["reader", "second reader", "elsewhere"], "the writer would wait for the reader");
    // The notified owners come, and unlock.
    assert!(it.waits(2, "reader", range(0, 9), Kind::Read) && it.waits(4, "second reader", range(0, 9), Kind::Read));
    it.unlock(2, "reader");
    assert_eq!(it.told(), [""; 0]);
    it.unlock(4, "second reader");
    assert_eq!(it.told(), ["writer"]);
    assert!(it.waits(3, "writer", range(5, 9), Kind::Write) && it.waits(5, "elsewhere", range(50, 59), Kind::Write));
    (2..=5).for_each(|client| it.claims.release_client(Client::V4(client)));
    assert!(it.claims.is_empty());
}

/// A downgrade and the end of a client free something too.
#[test]
fn whatever_frees_a_lock_tells_who_waits_for_it() {
    let it = Fixture::new(Limits::default());
    assert!(it.waits(1, "holder", range(0, 9), Kind::Write));
    assert!(!it.waits(2, "reader", range(0, 9), Kind::Read) && !it.waits(3, "writer", range(0, 9), Kind::Write));
    assert!(it.waits(1, "holder", range(0, 9), Kind::Read));
    assert_eq!(it.told(), ["reader"]);
    it.claims.release_client(Client::V4(2));
    it.claims.release_client(Client::V4(1));
    assert_eq!(it.told(), ["writer"]);
    it.claims.release_client(Client::V4(3));
    assert!(it.claims.is_empty());
}

/// proves: NFS4-8881-9.6-b
#[test]
fn who_asks_without_waiting_waits_no_more() {
    let it = Fixture::new(Limits::default());
    assert!(it.waits(1, "holder", range(0, 9), Kind::Write) && !it.waits(2, "a", range(0, 9), Kind::Write));
    assert!(!it.waits(2, "a", range(3, 4), Kind::Write));
    denied(it.claims.lock_as(file(1), &owner(2, "a"), range(0, 9), Kind::Write));
    it.unlock(1, "holder");
    assert_eq!(it.told(), ["a"], "for the other range, once");
}

/// proves: NFS4-8881-9.6-a
#[test]
fn nothing_is_reserved_and_who_does_not_come_loses_his_place() {
    let it = Fixture::new(Limits::default());
    assert!(it.waits(1, "holder", range(0, 9), Kind::Write));
    assert!(!it.waits(2, "sleeper", range(0, 9), Kind::Write) && !it.waits(3, "next", range(0, 9), Kind::Write));
    it.unlock(1, "holder");
    assert_eq!(it.told(), ["sleeper"]);
    it.clock.pass(WOKEN_TIME - Duration::from_nanos(1));
    it.claims.sweep();
    assert_eq!(it.told(), [""; 0]);
    it.clock.pass(Duration::from_nanos(1));
    it.claims.sweep();
    assert_eq!(it.told(), ["next"]);
    // Any owner that asks gets the lock, notified or not; a notified owner keeps its place for the next time.
    assert!(it.waits(4, "passer-by", range(0, 9), Kind::Write));
    assert!(!it.waits(3, "next", range(0, 9), Kind::Write) && !it.waits(2, "sleeper", range(0, 9), Kind::Write));
    it.unlock(4, "passer-by");
    assert_eq!(it.told(), ["next"]);
}

#[test]
fn a_place_that_is_not_asked_for_again_is_lost() {
    let it = Fixture::new(Limits::default());
    assert!(it.waits(1, "holder", range(0, 9), Kind::Write));
    assert!(!it.waits(2, "gone", range(0, 9), Kind::Write) && !it.waits(3, "there", range(0, 9), Kind::Write));
    it.clock.pass(WAITING_TIME - Duration::from_nanos(1));
    assert!(!it.waits(3, "there", range(0, 9), Kind::Write));
    it.clock.pass(Duration::from_nanos(1));
    it.claims.sweep();
    it.unlock(1, "holder");
    assert_eq!(it.told(), ["there"]);
    it.clock.pass(WAITING_TIME);
    it.claims.sweep();
    assert!(it.claims.is_empty());
}

/// proves: NFS4-LIMIT-b
#[test]
fn a_client_waits_for_so_many_and_a_file_is_waited_for_by_so_many() {
    let it = Fixture::new(Limits { waiting_of_client: 3, waiting_of_file: 5, ..Limits::default() });
    assert!(it.waits(1, "holder", range(0, 99), Kind::Write));
    for client in 2..=3 {
        (0..4).for_each(|at| assert!(!it.waits(client, "many", range(at + 10 * client, at + 10 * client), Kind::Read)));
    }
    it.unlock(1, "holder");
    assert_eq!(it.told().len(), 5, "three of one client, two of the other");
    // An owner that gives up makes room for another.
    assert!(it.waits(1, "holder", range(0, 99), Kind::Write));
    denied(it.claims.lock_as(file(1), &owner(2, "many"), range(20, 20), Kind::Read));
    assert!(!it.waits(3, "many", range(32, 32), Kind::Read));
    (1..=3).for_each(|client| it.claims.release_client(Client::V4(client)));
    assert!(it.claims.is_empty());
}

/// An owner that has given up gets no notice; the owners that it would have excluded get one.
#[test]
fn who_cancels_leaves_the_queue() {
    let it = Fixture::new(Limits::default());
    assert!(it.waits(1, "holder", range(0, 99), Kind::Read));
    assert!(!it.waits(2, "writer", range(0, 9), Kind::Write));
    it.claims.cancel(file(1), &owner(2, "writer"), range(0, 8));
    it.claims.cancel(file(1), &owner(2, "another"), range(0, 9));
    it.unlock(1, "holder");
    assert_eq!(it.told(), ["writer"], "another range, and another owner");
    assert!(it.waits(1, "holder", range(0, 99), Kind::Write));
    assert!(!it.waits(3, "reader", range(0, 9), Kind::Read));
    it.claims.cancel(file(1), &owner(3, "reader"), range(0, 9));
    it.claims.cancel(file(1), &owner(2, "writer"), range(0, 9));
    it.unlock(1, "holder");
    assert_eq!(it.told(), [""; 0]);
    assert!(it.claims.is_empty());
}
