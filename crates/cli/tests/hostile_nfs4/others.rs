//! Attacks on what belongs to others: stateids, clients, sessions; and forbidden reclaims.

use crate::honest::{Honest, LOCKED, places, stage};
use rpcrdma_peers::{
    nfs4::{
        Compound,
        client::{self, Client},
        link::Link,
        op, status,
    },
    rpc::{Xdr, word},
};

/// proves: NFS4-8881-8.2.4-a
#[test]
fn stateids_of_others_name_nothing() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::new(&place, b"hostile", 2);
        let (mine, _) = client.open(b"hostile", b"owner", 0);
        let (theirs, file) = (honest.open, honest.file.clone());
        let mut made_up = theirs;
        made_up[4..].fill(0xA5);
        let mut ours_changed = mine;
        ours_changed[15] ^= 0x40;
        for state in [theirs, made_up, ours_changed, mine] {
            for (number, args) in [
                (op::READ, client::read(&state, 10)),
                (op::WRITE, client::write(&state, b"octets")),
                (op::CLOSE, client::close(&state)),
                (op::LOCK, client::lock(&state, b"me", (1_000, 1))),
                (op::LOCKU, client::unlock(&state, LOCKED)),
                (21, Xdr::default().raw(&state).words(&[0, 1, 0])),
                (34, Xdr::default().raw(&state).words(&[1, 1 << 4, 8]).u64(7)),
            ] {
                assert_eq!(client.on(&file, number, args).short(), (status::BAD_STATEID, 2), "operation {number}");
            }
        }
        let free = Compound::new(2).op(op::FREE_STATEID, Xdr::default().raw(&theirs));
        assert_eq!(client.call(&free).status, status::BAD_STATEID);
        honest.excludes(&mut client);
        honest.works();
    }
    stage.finish();
}

/// proves: NFS4-8881-18.35-d, NFS4-8881-18.37-a, NFS4-8881-18.50-a
#[test]
fn clients_and_sessions_of_others_stay() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut link = Link::to(&place);
        let (id, session) = (honest.client.id, honest.client.session);
        let destroy = Compound::new(2).op(op::DESTROY_SESSION, Xdr::default().raw(&session));
        assert_eq!(
            link.call(&destroy).status,
            status::CONN_NOT_BOUND_TO_SESSION,
            "over a connection that is not its own"
        );
        let end = Compound::new(2).op(op::DESTROY_CLIENTID, Xdr::default().u64(id));
        assert_eq!(link.call(&end).status, status::CLIENTID_BUSY);
        link.user = 4_711;
        for incarnation in [1, 2] {
            let steal = Compound::new(2).op(op::EXCHANGE_ID, client::exchange_id(b"honest", incarnation));
            assert_eq!(link.call(&steal).status, status::CLID_INUSE, "the name, by another user");
        }
        let session = |id, sequence| Compound::new(2).op(op::CREATE_SESSION, client::create_session(id, sequence, 8));
        // Any user may make sessions for a confirmed client (RFC 8881 section 18.36.4): with its next number; with its
        // last number as a repetition, which makes none.
        assert_eq!(link.call(&session(id, honest.client.creation - 1)).status, status::OK);
        for sequence in [honest.client.creation + 1, 0, u32::MAX] {
            assert_eq!(link.call(&session(id, sequence)).status, status::SEQ_MISORDERED);
        }
        // Another user may not do so for an unconfirmed client.
        link.user = 0;
        let known = link.call(&Compound::new(2).op(op::EXCHANGE_ID, client::exchange_id(b"unconfirmed", 1)));
        let body = known.body(op::EXCHANGE_ID);
        let unconfirmed = u64::from(word(body, 0)) << 32 | u64::from(word(body, 4));
        link.user = 4_711;
        assert_eq!(link.call(&session(unconfirmed, word(body, 8))).status, status::CLID_INUSE, "by another user");
        for wrong in [id ^ 1 << 40, id ^ 1 << 20, 0, u64::MAX] {
            assert_eq!(link.call(&session(wrong, 1)).status, status::STALE_CLIENTID);
        }
        link.user = 0;
        assert_eq!(link.call(&session(id, honest.client.creation + 1)).status, status::SEQ_MISORDERED);
        honest.works();
    }
    stage.finish();
}

/// proves: NFS4-8881-18.51-a, NFS4-8881-18.51-b, NFS4-8881-18.51-c
#[test]
fn nothing_is_reclaimed_when_nothing_can_be() {
    let stage = stage(&[]);
    for place in places(&stage) {
        let mut honest = Honest::new(&place);
        let mut client = Client::in_grace(&place, b"hostile", 2);
        let file = honest.file.clone();
        let opening = client.compound().plain(op::PUTROOTFH).op(op::OPEN, client::open(b"new", b"o", 3, 0));
        assert_eq!(client.call(&opening).short(), (status::GRACE, 2), "before RECLAIM_COMPLETE");
        let complete = Compound::new(2).op(op::RECLAIM_COMPLETE, Xdr::default().u32(0));
        // OPEN4_NOCREATE, CLAIM_PREVIOUS, without a delegation.
        let reclaim = || Xdr::default().words(&[0, 3, 0]).u64(0).opaque(b"o").words(&[0, 1, 0]);
        assert_eq!(client.on(&file, op::OPEN, reclaim()).short(), (status::NO_GRACE, 2), "outside of a grace period");
        assert_eq!(client.call(&complete).status, status::OK);
        assert_eq!(client.call(&complete).status, status::COMPLETE_ALREADY);
        assert_eq!(client.on(&file, op::OPEN, reclaim()).short(), (status::NO_GRACE, 2));
        let (open, mine) = client.open(b"mine", b"o", 0);
        let mut lock = client::lock(&open, b"l", (0, 1));
        lock.0[7] = 1;
        assert_eq!(client.on(&mine, op::LOCK, lock).short(), (status::NO_GRACE, 2));
        assert!(!stage.scratch.path().join("export/new").exists());
        honest.excludes(&mut client);
        honest.works();
    }
    stage.finish();
}
