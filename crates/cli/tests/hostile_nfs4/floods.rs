//! Floods against the limits of what version 4 keeps: the server grants up to the limit and refuses one past it, and an
//! honest client keeps what it has.

use crate::honest::{Honest, places, stage};
use rpcrdma_peers::{
    nfs4::{
        Compound, Results,
        client::{self, Client, State},
        link::Link,
        op, status,
    },
    rpc::{Xdr, word},
};

/// The most records of unconfirmed clients.
const MAX_UNCONFIRMED: usize = 256;
/// Sessions of a client, and slots of a session.
const MAX_SESSIONS: usize = 16;
const MAX_SLOTS: u32 = 64;
/// The most bytes of a reply that a slot remembers.
const SLOT_CACHE_BYTES: u32 = 2_048;
/// The most bytes of all names of a client's owners, and of one name.
const MAX_NAME_BYTES: usize = 8 << 20;
const LONGEST_NAME_BYTES: usize = 1_024;
/// The most ranges of a file that one client may lock, if the server also locks them on the host.
const MAX_RANGES: u64 = 4_096 / 4 * 3;
/// Clients that read at a time, READs of a call, and bytes of each: more in all than the server's memory.
const READERS: usize = 24;
const READS: usize = 60;
const READ_BYTES: u32 = 16 << 10;
/// How many operations one call has here.
const BATCH: usize = 31;

/// A name of so many bytes that no other number has.
fn name(number: usize, octets: usize) -> Vec<u8> {
    let mut name = number.to_be_bytes().to_vec();
    name.resize(octets, b'n');
    name
}

/// Asks for many things, several in one call, until the server refuses one. Returns how many it granted, and the last
/// status.
fn until_refused(
    client: &mut Client,
    mut ask: impl FnMut(Compound, usize) -> Compound,
    most: usize,
    mut seen: impl FnMut(Results),
) -> (usize, u32) {
    let mut given = 0;
    while given < most {
        let call = (given..given + BATCH).fold(Compound::new(2), &mut ask);
        let results = client.call(&call);
        let failed = results.status;
        given += results.outcomes.iter().filter(|outcome| outcome.status == 0 && outcome.op != op::PUTFH).count();
        seen(results);
        if failed != status::OK {
            return (given, failed);
        }
    }
    (given, status::OK)
}

/// Unconfirmed clients push each other out; an honest client in between is served as usual.
#[test]
fn a_flood_of_clients_costs_nobody_but_itself() {
    let stage = stage(&[]);
    for (which, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut link = Link::to(place);
        let known = |link: &mut Link, number: usize| {
            let call = Compound::new(2).op(op::EXCHANGE_ID, client::exchange_id(&name(number, 1_024), 1));
            let body = link.call(&call).body(op::EXCHANGE_ID).to_vec();
            u64::from(word(&body, 0)) << 32 | u64::from(word(&body, 4))
        };
        let ids: Vec<_> = (0..2_000).map(|number| known(&mut link, 10_000 * which + number)).collect();
        let create = |link: &mut Link, id| {
            link.call(&Compound::new(2).op(op::CREATE_SESSION, client::create_session(id, 1, 1))).status
        };
        let (first, oldest_left) = (ids[ids.len() - MAX_UNCONFIRMED - 1], ids[ids.len() - MAX_UNCONFIRMED]);
        assert_eq!(create(&mut link, first), status::STALE_CLIENTID, "one past the limit");
        assert_eq!(create(&mut link, oldest_left), status::OK, "at the limit");
        let mut newcomer = Client::new(place, b"newcomer", 2);
        assert_eq!(newcomer.call(&Compound::new(2).plain(op::PUTROOTFH)).status, status::OK);
        honest.works();
    }
    stage.finish();
}

#[test]
fn sessions_and_slots_end_at_their_limits() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::new(&place, b"hostile", 2);
        for count in 2..=MAX_SESSIONS + 1 {
            let call =
                Compound::new(2).op(op::CREATE_SESSION, client::create_session(client.id, client.creation, u32::MAX));
            client.creation += 1;
            let made = client.link.call(&call);
            if count > MAX_SESSIONS {
                assert_eq!(made.status, status::NOSPC, "one past the limit");
                continue;
            }
            let body = made.body(op::CREATE_SESSION);
            // Behind the session, its number and flags: padding, sizes, operations, slots.
            assert_eq!((word(body, 24 + 16), word(body, 24 + 20)), (64, MAX_SLOTS), "{count}");
            let session = body[..16].try_into().unwrap();
            let by = |slot| Compound::new(2).op(op::SEQUENCE, client::sequence(&session, 1, slot, false));
            assert_eq!(client.link.call(&by(MAX_SLOTS - 1)).status, status::OK, "the last slot");
            for past in [MAX_SLOTS, u32::MAX] {
                assert_eq!(client.link.call(&by(past)).status, status::BADSLOT, "one past it");
            }
        }
        assert_eq!(client.call(&Compound::new(2).plain(op::PUTROOTFH)).status, status::OK);
        honest.works();
    }
    stage.finish();
}

/// The memory of a slot for a reply is limited, whatever the client has asked for: a reply that fits is sent once more,
/// and a call whose reply does not fit is refused before execution.
#[test]
fn what_a_slot_remembers_ends_at_its_limit() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::new(&place, b"hostile", 2);
        // CREATE_SESSION that asks the server to remember every reply completely.
        let channel = |xdr: Xdr| xdr.words(&[0, 1 << 20, 1 << 20, 1 << 20, 64, 1, 0]);
        let create = channel(channel(Xdr::default().u64(client.id).words(&[client.creation, 0])));
        let create = Compound::new(2).op(op::CREATE_SESSION, create.words(&[0x4000_0000, 1, 0]));
        let made = client.link.call(&create);
        let body = made.body(op::CREATE_SESSION);
        assert_eq!(word(body, 24 + 12), SLOT_CACHE_BYTES, "and is told how much will be");
        let session = body[..16].try_into().unwrap();
        let (mut largest, mut smallest_refused, mut number) = (0, u32::MAX, 0);
        for tag in (900..=1_024).step_by(4) {
            number += 1;
            let begin = Compound::new(2).op(op::SEQUENCE, client::sequence(&session, number, 0, true));
            let begin = (0..12).fold(begin.plain(op::PUTROOTFH), |call, _| call.plain(op::GETFH));
            let mut call = (0..50).fold(begin, |call, _| call.plain(op::PUTROOTFH));
            call.tag = vec![b't'; tag];
            let answered = client.link.call(&call);
            // The header of an accepted reply, the status, the tag and the number of results.
            let results: usize = answered.outcomes.iter().map(|outcome| 8 + outcome.body.len()).sum();
            let octets = (24 + 4 + 4 + tag + 4 + results) as u32;
            match answered.status {
                status::OK => {
                    largest = largest.max(octets);
                    assert_eq!(client.link.call(&call), answered, "it is remembered");
                }
                status::REP_TOO_BIG_TO_CACHE => {
                    // Plus the results of the operations that were not executed.
                    let whole = octets + 8 * (64 - answered.outcomes.len() as u32);
                    smallest_refused = smallest_refused.min(whole);
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!((largest, smallest_refused), (SLOT_CACHE_BYTES, SLOT_CACHE_BYTES + 4), "at the limit, and past it");
        honest.works();
    }
    stage.finish();
}

/// Opens of one file by owners with the longest possible names.
///
/// proves: NFS4-LIMITS-NAMES-a
#[test]
fn a_flood_of_owners_ends_at_the_limit_of_its_names() {
    let stage = stage(&[]);
    let [place, _] = places(&stage);
    let mut honest = Honest::new(&place);
    let mut client = Client::new(&place, b"hostile", 2);
    let (open, file) = client.open(b"flood", b"", 0);
    let before = stage.grown_kib();
    let put = |call: Compound| call.op(op::PUTFH, rpcrdma_peers::rpc::Xdr::default().opaque(&file));
    // CLAIM_FH.
    let opening = |number: usize, octets: usize| {
        let xdr = rpcrdma_peers::rpc::Xdr::default().words(&[0, 1, 0]).u64(0);
        xdr.opaque(&name(number, octets)).words(&[0, 4])
    };
    let ask = |call, number| put(call).op(op::OPEN, opening(number, LONGEST_NAME_BYTES));
    let mut states: Vec<State> = Vec::new();
    let most = MAX_NAME_BYTES / LONGEST_NAME_BYTES;
    let seen = |results: Results| {
        let opened = results.outcomes.iter().filter(|outcome| outcome.op == op::OPEN && outcome.status == 0);
        states.extend(opened.map(|outcome| client::state_of(&outcome.body)));
    };
    let (given, refused) = until_refused(&mut client, ask, 2 * most, seen);
    assert_eq!((given, refused), (most, status::DELAY), "to the byte, and one past it");
    let grown = stage.grown_kib() - before;
    println!("{given} opens with names of {LONGEST_NAME_BYTES} bytes: {grown} KiB");
    assert!(grown < 64 << 10, "{grown} KiB for {} KiB of names", MAX_NAME_BYTES >> 10);
    let refused = client.on(&file, op::LOCK, client::lock(&open, &name(0, 9), (0, 1)));
    assert_eq!(refused.status, status::DELAY, "locks too");
    // A closed open makes room for another.
    assert_eq!(client.on(&file, op::CLOSE, client::close(&states[0])).status, status::OK);
    let again = client.on(&file, op::OPEN, opening(most, LONGEST_NAME_BYTES - 9));
    assert_eq!(again.status, status::OK);
    let lock = client.on(&file, op::LOCK, client::lock(&open, &name(0, 9), (0, 1)));
    assert_eq!(lock.status, status::OK);
    assert_eq!(client.on(&file, op::LOCK, client::lock(&open, b"x", (1, 1))).status, status::DELAY);
    honest.excludes(&mut Client::new(&place, b"other", 2));
    honest.works();
    drop((honest, client));
    stage.finish_keeping(64 << 10);
}

#[test]
fn a_flood_of_locks_ends_at_its_limit() {
    let stage = stage(&[]);
    let [place, _] = places(&stage);
    let mut honest = Honest::new(&place);
    let mut client = Client::new(&place, b"hostile", 2);
    let (open, file) = client.open(b"flood", b"o", 0);
    let first = client.on(&file, op::LOCK, client::lock(&open, b"l", (0, 1)));
    let state = client::state_of(first.body(op::LOCK));
    let current = State::try_from([&[0; 4][..], &state[4..]].concat()).unwrap();
    let put = rpcrdma_peers::rpc::Xdr::default().opaque(&file);
    // Ranges that do not touch: each is one more.
    let known = |number: u64| {
        let xdr = rpcrdma_peers::rpc::Xdr::default().words(&[client::WRITE_LOCK, 0]).u64(2 * number).u64(1);
        xdr.u32(0).raw(&current).u32(0)
    };
    let ask = |call: Compound, number: usize| call.op(op::PUTFH, put.clone()).op(op::LOCK, known(number as u64 + 1));
    let (given, refused) = until_refused(&mut client, ask, 2 * MAX_RANGES as usize, drop);
    assert_eq!((given as u64 + 1, refused), (MAX_RANGES, status::DELAY));
    // Other clients can still lock in this file.
    let mut other = Client::new(&place, b"other", 2);
    let (theirs, file) = other.open(b"flood", b"o", 0);
    let locked = other.on(&file, op::LOCK, client::lock(&theirs, b"l", (1 << 40, 1)));
    assert_eq!(locked.status, status::OK);
    let denied = other.on(&file, op::LOCK, client::lock(&theirs, b"l", (0, 1)));
    assert_eq!(denied.status, status::DENIED);
    assert_eq!(client.on(&file, op::LOCKU, client::unlock(&current, (0, u64::MAX))).status, status::OK);
    assert_eq!(other.on(&file, op::LOCK, client::lock(&theirs, b"m", (0, 1))).status, status::OK);
    honest.excludes(&mut other);
    honest.works();
    drop((honest, client, other));
    stage.finish();
}

/// COMPOUNDs of many READs, each of which needs memory while others hold some: all are answered, and none waits for
/// ever.
#[test]
fn calls_of_many_reads_do_not_wait_for_each_other() {
    let stage = stage(&["--memory", "16M"]);
    let [place, _] = places(&stage);
    let mut honest = Honest::new(&place);
    std::thread::scope(|scope| {
        for number in 0..READERS {
            let place = &place;
            scope.spawn(move || {
                let mut client = Client::new(place, format!("reader-{number}").as_bytes(), 2);
                let (open, file) = client.open(b"file", b"o", 0);
                let put = Compound::new(2).op(op::PUTFH, rpcrdma_peers::rpc::Xdr::default().opaque(&file));
                let call = (0..READS).fold(put, |call, _| call.op(op::READ, client::read(&open, READ_BYTES)));
                for _ in 0..8 {
                    let (answered, count) = client.call(&call).short();
                    // If there is no memory for one more READ, the client must ask again for the rest.
                    assert!(answered == status::OK && count == READS + 1 || answered == status::DELAY, "{answered}");
                }
            });
        }
        (0..20).for_each(|_| honest.works());
    });
    drop(honest);
    stage.finish();
}
