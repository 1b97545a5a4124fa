//! The client over UDP against sockets that answer late, wrongly, twice or not at all.

use super::*;
use crate::{CallError, Client, Misuse, NoAuth, ReplyShape, rpcbind::Rpcbind};
use rpcrdma_env::{SeededRandom, TokioClock};
use rpcrdma_xdr::{Encoder, Payload};
use std::time::Instant;

const OPTIONS: UdpClientOptions = UdpClientOptions {
    first_wait: Duration::from_millis(40),
    longest_wait: Duration::from_millis(80),
    limit: Duration::from_millis(600),
};

fn env() -> Env {
    Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(3)) }
}

async fn pair(options: UdpClientOptions) -> (Client, UdpSocket, SocketAddr) {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (to, from) = (server.local_addr().unwrap(), near.local_addr().unwrap());
    near.connect(to).await.unwrap();
    let transport = UdpTransport::new(near, to, &env(), options);
    (Client::new(Arc::new(transport), Arc::new(NoAuth), 100_024, 1), server, from)
}

/// A reply to this call, that says this word.
fn reply(call: &[u8], word: u32) -> Vec<u8> {
    let mut octets = call[..4].to_vec();
    for word in [1, 0, 0, 0, 0, word] {
        octets.extend_from_slice(&word.to_be_bytes());
    }
    octets
}

async fn receive(server: &UdpSocket) -> Vec<u8> {
    let mut octets = vec![0; 1000];
    let (len, _) = server.recv_from(&mut octets).await.unwrap();
    octets.truncate(len);
    octets
}

fn call(client: &Client) -> crate::Call {
    client.call(1, Payload::new(), ReplyShape::inline(4))
}

/// proves: RPC-5531-4-a
#[tokio::test]
async fn a_call_that_is_lost_goes_out_again_with_the_same_xid() {
    let (client, server, from) = pair(OPTIONS).await;
    let answering = async {
        let first = receive(&server).await;
        let second = receive(&server).await;
        assert_eq!(first, second, "the whole call is the same, with its XID");
        server.send_to(&reply(&second, 77), from).await.unwrap();
    };
    let (results, ()) = tokio::join!(call(&client), answering);
    let mut results = results.unwrap();
    assert!(results.retransmitted);
    assert_eq!(results.decoder.u32(), Ok(77));
}

#[tokio::test]
async fn answers_of_strangers_and_to_other_calls_are_ignored() {
    let (client, server, from) = pair(OPTIONS).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let answering = async {
        let call = receive(&server).await;
        // A stranger at another port has guessed the XID.
        stranger.send_to(&reply(&call, 1), from).await.unwrap();
        let mut other = reply(&call, 2);
        other[3] ^= 1;
        server.send_to(&other, from).await.unwrap();
        // The call itself comes back.
        server.send_to(&call, from).await.unwrap();
        for junk in [&b""[..], b"abc", &call[..4], &vec![0; 2000]] {
            server.send_to(junk, from).await.unwrap();
        }
        server.send_to(&reply(&call, 3), from).await.unwrap();
    };
    let (results, ()) = tokio::join!(call(&client), answering);
    assert_eq!(results.unwrap().decoder.u32(), Ok(3));
}

#[tokio::test]
async fn an_answer_larger_than_it_may_be_is_ignored() {
    let (client, server, from) = pair(OPTIONS).await;
    let max = crate::REPLY_HEADER_BYTES + crate::MAX_AUTH_BODY_BYTES + crate::MISMATCH_BYTES;
    let answering = async {
        let call = receive(&server).await;
        let mut large = reply(&call, 1);
        large.resize(max + 1, 0);
        server.send_to(&large, from).await.unwrap();
        server.send_to(&reply(&call, 2), from).await.unwrap();
    };
    let (results, ()) = tokio::join!(call(&client), answering);
    assert_eq!(results.unwrap().decoder.u32(), Ok(2));
}

#[tokio::test]
async fn a_server_that_never_answers_costs_a_few_datagrams() {
    let (client, server, _) = pair(OPTIONS).await;
    let begun = Instant::now();
    let failed = call(&client).await;
    assert!(matches!(failed, Err(CallError::Transport(TransportError::NotAnswered { .. }))), "{failed:?}");
    assert!(begun.elapsed() >= OPTIONS.limit);
    let mut datagrams = 0;
    let mut octets = [0; 100];
    while server.try_recv(&mut octets).is_ok() {
        datagrams += 1;
    }
    // 40 ms, and then every 80 ms up to 600 ms.
    assert!((2..=8).contains(&datagrams), "{datagrams}");
}

#[tokio::test]
async fn a_flood_of_wrong_answers_does_not_make_a_call_last_longer() {
    let (client, server, from) = pair(OPTIONS).await;
    let flood = async {
        loop {
            let _ = server.send_to(b"nothing of use", from).await;
            tokio::task::yield_now().await;
        }
    };
    let calling = tokio::time::timeout(OPTIONS.limit * 10, call(&client));
    let failed = tokio::select! { failed = calling => failed, () = flood => unreachable!() };
    assert!(matches!(failed, Ok(Err(CallError::Transport(TransportError::NotAnswered { .. })))), "{failed:?}");
}

#[tokio::test]
async fn where_nobody_listens_it_is_said_at_once() {
    let (client, server, _) = pair(UdpClientOptions { limit: Duration::from_secs(60), ..OPTIONS }).await;
    drop(server);
    let failed = tokio::time::timeout(Duration::from_secs(10), call(&client)).await;
    assert!(matches!(failed, Ok(Err(CallError::Transport(TransportError::Unreachable { .. })))), "{failed:?}");
}

#[tokio::test]
async fn calls_go_one_after_another_and_large_ones_not_at_all() {
    let (client, server, from) = pair(OPTIONS).await;
    let answering = async {
        for word in [1, 2] {
            let call = receive(&server).await;
            server.send_to(&reply(&call, word), from).await.unwrap();
        }
    };
    let (first, second, ()) = tokio::join!(call(&client), call(&client), answering);
    assert_eq!((first.unwrap().decoder.u32(), second.unwrap().decoder.u32()), (Ok(1), Ok(2)));
    let mut encoder = Encoder::new();
    encoder.opaque(&vec![0; MAX_CLIENT_DATAGRAM_BYTES]);
    let failed = client.call(1, encoder.finish(), ReplyShape::inline(4)).await;
    assert!(matches!(failed, Err(CallError::Transport(TransportError::Misuse(Misuse::CallTooLarge { .. })))));
    let failed = client.call(1, Payload::new(), ReplyShape::inline(MAX_CLIENT_DATAGRAM_BYTES)).await;
    assert!(matches!(failed, Err(CallError::Transport(TransportError::Misuse(Misuse::ReplyTooLarge { .. })))));
}

/// How programs that know only version 2 ask Linux's rpcbind.
#[tokio::test]
async fn a_portmapper_is_asked_for_a_port_of_udp() {
    let (client, server, from) = pair(OPTIONS).await;
    let rpcbind = Rpcbind::new(client.transport().clone());
    let answering = async {
        let call = receive(&server).await;
        let words: Vec<u32> = call.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[2..], [2, 100_000, 2, 3, 0, 0, 0, 0, 100_024, 1, 17, 0]);
        server.send_to(&reply(&call, 662), from).await.unwrap();
    };
    let (port, ()) = tokio::join!(rpcbind.port_over(crate::rpcbind::Protocol::Udp, 100_024, 1), answering);
    assert_eq!(port.unwrap(), Some(662));
}
