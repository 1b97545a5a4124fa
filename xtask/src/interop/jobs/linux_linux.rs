//! Linux mounts Linux: this shows what the guest can do without us, and makes the capture with which other jobs compare
//! theirs.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, nfsd::NfsdOptions};
use std::fs;

pub(super) const JOB: Job = Job {
    name: "linux-linux",
    about: "Linux's client against Linux's server: the scripts and captures that ours are compared with",
    seconds: 300,
    guests: 2,
    scales: false,
    flavours: flavour::ONE,
    run,
};

fn run(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new())?;
    let script = include_str!("../../../interop/guest/tree.sh");
    let guest = GuestOptions::new("client", script).mounts_at(nfsd.port(), nfsd.mount_port(), "/exports").capture();
    let ended = context.boot(guest)?.finish()?;
    nfsd.finish()?;
    fs::copy(ended.wire(), context.image().reference())?;
    Ok(())
}
