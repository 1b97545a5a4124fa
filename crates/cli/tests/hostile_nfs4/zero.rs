//! Misuse of minor version 0: names and ids of others, numbers of owners, unconfirmed opens, ids of the wrong kind,
//! repeated calls.

use crate::honest::{Honest, places, stage_of_all as stage};
use rpcrdma_peers::{
    nfs4::{
        Compound, Results,
        client::{self, Client, State},
        link::Link,
        op, status,
        zero::{self, Zero, confirm_client_id, id_of, one, set_client_id},
    },
    rpc::{Xdr, word},
};

/// The most records of unconfirmed clients, and the most records of one address.
const MAX_UNCONFIRMED: usize = 256;
const MAX_CLIENTS_OF_ADDRESS: usize = 4_096 / 4 * 3;
/// Another user than the one that registered the client.
const THIEF: u32 = 4_711;

fn set(link: &mut Link, name: &[u8], incarnation: u64) -> Results {
    link.call(&one(op::SETCLIENTID, set_client_id(name, incarnation, zero::NOWHERE)))
}

fn confirm(link: &mut Link, told: &[u8]) -> u32 {
    link.call(&one(op::SETCLIENTID_CONFIRM, confirm_client_id(told))).status
}

/// proves: NFS4-7530-16.33-a, NFS4-7530-16.34-a, NFS4-7530-16.34-d
#[test]
fn another_user_neither_takes_a_name_in_use_nor_confirms_it() {
    let stage = stage(&[]);
    for (number, place) in places(&stage).into_iter().enumerate() {
        let mut honest = Honest::new(&place);
        let mut used = Zero::new(&place, b"used");
        let mut owner = used.owner(b"o");
        let create = owner.open_or_create(b"of-zero");
        let (state, file) = used.opened(&mut owner, &create);
        let mut link = Link::to(&place);
        link.user = THIEF;
        for incarnation in [0, 1, u64::MAX] {
            let refused = set(&mut link, b"used", incarnation);
            assert_eq!(refused.status, status::CLID_INUSE, "the name, by another user");
        }
        assert_eq!(confirm(&mut link, &used.told), status::CLID_INUSE, "what was confirmed, by another user");
        // A verifier that the server has not given out, for a known id and for some unknown ones.
        link.user = 0;
        for (at, bit) in [(8, 1), (15, 0x80), (0, 0x40), (3, 1), (7, 0x20)] {
            let mut wrong = used.told.clone();
            wrong[at] ^= bit;
            assert_eq!(confirm(&mut link, &wrong), status::STALE_CLIENTID, "byte {at}");
        }
        // An unconfirmed record is no client, and only its own user can confirm it.
        let draft = set(&mut link, format!("draft-{number}").as_bytes(), 1).body(op::SETCLIENTID).to_vec();
        let renew = |link: &mut Link, id| link.call(&one(op::RENEW, Xdr::default().u64(id))).status;
        assert_ne!(renew(&mut link, id_of(&draft)), status::OK);
        link.user = THIEF;
        assert_eq!(confirm(&mut link, &draft), status::CLID_INUSE);
        assert_ne!(renew(&mut link, id_of(&draft)), status::OK);
        link.user = 0;
        assert_eq!(confirm(&mut link, &draft), status::OK);
        assert_eq!(renew(&mut link, id_of(&draft)), status::OK);
        // Meanwhile the client in use has lost nothing.
        assert_eq!(used.renew(), status::OK);
        assert_eq!(used.on(&file, op::READ, client::read(&state, 1)).status, status::OK);
        assert_eq!(used.on(&file, op::CLOSE, owner.close(&state)).status, status::OK);
        honest.works();
    }
    stage.finish();
}

/// proves: NFS4-7530-16.34-e
#[test]
fn clients_without_sessions_that_nobody_confirms_push_each_other_out() {
    let stage = stage(&[]);
    for (which, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut decent = Zero::new(place, b"decent");
        let mut link = Link::to(place);
        let mut long = |number: usize| {
            let mut name = number.to_be_bytes().to_vec();
            name.resize(1_024, b'n');
            set(&mut link, &name, 1).body(op::SETCLIENTID).to_vec()
        };
        let told: Vec<_> = (0..2_000).map(|number| long(10_000 * which + number)).collect();
        let (first, oldest_left) = (&told[told.len() - MAX_UNCONFIRMED - 1], &told[told.len() - MAX_UNCONFIRMED]);
        assert_eq!(confirm(&mut link, first), status::STALE_CLIENTID, "one past the limit");
        assert_eq!(confirm(&mut link, oldest_left), status::OK, "at the limit");
        // A repeated name takes only one record.
        for incarnation in 0..1_000 {
            set(&mut link, b"again", incarnation);
        }
        assert_eq!(confirm(&mut link, told.last().unwrap()), status::OK, "the others stay");
        let mut newcomer = Zero::new(place, b"newcomer");
        assert_eq!((decent.renew(), newcomer.renew()), (status::OK, status::OK));
        honest.works();
    }
    stage.finish();
}

/// A host that registers and confirms many clients ends at the share of its address, and harms only later clients from
/// there.
#[test]
fn clients_that_are_confirmed_end_at_the_share_of_their_address() {
    let stage = stage(&["--lease", "600"]);
    let [place, _] = places(&stage);
    let mut honest = Honest::new(&place);
    let mut link = Link::to(&place);
    let mut made = 0;
    let refused = loop {
        let told = set(&mut link, format!("flood-{made}").as_bytes(), 1);
        match told.status {
            status::OK => assert_eq!(confirm(&mut link, told.body(op::SETCLIENTID)), status::OK),
            refused => break refused,
        }
        made += 1;
        assert!(made <= MAX_CLIENTS_OF_ADDRESS, "one past the limit");
    };
    assert_eq!(refused, status::DELAY);
    // The stage's own clients and the honest client have records of this address, too: a new incarnation of a name
    // replaces the former one, so together they have one.
    assert_eq!(made, MAX_CLIENTS_OF_ADDRESS - 1);
    let mut other = Link::to(&place);
    let one_more = Compound::new(2).op(op::EXCHANGE_ID, client::exchange_id(b"one more", 1));
    assert_eq!(other.call(&one_more).status, status::DELAY, "whatever its minor version");
    let first = set(&mut link, b"flood-0", 1);
    assert_eq!(confirm(&mut link, first.body(op::SETCLIENTID)), status::OK, "who is known is served");
    honest.works();
    drop((honest, link, other));
    stage.finish();
}

/// Every operation with an owner's number: repeated, then with wrong numbers, and then with the right one.
///
/// proves: NFS4-7530-9.1.7-a, NFS4-7530-9.1.8-a, NFS4-7530-9.1.9-b
#[test]
fn owners_numbers_are_used_once() {
    let stage = stage(&[]);
    for (number, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut zero = Zero::new(place, b"hostile");
        let (mut owner, mut locker) = (zero.owner(b"o"), zero.owner(b"l"));
        let name = format!("numbers-{number}");
        // GUARDED4 fails if the file exists: so a second execution would be visible.
        let create = owner.create(name.as_bytes());
        let made = zero.link.call(&create);
        assert_eq!(zero.link.call(&create), made, "OPEN");
        let (state, handle) = (client::state_of(made.body(op::OPEN)), made.body(op::GETFH));
        let file = handle[4..4 + word(handle, 0) as usize].to_vec();
        let twice = |zero: &mut Zero, what: u32, args: Xdr| {
            let done = zero.on(&file, what, args.clone());
            assert_eq!(zero.on(&file, what, args), done, "operation {what}");
            client::state_of(done.body(what))
        };
        let state = twice(&mut zero, op::OPEN_CONFIRM, owner.confirm(&state));
        let lock = owner.lock(&state, &mut locker, (0, 10));
        let locked = twice(&mut zero, op::LOCK, lock);
        assert_eq!(word(&locked, 0), 1, "it was locked once");

        for wrong in [2, 3, 0x8000_0000, u32::MAX, u32::MAX - 1] {
            let open = owner.clone_at(wrong).open(name.as_bytes(), 1, 0);
            assert_eq!(zero.link.call(&open).short(), (status::BAD_SEQID, 2), "OPEN, {wrong}");
            let refused = [
                (op::CLOSE, owner.clone_at(wrong).close(&state)),
                (op::LOCK, owner.clone_at(wrong).lock(&state, &mut zero.owner(b"m"), (50, 1))),
                (op::LOCKU, locker.clone_at(wrong).unlock(&locked, (0, 10))),
                (21, Xdr::default().raw(&state).words(&[owner.last.wrapping_add(wrong), 1, 0])),
            ];
            for (what, args) in refused {
                assert_eq!(zero.on(&file, what, args).short(), (status::BAD_SEQID, 2), "operation {what}, {wrong}");
            }
        }
        // The last number with another operation is wrong as well.
        assert_eq!(zero.on(&file, op::CLOSE, owner.clone_at(0).close(&state)).status, status::BAD_SEQID);
        // Nothing of this has changed anything or used a number.
        assert_eq!(zero.on(&file, op::WRITE, client::write(&locked, b"octets")).status, status::OK);
        let unlocked = twice(&mut zero, op::LOCKU, locker.unlock(&locked, (0, 10)));
        assert_eq!(word(&unlocked, 0), 2);
        let closed = owner.close(&state);
        let first = zero.on(&file, op::CLOSE, closed.clone());
        assert_eq!((first.status, zero.on(&file, op::CLOSE, closed)), (status::OK, first.clone()));
        honest.works();
    }
    stage.finish();
}

/// An open that its owner never confirms cannot be used, takes only one record for each owner, and ends with the
/// owner's next open.
///
/// proves: NFS4-7530-16.18-a, NFS4-7530-16.18-b, NFS4-7530-16.18-d
#[test]
fn opens_that_are_never_confirmed_are_of_no_use() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut decent = Client::new(&place, b"decent", 2);
        let mut zero = Zero::new(&place, b"hostile");
        let mut owner = zero.owner(b"o");
        for name in [b"file".as_slice(), b"written"] {
            // Denies reading and writing to all others.
            let results = zero.link.call(&owner.open(name, 1, 3));
            let (body, handle) = (results.body(op::OPEN), results.body(op::GETFH));
            assert_eq!(word(body, 36) & zero::CONFIRM, zero::CONFIRM);
            let (state, file) = (client::state_of(body), handle[4..4 + word(handle, 0) as usize].to_vec());
            let last = owner.last;
            for (what, args) in [
                (op::READ, client::read(&state, 1)),
                (op::WRITE, client::write(&state, b"x")),
                (op::LOCK, owner.lock(&state, &mut zero.owner(b"l"), (0, 1))),
                (op::CLOSE, owner.clone_at(0).close(&state)),
            ] {
                assert_eq!(zero.on(&file, what, args).status, status::BAD_STATEID, "operation {what}");
            }
            owner.last = last;
        }
        // The owner's second OPEN has ended the first.
        let (open, file) = opened_by(&mut decent, b"file");
        assert_eq!(decent.on(&file, op::CLOSE, client::close(&open)).status, status::OK);
        // A flood of unconfirmed opens: only the last one exists, and every number is accepted.
        for number in 0..1_000u32 {
            owner.last = number.wrapping_mul(77);
            let results = zero.link.call(&owner.open(b"written", 1, 3));
            assert_eq!(results.status, status::OK, "{number}");
        }
        let other = owner.open(b"file", 1, 0);
        assert_eq!(zero.link.call(&other).status, status::OK);
        let (open, file) = opened_by(&mut decent, b"written");
        assert_eq!(decent.on(&file, op::CLOSE, client::close(&open)).status, status::OK);
        honest.works();
    }
    stage.finish();
}

/// OPEN of an existing file, for reading.
fn opened_by(client: &mut Client, name: &[u8]) -> (State, Vec<u8>) {
    // Without a delegation, which would be in the way of later opens.
    let open = client::open_existing(name, b"o", 1 | 0x400, 0);
    let results = client.call(&client.compound().plain(op::PUTROOTFH).op(op::OPEN, open).plain(op::GETFH));
    let handle = results.body(op::GETFH);
    (client::state_of(results.body(op::OPEN)), handle[4..4 + word(handle, 0) as usize].to_vec())
}

#[test]
fn owners_of_locks_are_not_forgotten_as_long_as_they_hold_one() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut zero = Zero::new(&place, b"has");
        let mut thief = Zero::new(&place, b"thief");
        thief.link.user = THIEF;
        let (mut owner, mut locker) = (zero.owner(b"o"), zero.owner(b"l"));
        let open = owner.open_or_create(b"locked");
        let (state, file) = zero.opened(&mut owner, &open);
        let locked = zero.on(&file, op::LOCK, owner.lock(&state, &mut locker, (0, 10)));
        let locked = client::state_of(locked.body(op::LOCK));
        for link in [&mut zero.link, &mut thief.link] {
            assert_eq!(link.call(&one(op::RELEASE_LOCKOWNER, locker.release())).status, status::LOCKS_HELD);
        }
        for wrong in [0, zero.id ^ 1 << 33, honest.client.id, u64::MAX] {
            let release = zero::Owner { client: wrong, ..locker.clone() }.release();
            assert_eq!(zero.link.call(&one(op::RELEASE_LOCKOWNER, release)).status, status::STALE_CLIENTID);
        }
        // With another client's id, the same name is another owner.
        let theirs = thief.owner(b"l").release();
        assert_eq!(thief.link.call(&one(op::RELEASE_LOCKOWNER, theirs)).status, status::OK);
        assert_eq!(zero.on(&file, op::WRITE, client::write(&locked, b"octets")).status, status::OK);
        let unlocked = zero.on(&file, op::LOCKU, locker.unlock(&locked, (0, 10)));
        let unlocked = client::state_of(unlocked.body(op::LOCKU));
        assert_eq!(zero.link.call(&one(op::RELEASE_LOCKOWNER, locker.release())).status, status::OK);
        assert_eq!(zero.on(&file, op::READ, client::read(&unlocked, 1)).status, status::BAD_STATEID);
        assert_eq!(zero.on(&file, op::CLOSE, owner.close(&state)).status, status::OK);
        honest.works();
    }
    stage.finish();
}

/// proves: NFS4-7530-9.1.1-a, NFS4-7530-9.1.4.4-a
#[test]
fn ids_and_operations_of_other_minor_versions_mean_nothing() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut zero = Zero::new(&place, b"zero");
        let mut owner = zero.owner(b"o");
        let open = owner.open_or_create(b"of-zero");
        let (state, file) = zero.opened(&mut owner, &open);
        let (theirs, session, their_state) = (honest.client.id, honest.client.session, honest.open);
        // A client of minor version 0 in later ones.
        let mut link = Link::to(&place);
        for minor in [1, 2] {
            let call = |number, args| Compound::new(minor).op(number, args);
            for sequence in [0, 1, 2] {
                let create = call(op::CREATE_SESSION, client::create_session(zero.id, sequence, 8));
                assert_eq!(link.call(&create).status, status::STALE_CLIENTID);
            }
            let destroy = call(op::DESTROY_CLIENTID, Xdr::default().u64(zero.id));
            assert_eq!(link.call(&destroy).status, status::STALE_CLIENTID);
        }
        for (number, args) in [
            (op::READ, client::read(&state, 1)),
            (op::WRITE, client::write(&state, b"x")),
            (op::CLOSE, client::close(&state)),
            (op::LOCK, client::lock(&state, b"l", (1_000, 1))),
        ] {
            assert_eq!(honest.client.on(&file, number, args).status, status::BAD_STATEID, "operation {number}");
        }
        let free = honest.client.compound().op(op::FREE_STATEID, Xdr::default().raw(&state));
        assert_eq!(honest.client.call(&free).status, status::BAD_STATEID);
        // A client with sessions in minor version 0.
        let mut foreign = zero::Owner { client: theirs, name: b"owner".to_vec(), last: 0 };
        let mut told = theirs.to_be_bytes().to_vec();
        told.extend([0; 8]);
        for (number, args) in [
            (op::RENEW, Xdr::default().u64(theirs)),
            (op::SETCLIENTID_CONFIRM, confirm_client_id(&told)),
            (op::RELEASE_LOCKOWNER, foreign.release()),
        ] {
            assert_eq!(zero.link.call(&one(number, args)).status, status::STALE_CLIENTID, "operation {number}");
        }
        assert_eq!(zero.link.call(&foreign.open(b"honest", 1, 0)).status, status::STALE_CLIENTID);
        let test = Xdr::default().words(&[client::WRITE_LOCK]).u64(0).u64(1).u64(theirs).opaque(b"l");
        assert_eq!(zero.on(&file, op::LOCKT, test).status, status::STALE_CLIENTID);
        let mut by = owner.clone();
        for (number, args) in [
            (op::READ, client::read(&their_state, 1)),
            (op::WRITE, client::write(&their_state, b"x")),
            (op::CLOSE, by.close(&their_state)),
            (op::LOCKU, by.unlock(&honest.lock, (0, 100))),
        ] {
            assert_eq!(zero.on(&honest.file, number, args).status, status::BAD_STATEID, "operation {number}");
        }
        // Operations that only one kind of client has.
        for (number, args) in [
            (op::EXCHANGE_ID, client::exchange_id(b"x", 1)),
            (op::CREATE_SESSION, client::create_session(theirs, 1, 8)),
            (op::SEQUENCE, client::sequence(&session, 1, 0, false)),
            (op::DESTROY_CLIENTID, Xdr::default().u64(theirs)),
        ] {
            let refused = zero.link.call(&one(number, args));
            assert_eq!((refused.status, refused.outcomes[0].op), (status::OP_ILLEGAL, op::ILLEGAL), "{number}");
        }
        for (number, args) in [
            (op::SETCLIENTID, set_client_id(b"zero", 9, zero::NOWHERE)),
            (op::SETCLIENTID_CONFIRM, confirm_client_id(&zero.told)),
            (op::RENEW, Xdr::default().u64(zero.id)),
            (op::OPEN_CONFIRM, owner.clone().confirm(&state)),
            (op::RELEASE_LOCKOWNER, owner.release()),
        ] {
            let call = honest.client.compound().op(number, args);
            assert_eq!(honest.client.call(&call).status, status::NOTSUPP, "operation {number}");
        }
        assert_eq!(zero.on(&file, op::READ, client::read(&state, 1)).status, status::OK);
        assert_eq!(zero.on(&file, op::CLOSE, owner.close(&state)).status, status::OK);
        honest.works();
    }
    stage.finish();
}

/// The same call over the same connection, byte for byte: it is executed once, and each time the answer is the same.
///
/// proves: NFS4-7530-DRC-a
#[test]
fn a_call_that_comes_again_is_answered_and_not_executed() {
    let stage = stage(&[]);
    for (number, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut zero = Zero::new(place, b"repeats");
        let directory = format!("directory-{number}");
        let create = Compound::new(0).plain(op::PUTROOTFH);
        let create = create.op(op::CREATE, client::create_directory(directory.as_bytes()));
        let say = |link: &mut Link, message: &[u8]| {
            link.say(message);
            link.results()
        };
        let message = zero.link.message(&create.args());
        let made = say(&mut zero.link, &message);
        assert_eq!(made.1.status, status::OK);
        for _ in 0..3 {
            assert_eq!(say(&mut zero.link, &message), made);
        }
        // Eight copies at the same time.
        for _ in 0..8 {
            zero.link.say(&message);
        }
        for _ in 0..8 {
            assert_eq!(zero.link.results(), made);
        }
        assert_eq!(zero.link.call(&create).status, status::EXIST, "by another number it is another call");
        // REMOVE, which would answer NOENT if it were executed again.
        let remove = Compound::new(0).plain(op::PUTROOTFH).op(op::REMOVE, Xdr::default().opaque(directory.as_bytes()));
        let message = zero.link.message(&remove.args());
        let removed = say(&mut zero.link, &message);
        assert_eq!(removed.1.status, status::OK);
        assert_eq!(say(&mut zero.link, &message), removed);
        assert_eq!(zero.link.call(&remove).status, status::NOENT);
        // The same XID with other contents is no repetition.
        let mut other = message.clone();
        let at = other.len() - 1;
        other[at - 4] ^= 1;
        let refused = say(&mut zero.link, &other).1;
        assert_ne!(refused.status, status::OK);
        honest.works();
    }
    stage.finish();
}
