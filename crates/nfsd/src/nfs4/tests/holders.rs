//! Holders of delegations that do not do what the server asks: they lose what they hold, and harm no other client.

use super::{
    delegation::{delegated, give_back, reached, some_file},
    *,
};
use crate::{
    nfs4::{
        losses::MAX_TOLD,
        state::limits::RECALLS_OF_CLIENT,
        testing::holder::{Answers, Reached},
    },
    tests::warnings::warnings,
};
use rpcrdma_nfs::v4::ops::sequence_status;

/// The status flags of SEQUENCE.
fn flags(client: &TestClient) -> u32 {
    let mut results = client.send(vec![client.sequence(0, false)]).results;
    only!(results.remove(0), Sequence).unwrap().status
}

/// The status of a stateid.
fn test(client: &TestClient, state: StateId) -> Status {
    let test = Args::TestStateId(ops::TestStateId { states: rpcrdma_nfs::v4::List(vec![state]) });
    only!(client.last(vec![test]), TestStateId).unwrap().statuses[0]
}

/// Lets time pass, during which the server hears from these clients.
fn pass(server: &TestServer, clients: &[&TestClient], seconds: u64) {
    for passed in (0..seconds).step_by(15) {
        server.pass((seconds - passed).min(15));
        server.drive();
        clients.iter().for_each(|client| drop(client.walk("")));
    }
}

/// A holder that does not return its delegation loses it, whatever it answers.
fn loses_it(answers: Answers) {
    loses_it_as(&format!("{answers:?}"), |_, holder| holder.answer(answers.clone()));
}

/// The same, whatever happens to the holder.
fn loses_it_as(answers: &str, becomes: impl Fn(&TestServer, &Reached)) {
    on_each_delegating(|server| {
        let (client, other) = (server.client("a"), server.client("b"));
        let holder = reached(server, &client);
        let file = some_file(&client, "f");
        let (state, delegation) = delegated(&client, "f", READ);
        becomes(server, &holder);
        assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY), "{answers}");
        server.drive();
        pass(server, &[&client, &other], 89);
        assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY), "{answers}: a lease is not over");
        assert_eq!(client.read(&file, delegation, 0, 7).unwrap(), b"content", "{answers}: it is its own");
        pass(server, &[&client, &other], 1);
        let (_, writes) = open(&other, "f", "o", WRITE, 0).unwrap_or_else(|status| panic!("{answers} {status:?}"));
        // NFS4-8881-10.4.6-b
        assert_eq!(client.read(&file, delegation, 0, 7).err(), Some(Status::DELEG_REVOKED), "{answers}");
        assert_eq!(test(&client, delegation), Status::DELEG_REVOKED);
        assert_eq!(give_back(&client, &file, delegation), Status::DELEG_REVOKED, "too late");
        assert_ne!(flags(&client) & sequence_status::RECALLABLE_STATE_REVOKED, 0);
        assert_eq!(flags(&other) & sequence_status::RECALLABLE_STATE_REVOKED, 0);
        assert_eq!(client.read(&file, state, 0, 7).unwrap(), b"content", "its open is its own");
        let free = Args::FreeStateId(ops::FreeStateId { state: delegation });
        assert_eq!(client.status(vec![free]), Status::OK);
        assert_eq!(flags(&client) & sequence_status::RECALLABLE_STATE_REVOKED, 0, "it has taken note");
        assert_eq!(test(&client, delegation), Status::BAD_STATEID);
        let counts = server.nfsd.version_4_counts().unwrap();
        assert_eq!((counts.recalls, counts.revocations, counts.delegations), (1, 1, 0));
        assert!(server.shared().delegations.is_empty());
        assert_eq!(server.shared().claims.delegations(), 0);
        assert_eq!(close(&other, &file, writes), Status::OK);
    });
}

/// proves: NFS4-8881-10.4.5-a, NFS4-8881-10.4.6-b
#[test]
fn who_answers_and_does_not_return_it_loses_it() {
    loses_it(Answers::Ok);
}

/// proves: NFS4-8881-10.4.5-a, NFS4-8881-10.4.6-b
#[test]
fn who_answers_nothing_loses_it() {
    loses_it(Answers::Nothing);
}

/// proves: NFS4-8881-10.4.5-a, NFS4-8881-10.4.6-b
#[test]
fn who_does_not_know_it_loses_it() {
    loses_it(Answers::Status(Status::BAD_STATEID));
}

/// proves: NFS4-8881-10.4.5-a, NFS4-8881-10.4.6-b
#[test]
fn who_is_not_reached_loses_it() {
    loses_it_as("its connection has ended", |server, holder| holder.lose(server));
    loses_it(Answers::Lost);
    loses_it(Answers::Refused(Status::BADSESSION));
}

/// proves: NFS4-8881-10.4.5-c
#[test]
fn who_has_lost_one_is_asked_for_all_and_gets_none_for_an_hour() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    for name in ["f", "g", "h", "i"] {
        some_file(&other, name);
    }
    for name in ["f", "g", "h"] {
        delegated(&client, name, READ);
    }
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    assert_eq!(holder.recalls().len(), 1);
    pass(&server, &[&client, &other], 90);
    assert_eq!(holder.recalls().len(), 3, "the others too, though nobody wants them yet");
    assert_eq!(server.nfsd.version_4_counts().unwrap().revocations, 1);
    pass(&server, &[&client, &other], 90);
    assert!(open(&other, "g", "o", WRITE, 0).is_ok(), "nobody waits for another lease");
    assert_eq!(server.nfsd.version_4_counts().unwrap().revocations, 3);
    let delegates = |server: &TestServer| {
        let access = READ | ops::share::WANT_ANY;
        let (file, opened) = open_with(&client, to_open(&client, "i", "o", access, 0)).unwrap();
        close(&client, &file, opened.state);
        server.shared().claims.delegations() == 1
    };
    assert!(!delegates(&server));
    pass(&server, &[&client, &other], 3_600 - 120);
    assert!(!delegates(&server), "an hour is not over");
    pass(&server, &[&client, &other], 120);
    assert!(delegates(&server));
}

/// proves: NFS4-8881-10.4.5-b
#[test]
fn who_was_not_reached_is_called_again() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    let file = some_file(&client, "f");
    let (_, delegation) = delegated(&client, "f", READ);
    holder.answer(Answers::Lost);
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    assert_eq!(holder.calls(), 1);
    server.pass(2);
    server.drive();
    assert_eq!(holder.calls(), 2);
    holder.answer(Answers::Ok);
    server.pass(2);
    server.drive();
    assert_eq!(holder.calls(), 3);
    server.pass(2);
    server.drive();
    assert_eq!(holder.calls(), 3, "it has taken it");
    assert_eq!(give_back(&client, &file, delegation), Status::OK);
    assert!(open(&other, "f", "o", WRITE, 0).is_ok());
    server.pass(2);
    server.drive();
    assert_eq!(holder.calls(), 3);
}

#[test]
fn who_returns_another_keeps_the_one_that_is_wanted() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    reached(&server, &client);
    let (file, unwanted) = (some_file(&client, "f"), some_file(&client, "g"));
    let (_, delegation) = delegated(&client, "f", READ);
    let (_, not_wanted) = delegated(&client, "g", READ);
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    assert_eq!(give_back(&client, &file, not_wanted), Status::BAD_STATEID);
    assert_eq!(give_back(&client, &unwanted, not_wanted), Status::OK);
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    assert_eq!(give_back(&client, &file, delegation), Status::OK);
    assert!(open(&other, "f", "o", WRITE, 0).is_ok());
}

/// proves: NFS4-8881-8.4.3-a
#[test]
fn who_was_away_for_a_lease_is_not_waited_for() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    let file = some_file(&client, "f");
    let (state, _) = delegated(&client, "f", BOTH);
    server.pass(91);
    other.walk("").unwrap();
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    assert!(open(&other, "f", "o", WRITE, 0).is_ok(), "it was taken from it at once");
    assert_eq!(holder.calls(), 0);
    assert_ne!(flags(&client) & sequence_status::EXPIRED_SOME_STATE_REVOKED, 0);
    assert_eq!(client.read(&file, state, 0, 7).unwrap(), b"content", "its open is in nobody's way");
    assert_eq!(server.nfsd.version_4_counts().unwrap().expired_delegations, 1);
}

/// The server does not recall the others, and no client wants its opens.
///
/// proves: NFS4-8881-10.4.5-c
#[test]
fn who_has_lost_one_and_is_away_loses_all_its_delegations_and_nothing_else() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    let names = ["f", "g", "h"];
    let files = names.map(|name| some_file(&client, name));
    let delegated = names.map(|name| delegated(&client, name, READ));
    pass(&server, &[&other], 10);
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    assert_eq!(holder.calls(), 1);
    // The server heard from it when it answered, but not when it looks after it again.
    holder.answer(Answers::Away);
    pass(&server, &[&other], 89);
    let told = warnings(|| pass(&server, &[&other], 2));
    let counts = server.nfsd.version_4_counts().unwrap();
    assert_eq!((counts.revocations, counts.expired_delegations, counts.expired_opens), (1, 2, 0));
    assert!(server.shared().delegations.is_empty() && server.shared().claims.delegations() == 0);
    assert_eq!(holder.calls(), 1);
    for (file, (state, delegation)) in files.iter().zip(delegated) {
        assert_eq!(client.read(file, state, 0, 7).unwrap(), b"content");
        assert!([Status::DELEG_REVOKED, Status::EXPIRED].contains(&test(&client, delegation)));
    }
    assert_eq!(told.len(), 2, "{told:#?}");
    let fields = [&format!("client={}", client.id.0)[..], "opens=0", "locks=0", "delegations=2"];
    assert!(fields.into_iter().all(|field| told[1].contains(field)), "{told:#?}");
}

/// The log has a line for each of some clients and one for all others together, at most once a minute.
#[test]
fn what_is_taken_from_clients_that_are_away_is_told_and_counted() {
    let server = TestServer::memory();
    let other = server.client("other");
    let clients: Vec<_> = (0..MAX_TOLD + 3).map(|number| server.client(&format!("{number}"))).collect();
    let files: Vec<_> =
        clients.iter().enumerate().map(|(number, client)| create(client, &format!("{number}"), "o")).collect();
    let (locked, state) = create(&clients[0], "locked", "o");
    lock::lock(&clients[0], &locked, lock::first(&clients[0], state, "l"), lock::WRITE, (0, 10)).unwrap();
    pass(&server, &[&other], 91);
    let wants = |name: &str| drop(open(&other, name, "o", READ, READ).unwrap());
    let told = warnings(|| wants("0"));
    assert_eq!(told.len(), 1, "{told:#?}");
    let fields = [&format!("client={}", clients[0].id.0)[..], "opens=1", "locks=0", "delegations=0"];
    assert!(fields.into_iter().all(|field| told[0].contains(field)), "{told:#?}");
    let told = warnings(|| {
        pass(&server, &[&other], 45);
        wants("locked");
        (1..clients.len()).for_each(|number| wants(&number.to_string()));
    });
    assert_eq!(told, [""; 0], "a minute is not over");
    let told = warnings(|| pass(&server, &[&other], 15));
    assert_eq!(told.len(), MAX_TOLD + 1, "{told:#?}");
    let fields = [&format!("client={}", clients[0].id.0)[..], "opens=1", "locks=1", "delegations=0"];
    assert!(fields.into_iter().all(|field| told[0].contains(field)), "who has lost most comes first: {told:#?}");
    assert!(["clients=3", "opens=3"].into_iter().all(|field| told[MAX_TOLD].contains(field)), "{told:#?}");
    let counts = server.nfsd.version_4_counts().unwrap();
    assert_eq!((counts.expired_opens, counts.expired_locks), (files.len() as u64 + 1, 1));
    // No client wants the rest, until the courtesy is over.
    create(&clients[1], "last", "o");
    let told = warnings(|| pass(&server, &[&other], 90 + 24 * 3_600 + 15));
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("opens=1"), "{told:#?}");
}

#[test]
fn who_ends_in_the_midst_of_a_recall_is_not_waited_for() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    holder.answer(Answers::Nothing);
    some_file(&client, "f");
    delegated(&client, "f", BOTH);
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.drive();
    assert_eq!(holder.calls(), 1);
    // The client has started again, and holds nothing.
    let again = server.client_as("a", 2, 0, 2);
    assert_ne!(again.id, client.id);
    assert!(open(&other, "f", "o", WRITE, 0).is_ok());
    assert!(server.shared().delegations.is_empty());
}

/// proves: NFS4-8881-10.4.6-a, NFS4-8881-8.4.3-e
#[test]
fn what_cannot_be_recorded_as_taken_away_stays() {
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    reached(&server, &client);
    let file = some_file(&client, "f");
    let (_, delegation) = delegated(&client, "f", READ);
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    server.shared().state.recovery.refuse();
    pass(&server, &[&client, &other], 120);
    assert_eq!(client.read(&file, delegation, 0, 7).unwrap(), b"content");
    assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::DELAY));
    assert_eq!(server.nfsd.version_4_counts().unwrap().revocations, 0);
    assert_eq!(give_back(&client, &file, delegation), Status::OK);
    assert!(open(&other, "f", "o", WRITE, 0).is_ok());
}

/// proves: NFS4-8881-10.4.4-b
#[test]
fn a_thousand_files_are_called_back_a_few_at_a_time_and_none_is_forgotten() {
    const FILES: usize = 1_000;
    let server = TestServer::memory();
    let (client, other) = (server.client("a"), server.client("b"));
    let holder = reached(&server, &client);
    holder.answer(Answers::Nothing);
    let names: Vec<_> = (0..FILES).map(|number| format!("f{number}")).collect();
    let files: Vec<_> = names.iter().map(|name| some_file(&client, name)).collect();
    let delegations: Vec<_> = names.iter().map(|name| delegated(&client, name, READ).1).collect();
    for name in &names {
        assert_eq!(open(&other, name, "o", WRITE, 0).err(), Some(Status::DELAY));
    }
    server.drive();
    assert_eq!(holder.calls(), RECALLS_OF_CLIENT);
    while holder.unanswered() > 0 {
        assert!(holder.unanswered() <= RECALLS_OF_CLIENT, "at a time");
        holder.let_go();
        server.drive();
    }
    let recalls = holder.recalls();
    assert_eq!(recalls.len(), FILES);
    for (file, delegation) in files.iter().zip(&delegations) {
        assert!(recalls.iter().any(|(recall, _)| recall.state == *delegation && recall.file == *file));
    }
    // The client returns every other delegation, and loses the rest.
    for (file, delegation) in files.iter().zip(&delegations).step_by(2) {
        assert_eq!(give_back(&client, file, *delegation), Status::OK);
    }
    pass(&server, &[&client, &other], 90);
    for name in &names {
        assert!(open(&other, name, "o", WRITE, 0).is_ok(), "{name}");
    }
    let counts = server.nfsd.version_4_counts().unwrap();
    assert_eq!((counts.recalls, counts.revocations), (FILES as u64, FILES as u64 / 2));
    assert!(server.shared().delegations.is_empty());
}

#[test]
fn one_who_answers_nothing_keeps_nobody_elses_recalls_from_being_made() {
    let server = TestServer::memory();
    let clients = [server.client("a"), server.client("b")];
    let other = server.client("c");
    let holders = clients.each_ref().map(|client| reached(&server, client));
    holders[0].answer(Answers::Nothing);
    for number in 0..20 {
        let name = format!("f{number}");
        some_file(&other, &name);
        for client in &clients {
            delegated(client, &name, READ);
        }
        assert_eq!(open(&other, &name, "o", WRITE, 0).err(), Some(Status::DELAY));
    }
    server.drive();
    assert_eq!(holders[0].recalls().len(), RECALLS_OF_CLIENT, "no more are under way");
    assert_eq!(holders[1].recalls().len(), 20);
}
