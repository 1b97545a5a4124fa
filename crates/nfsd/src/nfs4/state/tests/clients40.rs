//! SETCLIENTID and SETCLIENTID_CONFIRM in all cases of RFC 7530 sections 16.33.5 and 16.34.5, and which kind of client
//! may use which ids.

use super::*;
use crate::nfs4::state::{
    Loss,
    checked::Wanted,
    held40::MAX_LOST,
    owners::Opening,
    release::Why,
    tests::{LEASE, ROOT, World, creation, file, limits, name, network, share, who},
};
use rpcrdma_nfs::v4::{
    Opaque, StateIdOther,
    ops::{CallbackClient, NetAddress},
};
use std::{collections::HashSet, time::Duration};

const OTHER: Principal = Principal::unix(7);

fn callback(ident: u32) -> Callback {
    let of = |text: &'static str| Opaque(Bytes::from_static(text.as_bytes()));
    let address = NetAddress { netid: of("tcp"), address: of("10.0.0.1.8.1") };
    let local = IpAddr::from([10, 0, 0, 1]);
    let to = Some(SocketAddr::new(local, 2049));
    Callback { client: CallbackClient { program: 0x4000_0000, address }, ident, to, from: local }
}

/// The arguments of SETCLIENTID: `verifier` is the client's incarnation.
fn set(owner: &str, verifier: u8) -> SetClientId {
    SetClientId {
        owner: Bytes::copy_from_slice(owner.as_bytes()),
        verifier: Verifier([verifier; 8]),
        callback: callback(1),
        principal: ROOT,
        network: network(1),
    }
}

impl World {
    fn set(&self, call: SetClientId) -> (ClientId, Verifier) {
        self.state.set_client_id(call, self.now()).unwrap()
    }

    fn confirm(&self, (id, confirm): (ClientId, Verifier)) -> Result<Confirmed<u32>, Status> {
        self.state.confirm_client_id(id, confirm, ROOT, self.now())
    }

    /// A confirmed client.
    fn zero(&self, owner: &str, verifier: u8) -> Arc<Client<u32>> {
        let set = self.set(set(owner, verifier));
        self.confirm(set).unwrap().client
    }

    fn open_of(&self, client: &Client<u32>, number: u64) -> StateId {
        let recorded = self.state.recovery.record(client).unwrap();
        let opening = Opening { owner: name("o"), file: file(number), share: share(3, 0), pin: number as u32 };
        client.held.open(&recorded, opening).unwrap().id
    }
}

/// proves: NFS4-7530-16.33-c, NFS4-7530-16.34-d
#[test]
fn a_new_client_is_known_when_it_confirms_and_the_last_that_it_was_told_counts() {
    let world = World::new();
    let first = world.set(set("a", 1));
    assert_eq!(world.state.client_of_zero(first.0).err(), Some(Status::EXPIRED), "not before it confirms");
    let mut seen = HashSet::from([first]);
    let mut former = first;
    for call in [set("a", 1), set("a", 2), SetClientId { principal: OTHER, ..set("a", 1) }, set("a", 1)] {
        let next = world.set(call);
        assert!(next.0 != former.0 && next.1 != former.1 && seen.insert(next), "another id each time");
        assert_eq!(world.confirm(former).err(), Some(Status::STALE_CLIENTID), "it was replaced");
        former = next;
    }
    assert_eq!(world.confirm((former.0, first.1)).err(), Some(Status::STALE_CLIENTID), "another verifier");
    assert_eq!(world.confirm((ClientId(0), former.1)).err(), Some(Status::STALE_CLIENTID));
    let confirmed = world.confirm(former).unwrap();
    assert!(confirmed.is_new && confirmed.released.is_empty());
    assert_eq!(world.state.client_of_zero(former.0).unwrap().id(), former.0);
}

/// proves: NFS4-7530-16.33-b, NFS4-7530-16.34-b
#[test]
fn another_callback_of_the_same_incarnation_changes_nothing_else() {
    let world = World::new();
    let first = world.set(set("a", 1));
    let client = world.confirm(first).unwrap().client;
    let open = world.open_of(&client, 1);
    let second = world.set(SetClientId { callback: callback(2), ..set("a", 1) });
    assert!(second.0 == first.0 && second.1 != first.1, "the same id, and another verifier");
    let ident = || client.zero().unwrap().callback().unwrap().ident;
    assert_eq!(ident(), 1, "until it is confirmed");
    let again = world.confirm(first).unwrap();
    assert!(!again.is_new && ident() == 1, "what was confirmed may come again");
    let third = world.set(SetClientId { callback: callback(3), ..set("a", 1) });
    assert_eq!(world.confirm(second).err(), Some(Status::STALE_CLIENTID), "it was replaced");
    let confirmed = world.confirm(third).unwrap();
    assert!(confirmed.is_new && confirmed.released.is_empty() && ident() == 3);
    assert!(!world.confirm(third).unwrap().is_new, "it comes again");
    assert_eq!(world.confirm(first).err(), Some(Status::STALE_CLIENTID));
    assert_eq!(client.held.test(open), Status::OK, "what it holds is its own");
}

/// proves: NFS4-7530-16.33-c, NFS4-7530-16.34-c
#[test]
fn an_incarnation_that_confirms_takes_the_place_of_the_former() {
    let world = World::new();
    let former = world.zero("a", 1);
    let open = world.open_of(&former, 1);
    let draft = world.set(set("a", 2));
    let next = world.set(set("a", 2));
    assert!(draft.0 != former.id() && next.0 != former.id() && next.0 != draft.0);
    assert_eq!(world.confirm(draft).err(), Some(Status::STALE_CLIENTID));
    assert_eq!(former.held.test(open), Status::OK, "until then it keeps what it holds");
    let confirmed = world.confirm(next).unwrap();
    assert_eq!(confirmed.released.len(), 1);
    assert_eq!(world.state.client_of_zero(former.id()).err(), Some(Status::EXPIRED));
    assert_eq!(world.state.client_of_state(open).err(), Some(Status::EXPIRED));
    assert!(world.state.client_of_zero(next.0).is_ok());
}

/// proves: NFS4-7530-16.33-a, NFS4-7530-16.34-a
#[test]
fn another_principal_gets_neither_an_owner_in_use_nor_confirms_it() {
    let world = World::new();
    let by_other = |verifier| SetClientId { principal: OTHER, ..set("a", verifier) };
    let first = world.set(set("a", 1));
    let confirm = |(id, verifier)| world.state.confirm_client_id(id, verifier, OTHER, world.now()).err();
    assert_eq!(confirm(first), Some(Status::CLID_INUSE));
    let client = world.confirm(first).unwrap().client;
    assert_eq!(confirm(first), Some(Status::CLID_INUSE), "nor when it comes again");
    world.open_of(&client, 1);
    for verifier in [1, 2] {
        assert_eq!(world.state.set_client_id(by_other(verifier), world.now()).err(), Some(Status::CLID_INUSE));
    }
    let update = world.set(set("a", 1));
    assert_eq!(confirm(update), Some(Status::CLID_INUSE));
    assert!(world.confirm(update).is_ok(), "and nothing has changed");
    // A client that holds nothing loses the name.
    let idle = world.zero("b", 1);
    let taken = world.set(SetClientId { principal: OTHER, ..set("b", 1) });
    assert_ne!(taken.0, idle.id());
    assert_eq!(world.state.client_of_zero(idle.id()).err(), Some(Status::EXPIRED));
}

/// proves: NFS4-7530-9.1.1-a
#[test]
fn ids_of_one_kind_of_client_are_not_the_others() {
    let world = World::new();
    let (zero, one) = (world.zero("a", 1), world.client("a"));
    assert_ne!(zero.id(), one.client.id(), "the same name is not the same client");
    assert_eq!(world.create(zero.id(), 1).0.err(), Some(Status::STALE_CLIENTID));
    assert_eq!(world.state.destroy_client(zero.id()), Err(Status::STALE_CLIENTID));
    assert_eq!(world.state.client_of_zero(one.client.id()).err(), Some(Status::STALE_CLIENTID));
    assert_eq!(world.confirm((one.client.id(), Verifier([0; 8]))).err(), Some(Status::STALE_CLIENTID));
    world.state.recovery.complete(&one.client, world.now()).unwrap();
    let open = one.open("o", 1, share(1, 0)).unwrap().id;
    assert_eq!(world.state.client_of_state(open).err(), Some(Status::BAD_STATEID));
    // Not even for a client that guesses the prefix of the names.
    let guessed = ExchangeId { owner: name_of(b"a"), ..who("") };
    let exchanged = world.exchange(&guessed).unwrap();
    assert_eq!(exchanged.client, zero.id());
    assert_eq!(world.state.create_session(&creation(exchanged.client, 1), world.now()).0, Err(Status::STALE_CLIENTID));
}

/// proves: NFS4-7530-9.1.4.4-a
#[test]
fn a_stateid_says_whose_it_is_and_of_which_boot() {
    let world = World::new();
    let client = world.zero("a", 1);
    let open = world.open_of(&client, 1);
    assert_eq!(world.state.client_of_state(open).unwrap().id(), client.id());
    let mut unknown = open;
    unknown.other.0[7] ^= 9;
    assert_eq!(world.state.client_of_state(unknown).err(), Some(Status::EXPIRED));
    let old = StateId { sequence: 1, other: StateIdOther([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]) };
    assert_eq!(world.state.client_of_state(old).err(), Some(Status::STALE_STATEID));
    for special in [StateId::ANONYMOUS, StateId::BYPASS, StateId::CURRENT, StateId::INVALID] {
        assert_eq!(world.state.client_of_state(special).err(), Some(Status::BAD_STATEID));
    }
    let next = world.restart();
    assert_eq!(next.state.client_of_state(open).err(), Some(Status::STALE_STATEID));
    assert_eq!(next.state.client_of_zero(client.id()).err(), Some(Status::STALE_CLIENTID));
}

/// proves: NFS4-7530-9.6.3-a
#[test]
fn a_conflict_takes_all_from_a_client_that_was_away_and_the_journal_says_so() {
    let world = World::new();
    let client = world.zero("a", 1);
    let (one, two) = (world.open_of(&client, 1), world.open_of(&client, 2));
    assert_eq!(world.state.take_from(&[client.id()], file(1), world.now()), Ok(super::super::Taken::Stays));
    world.wait(LEASE + 1);
    let super::super::Taken::Gone(released) = world.state.take_from(&[client.id()], file(1), world.now()).unwrap()
    else {
        panic!("it stays")
    };
    assert_eq!(released.len(), 2, "what nobody wanted, too: it cannot be told of a part");
    for open in [one, two] {
        assert_eq!(world.state.client_of_state(open).err(), Some(Status::EXPIRED));
    }
    let next = world.restart();
    assert!(!next.state.recovery.is_grace(), "it may not reclaim");
}

/// proves: NFS4-8881-8.4.3-a
#[test]
fn a_conflict_with_clients_of_both_kinds_is_written_at_once() {
    let world = World::new();
    let (zero, one) = (world.zero("a", 1), world.ready("b"));
    world.open_of(&zero, 1);
    one.open("o", 1, share(3, 0)).unwrap();
    world.wait(LEASE + 1);
    let (writes, holders) = (world.platter.writes(), [zero.id(), one.client.id()]);
    let taken = world.state.take_from(&holders, file(1), world.now()).unwrap();
    assert!(matches!(taken, super::super::Taken::Gone(released) if released.len() == 2));
    assert_eq!(world.platter.writes(), writes + 1);
}

/// The journal expires a client by its name, and the client has started again meanwhile.
///
/// proves: NFS4-7530-9.6.2-a
#[test]
fn an_incarnation_that_comes_while_the_former_is_expired_stays_on_record() {
    let world = World::new();
    let former = world.zero("a", 1);
    world.open_of(&former, 1);
    world.wait(LEASE + 1);
    let next = world.set(set("a", 2));
    world.state.recovery.note_losses(None, std::slice::from_ref(&former)).unwrap();
    let next = world.confirm(next).unwrap().client;
    assert_eq!(world.state.end_those_away(vec![former], world.now()), (vec![], 0));
    assert!(world.state.recovery.recorded(&next).is_some(), "it opens files as it is");
    let last = world.restart();
    assert!(last.state.recovery.reclaim(&last.zero("a", 3), last.now()).is_ok(), "and can reclaim them");
}

/// The client learns of a loss only when it first uses what it has lost, and it cannot acknowledge that.
///
/// proves: NFS4-7530-9.6.2-a
#[test]
fn who_has_lost_a_delegation_may_reclaim_again_when_it_was_told() {
    let reclaims = |world: &World| {
        let next = world.restart();
        next.state.recovery.reclaim(&next.zero("a", 1), next.now()).map(drop)
    };
    for count in [1, 2, MAX_LOST, MAX_LOST + 1] {
        let world = World::new();
        let client = world.zero("a", 1);
        world.open_of(&client, 0);
        let recorded = world.state.recovery.record(&client).unwrap();
        let delegate = |number| client.held.delegate(&recorded, file(number), share(1, 0), 9).unwrap();
        let ids: Vec<_> = (1..=count as u64).map(delegate).collect();
        let states = ids.iter().map(|id| id.other).collect();
        let loss = Loss { client: client.clone(), states, why: Why::NotReturned };
        assert_eq!(world.state.revoke(&[loss], world.now()).unwrap()[0].len(), count);
        assert_eq!(client.held.counts(), [1, 0, 0], "they are not counted any more");
        let sweep = || (0..2).for_each(|_| drop(world.sweep()));
        for (number, id) in ids.iter().enumerate() {
            sweep();
            assert_eq!(reclaims(&world), Err(Status::NO_GRACE), "{number} of {count}");
            let used = client.held.check(*id, file(number as u64 + 1), Wanted::Any);
            assert_eq!(used.err(), Some(Status::BAD_STATEID));
            if count > 2 && number == 0 {
                ids.iter().for_each(|id| drop(client.held.owner_of(*id)));
                break;
            }
        }
        sweep();
        let expected = if count <= MAX_LOST { Ok(()) } else { Err(Status::NO_GRACE) };
        assert_eq!(reclaims(&world), expected, "{count}");
    }
}

/// proves: NFS4-7530-9.6.2-a
#[test]
fn who_has_lost_something_before_a_restart_reclaims_what_it_opens_after_it() {
    let world = World::new();
    let client = world.zero("a", 1);
    let recorded = world.state.recovery.record(&client).unwrap();
    let lost = client.held.delegate(&recorded, file(1), share(1, 0), 9).unwrap();
    let loss = Loss { client: client.clone(), states: vec![lost.other], why: Why::NotReturned };
    world.state.revoke(&[loss], world.now()).unwrap();
    let next = world.restart();
    let client = next.zero("a", 1);
    assert_eq!(next.state.recovery.reclaim(&client, next.now()).err(), Some(Status::NO_GRACE));
    next.open_of(&client, 2);
    let last = next.restart();
    assert!(last.state.recovery.reclaim(&last.zero("a", 1), last.now()).is_ok());
}

/// The next incarnation knows of all losses, and the server is killed before its next upkeep.
///
/// proves: NFS4-7530-9.6.2-a
#[test]
fn the_next_incarnation_of_who_has_lost_something_reclaims_what_it_opens() {
    let world = World::new();
    let client = world.zero("a", 1);
    let recorded = world.state.recovery.record(&client).unwrap();
    let lost = client.held.delegate(&recorded, file(1), share(1, 0), 9).unwrap();
    let loss = Loss { client, states: vec![lost.other], why: Why::NotReturned };
    world.state.revoke(&[loss], world.now()).unwrap();
    let confirmed = world.confirm(world.set(set("a", 2))).unwrap();
    assert!(confirmed.takes_note);
    world.state.recovery.write_waiting();
    world.open_of(&confirmed.client, 2);
    let next = world.restart();
    assert!(next.state.recovery.reclaim(&next.zero("a", 2), next.now()).is_ok());
}

/// proves: NFS4-7530-9.6.2-a
#[test]
fn a_client_reclaims_until_the_grace_period_is_over_and_stays_on_record() {
    let world = World::new();
    for owner in ["a", "b"] {
        let client = world.zero(owner, 1);
        world.open_of(&client, 1);
    }
    let next = world.restart();
    let client = next.zero("a", 1);
    let recovery = &next.state.recovery;
    assert_eq!(recovery.fresh(&client), Err(Status::GRACE));
    assert!(recovery.reclaim(&client, next.now()).is_ok());
    recovery.reclaimed(&client);
    next.wait(LEASE - 1);
    next.sweep();
    assert!(recovery.is_grace(), "nobody says that he is done");
    next.wait(1);
    next.sweep();
    assert!(!recovery.is_grace());
    assert_eq!(
        (recovery.fresh(&client), recovery.reclaim(&client, next.now()).err()),
        (Ok(()), Some(Status::NO_GRACE))
    );
    let known = |owner: &[u8]| recovery.known(&name_of(owner)).is_some();
    assert!(known(b"a") && !known(b"b"), "who has reclaimed stays on record, and who has not is forgotten");
    let last = next.restart();
    assert!(last.state.recovery.reclaim(&last.zero("a", 1), last.now()).is_ok());
}

/// proves: NFS4-7530-16.34-e
#[test]
fn the_oldest_that_nobody_confirmed_goes_when_there_are_too_many() {
    let world = World::with(Limits { unconfirmed: 3, ..limits() });
    let all: Vec<_> = ["a", "b", "c"].map(|owner| world.set(set(owner, 1))).into();
    assert!(world.confirm(all[0]).is_ok(), "three are none too many");
    let (d, e) = (world.set(set("d", 1)), world.set(set("e", 1)));
    assert_eq!(world.confirm(all[1]).err(), Some(Status::STALE_CLIENTID));
    assert!([all[2], d, e].into_iter().all(|said| world.confirm(said).is_ok()));
}

#[test]
fn who_is_never_confirmed_is_forgotten_after_a_lease() {
    let world = World::with(Limits { lease: Duration::from_secs(LEASE), ..limits() });
    let said = world.set(set("a", 1));
    world.wait(LEASE);
    world.sweep();
    assert!(world.state.table().by_id.contains_key(&said.0));
    world.wait(1);
    world.sweep();
    assert_eq!(world.confirm(said).err(), Some(Status::STALE_CLIENTID));
}
