//! A client vanishes with what it holds: it keeps everything for a lease, and after that what no other client asks for.

use crate::honest::{LOCKED, places, stage};
use rpcrdma_peers::nfs4::{
    client::{self, Client, State},
    link::{Link, Place},
    op, status,
};
use std::time::{Duration, Instant};

/// The server's lease.
const LEASE: Duration = Duration::from_secs(2);
/// EXPIRED_SOME_STATE_REVOKED.
const REVOKED: u32 = 0x10;
/// What a busy machine may add.
const LATE: Duration = Duration::from_secs(20);

/// A client that has locked a file and then stays silent.
fn vanishing(place: &Place, name: &[u8], file: &[u8]) -> (Client, State, State, Vec<u8>) {
    let mut client = Client::new(place, name, 2);
    let (open, handle) = client.open(file, b"o", 0);
    let locked = client.on(&handle, op::LOCK, client::lock(&open, b"l", LOCKED));
    let lock = client::state_of(locked.body(op::LOCK));
    // The connection ends; the session and its state stay.
    client.link = Link::to(place);
    (client, open, lock, handle)
}

/// proves: NFS4-8881-8.3-a, NFS4-8881-8.4.3-d, NFS4-COURTESY-a
#[test]
fn a_client_that_vanishes_keeps_its_locks_for_a_lease_and_then_until_somebody_asks() {
    let stage = stage(&["--lease", "2"]);
    for (number, place) in places(&stage).iter().enumerate() {
        let (wanted, unwanted) = (format!("wanted-{number}"), format!("unwanted-{number}"));
        let begin = Instant::now();
        let (mut gone, open, lock, handle) = vanishing(place, b"gone", wanted.as_bytes());
        let (mut asleep, kept, _, kept_handle) = vanishing(place, b"asleep", unwanted.as_bytes());
        let mut other = Client::new(place, b"other", 2);
        let (mine, file) = other.open(wanted.as_bytes(), b"o", 0);
        // Before the lease is over the lock holds; then another client asks, and gets it.
        loop {
            let asked = Instant::now();
            let answer = other.on(&file, op::LOCK, client::lock(&mine, b"l", LOCKED));
            match answer.status {
                status::OK => break,
                status::DENIED => assert!(asked.duration_since(begin) < LEASE + LATE, "it never ends"),
                // The lease is over, and the server writes this to its journal.
                status::DELAY => {}
                other => panic!("{other}"),
            }
            std::thread::sleep(LEASE / 20);
        }
        assert!(begin.elapsed() > LEASE, "taken from a client whose lease ran: {:?}", begin.elapsed());
        // The server tells a client that comes back; its old stateids are invalid.
        assert_eq!(gone.flags(), REVOKED);
        for state in [open, lock] {
            assert_eq!(gone.on(&handle, op::READ, client::read(&state, 1)).status, status::EXPIRED);
        }
        let again = gone.compound().plain(op::PUTROOTFH).op(op::OPEN, client::open(wanted.as_bytes(), b"n", 3, 0));
        let again = gone.call(&again);
        let again = client::state_of(again.body(op::OPEN));
        assert_eq!(gone.on(&handle, op::LOCK, client::lock(&again, b"l", LOCKED)).status, status::DENIED);
        // The other client has lost nothing, because no client wanted it.
        assert_eq!(asleep.flags(), 0);
        assert_eq!(asleep.on(&kept_handle, op::READ, client::read(&kept, 1)).status, status::OK);
        let (late, file) = other.open(unwanted.as_bytes(), b"o", 0);
        assert_eq!(other.on(&file, op::LOCK, client::lock(&late, b"l", LOCKED)).status, status::DENIED);
    }
    stage.finish();
}
