//! Connections over which the server calls clients: made, proven, lost, and bound again.

use super::*;
use rpcrdma_nfs::v4::ops::{BindConnToSession, ClientDirection, ServerDirection};

fn bind(client: &TestClient, rpc: &testing::Client, direction: ClientDirection) -> Result<ServerDirection, Status> {
    let bind = BindConnToSession { session: client.session, direction, rdma_mode: true };
    let mut results = over(client, rpc, vec![Args::BindConnToSession(bind)]);
    only!(results.remove(0), BindConnToSession).map(|ok| {
        assert!(!ok.rdma_mode);
        ok.direction
    })
}

/// A COMPOUND of a client over another of its connections.
fn over(
    client: &TestClient,
    rpc: &testing::Client,
    ops: Vec<Args>,
) -> Vec<rpcrdma_nfs::v4::Outcome<rpcrdma_xdr::ItemData>> {
    client.send_over(rpc, ops).results
}

fn told_over(client: &TestClient, rpc: &testing::Client) -> u32 {
    let mut results = over(client, rpc, vec![client.sequence(0, false)]);
    only!(results.remove(0), Sequence).unwrap().status
}

/// proves: NFS4-8881-18.36-m
#[test]
fn a_client_is_called_only_once_it_has_shown_that_it_answers() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_over("a", &back);
    assert!(!can_call(&server, &client), "nobody has asked it yet");
    assert_eq!(told(&client), 0, "which is no fault of its");
    server.drive();
    assert!(can_call(&server, &client));

    let silent = Back::new();
    silent.answer_by(|_| Said::Nothing);
    let client = server.client_with("b", &silent);
    server.clock.pass(ANSWER_TIME);
    server.drive();
    assert_eq!((can_call(&server, &client), told(&client)), (false, DOWN));
    assert_eq!(silent.held(), 1, "CB_NULL, and once");

    let without = Back::new();
    without.answer_by(|_| Said::Rejected(rpcrdma_oncrpc::Rejection::ProgramUnavailable));
    let client = server.client_with("c", &without);
    assert_eq!((can_call(&server, &client), told(&client)), (false, DOWN));
}

#[test]
fn a_client_without_a_back_channel_is_not_called() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client("a");
    assert_eq!((can_call(&server, &client), told(&client)), (false, 0));
    assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::NoPath));
    // A client whose connection could carry calls, but which did not ask for them.
    let rpc = server.connection_over(&back);
    let client = TestClient::with(rpc, "b", |create| create.flags = 0);
    server.drive();
    assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::NoPath));
    assert!(back.calls().is_empty());
}

/// The client's connection is gone. Its calls over another connection do not bind that one for the server's calls; the
/// server reports this, and the client binds it.
///
/// proves: NFS4-8881-2.10.3.1-a
#[test]
fn a_client_that_comes_back_is_told_to_bind_again() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    server.end(&client.rpc, &back);
    assert!(!can_call(&server, &client));
    let again = Back::new();
    let rpc = server.connection_over(&again);
    for _ in 0..2 {
        assert_eq!(told_over(&client, &rpc), DOWN);
    }
    assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::NoPath));
    assert_eq!(bind(&client, &rpc, ClientDirection::BackOrBoth), Ok(ServerDirection::Both));
    assert_eq!(told_over(&client, &rpc), 0);
    assert!(!can_call(&server, &client), "it has yet to answer over this one");
    server.drive();
    assert!(can_call(&server, &client));
    call(&server, &client, vec![recall()]).unwrap();
    assert_eq!(numbers(&again.calls()), [(0, 1)]);
    assert_eq!(server.shared().paths.len(), 1);
    server.end(&rpc, &again);
    assert_eq!(server.shared().paths.len(), 0);
}

/// A connection ends while a call is under way: the server sends the same call, with the same slot and number, over
/// another one.
///
/// proves: NFS4-8881-2.10.6.2-b
#[test]
fn a_call_whose_connection_ends_goes_again_over_another() {
    for is_executed in [false, true] {
        let (server, first, second) = (TestServer::memory(), Back::new(), Back::new());
        let client = server.client_with("a", &first);
        let rpc = server.connection_over(&second);
        assert_eq!(bind(&client, &rpc, ClientDirection::Back), Ok(ServerDirection::Back));
        server.drive();
        second.answer_by(|_| Said::Nothing);
        first.answer_by(move |heard| match is_executed {
            true => Said::Results(heard.refused(Status::RETRY_UNCACHED_REP)),
            false => Said::Well,
        });
        let begun = begin(&server, &client, vec![recall()]);
        assert_eq!((numbers(&second.calls()), begun.answer()), (vec![(0, 1)], None), "the newest connection");
        server.end(&rpc, &second);
        server.drive();
        let expected = if is_executed { Err(NoAnswer::Lost) } else { Ok(vec![Outcome::Recall(Ok(()))]) };
        assert_eq!(begun.answer(), Some(expected));
        let [again] = &first.calls()[..] else { panic!("once") };
        assert_eq!((again.ops(), numbers(std::slice::from_ref(again))), (&[recall()][..], vec![(0, 1)]));
        first.answer_by(|heard| Said::Results(heard.well()));
        call(&server, &client, vec![recall()]).unwrap();
        assert_eq!(numbers(&first.calls()), [(0, 2)], "however it was, both count alike");
        assert_eq!(told(&client), 0);
    }
}

/// There is no other connection: the call is lost when its time is over. Before the server uses the slot again, it asks
/// whether the client executed the call.
///
/// proves: NFS4-8881-2.10.6.2-c
#[test]
fn a_slot_in_doubt_is_asked_for_over_the_next_connection() {
    for status in [Status::OK, Status::RETRY_UNCACHED_REP, Status::SEQ_FALSE_RETRY] {
        let (server, back) = (TestServer::memory(), Back::new());
        let client = server.client_with("a", &back);
        back.answer_by(|_| Said::Nothing);
        let begun = begin(&server, &client, vec![recall()]);
        server.end(&client.rpc, &back);
        server.drive();
        assert_eq!(begun.answer(), None, "another may come in time");
        server.clock.pass(ANSWER_TIME);
        server.drive();
        assert_eq!(begun.answer(), Some(Err(NoAnswer::Lost)));
        let again = Back::new();
        again.answer_by(move |heard| match heard.ops().is_empty() && heard.procedure != 0 && status != Status::OK {
            true => Said::Results(heard.refused(status)),
            false if heard.procedure == 0 => Said::Well,
            false => Said::Results(heard.well()),
        });
        let rpc = server.connection_over(&again);
        bind(&client, &rpc, ClientDirection::BackOrBoth).unwrap();
        server.drive();
        call(&server, &client, vec![recall()]).unwrap();
        let calls = again.calls();
        assert_eq!(numbers(&calls), [(0, 1), (0, 2)], "{status:?}");
        assert!(calls[0].ops().is_empty() && calls[1].ops() == [recall()], "CB_SEQUENCE alone, and then the call");
    }
}

/// The client may still be executing the first call when it comes again: it answers DELAY, and the server repeats the
/// call later.
#[test]
fn a_call_that_is_executed_still_is_asked_for_again() {
    let (server, first, second) = (TestServer::memory(), Back::new(), Back::new());
    let client = server.client_with("a", &first);
    let rpc = server.connection_over(&second);
    bind(&client, &rpc, ClientDirection::BackOrBoth).unwrap();
    server.drive();
    second.answer_by(|_| Said::Nothing);
    let mut delays = 1;
    first.answer_by(move |heard| {
        delays -= 1;
        Said::Results(heard.refused(if delays >= 0 { Status::DELAY } else { Status::RETRY_UNCACHED_REP }))
    });
    let begun = begin(&server, &client, vec![recall()]);
    server.end(&rpc, &second);
    server.drive();
    assert_eq!((numbers(&first.calls()), begun.answer()), (vec![(0, 1)], None));
    server.clock.pass(Duration::from_secs(1));
    server.drive();
    assert_eq!((numbers(&first.calls()), begun.answer()), (vec![(0, 1)], Some(Err(NoAnswer::Lost))));
    first.answer_by(|heard| Said::Results(heard.well()));
    call(&server, &client, vec![recall()]).unwrap();
    assert_eq!(numbers(&first.calls()), [(0, 2)]);
}

/// The client comes back in time: its absence has no effect.
#[test]
fn a_call_waits_for_the_next_connection_as_long_as_there_is_time() {
    let (server, back, again) = (TestServer::memory(), Back::new(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|_| Said::Nothing);
    let begun = begin(&server, &client, vec![recall()]);
    server.end(&client.rpc, &back);
    server.drive();
    server.clock.pass(ANSWER_TIME / 2);
    let rpc = server.connection_over(&again);
    bind(&client, &rpc, ClientDirection::BackOrBoth).unwrap();
    server.drive();
    assert_eq!(begun.answer(), Some(Ok(vec![Outcome::Recall(Ok(()))])));
    assert_eq!(numbers(&again.calls()), [(0, 1)]);
}

/// When a session ends, its calls fail at once, and the server calls the client over its other session.
#[test]
fn the_end_of_a_session_ends_its_calls() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|heard| if heard.procedure == 0 { Said::Well } else { Said::Nothing });
    let begun: Vec<_> = (0..=MAX_CALLBACK_SLOTS).map(|_| begin(&server, &client, vec![recall()])).collect();
    let other = client.another_session();
    server.drive();
    let destroy = |session| Args::DestroySession(ops::DestroySession { session });
    assert_eq!(client.send(vec![destroy(client.session)]).status, Status::OK);
    server.drive();
    let (waited, sent) = begun.split_last().unwrap();
    assert!(sent.iter().all(|begun| begun.answer() == Some(Err(NoAnswer::Lost))));
    assert_eq!(waited.answer(), None, "what was not sent goes over the other");
    let calls = back.calls();
    assert_eq!(calls.last().unwrap().sequence().session, other);
    back.answer_by(|_| Said::Well);
    back.let_go(|heard| Said::Results(heard.well()));
    server.drive();
    assert!(waited.answer().unwrap().is_ok());
    assert!(can_call(&server, &client));
    // The last session, too: then the server cannot call the client any more.
    let begun = [(); 2].map(|()| {
        back.answer_by(|_| Said::Nothing);
        begin(&server, &client, vec![recall()])
    });
    assert_eq!(client.send(vec![destroy(other)]).status, Status::OK);
    server.drive();
    assert!(begun.iter().all(|begun| begun.answer() == Some(Err(NoAnswer::Lost))));
    assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::NoPath));
}

/// Sessions and clients come and go with unanswered calls, and leave nothing behind.
#[test]
fn nothing_is_left_of_clients_that_never_answered() {
    let server = TestServer::memory();
    for round in 0..3 {
        let back = Back::new();
        back.answer_by(|_| Said::Nothing);
        let client = server.client_with(&format!("client {round}"), &back);
        begin(&server, &client, vec![recall()]);
        server.clock.pass(ANSWER_TIME);
        server.drive();
        let record = Arc::downgrade(&server.shared().state.client(client.id).unwrap());
        let session = client.session;
        assert_eq!(client.send(vec![Args::DestroySession(ops::DestroySession { session })]).status, Status::OK);
        let id = client.id;
        assert_eq!(client.send(vec![Args::DestroyClientId(ops::DestroyClientId { client: id })]).status, Status::OK);
        server.drive();
        assert_eq!(record.strong_count(), 0, "nobody keeps it");
        server.end(&client.rpc, &back);
    }
    assert_eq!(server.shared().paths.len(), 0);
}

/// proves: NFS4-8881-2.10.3.1-a
#[test]
fn calls_for_which_there_is_no_connection_cannot_be_demanded() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    // This connection cannot carry calls of the server.
    let plain = server.version_3();
    assert_eq!(bind(&client, &plain, ClientDirection::Back), Err(Status::INVAL));
    assert_eq!(bind(&client, &plain, ClientDirection::ForeOrBoth), Ok(ServerDirection::Fore));
    call(&server, &client, vec![recall()]).unwrap();
}
