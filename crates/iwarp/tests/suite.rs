//! The required behaviour of every provider, over loopback TCP in both address families, with and without CRC, with
//! FPDUs of the largest size and of hardware's size, with threads that sleep and threads that poll.

use rpcrdma_env::{BusyPoll, tokio_env};
use rpcrdma_fabric::suite::{Setup, cases};
use rpcrdma_iwarp::{Config, Iwarp};
use std::{sync::Arc, time::Duration};

/// The size of an FPDU on an Ethernet with TCP time stamps.
const ETHERNET_FPDU_OCTETS: usize = 1448;

async fn run_all(listen: &str, set: impl FnOnce(&mut Config)) {
    let env = tokio_env().unwrap();
    let mut config = Config::default();
    set(&mut config);
    let fabric = Arc::new(Iwarp::new(env.clone(), config));
    for case in cases() {
        let setup = Setup { a: fabric.clone(), b: fabric.clone(), listen: listen.parse().unwrap(), env: env.clone() };
        let verdict = case.run(setup).await;
        println!("{}: {verdict:?}", case.name());
    }
}

#[tokio::test]
async fn over_ipv4() {
    run_all("127.0.0.1:0", |_| {}).await;
}

#[tokio::test]
async fn over_ipv6() {
    run_all("[::1]:0", |_| {}).await;
}

#[tokio::test]
async fn without_crc() {
    run_all("127.0.0.1:0", |config| config.crc = false).await;
}

#[tokio::test]
async fn with_small_fpdus() {
    run_all("127.0.0.1:0", |config| config.fpdu_octets = Some(ETHERNET_FPDU_OCTETS)).await;
}

#[tokio::test]
async fn with_busy_polling() {
    run_all("127.0.0.1:0", |config| config.busy_poll = BusyPoll::For(Duration::from_micros(200))).await;
}

#[tokio::test]
async fn without_busy_polling() {
    run_all("127.0.0.1:0", |config| config.busy_poll = BusyPoll::Off).await;
}
