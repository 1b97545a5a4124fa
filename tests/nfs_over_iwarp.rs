//! NFS version 3 over software iWARP on the loopback interface, in both versions of RPC-over-RDMA: the tests of the
//! simulated fabric in real time and over real sockets, with a few cuts and restarts.

mod nfs;

use nfs::live::{self, Place};
use rpcrdma_env::tokio_env;
use rpcrdma_iwarp::{Config, Iwarp};
use std::{net::Ipv4Addr, sync::Arc};

fn loopback() -> Place {
    let env = tokio_env().unwrap();
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    Place { fabric, address: (Ipv4Addr::LOCALHOST, 0).into(), env }
}

#[tokio::test]
async fn files_are_what_a_model_says() {
    live::files_are_what_a_model_says(&loopback()).await;
}

/// proves: V1-4.5.5-a, ULB-3.1-d
#[tokio::test]
async fn cut_connections_lose_nothing() {
    live::cut_connections_lose_nothing(&loopback()).await;
}

/// proves: V1-4.5.5-a, ULB-3.1-d
#[tokio::test]
async fn restarts_of_the_server_lose_nothing() {
    live::restarts_of_the_server_lose_nothing(&loopback()).await;
}
