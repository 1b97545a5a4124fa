//! Random operations of Linux on a file of our server by another project's exerciser, the crate `fsx`: a second opinion
//! beside ours, with the operations of NFS 4.2 that ours does not have.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, serve::ServeOptions, suites, wire::Wire};

pub(super) const JOB: Job = Job {
    name: "client-fsx-crate",
    about: "the crate fsx: reads, writes, maps, truncations, copies, holes and allocations of one file, at random",
    seconds: 600,
    guests: 1,
    scales: true,
    flavours: flavour::NEWEST,
    run,
};

/// The share of the run's operations that this job does: one in this number.
const SHARE: u64 = 20;

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?))?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/fsx-crate.sh")).mounts(&server);
    let ops = context.ops().div_ceil(SHARE);
    let guest = guest.with_program(&suites::fsx(context.image())?).capture().after_all("OPS", ops);
    let ended = context.boot(guest)?.finish()?;
    context.note(format!("{ops} operations with seed {}", context.seed()));
    context.note(Wire::read(context, &ended.wire())?.in_short());
    server.finish().map(drop)
}
