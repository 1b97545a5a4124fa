//! What carries RDMA: software of our own, or a device of this machine.

use crate::error::{Context, Error, ensure};
use rpcrdma_env::{BusyPoll, Env};
use rpcrdma_verbs::{Device, Verbs};

/// What carries RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// iWARP in software, over TCP: needs no hardware.
    #[default]
    Iwarp,
    /// An RDMA device of this machine, by libibverbs and librdmacm, which are loaded when they are needed.
    Verbs,
}

/// Opens a device.
///
/// # Errors
/// If it cannot be used, or if the caller asks for options of iWARP.
pub(crate) async fn verbs(
    env: &Env,
    device: Device,
    busy_poll: BusyPoll,
    no_crc: bool,
    tapped: bool,
) -> Result<Verbs, Error> {
    ensure!(!no_crc, "--no-crc works with software iWARP only: a device checks what it carries by itself");
    ensure!(!tapped, "--capture sees software iWARP only: what a device carries does not pass through this program");
    let mut config = rpcrdma_verbs::Config::default();
    config.device = device;
    config.busy_poll = busy_poll;
    Verbs::open(env.clone(), config).await.context("cannot use an RDMA device")
}
