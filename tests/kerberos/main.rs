//! RPCSEC_GSS from end to end: clients and a server with contexts of a real KDC, over TCP and both versions of
//! RPC-over-RDMA, with each service.

mod back;
mod hostile;
mod house;

use house::{House, Log, SERVICES, Seen, WIRES, Wire};
use rpcrdma_gss::{
    Gss, Tickets,
    realm::{REALM, Realm, within},
};
use rpcrdma_oncrpc::{
    CallError, Client, Credential, ItemRoom, ReplyShape,
    gss::{GssAuth, GssService},
};
use rpcrdma_transport::{Event, Versions};
use rpcrdma_xdr::{Encoder, Payload};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{task::JoinSet, time::timeout};

/// Runs a test in a realm whose user has a ticket.
fn in_realm(name: &str, test: impl AsyncFnOnce(&Realm)) {
    within(name, |realm| {
        realm.kinit("alice", "10m").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { timeout(Duration::from_secs(120), test(realm)).await.expect("in time") });
    });
}

fn words(words: &[u32]) -> Payload {
    let mut args = Encoder::new();
    words.iter().for_each(|word| args.u32(*word));
    args.finish()
}

/// Calls a procedure that returns a word.
async fn call(client: &Client, procedure: u32, word: u32) -> Result<(u32, bool), CallError> {
    let mut results = client.call(procedure, words(&[word]), ReplyShape::inline(4)).await?;
    let word = results.decoder.u32()?;
    results.decoder.finish()?;
    Ok((word, results.retransmitted))
}

async fn read(client: &Client, len: u32) {
    let reply =
        ReplyShape { max_len: 4 + (len as usize).next_multiple_of(4), items: [ItemRoom::new(len as usize)].into() };
    let mut results = client.call(3, words(&[len]), reply).await.unwrap();
    let item = results.decoder.item(len as usize).unwrap();
    assert!(item.as_slice().len() == len as usize && item.as_slice().iter().all(|octet| *octet == len as u8), "{len}");
}

async fn write(client: &Client, len: u32) {
    let mut args = Encoder::new();
    args.u32(0);
    args.item(vec![3; len as usize].into());
    let results = client.call(4, args.finish(), ReplyShape::inline(4)).await.unwrap();
    assert_eq!(results.decode::<u32>().unwrap(), 3 * len);
}

/// Sizes of items in bytes: around what fits into a message, and far beyond.
const SIZES: [u32; 8] = [0, 100, 2800, 3200, 3600, 4096, 70_001, 1 << 20];

/// proves: GSS-2203-5.3.1-a, GSS-2203-5.3.2.2-a, GSS-2203-5.3.2.3-a
#[test]
fn calls_of_all_sizes_are_made_as_who_has_the_ticket() {
    calls_of_all_sizes("calls_of_all_sizes_are_made_as_who_has_the_ticket", Wire::Tcp);
}

/// proves: V1-8.2.2-a, V1-8.2.2.2-a, V1-8.2.2.2-b, V1-8.2.2.3-a, V1-8.2.2.3-b
#[test]
fn so_they_are_over_version_1() {
    calls_of_all_sizes("so_they_are_over_version_1", Wire::Rdma(Versions::One));
}

/// proves: V2-11.2.2-a, V2-11.2.2.2-a, V2-11.2.2.2-b, V2-11.2.2.3-a, V2-11.2.2.3-b, V2-11.2.2.3-c
#[test]
fn so_they_are_over_version_2() {
    calls_of_all_sizes("so_they_are_over_version_2", Wire::Rdma(Versions::Two));
}

/// Calls with each service; only authentication alone lets items be reduced.
fn calls_of_all_sizes(name: &str, wire: Wire) {
    in_realm(name, async |realm| {
        let house = House::new(realm).await;
        for service in SERVICES {
            let (log, auth) = (Arc::new(Log::default()), house.auth(service));
            let transport = house.transport(wire, log.clone()).await;
            let client = Client::new(transport, Arc::new(auth.clone()), house::PROGRAM, 1);
            assert_eq!(auth.principal(), None);
            client.null().await.unwrap();
            assert_eq!(auth.principal().as_deref(), Some(&*format!("alice@{REALM}")));
            assert_eq!(call(&client, 1, 7).await.unwrap(), (7, false));
            for len in SIZES {
                read(&client, len).await;
                write(&client, len).await;
            }
            let unknown = client.call(99, words(&[1]), ReplyShape::inline(4)).await;
            assert!(matches!(unknown, Err(CallError::Rejected(_))), "{unknown:?}");
            for caller in std::mem::take(&mut *house.sample.callers.lock().unwrap()) {
                let Credential::Gss(caller) = caller else { panic!("{caller:?}") };
                assert_eq!((&*caller.principal, caller.service), (&*format!("alice@{REALM}"), service));
            }
            let reduced = |event: &Event| match event {
                Event::Sent(sent) => sent.write_chunks > 0 || sent.read_chunks > 0 && sent.inline_bytes > 400,
                _ => false,
            };
            let reduced = log.0.lock().unwrap().iter().filter(|event| reduced(event)).count();
            let may_reduce = wire != Wire::Tcp && service == GssService::Authentication;
            assert_eq!(reduced > 0, may_reduce, "{wire:?} {service:?}: {reduced}");
        }
        assert_eq!(house.contexts(), 3, "one for each flavour");
    });
}

/// The server answers with the reply that it has kept, but signs and seals it anew for the second transmission.
///
/// proves: GSS-2203-5.3.3.1-f
#[test]
fn a_call_that_is_cut_off_is_executed_once_and_signed_twice() {
    in_realm("a_call_that_is_cut_off_is_executed_once_and_signed_twice", async |realm| {
        let house = House::new(realm).await;
        for (count, (wire, service)) in
            (0..).zip(WIRES.into_iter().flat_map(|wire| SERVICES.map(|service| (wire, service))))
        {
            let (client, _) = house.client(wire, service).await;
            client.null().await.unwrap();
            house.front.seen.lock().unwrap().clear();
            house.front.cut_next();
            assert_eq!(call(&client, 2, 1).await.unwrap(), (count, true), "{wire:?} {service:?}");
            assert_eq!(house.sample.count.load(Ordering::Relaxed), count + 1);
            let seen = house.front.seen.lock().unwrap().clone();
            let [Seen { xid, sequence, .. }, again] = seen[..] else { panic!("{seen:?}") };
            assert!(again.xid == xid && again.sequence > sequence, "{seen:?}");
            assert_eq!(call(&client, 1, 5).await.unwrap(), (5, false), "and the context is as good as before");
        }
    });
}

/// Calls, so many at a time, each with a word of its own.
async fn at_once(client: &Client, count: u32) -> JoinSet<u32> {
    let mut calls = JoinSet::new();
    for word in 0..count {
        let client = client.clone();
        calls.spawn(async move {
            let answer = call(&client, 1, word).await.unwrap();
            assert_eq!(answer.0, word);
            word
        });
    }
    calls
}

/// proves: GSS-2203-5.3.3.3-d
#[test]
fn a_context_that_the_server_has_lost_costs_another_one() {
    in_realm("a_context_that_the_server_has_lost_costs_another_one", async |realm| {
        let house = House::new(realm).await;
        for (wire, service) in WIRES.into_iter().flat_map(|wire| SERVICES.map(|service| (wire, service))) {
            let (client, _) = house.client(wire, service).await;
            let before = house.contexts();
            assert_eq!(at_once(&client, 100).await.join_all().await.len(), 100);
            assert_eq!(house.contexts(), before + 1, "{wire:?} {service:?}: all wait for one");
            house.restart();
            assert_eq!(at_once(&client, 100).await.join_all().await.len(), 100);
            assert_eq!(house.contexts(), before + 2, "{wire:?} {service:?}");
            // The connection is cut and the server has lost everything: it executes the call again, and the call's flag
            // says that it may be a repetition.
            house.restart();
            house.front.cut();
            assert!(call(&client, 1, 5).await.is_ok());
            assert_eq!(house.contexts(), before + 3, "{wire:?} {service:?}");
        }
    });
}

/// proves: GSS-2203-5.3.3.3-d
#[test]
fn a_context_that_ends_is_made_anew() {
    in_realm("a_context_that_ends_is_made_anew", async |realm| {
        let mut house = House::new(realm).await;
        // Only the server's clock goes forward: the server says that the context has ended.
        let (client, _) = house.client(Wire::Tcp, GssService::Integrity).await;
        assert!(call(&client, 1, 1).await.is_ok());
        house.clock.put_forward(Duration::from_secs(3600));
        assert!(call(&client, 1, 2).await.is_ok());
        assert_eq!(house.contexts(), 2);
        // The client's clock goes forward as well: the client knows it first.
        house.env.clock = Arc::new(house.clock.clone());
        let (client, _) = house.client(Wire::Tcp, GssService::Integrity).await;
        assert!(call(&client, 1, 3).await.is_ok());
        house.clock.put_forward(Duration::from_secs(500));
        assert!(call(&client, 1, 4).await.is_ok());
        assert_eq!(house.contexts(), 3, "a minute and more is left");
        house.front.seen.lock().unwrap().clear();
        house.clock.put_forward(Duration::from_secs(60));
        assert!(call(&client, 1, 5).await.is_ok());
        assert_eq!(house.contexts(), 4);
        let denied = house.front.seen.lock().unwrap().iter().filter(|seen| seen.control == 0).count();
        assert_eq!(denied, 1, "the call was sent once, in the new context");
    });
}

/// proves: GSS-2203-5.4-a
#[test]
fn contexts_are_destroyed_at_the_end() {
    in_realm("contexts_are_destroyed_at_the_end", async |realm| {
        let house = House::new(realm).await;
        for service in SERVICES {
            let (client, auth) = house.client(Wire::Tcp, service).await;
            let goodbyes = || house.front.seen.lock().unwrap().iter().filter(|seen| seen.control == 3).count();
            let before = goodbyes();
            client.null().await.unwrap();
            auth.close().await;
            assert_eq!(goodbyes(), before + 1);
            auth.close().await;
            assert_eq!(goodbyes(), before + 1, "once");
            client.null().await.unwrap();
            let transport = client.transport().clone();
            drop((client, auth));
            while goodbyes() < before + 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(transport);
        }
    });
}

/// The server silently drops calls below its window of 1,024.
///
/// proves: GSS-2203-5.3.3.1-g
#[test]
fn no_call_falls_out_of_the_window() {
    in_realm("no_call_falls_out_of_the_window", async |realm| {
        let house = House::new(realm).await;
        for wire in WIRES {
            let (client, _) = house.client(wire, GssService::Authentication).await;
            assert_eq!(at_once(&client, 3000).await.join_all().await.len(), 3000, "{wire:?}");
            // An unanswered call makes later calls wait that would go beyond the window.
            let slow = tokio::spawn({
                let client = client.clone();
                async move { call(&client, 5, 5).await.unwrap() }
            });
            while !house.sample.callers.lock().unwrap().len().is_multiple_of(3001) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut calls = at_once(&client, 1500).await;
            for _ in 0..1023 {
                calls.join_next().await.unwrap().unwrap();
            }
            assert!(timeout(Duration::from_millis(200), calls.join_next()).await.is_err(), "{wire:?}");
            house.sample.go.notify_one();
            assert_eq!(calls.join_all().await.len(), 1500 - 1023);
            assert_eq!(slow.await.unwrap().0, 5);
            house.sample.callers.lock().unwrap().clear();
        }
        assert_eq!(house.contexts(), 3);
    });
}

/// After each cut all calls take new sequence numbers together: none of them falls below the window.
#[test]
fn cuts_under_load_lose_no_call() {
    in_realm("cuts_under_load_lose_no_call", async |realm| {
        let house = House::new(realm).await;
        for wire in WIRES {
            let (client, _) = house.client(wire, GssService::Privacy).await;
            let mut calls = at_once(&client, 4000).await;
            for _ in 0..3 {
                for _ in 0..100 {
                    calls.join_next().await.unwrap().unwrap();
                }
                house.front.cut();
            }
            assert_eq!(calls.join_all().await.len(), 3700, "{wire:?}");
        }
    });
}

/// The error of a call that the client cannot sign.
async fn why(house: &House<'_>, host: &str) -> String {
    let tickets = Tickets::of_user(Gss::load().unwrap(), host);
    let auth = GssAuth::new(&house.env, Arc::new(tickets), Arc::new(house::Threads), GssService::Integrity);
    let transport = house.transport(Wire::Rdma(Versions::One), Arc::default()).await;
    let client = Client::new(transport, Arc::new(auth), house::PROGRAM, 1);
    match call(&client, 1, 1).await {
        Err(CallError::NotSigned(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_say_what_to_do() {
    in_realm("errors_say_what_to_do", async |realm| {
        let house = House::new(realm).await;
        let text = why(&house, "elsewhere.localhost").await;
        assert!(text.contains("addprinc -randkey nfs/elsewhere.localhost"), "{text}");
        realm.administer("cpw -randkey nfs/localhost").unwrap();
        let text = why(&house, "localhost").await;
        assert!(text.contains("server's keytab lacks the key") && text.contains("nfs/localhost"), "{text}");
        std::fs::remove_file(realm.folder().join("tickets")).unwrap();
        let text = why(&house, "localhost").await;
        assert!(text.contains("kinit"), "{text}");
    });
}

#[test]
fn a_kdc_that_is_down_is_named_as_the_reason() {
    in_realm("a_kdc_that_is_down_is_named_as_the_reason", async |realm| {
        realm.hide_kdc().unwrap();
        let house = House::new(realm).await;
        let text = why(&house, "localhost").await;
        assert!(text.contains("no KDC of the realm answers"), "{text}");
    });
}

#[test]
fn a_ticket_that_has_expired_is_named_as_the_reason() {
    in_realm("a_ticket_that_has_expired_is_named_as_the_reason", async |realm| {
        realm.kinit("alice", "1s").unwrap();
        tokio::time::sleep(Duration::from_millis(2100)).await;
        let house = House::new(realm).await;
        let text = why(&house, "localhost").await;
        assert!(text.contains("expired") && text.contains("kinit"), "{text}");
    });
}
