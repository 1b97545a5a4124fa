//! The server's calls to clients that answer wrongly: not at all, with nonsense, to another call, twice, or by ending
//! the connection.

use crate::honest::{Honest, LOCKED, places, stage};
use rpcrdma_peers::{
    nfs4::{
        Compound,
        client::{self, Client, Session, State},
        link::{Called, Link, Place},
        op, status,
    },
    rpc::{Xdr, word},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// WRITEW_LT.
const WAITING: u32 = 4;
/// OPEN4_RESULT_MAY_NOTIFY_LOCK.
const MAY_NOTIFY: u32 = 0x20;
/// SEQ4_STATUS_CB_PATH_DOWN and SEQ4_STATUS_CB_PATH_DOWN_SESSION.
const DOWN: u32 = 0x201;
/// Callback operations.
const CB_SEQUENCE: u32 = 11;
const CB_NOTIFY_LOCK: u32 = 13;
/// How long something may take; usually it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that waits for a lock of the honest client.
struct Waits {
    client: Client,
    open: State,
    file: Vec<u8>,
    owner: &'static [u8],
}

impl Waits {
    fn new(place: &Place, name: &'static [u8]) -> Self {
        Self::for_file(place, name, b"honest")
    }

    fn for_file(place: &Place, name: &'static [u8], file: &[u8]) -> Self {
        let mut client = Client::called(place, name, 2);
        let (open, handle) = until_called(&mut client, file, name);
        Self { client, open, file: handle, owner: name }
    }

    fn lock(&mut self) -> u32 {
        let mut lock = client::lock(&self.open, self.owner, LOCKED);
        lock.0[3] = WAITING as u8;
        self.client.on(&self.file, op::LOCK, lock).status
    }

    /// The next call, which must be CB_NOTIFY_LOCK for this client.
    fn told(&mut self) -> Notice {
        let call = self.client.link.next_call();
        let notice = Notice::read(&call).expect("CB_NOTIFY_LOCK");
        assert_eq!((notice.session, &notice.file[..]), (self.client.session, &self.file[..]));
        assert_eq!((notice.client, &notice.owner[..]), (self.client.id, self.owner));
        notice
    }
}

/// Opens a file until the server says that it will report free locks: it needs a moment to learn of the reply to
/// CB_NULL. Returns the stateid and the handle.
fn until_called(client: &mut Client, file: &[u8], owner: &[u8]) -> (State, Vec<u8>) {
    let begin = Instant::now();
    loop {
        let call = client.compound().plain(op::PUTROOTFH).op(op::OPEN, client::open(file, owner, 3, 0));
        let results = client.call(&call.plain(op::GETFH));
        let (body, handle) = (results.body(op::OPEN), results.body(op::GETFH));
        if word(body, 36) & MAY_NOTIFY != 0 {
            return (client::state_of(body), handle[4..4 + word(handle, 0) as usize].to_vec());
        }
        assert!(begin.elapsed() < PATIENCE, "the server does not take the client for one that it can call");
        thread::sleep(Duration::from_millis(5));
    }
}

/// CB_SEQUENCE and CB_NOTIFY_LOCK, or CB_SEQUENCE alone.
#[derive(Clone, Debug)]
struct Notice {
    xid: u32,
    session: Session,
    sequence: u32,
    slot: u32,
    file: Vec<u8>,
    client: u64,
    owner: Vec<u8>,
}

impl Notice {
    /// Reads a CB_COMPOUND to the last byte.
    fn read(call: &Called) -> Option<Self> {
        let args = &call.args;
        let at = |index: usize| word(args, 4 * index);
        // An empty tag, the minor version, no ident, two operations.
        assert_eq!((call.program, call.procedure, at(0), at(1), at(2)), (0x4000_0000, 1, 0, 2, 0));
        assert_eq!(at(4), CB_SEQUENCE);
        let session = args[20..36].try_into().unwrap();
        let (sequence, slot, highest, cache, referring) = (at(9), at(10), at(11), at(12), at(13));
        assert!(slot <= highest && cache == 0 && referring == 0);
        if at(3) == 1 {
            assert_eq!(args.len(), 56);
            return None;
        }
        assert_eq!((at(3), at(14)), (2, CB_NOTIFY_LOCK));
        let len = at(15) as usize;
        let file = args[64..64 + len].to_vec();
        let after = 64 + len.next_multiple_of(4);
        let client = u64::from(word(args, after)) << 32 | u64::from(word(args, after + 4));
        let name = word(args, after + 8) as usize;
        let owner = args[after + 12..after + 12 + name].to_vec();
        assert_eq!(args.len(), after + 12 + name.next_multiple_of(4));
        Some(Self { xid: call.xid, session, sequence, slot, file, client, owner })
    }

    /// The reply of an honest client.
    fn well(&self) -> Vec<u8> {
        self.results(self.session, self.slot, self.sequence)
    }

    fn results(&self, session: Session, slot: u32, sequence: u32) -> Vec<u8> {
        let sequence_ok = Xdr::default().words(&[0, 0, 2, CB_SEQUENCE, 0]).raw(&session).words(&[sequence, slot, 7, 7]);
        sequence_ok.words(&[CB_NOTIFY_LOCK, 0]).0
    }
}

fn unlock(honest: &mut Honest) {
    let unlocked = honest.client.on(&honest.file.clone(), op::LOCKU, client::unlock(&honest.lock, LOCKED));
    honest.lock = client::state_of(unlocked.body(op::LOCKU));
}

fn lock(honest: &mut Honest) {
    let xdr = Xdr::default().words(&[client::WRITE_LOCK, 0]).u64(LOCKED.0).u64(LOCKED.1).words(&[0]);
    let again = xdr.raw(&honest.lock).u32(0);
    let locked = honest.client.on(&honest.file.clone(), op::LOCK, again);
    honest.lock = client::state_of(locked.body(op::LOCK));
}

/// proves: NFS4-8881-20.11-b, NFS4-8881-9.6-c, ULB-6.2-a
#[test]
fn who_waits_for_a_lock_is_told_over_the_connection_of_its_own() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut waits = Waits::new(&place, b"waits");
        for sequence in 1..=3 {
            assert_eq!(waits.lock(), status::DENIED);
            assert!(!waits.client.link.has_call());
            unlock(&mut honest);
            let notice = waits.told();
            assert_eq!((notice.slot, notice.sequence), (0, sequence));
            waits.client.link.answer(notice.xid, &notice.well());
            // The call was only a hint: the other client is faster.
            lock(&mut honest);
        }
        unlock(&mut honest);
        assert_eq!(waits.lock(), status::OK);
        assert_eq!(waits.client.on(&waits.file, op::CLOSE, client::close(&waits.open)).status, status::OK);
        honest.works();
        assert_eq!(waits.client.flags(), 0);
    }
    stage.finish();
}

/// Replies to no call, replies with another session, slot or number, meaningless bytes, and the same reply twice: the
/// connection stays, and so do others.
#[test]
fn answers_that_nobody_has_asked_for_do_no_harm() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut hostile = Waits::new(&place, b"hostile");
        for xid in [0, 1, 0xFFFF_FFFF] {
            hostile.client.link.answer(xid, &[0; 64]);
        }
        for round in 0..5 {
            assert_eq!(hostile.lock(), status::DENIED);
            unlock(&mut honest);
            let notice = hostile.told();
            let answer = match round {
                0 => notice.results([0xA5; 16], notice.slot, notice.sequence),
                1 => notice.results(notice.session, notice.slot ^ 1, notice.sequence),
                2 => notice.results(notice.session, notice.slot, notice.sequence + 1),
                3 => vec![0xA5; 60],
                _ => Vec::new(),
            };
            hostile.client.link.answer(notice.xid ^ 0x8000, &notice.well());
            hostile.client.link.answer(notice.xid, &answer);
            hostile.client.link.answer(notice.xid, &notice.well());
            lock(&mut honest);
            honest.works();
            until_flags(&mut hostile.client, DOWN);
            bind_again(&mut hostile.client);
            hostile.open = until_called(&mut hostile.client, b"honest", b"hostile").0;
        }
        // The hostile client gives up, and another one waits.
        let refused = hostile.client.on(&hostile.file, op::LOCK, client::lock(&hostile.open, b"hostile", LOCKED));
        assert_eq!(refused.status, status::DENIED);
        let mut decent = Waits::new(&place, b"decent");
        assert_eq!(decent.lock(), status::DENIED);
        unlock(&mut honest);
        let notice = decent.told();
        decent.client.link.answer(notice.xid, &notice.well());
        lock(&mut honest);
        honest.works();
    }
    stage.finish();
}

/// Sends BIND_CONN_TO_SESSION for both directions, and answers CB_NULL.
fn bind_again(client: &mut Client) {
    let bind = Compound::new(2).op(op::BIND_CONN_TO_SESSION, Xdr::default().raw(&client.session).words(&[7, 0]));
    let bound = client.link.call(&bind);
    assert_eq!(word(bound.body(op::BIND_CONN_TO_SESSION), 16), 3, "both directions");
    let null = client.link.next_call();
    assert_eq!(null.procedure, 0);
    client.link.answer(null.xid, &[]);
    until_flags(client, 0);
}

/// Waits until SEQUENCE says these flags.
fn until_flags(client: &mut Client, flags: u32) {
    let begin = Instant::now();
    while client.flags() != flags {
        assert!(begin.elapsed() < PATIENCE, "SEQUENCE does not come to say {flags:#x}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The server tells the client that it cannot call it, gives the lock to others, and accepts late replies.
#[test]
fn a_client_that_answers_nothing_costs_nobody_else_anything() {
    let stage = stage(&[]);
    let at = places(&stage);
    thread::scope(|scope| {
        for (number, place) in at.iter().enumerate() {
            scope.spawn(move || {
                let name: [&[u8]; 2] = [b"silent 0", b"silent 1"];
                let mut has = Client::new(place, &[b"has", name[number]].concat(), 2);
                let file_name = [b"file", name[number]].concat();
                let (open, file) = has.open(&file_name, b"o", 0);
                let locked = has.on(&file, op::LOCK, client::lock(&open, b"l", LOCKED));
                let state = client::state_of(locked.body(op::LOCK));
                let mut silent = Waits::for_file(place, name[number], &file_name);
                assert_eq!(silent.lock(), status::DENIED);
                let unlocked = has.on(&file, op::LOCKU, client::unlock(&state, LOCKED));
                assert_eq!(unlocked.status, status::OK);
                let notice = silent.told();
                let begin = Instant::now();
                while silent.client.flags() != DOWN {
                    assert!(begin.elapsed() < 2 * PATIENCE, "it is told that it cannot be called");
                    let wrote = has.on(&file, op::WRITE, client::write(&open, &[7; 64]));
                    assert_eq!(wrote.status, status::OK, "the other one goes on");
                    thread::sleep(Duration::from_millis(100));
                }
                assert!(begin.elapsed() >= Duration::from_secs(9), "it has some time");
                silent.client.link.answer(notice.xid, &notice.well());
                until_flags(&mut silent.client, 0);
                assert_eq!(silent.lock(), status::OK, "nobody else has the lock");
            });
        }
    });
    stage.finish();
}

/// The connection ends in the middle of a call. The same call comes on the same slot and with the same number over the
/// connection that the client binds next.
///
/// proves: NFS4-8881-2.10.6.2-b, NFS4-8881-2.10.3.1-a
#[test]
fn a_call_whose_connection_ends_comes_again_over_the_next() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut waits = Waits::new(&place, b"waits");
        assert_eq!(waits.lock(), status::DENIED);
        unlock(&mut honest);
        let first = waits.told();
        waits.client.link = Link::to(&place);
        // SEQUENCE over this connection binds it only for the client's calls.
        until_flags(&mut waits.client, DOWN);
        let bind =
            Compound::new(2).op(op::BIND_CONN_TO_SESSION, Xdr::default().raw(&waits.client.session).words(&[7, 0]));
        let bound = waits.client.link.call(&bind);
        assert_eq!(word(bound.body(op::BIND_CONN_TO_SESSION), 16), 3, "both directions");
        // CB_NULL and the call, in either order.
        let mut again = None;
        for _ in 0..2 {
            let call = waits.client.link.next_call();
            if call.procedure == 0 {
                waits.client.link.answer(call.xid, &[]);
            } else {
                let notice = Notice::read(&call).expect("the same call");
                waits.client.link.answer(notice.xid, &notice.well());
                again = Some(notice);
            }
        }
        let again = again.expect("the call");
        assert_eq!((again.slot, again.sequence, again.owner), (first.slot, first.sequence, first.owner));
        until_flags(&mut waits.client, 0);
        lock(&mut honest);
        honest.works();
    }
    stage.finish();
}
