//! Answers of clients, and their effect on slots.

use super::*;

/// proves: NFS4-8881-20.9-a, NFS4-8881-20.9-d
#[test]
fn a_client_is_called_by_its_slots_and_its_lease_goes_on() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    for number in 1..=3 {
        server.clock.pass(Duration::from_secs(60));
        assert_eq!(call(&server, &client, vec![recall()]), Ok(vec![Outcome::Recall(Ok(()))]));
        let [heard] = &back.calls()[..] else { panic!("one call") };
        let args = heard.args.clone().unwrap();
        assert_eq!((heard.program, args.minor, heard.ops()), (0x4000_0000, 2, &[recall()][..]));
        let sequence = heard.sequence();
        assert_eq!((sequence.session, sequence.slot, sequence.sequence), (client.session, 0, number));
        assert!(!sequence.cache && sequence.referring.0.is_empty());
    }
    // The server hears of the client every minute, and a lease is a minute and a half.
    server.pass(60);
    assert_eq!(told(&client), 0);
}

/// proves: NFS4-8881-2.10.6.3-a
#[test]
fn calls_of_the_clients_that_a_call_concerns_are_named() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    let referring = vec![ReferringCalls {
        session: client.session,
        calls: rpcrdma_nfs::v4::List(vec![ReferringCall { sequence: 3, slot: 2 }]),
    }];
    let record = server.shared().state.client(client.id).unwrap();
    let called = server.shared().call_back(&record, vec![recall()], referring.clone());
    server.shared().tasks.spawn(async move { drop(called.await) });
    server.drive();
    assert_eq!(back.calls()[0].sequence().referring.0, referring);
}

/// proves: NFS4-8881-20.9-b
#[test]
fn as_many_calls_are_under_way_as_there_are_slots_and_the_next_waits() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|_| Said::Nothing);
    let begun: Vec<_> = (0..=MAX_CALLBACK_SLOTS).map(|_| begin(&server, &client, vec![recall()])).collect();
    let first = back.calls();
    let expected: Vec<_> = (0..MAX_CALLBACK_SLOTS).map(|slot| (slot, 1)).collect();
    assert_eq!((numbers(&first), back.held()), (expected, MAX_CALLBACK_SLOTS as usize));
    assert!(begun.iter().all(|begun| begun.answer().is_none()));
    back.answer_by(|_| Said::Well);
    back.let_go(|_| Said::Well);
    server.drive();
    assert!(begun.iter().all(|begun| begun.answer().unwrap().is_ok()));
    assert_eq!(numbers(&back.calls()), [(0, 2)], "the one past the limit");
}

/// A client that wants the server to use fewer slots, and a client that has fewer slots than it has said.
///
/// proves: NFS4-8881-20.9-c
#[test]
fn the_client_says_how_many_slots_are_used() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|heard| {
        let mut results = heard.well();
        if let Some(Outcome::Sequence(Ok(ok))) = results.results.first_mut() {
            ok.target_highest_slot = 0;
        }
        Said::Results(results)
    });
    call(&server, &client, vec![recall()]).unwrap();
    back.answer_by(|_| Said::Nothing);
    let begun = [(); 2].map(|()| begin(&server, &client, vec![recall()]));
    assert_eq!((back.held(), back.calls().len()), (1, 2));
    back.let_go(|heard| Said::Results(heard.well()));
    server.drive();
    assert_eq!(back.held(), 1, "one after the other");
    back.let_go(|heard| Said::Results(heard.well()));
    server.drive();
    assert!(begun.iter().all(|begun| begun.answer().unwrap().is_ok()));

    let back = Back::new();
    let client = server.client_with("b", &back);
    back.answer_by(|heard| match heard.sequence().slot {
        0 => Said::Nothing,
        _ => Said::Results(heard.refused(Status::BADSLOT)),
    });
    let begun = [(); 2].map(|()| begin(&server, &client, vec![recall()]));
    assert_eq!(back.held(), 1, "the second waits for the slot that there is");
    back.answer_by(|_| Said::Well);
    back.let_go(|_| Said::Well);
    server.drive();
    assert!(begun.iter().all(|begun| begun.answer().unwrap().is_ok()));
}

#[test]
fn a_call_that_the_client_puts_off_is_made_again_by_the_same_number() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    let mut delays = 2;
    back.answer_by(move |heard| {
        delays -= 1;
        if delays >= 0 { Said::Results(heard.refused(Status::DELAY)) } else { Said::Well }
    });
    let begun = begin(&server, &client, vec![recall()]);
    for (millis, calls) in [(99, 1), (1, 2), (199, 2), (1, 3)] {
        server.clock.pass(Duration::from_millis(millis));
        server.drive();
        let made = back.calls();
        assert_eq!(made.len(), if calls == 1 { 1 } else { usize::from(millis == 1) }, "{calls}");
        assert!(numbers(&made).iter().all(|number| *number == (0, 1)));
    }
    assert!(begun.answer().unwrap().is_ok());
    // The server does not wait for ever.
    back.answer_by(|heard| Said::Results(heard.refused(Status::DELAY)));
    let begun = begin(&server, &client, vec![recall()]);
    for _ in 0..200 {
        server.clock.pass(Duration::from_millis(100));
        server.drive();
    }
    assert_eq!(begun.answer(), Some(Err(NoAnswer::Refused(Status::DELAY))));
    assert!(back.calls().len() < 10, "each pause is longer than the last");
}

#[test]
fn what_the_client_answers_to_operations_is_told_up_to_the_first_that_failed() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|heard| {
        Said::Results(heard.with(vec![outcome(Op::Recall, Status::OK), outcome(Op::Recall, Status::BADHANDLE)]))
    });
    let answer = call(&server, &client, vec![recall(), recall(), recall()]);
    assert_eq!(answer, Ok(vec![Outcome::Recall(Ok(())), Outcome::Recall(Err(Status::BADHANDLE))]));
    assert!(can_call(&server, &client), "it takes part");
}

/// The client has executed nothing, and the slot is unchanged. The server takes the client's back channel for down only
/// if the status means that no call is possible.
///
/// proves: NFS4-8881-20.9-a
#[test]
fn a_client_that_refuses_a_call_leaves_the_slot_as_it_was() {
    for (status, is_up) in [(Status::BADSESSION, false), (Status::REQ_TOO_BIG, true), (Status::SERVERFAULT, true)] {
        let (server, back) = (TestServer::memory(), Back::new());
        let client = server.client_with("a", &back);
        back.answer_by(move |heard| Said::Results(heard.refused(status)));
        assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::Refused(status)));
        assert_eq!((can_call(&server, &client), told(&client)), (is_up, if is_up { 0 } else { DOWN }), "{status:?}");
        back.answer_by(|_| Said::Well);
        call(&server, &client, vec![recall()]).unwrap();
        assert_eq!(numbers(&back.calls()), [(0, 1), (0, 1)]);
        assert_eq!((can_call(&server, &client), told(&client)), (true, 0), "and it is up again");
    }
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    let mismatch = callback::Results { status: Status::MINOR_VERS_MISMATCH, tag: Default::default(), results: vec![] };
    back.answer_by(move |_| Said::Results(mismatch.clone()));
    assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::Refused(Status::MINOR_VERS_MISMATCH)));
    back.answer_by(|_| Said::Rejected(rpcrdma_oncrpc::Rejection::ProgramUnavailable));
    assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::Refused(Status::SERVERFAULT)));
    assert_eq!(told(&client), DOWN);
    back.answer_by(|_| Said::Well);
    call(&server, &client, vec![recall()]).unwrap();
    assert!(numbers(&back.calls()).iter().all(|number| *number == (0, 1)));
}

#[test]
fn slots_on_which_the_client_counts_otherwise_are_not_used_again() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|heard| match heard.sequence().slot {
        0 => Said::Results(heard.refused(Status::SEQ_MISORDERED)),
        _ => Said::Well,
    });
    for number in 1..3 {
        assert!(call(&server, &client, vec![recall()]).is_ok());
        let expected = if number == 1 { vec![(0, 1), (1, 1)] } else { vec![(1, 2)] };
        assert_eq!(numbers(&back.calls()), expected);
    }
    assert_eq!(told(&client), 0);
    back.answer_by(|heard| Said::Results(heard.refused(Status::SEQ_MISORDERED)));
    assert!(call(&server, &client, vec![recall()]).is_err());
    assert_eq!(told(&client) & flags::BACKCHANNEL_FAULT, flags::BACKCHANNEL_FAULT, "no slot is left");
    assert!(call(&server, &client, vec![recall()]).is_err());
}

/// Replies of another session, slot, number or operation; too many results, too few, none; meaningless bytes.
#[test]
fn what_does_not_fit_the_call_is_no_answer() {
    let change = |change: fn(&mut callback::CbSequenceOk)| {
        move |heard: &Heard| {
            let mut results = heard.well();
            if let Some(Outcome::Sequence(Ok(ok))) = results.results.first_mut() {
                change(ok);
            }
            Said::Results(results)
        }
    };
    let ok = || outcome(Op::Recall, Status::OK);
    let wrong = |status: Status, outcomes: Vec<Outcome>| {
        move |heard: &Heard| Said::Results(callback::Results { status, ..heard.with(outcomes.clone()) })
    };
    let bare = |outcomes: Vec<Outcome>| {
        move |_: &Heard| Said::Results(callback::Results::of(Default::default(), outcomes.clone()))
    };
    type Script = Box<dyn FnMut(&Heard) -> Said + Send>;
    // With each reply: whether the client says that it has executed the call.
    let answers: Vec<(&str, bool, Script)> = vec![
        ("session", false, Box::new(change(|ok| ok.session = SessionId([9; 16])))),
        ("slot", false, Box::new(change(|ok| ok.slot += 1))),
        ("number", false, Box::new(change(|ok| ok.sequence += 1))),
        ("too many", true, Box::new(wrong(Status::OK, vec![ok(), ok()]))),
        ("too few", true, Box::new(wrong(Status::OK, vec![]))),
        ("another", true, Box::new(wrong(Status::OK, vec![outcome(Op::NotifyLock, Status::OK)]))),
        ("two statuses", true, Box::new(wrong(Status::DELAY, vec![ok()]))),
        ("no CB_SEQUENCE", false, Box::new(bare(vec![ok()]))),
        ("nothing", false, Box::new(bare(vec![]))),
        ("octets", false, Box::new(|_: &Heard| Said::Octets(vec![1, 2, 3]))),
        ("no bytes", false, Box::new(|_: &Heard| Said::Octets(vec![]))),
    ];
    for (name, is_executed, script) in answers {
        let (server, back) = (TestServer::memory(), Back::new());
        let (client, other_back) = (server.client_with("a", &back), Back::new());
        let other = server.client_with("b", &other_back);
        back.answer_by(script);
        assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::Lost), "{name}");
        assert_eq!(can_call(&server, &client), is_executed, "{name}");
        assert_eq!(call(&server, &other, vec![recall()]), Ok(vec![ok()]), "others notice nothing");
        back.answer_by(|heard| Said::Results(heard.well()));
        back.calls();
        assert_eq!(call(&server, &client, vec![recall()]), Ok(vec![ok()]), "{name}");
        assert_eq!(numbers(&back.calls()), [if is_executed { (0, 2) } else { (1, 1) }], "{name}");
    }
}

/// proves: NFS4-8881-2.10.6.2-c
#[test]
fn a_client_that_answers_nothing_loses_its_own_slots_and_a_late_answer_gives_them_back() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|_| Said::Nothing);
    let begun = begin(&server, &client, vec![recall()]);
    server.clock.pass(ANSWER_TIME - Duration::from_nanos(1));
    server.drive();
    assert_eq!((begun.answer(), told(&client)), (None, 0), "it has time yet");
    server.clock.pass(Duration::from_nanos(1));
    server.drive();
    assert_eq!(begun.answer(), Some(Err(NoAnswer::Lost)));
    assert_eq!((told(&client), can_call(&server, &client)), (DOWN, false));
    // The next call does not use this slot: the client may still be executing the slot's call.
    let next = begin(&server, &client, vec![recall()]);
    assert_eq!(numbers(&back.calls()), [(0, 1), (1, 1)]);
    back.let_go(|_| Said::Well);
    server.drive();
    assert!(next.answer().unwrap().is_ok());
    assert_eq!((told(&client), can_call(&server, &client)), (0, true));
    back.answer_by(|_| Said::Well);
    call(&server, &client, vec![recall()]).unwrap();
    assert_eq!(numbers(&back.calls()), [(0, 2)], "and the first is used again");
}

/// When a silent client's slots are used up, the server sends nothing more to it.
#[test]
fn no_more_is_sent_to_a_client_than_it_has_slots() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|_| Said::Nothing);
    let all: Vec<_> = (0..40).map(|_| begin(&server, &client, vec![recall()])).collect();
    server.clock.pass(ANSWER_TIME);
    server.drive();
    let lost = all.iter().filter(|begun| begun.answer() == Some(Err(NoAnswer::Lost))).count();
    let unsent = all.iter().filter(|begun| begun.answer() == Some(Err(NoAnswer::NoPath))).count();
    assert_eq!((lost, unsent, back.calls().len()), (16, 24, 16));
}

/// A caller that gives up leaves a slot in doubt, which is not used before the connection is gone.
#[test]
fn a_call_that_nobody_waits_for_any_more_leaves_its_slot_in_doubt() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    back.answer_by(|_| Said::Nothing);
    let record = server.shared().state.client(client.id).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let called = server.shared().call_back(&record, vec![recall()], vec![]);
    server.shared().tasks.spawn(async move {
        futures_util::future::select(called, stopped).await;
    });
    server.drive();
    drop(stop);
    server.drive();
    back.let_go(|_| Said::Well);
    back.answer_by(|_| Said::Well);
    call(&server, &client, vec![recall()]).unwrap();
    assert_eq!(numbers(&back.calls()), [(0, 1), (1, 1)]);
}

#[test]
fn each_call_is_told_of() {
    let counting = Arc::new(Counting::default());
    // The set-up is a function pointer, which cannot capture anything.
    static OBSERVER: std::sync::OnceLock<Arc<Counting>> = std::sync::OnceLock::new();
    OBSERVER.get_or_init(|| counting.clone());
    let setup =
        Setup { version_4: |version_4| version_4.with_observer(OBSERVER.get().unwrap().clone()), ..Setup::default() };
    let (server, back) = (TestServer::memory_with(setup), Back::new());
    let client = server.client_with("a", &back);
    call(&server, &client, vec![recall()]).unwrap();
    back.answer_by(|heard| Said::Results(heard.refused(Status::BADSESSION)));
    call(&server, &client, vec![recall()]).unwrap_err();
    back.answer_by(|_| Said::Nothing);
    begin(&server, &client, vec![recall()]);
    server.clock.pass(ANSWER_TIME);
    server.drive();
    server.end(&client.rpc, &back);
    call(&server, &client, vec![recall()]).unwrap_err();
    let counted = counting.0.lock().unwrap().clone();
    let count = |op, event| counted.get(&(op, event)).copied().unwrap_or(0);
    let all = [
        CallbackEvent::Sent,
        CallbackEvent::Answered,
        CallbackEvent::Refused,
        CallbackEvent::Lost,
        CallbackEvent::NotSent,
    ];
    assert_eq!(all.map(|event| count(Some(Op::Recall), event)), [3, 1, 1, 1, 1]);
    assert_eq!(all.map(|event| count(None, event)), [1, 1, 0, 0, 0], "CB_NULL");
}
