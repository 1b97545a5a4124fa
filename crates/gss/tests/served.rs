//! RPCSEC_GSS as a server sees it, with contexts of a real KDC, and a client with hand-made messages.

#[path = "served/house.rs"]
mod house;
#[path = "served/wire.rs"]
mod wire;

use futures_util::FutureExt;
use house::{Client, House, Made, Plan, credential, id, init, message};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use rpcrdma_gss::{
    Octets,
    realm::{REALM, Realm, within},
};
use rpcrdma_oncrpc::{AuthStat, Credential, OpaqueAuth, Rejection, gss::GssService};
use rpcrdma_xdr::{Encoder, Payload};
use std::{pin::Pin, sync::atomic::Ordering, thread::sleep, time::Duration};
use tokio::task::{Unconstrained, unconstrained};

const UNKNOWN: Rejection = Rejection::Auth(AuthStat::GSS_CREDENTIAL_PROBLEM);
const OVER: Rejection = Rejection::Auth(AuthStat::GSS_CONTEXT_PROBLEM);
const BAD: Rejection = Rejection::Auth(AuthStat::BAD_CREDENTIAL);
/// Authentication, integrity, privacy.
const SERVICES: [u32; 3] = [1, 2, 3];

fn in_realm(name: &str, test: impl AsyncFnOnce(&Realm)) {
    within(name, |realm| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(realm));
    });
}

async fn ask(house: &House<'_>, client: &mut Client, plan: Plan) -> Result<Vec<u32>, Rejection> {
    let call = client.call(plan);
    let reply = house.send(call).await.expect("an answer");
    client.results(plan, reply)
}

/// proves: GSS-2203-5.2.3.1-b, GSS-2203-5.3.1-a, GSS-2203-5.3.2.2-a, GSS-2203-5.3.2.3-a, GSS-2203-5.3.3.2-a
#[test]
fn calls_are_executed_as_who_has_proven_to_be_it() {
    in_realm("calls_are_executed_as_who_has_proven_to_be_it", async |realm| {
        let house = House::new(realm);
        let (mut alice, mut bob) = (house.client("alice").await, house.client("bob").await);
        for service in SERVICES {
            let plan = Plan::new(service, 10 + service);
            assert_eq!(ask(&house, &mut alice, plan).await, Ok(vec![17 + service]));
            assert_eq!(ask(&house, &mut bob, plan).await, Ok(vec![17 + service]));
            let missing = Plan { procedure: 9, sequence: 20 + service, inner: 20 + service, ..plan };
            assert_eq!(ask(&house, &mut alice, missing).await, Err(Rejection::ProcedureUnavailable));
            let garbage = Plan { word: None, sequence: 30 + service, inner: 30 + service, ..plan };
            assert_eq!(ask(&house, &mut alice, garbage).await, Err(Rejection::GarbageArgs));
        }
        let callers = std::mem::take(&mut *house.sample.callers.lock().unwrap());
        let services = [GssService::Authentication, GssService::Integrity, GssService::Privacy];
        for (calls, service) in callers.chunks(4).zip(services) {
            let [Credential::Gss(first), Credential::Gss(second), ..] = calls else { panic!("{calls:?}") };
            assert_eq!((&*first.principal, first.service), (&*format!("alice@{REALM}"), service));
            let user = first.user.as_ref().unwrap();
            assert_eq!((user.uid, user.gid, user.groups.len()), (1000, 100, 40), "more groups than AUTH_SYS has");
            assert_eq!((&*second.principal, &second.user), (&*format!("bob@{REALM}"), &None));
        }
    });
}

/// proves: GSS-2203-5.4-a, GSS-2203-5.4-c
#[test]
fn contexts_are_made_used_and_destroyed_over_tcp() {
    in_realm("contexts_are_made_used_and_destroyed_over_tcp", async |realm| {
        let house = House::new(realm).over_tcp().await;
        let (mut alice, mut bob) = (house.client("alice").await, house.client("bob").await);
        for (count, service) in (0..).zip(SERVICES) {
            assert_eq!(ask(&house, &mut alice, Plan::new(service, service)).await, Ok(vec![7 + service]));
            let counted =
                |sequence| Plan { xid: 70, procedure: 2, word: Some(service), ..Plan::new(service, sequence) };
            for again in 0..2 {
                let answer = ask(&house, &mut bob, counted(10 * service + again)).await;
                assert_eq!(answer, Ok(vec![count]), "executed once");
            }
            let goodbye = Plan { control: 3, procedure: 0, word: None, ..Plan::new(service, 100) };
            let mut short = house.client("alice").await;
            assert_eq!(ask(&house, &mut short, goodbye).await, Ok(vec![]));
            let late = short.call(Plan::new(service, 101));
            assert_eq!(house.refusal(late).await, UNKNOWN);
            // Like Linux: in any service an empty body, and so without protection.
            let mut bare = house.client("alice").await;
            let call = bare.call_with(goodbye, Payload::new());
            let replied = house.send(call).await.unwrap();
            assert_eq!(bare.results(Plan { service: 1, ..goodbye }, replied), Ok(vec![]));
            let late = bare.call(Plan::new(service, 101));
            assert_eq!(house.refusal(late).await, UNKNOWN);
        }
    });
}

#[test]
fn a_machine_with_a_key_of_the_realm_is_root() {
    in_realm("a_machine_with_a_key_of_the_realm_is_root", async |realm| {
        let house = House::new(realm);
        let mut machine = house.client("nfs/localhost").await;
        assert_eq!(ask(&house, &mut machine, Plan::new(2, 1)).await, Ok(vec![8]));
        let callers = house.sample.callers.lock().unwrap();
        let [Credential::Gss(caller)] = &callers[..] else { panic!("{callers:?}") };
        assert_eq!((&*caller.principal, caller.user.as_ref().unwrap().uid), (&*format!("nfs/localhost@{REALM}"), 0));
    });
}

/// With a real context: a signed or sealed body has no item that a transport could place.
///
/// proves: V1-8.2.2.2-a, V2-11.2.2.2-a, V1-8.2.2.3-a, V2-11.2.2.3-a
#[test]
fn nothing_of_protected_results_may_be_placed() {
    in_realm("nothing_of_protected_results_may_be_placed", async |realm| {
        let house = House::new(realm);
        let mut alice = house.client("alice").await;
        for (service, items) in SERVICES.into_iter().zip([1, 0, 0]) {
            for (len, sequence) in [(5, 10), (1 << 20, 20)] {
                let plan = Plan { procedure: 3, word: Some(len), ..Plan::new(service, sequence + service) };
                let call = alice.call(plan);
                assert_eq!(house.items(call).await, items, "service {service}, {len} bytes");
            }
        }
    });
}

/// proves: GSS-2203-5.2.2-b, GSS-2203-5.2.2-c, GSS-2203-5.2.3.1-a, GSS-2203-5.2.3.2-a
#[test]
fn what_makes_no_context_is_told_and_leaves_none() {
    in_realm("what_makes_no_context_is_told_and_leaves_none", async |realm| {
        let house = House::new(realm);
        let (_, token) = house.initiate("alice");
        for token in [&b""[..], b"nonsense", &token[..token.len() - 9], &[0x60; 64 << 10]] {
            let (header, results) = house.send(init(1, b"", token)).await.unwrap();
            let made = Made::read(results);
            assert_eq!((header.verifier, header.status), (OpaqueAuth::none(), Ok(())));
            assert!(made.major >= 1 << 16 && made.handle.is_empty() && made.token.is_empty(), "{:#x}", made.major);
        }
        assert_eq!(house.refusal(init(1, b"", &[0x60; (64 << 10) + 1])).await, Rejection::GarbageArgs);
        assert_eq!(house.refusal(init(1, b"a handle", &token)).await, BAD);
        let (_, results) = house.send(init(2, &[7; 16], &token)).await.unwrap();
        assert_eq!(Made::read(results).major, 8 << 16, "there is no such context to go on with");
        let mut arguments = Encoder::new();
        arguments.opaque(&token);
        let arguments = arguments.finish();
        let first = credential([1, 1, 0, 0], b"");
        let signed = OpaqueAuth { flavour: 6, body: b"signature".to_vec().into() };
        let wrong = message(id(0, 1), first.clone(), signed, arguments.clone());
        assert_eq!(house.refusal(wrong).await, Rejection::Auth(AuthStat::BAD_VERIFIER));
        let wrong = message(id(1, 1), first, OpaqueAuth::none(), arguments);
        assert_eq!(house.refusal(wrong).await, BAD, "procedure 0 makes contexts");
        let (header, _) = house.send(init(1, b"", &token)).await.unwrap();
        assert_eq!(header.verifier.flavour, 6, "the token is still good");
        let (_, results) = house.send(init(1, b"", &token)).await.unwrap();
        assert!(Made::read(results).major >= 1 << 16, "and once");
    });
}

/// proves: GSS-2203-5.3.3.1-a, GSS-2203-5.3.3.1-b
#[test]
fn what_was_seen_or_is_too_old_is_dropped_in_silence() {
    in_realm("what_was_seen_or_is_too_old_is_dropped_in_silence", async |realm| {
        let house = House::new(realm);
        let mut alice = house.client("alice").await;
        for service in SERVICES {
            let base = service * 10_000;
            let call = alice.call(Plan::new(service, base));
            assert!(house.send(call.clone()).await.is_some() && house.send(call).await.is_none(), "replayed");
            let newest = Plan::new(service, base + alice.window);
            assert!(ask(&house, &mut alice, newest).await.is_ok());
            for (sequence, is_heard) in [(base, false), (base - 1, false), (base + 1, true), (base + 1, false)] {
                let call = alice.call(Plan::new(service, sequence));
                assert_eq!(house.send(call).await.is_some(), is_heard, "{sequence}");
            }
        }
    });
}

/// proves: GSS-2203-5.3.3.1-c, GSS-2203-5.3.3.3-a, GSS-2203-5.3.3.4.2-a
#[test]
fn forged_calls_are_refused_and_move_nothing() {
    in_realm("forged_calls_are_refused_and_move_nothing", async |realm| {
        let house = House::new(realm);
        let (mut alice, mut bob) = (house.client("alice").await, house.client("bob").await);
        let whole = alice.call(Plan::new(1, 2_000_000)).to_bytes();
        // Changes each byte that the verifier signs, except the words with the version and the lengths.
        for at in (0..16).chain(20..24).chain(36..68) {
            let mut forged = whole.to_vec();
            forged[at] ^= 1;
            match house.send(Payload::from(bytes::Bytes::from(forged))).await {
                Some((header, _)) => assert!(header.status.is_err(), "byte {at}"),
                None => assert!(at < 8, "byte {at}: it is no call any more"),
            }
        }
        std::mem::swap(&mut alice.handle, &mut bob.handle);
        let stolen = alice.call(Plan::new(1, 3_000_000));
        assert_eq!(house.refusal(stolen).await, UNKNOWN, "the context of another");
        std::mem::swap(&mut alice.handle, &mut bob.handle);
        for handle in [vec![], vec![7; 16], vec![7; 300], bob.handle[..15].to_vec()] {
            let kept = std::mem::replace(&mut alice.handle, handle);
            let call = alice.call(Plan::new(1, 5));
            assert_eq!(house.refusal(call).await, UNKNOWN);
            alice.handle = kept;
        }
        assert_eq!(house.sample.callers.lock().unwrap().len(), 0, "nothing was executed");
        assert_eq!(ask(&house, &mut alice, Plan::new(1, 1)).await, Ok(vec![8]), "and no window has moved");
        assert_eq!(ask(&house, &mut bob, Plan::new(1, 1)).await, Ok(vec![8]));
    });
}

/// proves: GSS-2203-5.3.3.1-d, GSS-2203-5.3.3.4.2-b, GSS-2203-5.3.3.4.3-a
#[test]
fn bodies_that_were_changed_are_garbage() {
    in_realm("bodies_that_were_changed_are_garbage", async |realm| {
        let house = House::new(realm);
        let mut alice = house.client("alice").await;
        let mut sequence = 0;
        for service in [2, 3] {
            sequence += 1;
            let plan = Plan { inner: 99, ..Plan::new(service, sequence) };
            assert_eq!(ask(&house, &mut alice, plan).await, Err(Rejection::GarbageArgs), "another number inside");
            let body_of = |whole: &Payload, header: &Payload| whole.to_bytes().slice(header.len()..);
            sequence += 1;
            let plan = Plan::new(service, sequence);
            let body = body_of(&alice.call(plan), &alice.call_with(plan, Payload::new()));
            for at in 0..body.len() {
                sequence += 1;
                let plan = Plan { inner: sequence, ..Plan::new(service, sequence) };
                let mut broken = body_of(&alice.call(plan), &alice.call_with(plan, Payload::new())).to_vec();
                broken[at] ^= 0x40;
                let call = alice.call_with(plan, Payload::from(bytes::Bytes::from(broken)));
                let reply = house.send(call).await.expect("an answer");
                assert_eq!(alice.results(plan, reply), Err(Rejection::GarbageArgs), "service {service}, byte {at}");
            }
            for other in SERVICES.into_iter().filter(|other| *other != service && *other != 1) {
                sequence += 1;
                let sealed = Plan::new(service, sequence);
                let body = body_of(&alice.call(sealed), &alice.call_with(sealed, Payload::new()));
                let plan = Plan::new(other, sequence);
                let call = alice.call_with(plan, Payload::from(body));
                let reply = house.send(call).await.expect("an answer");
                assert_eq!(alice.results(plan, reply), Err(Rejection::GarbageArgs), "as another service");
            }
        }
        assert_eq!(house.sample.callers.lock().unwrap().len(), 0, "nothing was executed");
    });
}

/// proves: GSS-2203-5.3.3.3-b, GSS-2203-5.4-a
#[test]
fn contexts_end_with_their_numbers_their_tickets_and_their_goodbye() {
    in_realm("contexts_end_with_their_numbers_their_tickets_and_their_goodbye", async |realm| {
        let house = House::new(realm);
        let (mut alice, mut bob) = (house.client("alice").await, house.client("bob").await);
        let call = alice.call(Plan::new(1, 0x8000_0000));
        assert_eq!(house.refusal(call).await, OVER);
        assert!(ask(&house, &mut alice, Plan::new(1, 0x7fff_ffff)).await.is_ok());
        let goodbye = |sequence| Plan { control: 3, procedure: 0, word: None, ..Plan::new(2, sequence) };
        let others = house.client("alice").await;
        let kept = std::mem::replace(&mut bob.handle, others.handle.clone());
        let call = bob.call(goodbye(1));
        assert_eq!(house.refusal(call).await, UNKNOWN, "a context of another's");
        bob.handle = kept;
        assert_eq!(ask(&house, &mut bob, goodbye(2)).await, Ok(vec![]));
        let call = bob.call(Plan::new(1, 3));
        assert_eq!(house.refusal(call).await, UNKNOWN);
        let mut alice = others;
        assert!(ask(&house, &mut alice, Plan::new(1, 5)).await.is_ok(), "it is still there");
        house.clock.put_forward(Duration::from_secs(7 * 86_400));
        let call = alice.call(Plan::new(1, 6));
        assert_eq!(house.refusal(call).await, OVER);
        let call = alice.call(Plan::new(1, 7));
        assert_eq!(house.refusal(call).await, UNKNOWN, "what is over is forgotten");
    });
}

/// proves: GSS-2203-5.3.3.1-f
#[test]
fn a_call_that_comes_again_is_answered_in_its_own_seal() {
    in_realm("a_call_that_comes_again_is_answered_in_its_own_seal", async |realm| {
        let house = House::new(realm);
        let (mut alice, mut bob) = (house.client("alice").await, house.client("bob").await);
        for (count, service) in (0..).zip(SERVICES) {
            let plan = |sequence| Plan { xid: service, procedure: 2, word: Some(1), ..Plan::new(service, sequence) };
            for sequence in 1..4 {
                assert_eq!(ask(&house, &mut alice, plan(service * 10 + sequence)).await, Ok(vec![2 * count]));
            }
            let mut anew = house.client("alice").await;
            assert_eq!(ask(&house, &mut anew, plan(9)).await, Ok(vec![2 * count]), "over a context that is new");
            assert_eq!(ask(&house, &mut bob, plan(service)).await, Ok(vec![2 * count + 1]), "nobody gets another's");
        }
        assert_eq!(house.sample.count.load(Ordering::Relaxed), 6);
    });
}

/// A call that waits; it may be polled any number of times.
type Waiting<F> = Pin<Box<Unconstrained<F>>>;

/// Polls any number of calls once. Returns the calls that wait, and the results of the others.
fn poll<F: Future>(calls: impl IntoIterator<Item = F>) -> (Vec<Waiting<F>>, Vec<F::Output>) {
    let (mut waiting, mut told) = (Vec::new(), Vec::new());
    for call in calls {
        let mut call = Box::pin(unconstrained(call));
        match FutureExt::now_or_never(&mut call) {
            None => waiting.push(call),
            Some(reply) => told.push(reply),
        }
    }
    (waiting, told)
}

/// Only a bounded number of tokens waits for a thread. Meanwhile a caller with a context goes on, a caller from another
/// address makes a context before older waiting tokens, and the waiting callers get their answers.
#[test]
fn a_flood_of_tokens_is_turned_away_and_stops_no_caller() {
    in_realm("a_flood_of_tokens_is_turned_away_and_stops_no_caller", async |realm| {
        let house = House::new(realm);
        let elsewhere = house.seen_from([127, 0, 0, 2]);
        let mut alice = house.client("alice").await;
        house.threads.hold();
        let (mut waiting, refused) = poll((0..10_000).map(|_| house.send(init(1, b"", &[0x60; 2000]))));
        assert_eq!(house.flavour.waiting(), ((4 << 20) / (4096 + 2000), 0), "no more for one address");
        assert_eq!((waiting.len() - 2, waiting.len() + refused.len()), (house.flavour.waiting().0, 10_000));
        for reply in refused {
            assert_eq!(Made::read(reply.unwrap().1).major, 16 << 16, "not available");
        }
        assert_eq!(ask(&house, &mut alice, Plan::new(3, 1)).await, Ok(vec![8]));
        let stuck = house.threads.take();
        assert_eq!(stuck.len(), 2, "the flood's");
        // The work of the flood is not done; the work of other clients is.
        let (_, mut bob) = futures_util::future::join(
            async { house.threads.wait_for_one().await.into_iter().for_each(|job| job()) },
            elsewhere.client("bob"),
        )
        .await;
        assert_eq!(ask(&elsewhere, &mut bob, Plan::new(3, 1)).await, Ok(vec![8]));
        drop(stuck);
        // Tokens whose caller is gone cost nothing.
        waiting.truncate(10);
        let jobs = house.threads.release();
        assert_eq!(jobs.len(), 2);
        jobs.into_iter().for_each(|job| job());
        let mut replies = futures_util::future::join_all(waiting).await.into_iter().map(Option::unwrap);
        for _ in 0..2 {
            assert_eq!(replies.next().unwrap().0.status, Err(Rejection::SystemError), "whose job nobody has done");
        }
        assert!(replies.all(|(_, results)| Made::read(results).major == 9 << 16), "a defective token");
        house.client("bob").await;
        assert_eq!(house.flavour.contexts(), (3, 0));
    });
}

/// A caller that leaves while the server looks up its user keeps neither a connection nor a place in the queue.
#[test]
fn nothing_is_done_for_a_connection_that_has_ended() {
    in_realm("nothing_is_done_for_a_connection_that_has_ended", async |realm| {
        let mut house = House::new(realm).over_tcp().await;
        house.users.hold();
        let token = house.initiate("alice").1;
        let jobs = tokio::select! {
            _ = house.send(init(1, b"", &token)) => panic!("nobody has said who she is"),
            jobs = house.users.wait_for_one() => jobs,
        };
        house.hang_up().await;
        jobs.into_iter().for_each(|job| job());
        assert_eq!(house.flavour.contexts(), (0, 0));
    });
}

/// A directory of users that does not answer delays only the callers that the server looks up there.
#[test]
fn users_who_are_not_found_keep_no_token_and_no_other_client_waiting() {
    in_realm("users_who_are_not_found_keep_no_token_and_no_other_client_waiting", async |realm| {
        let house = House::new(realm);
        let elsewhere = house.seen_from([127, 0, 0, 2]);
        house.users.hold();
        let tokens: Vec<_> = (0..8).map(|_| house.initiate("alice").1).collect();
        let send = |tokens: &[Octets]| poll(tokens.iter().map(|token| house.send(init(1, b"", token))));
        // The server looks up the user of the first call first.
        let (mut waiting, _) = send(&tokens[..1]);
        let mut stuck = house.users.wait_for_one().await;
        let (others, told) = send(&tokens[1..]);
        waiting.extend(others);
        assert_eq!((waiting.len(), told.len()), (8, 0));
        while house.flavour.waiting() != (0, 6) {
            sleep(Duration::from_millis(5));
        }
        // All tokens are done. Two look-ups for this client are under way; the user of another client is looked up as
        // well.
        stuck.append(&mut house.users.take());
        assert_eq!(stuck.len(), 2);
        let (_, mut bob) = futures_util::future::join(
            async { house.users.wait_for_one().await.into_iter().for_each(|job| job()) },
            elsewhere.client("bob"),
        )
        .await;
        assert_eq!(ask(&elsewhere, &mut bob, Plan::new(3, 1)).await, Ok(vec![8]));
        // The caller of one look-up is gone; the users of the others are found.
        drop(waiting.remove(0));
        house.users.release();
        stuck.into_iter().for_each(|job| job());
        let replies = futures_util::future::join_all(waiting).await;
        assert!(replies.into_iter().all(|reply| Made::read(reply.unwrap().1).major == 0));
        assert_eq!(house.flavour.contexts(), (8, 0), "seven, and bob's");
    });
}

/// Arbitrary credentials, verifiers and bodies: the server answers or is silent, and executes nothing.
#[test]
fn arbitrary_calls_are_survived() {
    in_realm("arbitrary_calls_are_survived", async |realm| {
        let house = House::new(realm);
        let mut alice = house.client("alice").await;
        let octets = || prop::collection::vec(any::<u8>(), 0..300);
        let words = (0..3u32, 0..5u32, any::<u32>(), 0..5u32);
        let calls = (words, any::<bool>(), octets(), octets(), octets());
        let mut runner = TestRunner::new(Config { cases: 3000, failure_persistence: None, ..Config::default() });
        let result = runner.run(&calls, |((version, control, sequence, service), is_known, handle, verifier, body)| {
            let handle = if is_known { alice.handle.clone() } else { handle };
            let verifier = OpaqueAuth { flavour: 6 * u32::from(!verifier.is_empty()), body: verifier.into() };
            let credential = credential([version, control, sequence, service], &handle);
            let whole = message(id(0, 1), credential, verifier, Payload::from(bytes::Bytes::from(body)));
            futures_util::FutureExt::now_or_never(house.send(whole));
            Ok(())
        });
        result.unwrap();
        assert_eq!(house.sample.callers.lock().unwrap().len(), 0);
        assert_eq!(ask(&house, &mut alice, Plan::new(3, 1)).await, Ok(vec![8]), "and the context is as it was");
    });
}
