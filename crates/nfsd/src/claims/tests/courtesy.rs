//! Courtesy clients: they keep their claims until another client wants them.

use super::*;
use std::sync::atomic::AtomicBool;

/// Knows which clients may be expired, and writes down for which ones the table has asked.
#[derive(Default)]
struct Leases {
    over: Mutex<HashSet<Client>>,
    asked: Mutex<Vec<Client>>,
    /// The table, which this asks while the table asks it: the table holds no lock then.
    claims: OnceLock<Claims>,
    /// Whether clients lose only what they hold on the wanted file.
    file_alone: AtomicBool,
}

impl Courtesy for Leases {
    fn expire(&self, client: Client, _: FileKey) -> Expired {
        self.asked.lock().unwrap().push(client);
        if let Some(claims) = self.claims.get() {
            assert!(claims.has_locks(file(1), &owner(1, "a")));
            assert!(claims.may(file(1), Access::READ, Asker::Holder(&owner(1, "a"))).is_ok());
            assert_eq!(claims.held_by(client), (1, 1));
        }
        match (self.over.lock().unwrap().remove(&client), self.file_alone.load(Ordering::Relaxed)) {
            (false, _) => Expired::Nothing,
            (true, true) => Expired::File,
            (true, false) => Expired::All,
        }
    }
}

fn with_leases() -> (Claims, Arc<Leases>) {
    let (claims, leases) = (claims(), Arc::new(Leases::default()));
    let weak: Weak<dyn Courtesy> = Arc::downgrade(&(leases.clone() as Arc<dyn Courtesy>));
    claims.connect(weak);
    (claims, leases)
}

impl Leases {
    fn end(&self, clients: &[u64]) {
        self.over.lock().unwrap().extend(clients.iter().map(|client| Client::V4(*client)));
    }

    fn asked(&self) -> Vec<Client> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

/// proves: NFS4-COURTESY-a
#[test]
fn a_lock_ends_the_courtesy_of_those_in_its_way_and_of_no_other() {
    let (claims, leases) = with_leases();
    for client in 1..=3 {
        claims.lock_as(file(1), &owner(client, "a"), range(client * 10, client * 10), Kind::Write).unwrap();
    }
    let asker = owner(9, "a");
    leases.end(&[1, 2]);
    claims.lock_as(file(1), &asker, range(0, 20), Kind::Read).unwrap();
    assert_eq!(leases.asked(), [Client::V4(1), Client::V4(2)]);
    assert_eq!([1, 2, 3].map(|client| claims.held_by(Client::V4(client)).1), [0, 0, 1]);
    // A client whose lease runs is in the way as before; the table asks about it once.
    assert_eq!(denied(claims.lock_as(file(1), &asker, range(0, 30), Kind::Read)).range, range(30, 30));
    assert_eq!(leases.asked(), [Client::V4(3)]);
    assert!(
        denied(claims.test(&request(file(1), &asker, range(30, 30), Kind::Read))).by == LockedBy::Holder(owner(3, "a"))
    );
    leases.end(&[3]);
    claims.test(&request(file(1), &asker, range(30, 30), Kind::Read)).unwrap();
    assert_eq!(claims.held_by(Client::V4(3)), (0, 0));
}

/// proves: NFS4-COURTESY-a
#[test]
fn an_open_and_a_read_end_the_courtesy_of_all_who_deny_them() {
    let (claims, leases) = with_leases();
    let open = |client, access, deny| claims.share(file(1), &owner(client, "a"), access, deny);
    let _kept: Vec<_> = (1..=4).map(|client| open(client, Access::WRITE, Deny::READ).unwrap()).collect();
    let _other = claims.share(file(2), &owner(1, "a"), Access::WRITE, Deny::WRITE);
    leases.end(&[1, 2, 3]);
    assert!(open(9, Access::READ, Deny::NONE).is_err(), "one of the four has a lease");
    assert_eq!(claims.may(file(1), Access::READ, Asker::Anonymous).unwrap_err().client, Client::V4(4));
    leases.end(&[1, 2, 3, 4]);
    assert_eq!(claims.may(file(1), Access::READ, Asker::Anonymous), Ok(()));
    assert_eq!((1..=4).map(|client| claims.held_by(Client::V4(client)).0).sum::<usize>(), 0);
    assert_eq!(leases.asked().first(), Some(&Client::V4(1)));
}

/// proves: NFS4-COURTESY-a
#[test]
fn a_client_may_lose_what_is_wanted_and_nothing_else() {
    let (claims, leases) = with_leases();
    leases.file_alone.store(true, Ordering::Relaxed);
    let mut shares = Vec::new();
    for number in 1..=2 {
        for name in ["a", "b"] {
            let holder = owner(1, name);
            shares.push(claims.share(file(number), &holder, Access::READ, Deny::WRITE).unwrap());
            claims.lock_as(file(number), &holder, range(0, 9), Kind::Read).unwrap();
        }
    }
    leases.end(&[1]);
    claims.lock_as(file(1), &owner(2, "a"), range(5, 5), Kind::Write).unwrap();
    assert_eq!(claims.held_by(Client::V4(1)), (2, 2));
    assert_eq!(shares.iter().map(|share| share.modes().is_some()).collect::<Vec<_>>(), [false, false, true, true]);
    assert_eq!(claims.may(file(1), Access::WRITE, Asker::Anonymous), Ok(()));
    denied(claims.lock_as(file(2), &owner(2, "a"), range(5, 5), Kind::Write));
    assert!(claims.may(file(2), Access::WRITE, Asker::Anonymous).is_err());
}

#[test]
fn a_client_is_not_expired_by_itself() {
    let (claims, leases) = with_leases();
    leases.end(&[1]);
    let _share = claims.share(file(1), &owner(1, "a"), Access::BOTH, Deny::WRITE).unwrap();
    claims.lock_as(file(1), &owner(1, "a"), range(0, 0), Kind::Write).unwrap();
    assert!(claims.share(file(1), &owner(1, "b"), Access::WRITE, Deny::NONE).is_err());
    assert!(claims.may(file(1), Access::WRITE, Asker::Holder(&owner(1, "b"))).is_err());
    denied(claims.lock_as(file(1), &owner(1, "b"), range(0, 0), Kind::Write));
    assert_eq!((leases.asked(), claims.held_by(Client::V4(1))), (vec![], (1, 1)));
}

/// The table holds no lock while it asks.
#[test]
fn who_is_asked_may_ask_the_table() {
    let (claims, leases) = with_leases();
    assert!(leases.claims.set(claims.clone()).is_ok());
    let _share = claims.share(file(1), &owner(1, "a"), Access::BOTH, Deny::BOTH).unwrap();
    claims.lock_as(file(1), &owner(1, "a"), range(0, 0), Kind::Write).unwrap();
    leases.end(&[1]);
    claims.lock_as(file(1), &owner(2, "a"), range(0, 0), Kind::Write).unwrap();
    assert_eq!((claims.held_by(Client::V4(1)), leases.asked().len()), ((0, 0), 1));
}

/// Says of every client that it may be expired.
struct Always;

impl Courtesy for Always {
    fn expire(&self, _: Client, _: FileKey) -> Expired {
        Expired::All
    }
}

/// A client that comes back as soon as it is expired.
struct Returning(Claims);

impl Wake for Returning {
    fn wake(&self) {
        self.0.lock_as(file(1), &owner(1, "a"), range(0, 0), Kind::Write).unwrap();
    }
}

#[test]
fn a_client_that_takes_again_what_was_released_is_asked_about_once() {
    let (claims, always) = (claims(), Arc::new(Always) as Arc<dyn Courtesy>);
    claims.lock_as(file(1), &owner(1, "a"), range(0, 0), Kind::Write).unwrap();
    let wake: Option<Arc<dyn Wake>> = Some(Arc::new(Returning(claims.clone())));
    denied(claims.lock(&LockRequest { wake, ..request(file(1), &owner(3, "a"), range(0, 0), Kind::Write) }));
    claims.connect(Arc::downgrade(&always));
    let by = denied(claims.lock_as(file(1), &owner(2, "a"), range(0, 0), Kind::Write)).by;
    assert_eq!(by, LockedBy::Holder(owner(1, "a")));
}
