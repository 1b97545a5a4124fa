//! If a server sets up RDMA connections but answers no call on them, the client leaves it within seconds, and does not
//! retry at full speed.

mod common;

use common::{End, Log, script, serve_after};
use rpcrdma_oncrpc::{CallError, TransportError, TransportKind};
use rpcrdma_sim::World;
use rpcrdma_transport::{ClientOptions, Event, Versions};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 20049);

fn connections(log: &Log) -> usize {
    log.count(|event| matches!(event, Event::Connected { .. }))
}

/// The message that a server sends on each connection before it ends the connection.
const SAYINGS: [&[u8]; 3] =
    [b"", b"SSH-2.0-OpenSSH_9.2p1\r\n", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"];

/// proves: RPC-OUTAGE-a, RPC-OUTAGE-b
#[test]
fn a_server_that_answers_no_call_is_named_within_seconds() {
    for (versions, saying) in [Versions::One, Versions::Auto].into_iter().flat_map(|v| SAYINGS.map(|say| (v, say))) {
        let what = format!("{versions:?} {:?}", String::from_utf8_lossy(saying));
        let world = World::new(1);
        world.block_on(async {
            let ends = script(move |_, mut end: End| async move {
                end.wait().await;
                if !saying.is_empty() {
                    end.post(vec![saying.into()], None);
                    end.look().await;
                }
                end.qp.disconnect();
                end.ends().await;
            });
            let _serving = serve_after(&world, ADDRESS, Versions::Auto, usize::MAX, ends);
            world.sleep(Duration::from_millis(1)).await;
            let mut options = ClientOptions::default();
            options.versions = versions;
            options.service = "NFS";
            let (client, log) = common::connected(&world, CLIENT, ADDRESS, options).await;
            let started = world.now();
            let error = client.null().await.unwrap_err();
            let took = world.now().since(started);
            let CallError::Transport(error) = error else { panic!("{what}: {error}") };
            let over = TransportKind::Rdma;
            assert!(matches!(error, TransportError::NotSpoken { over: o, .. } if o == over), "{what}: {error:?}");
            assert_eq!(error.to_string(), "10.0.0.2:20049 answers, but does not speak NFS over RDMA");
            assert!((10..=12).contains(&took.as_secs()), "{what}: {took:?}");
            assert!((6..=11).contains(&connections(&log)), "{what}: {} connections", connections(&log));
        });
    }
}
