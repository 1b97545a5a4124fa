//! NFS version 3 over an RDMA device of this machine, in both versions of RPC-over-RDMA: the same as over software
//! iWARP. The harness runs this in a guest with soft-RoCE and with soft-iWARP.
//!
//! RPCRDMA_VERBS_ADDRESS names an address of the device. Without it the tests have nothing to run over, and say so.

mod nfs;

use nfs::live::{self, Place};
use rpcrdma_env::tokio_env;
use rpcrdma_verbs::{Config, Device, Verbs};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Runs a test over the device.
async fn over_the_device(what: &str, run: impl AsyncFnOnce(&Place)) {
    let Ok(address) = std::env::var("RPCRDMA_VERBS_ADDRESS") else {
        println!("RPCRDMA_VERBS_ADDRESS names no device's address: nothing to run over");
        return;
    };
    let address: IpAddr = address.parse().unwrap();
    let env = tokio_env().unwrap();
    let mut config = Config::default();
    config.device = Device::Local(address);
    let verbs = Verbs::open(env.clone(), config).await.unwrap();
    let device = verbs.device();
    run(&Place { fabric: Arc::new(verbs), address: SocketAddr::new(address, 0), env }).await;
    println!("NFS over {device}: {what}");
}

#[tokio::test]
async fn files_are_what_a_model_says() {
    over_the_device("files", live::files_are_what_a_model_says).await;
}

#[tokio::test]
async fn cut_connections_lose_nothing() {
    over_the_device("cuts", live::cut_connections_lose_nothing).await;
}

#[tokio::test]
async fn restarts_of_the_server_lose_nothing() {
    over_the_device("restarts", live::restarts_of_the_server_lose_nothing).await;
}
