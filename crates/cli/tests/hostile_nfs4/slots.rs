//! Sessions and slots: each call is executed once, however often and over whichever connections it is sent.

use crate::honest::{Honest, places, stage};
use rpcrdma_peers::nfs4::{
    Compound, Results,
    client::{self, Client},
    link::{Link, Place},
    op, status,
};

fn mkdir(name: &[u8]) -> Compound {
    Compound::new(2).plain(op::PUTROOTFH).op(op::CREATE, client::create_directory(name))
}

/// Sends one call over many connections at once, and returns all answers.
fn at_once(place: &Place, call: &Compound, times: usize) -> Vec<Results> {
    let mut links: Vec<_> = (0..times).map(|_| Link::to(place)).collect();
    links.iter_mut().for_each(|link| _ = link.send(call));
    links.iter_mut().map(|link| link.results().1).collect()
}

/// A second execution would find that the directory exists.
///
/// proves: NFS4-8881-2.10.6.1.3-a, NFS4-8881-2.10.6.2-a
#[test]
fn one_call_over_many_connections_at_once_is_executed_once() {
    let stage = stage(&[]);
    for (number, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut client = Client::new(place, b"hostile", 2);
        for round in 0..20 {
            let call = client.next(1, true, &mkdir(format!("{number}-{round}").as_bytes()));
            let all = at_once(place, &call, 8);
            let made = all.iter().filter(|results| results.status == status::OK).count();
            assert!(made > 0, "{all:?}");
            for results in all {
                assert!(matches!(results.short(), (status::OK, 3) | (status::DELAY, 1)), "{results:?}");
            }
            let again = client.link.call(&call);
            assert_eq!(again.short(), (status::OK, 3), "and afterwards each repetition has the answer");
        }
        honest.works();
    }
    stage.finish();
}

/// proves: NFS4-8881-2.10.6.1.3.1-a
#[test]
fn different_calls_on_one_slot_at_once_exclude_each_other() {
    let stage = stage(&[]);
    for (number, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut client = Client::new(place, b"hostile", 2);
        for round in 0..20 {
            let sequence = client.slots[1] + 1;
            let call = |which: usize| {
                let first = client::sequence(&client.session, sequence, 1, true);
                Compound::new(2).op(op::SEQUENCE, first).then(&mkdir(format!("{number}-{round}-{which}").as_bytes()))
            };
            let mut links: Vec<_> = (0..6).map(|_| Link::to(place)).collect();
            links.iter_mut().enumerate().for_each(|(which, link)| _ = link.send(&call(which)));
            let mut all: Vec<_> = links.iter_mut().map(|link| link.results().1.status).collect();
            all.sort_unstable();
            let false_retries = [status::SEQ_FALSE_RETRY; 5];
            assert_eq!((all[0], &all[1..]), (status::OK, &false_retries[..]), "one of them is the call");
            client.slots[1] = sequence;
        }
        let made = (0..20).flat_map(|round| (0..6).map(move |which| format!("{number}-{round}-{which}")));
        let made = made.filter(|name| stage.scratch.path().join("export").join(name).exists()).count();
        assert_eq!(made, 20);
        honest.works();
    }
    stage.finish();
}

/// proves: NFS4-8881-2.10.6.1.3.1-a, NFS4-8881-2.10.6.1.3-b, NFS4-8881-18.46-a, NFS4-8881-18.46-b, NFS4-8881-18.46-d
#[test]
fn what_a_slot_does_not_expect_is_refused_and_changes_nothing() {
    let stage = stage(&[]);
    for (number, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut client = Client::new(place, b"hostile", 2);
        let name = format!("made-{number}");
        let call = client.next(3, true, &mkdir(name.as_bytes()));
        let answer = client.link.call(&call);
        assert_eq!(answer.status, status::OK);
        let (session, last) = (client.session, client.slots[3]);
        let sequence = |session, number, slot, highest: u32| {
            let mut args = client::sequence(&session, number, slot, true);
            let at = args.0.len() - 8;
            args.0[at..at + 4].copy_from_slice(&highest.to_be_bytes());
            Compound::new(2).op(op::SEQUENCE, args).then(&mkdir(b"never"))
        };
        let mut unknown = session;
        unknown[15] ^= 1;
        for (what, call, expected) in [
            ("other arguments", sequence(session, last, 3, 3), status::SEQ_FALSE_RETRY),
            ("one too many", sequence(session, last + 2, 3, 3), status::SEQ_MISORDERED),
            ("one too few", sequence(session, last - 1, 3, 3), status::SEQ_MISORDERED),
            ("far away", sequence(session, last ^ 1 << 31, 3, 3), status::SEQ_MISORDERED),
            ("nothing to repeat", sequence(session, 0, 4, 4), status::SEQ_MISORDERED),
            ("a slot too many", sequence(session, 1, 8, 7), status::BADSLOT),
            ("the last slot there is", sequence(session, 1, u32::MAX, 7), status::BADSLOT),
            ("a highest slot too many", sequence(session, last + 1, 3, 8), status::BAD_HIGH_SLOT),
            ("no such session", sequence(unknown, last + 1, 3, 3), status::BADSESSION),
        ] {
            assert_eq!(client.link.call(&call).short(), (expected, 1), "{what}");
        }
        // As another user.
        let mut link = Link::to(place);
        link.user = 4_711;
        assert_eq!(link.call(&call).status, status::SEQ_FALSE_RETRY);
        assert_eq!(client.link.call(&call), answer, "the slot has kept its answer");
        // The same without asking the server to keep the reply.
        let call = client.next(3, false, &mkdir(format!("{name}-too").as_bytes()));
        assert_eq!(client.link.call(&call).short(), (status::OK, 3));
        assert_eq!(client.link.call(&call).short(), (status::RETRY_UNCACHED_REP, 2));
        let next = client.next(3, true, &Compound::new(2).plain(op::PUTROOTFH));
        assert_eq!(client.link.call(&next).status, status::OK, "and goes on where it was");
        assert!(!stage.scratch.path().join("export/never").exists());
        honest.works();
    }
    stage.finish();
}

/// A client never goes on in its slot, but repeats its call again and again: the reply costs no more memory than the
/// first time.
#[test]
fn a_slot_that_is_never_acknowledged_costs_its_own_answer_alone() {
    let stage = stage(&[]);
    for (number, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        let mut client = Client::new(place, b"hostile", 2);
        let calls: Vec<_> =
            (0..8).map(|slot| client.next(slot, true, &mkdir(format!("{number}-{slot}").as_bytes()))).collect();
        let answers: Vec<_> = calls.iter().map(|call| client.link.call(call)).collect();
        let grown = stage.grown_kib();
        for _ in 0..500 {
            for (call, answer) in calls.iter().zip(&answers) {
                assert_eq!(client.link.call(call), *answer);
            }
        }
        assert!(stage.grown_kib() < grown + 4_096, "{} KiB more", stage.grown_kib() - grown);
        honest.works();
    }
    stage.finish();
}
