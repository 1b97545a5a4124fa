//! Silent clients that hold delegations: the server calls them, and ends the connections over which it calls if they do
//! not answer. They lose nothing else before their lease is over.

use super::{
    delegation::{delegated, some_file},
    *,
};
use crate::{
    HealthEvent, Observer,
    nfs4::testing::{
        Setup,
        back::{Back, Said},
    },
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The events that the server has reported.
#[derive(Default)]
struct Told(Mutex<Vec<HealthEvent>>);

impl Observer for Told {
    fn operation(&self, _: Option<rpcrdma_nfs::v4::Op>, _: Status, _: Option<Duration>) {}

    fn health(&self, event: HealthEvent) {
        self.0.lock().unwrap().push(event);
    }
}

thread_local! {
    /// Each test has a thread of its own.
    static TOLD: Arc<Told> = Arc::default();
}

impl Told {
    fn take(&self) -> Vec<HealthEvent> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Scene {
    server: TestServer,
    told: Arc<Told>,
}

impl Scene {
    fn new() -> Self {
        // The set-up is a function pointer, which cannot capture anything.
        let setup = Setup { version_4: |version_4| version_4.with_observer(TOLD.with(Arc::clone)), ..Setup::default() };
        Self { server: TestServer::memory_with(setup), told: TOLD.with(Arc::clone) }
    }

    /// A client that the server can call; with `holds` it holds a delegation.
    fn client(&self, name: &str, holds: bool) -> (TestClient, Arc<Back>) {
        let back = Back::new();
        let client = self.server.client_with(name, &back);
        if holds {
            some_file(&client, name);
            delegated(&client, name, READ);
        }
        self.pass(0);
        (client, back)
    }

    /// Lets time pass, and does what is due.
    fn pass(&self, millis: u64) {
        self.server.clock.pass(Duration::from_millis(millis));
        self.server.shared().sweep();
        self.server.drive();
    }
}

/// Three quarters of a lease of 90 s.
const SILENCE_MILLIS: u64 = 67_500;

/// proves: ULB-5.4.2-a, ULB-3.4.1-b
#[test]
fn a_silent_holder_is_called_and_its_answer_keeps_what_it_holds() {
    let scene = Scene::new();
    let (_holder, back) = scene.client("holder", true);
    let (_other, idle) = scene.client("other", false);
    scene.pass(SILENCE_MILLIS - 1);
    assert_eq!((back.calls().len(), scene.told.take()), (0, vec![]), "at the limit");
    for round in 0..4 {
        scene.pass(if round == 0 { 1 } else { SILENCE_MILLIS });
        let calls = back.calls();
        assert_eq!((calls.len(), calls[0].ops().len()), (1, 0), "CB_SEQUENCE alone, in round {round}");
        assert_eq!(scene.told.take(), [HealthEvent::Asked, HealthEvent::Answered]);
        scene.pass(0);
        assert_eq!(back.calls().len(), 0, "it was heard of");
    }
    assert_eq!(scene.server.nfsd.version_4_counts().unwrap().delegations, 1, "after three leases");
    assert_eq!((idle.calls().len(), back.given_up()), (0, None), "nobody waits for who holds nothing");
}

/// proves: ULB-3.4.1-b
#[test]
fn one_that_does_not_answer_loses_its_connection_and_can_still_renew_its_lease() {
    let scene = Scene::new();
    let (holder, back) = scene.client("holder", true);
    back.answer_by(|_| Said::Nothing);
    scene.pass(SILENCE_MILLIS);
    scene.pass(9_999);
    assert_eq!((back.calls().len(), back.given_up()), (1, None), "at the limit");
    scene.pass(1);
    let why = back.given_up().expect("the connection is ended");
    assert!(why.contains("holds delegations"), "{why}");
    assert_eq!(scene.told.take(), [HealthEvent::Asked, HealthEvent::GivenUp]);
    scene.pass(1_000);
    assert_eq!((back.calls().len(), scene.told.take()), (0, vec![]), "once in a silence");
    // The client comes back over another connection before its lease is over.
    let again = scene.server.version_3();
    assert_eq!(holder.send_over(&again, vec![holder.sequence(0, false)]).status, Status::OK);
    assert_eq!(scene.server.nfsd.version_4_counts().unwrap().delegations, 1);
}

#[test]
fn one_that_sends_something_meanwhile_or_refuses_is_there() {
    let scene = Scene::new();
    let (holder, back) = scene.client("holder", true);
    back.answer_by(|_| Said::Nothing);
    scene.pass(SILENCE_MILLIS);
    scene.pass(5_000);
    assert_eq!(holder.status(vec![Args::PutRootFh]), Status::OK);
    scene.pass(5_000);
    assert_eq!((back.given_up(), scene.told.take()), (None, vec![HealthEvent::Asked]));

    let scene = Scene::new();
    let (_holder, back) = scene.client("holder", true);
    back.answer_by(|heard| Said::Results(heard.refused(Status::BADSESSION)));
    scene.pass(SILENCE_MILLIS);
    assert_eq!((back.given_up(), scene.told.take()), (None, vec![HealthEvent::Asked, HealthEvent::Answered]));
}

/// The server does not end a connection for a call that it could not send.
#[test]
fn one_that_cannot_be_asked_is_left_alone() {
    let scene = Scene::new();
    let (_holder, back) = scene.client("holder", true);
    back.end();
    scene.pass(SILENCE_MILLIS);
    scene.pass(10_000);
    assert_eq!((back.calls().len(), back.given_up(), scene.told.take()), (0, None, vec![HealthEvent::Asked]));
}
