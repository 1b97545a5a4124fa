//! Linux's client and our server use what they agreed on. The capture, the client's counters and our metrics must all
//! show it.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, mountstats, serve::ServeOptions, wire::Wire};
use anyhow::ensure;

pub(super) const JOB: Job = Job {
    name: "client-uses",
    about: "Sends no longer than both ends take, remote invalidation, several RDMA Reads and calls at a time, credits kept: capture, mountstats, metrics",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// What Linux announces by RFC 8797, and therefore the most that either end sends.
const INLINE: u64 = 4096;
/// What we announce.
const OURS: u64 = 8192;

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?).capture())?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/uses.sh"));
    let ended = context.boot(guest.mounts(&server).capture())?.finish()?;
    let metrics = server.finish()?;

    let wire = Wire::read(context, &ended.wire())?;
    context.note(wire.in_short());
    let (client, ours) = (&wire.initiator, &wire.responder);
    let see = ended.wire();
    let see = see.display();
    ensure!(wire.connections > 0, "no connection in {see}");
    ensure!(client.private_data.contains(&(INLINE, true)), "Linux announced {:?}; see {see}", client.private_data);
    ensure!(
        ours.private_data.len() as u64 == wire.connections && ours.private_data.iter().all(|(size, _)| *size == OURS),
        "our server announced {:?}; see {see}",
        ours.private_data
    );
    ensure!(
        client.long_sends > 0 && client.longest_send <= INLINE,
        "Linux's longest Send has {} bytes; see {see}",
        client.longest_send
    );
    ensure!(
        ours.long_sends > 0 && ours.longest_send <= INLINE,
        "our longest Send has {} bytes; see {see}",
        ours.longest_send
    );
    ensure!(ours.invalidations > 0, "our server invalidated nothing; see {see}");
    ensure!(ours.reads_at_a_time > 1, "our server never had two RDMA Reads outstanding; see {see}");
    ensure!(client.calls_at_a_time > 1, "Linux never had two calls outstanding; see {see}");
    wire.judge_terminates(context, &ended.wire())?;

    // The client's own counters.
    let stats = mountstats::first(&ended.read("mountstats-1")?)?;
    context.note(format!("mountstats: {stats:?}"));
    ensure!(stats.read_chunks > 0 && stats.write_chunks > 0 && stats.reply_chunks > 0, "{stats:?}");
    ensure!(stats.bad_xids == 0 && stats.bad_replies == 0, "{stats:?}");
    let with_chunks = stats.read_chunks + stats.write_chunks + stats.reply_chunks;
    ensure!(
        stats.local_invalidations * 2 < with_chunks,
        "Linux invalidated {} times itself for {with_chunks} calls with chunks: {stats:?}",
        stats.local_invalidations
    );

    // Our metrics.
    let invalidations = metrics.sum("rpcrdma_invalidations_total", &[]);
    ensure!(
        invalidations as u64 == ours.invalidations,
        "metrics count {invalidations} invalidations, the capture {}",
        ours.invalidations
    );
    let placed = metrics.sum("rpcrdma_bytes_total", &["direction=\"in\"", "way=\"placed\""]);
    ensure!(placed > 32e6, "metrics count {placed} bytes by RDMA Read");
    for kind in ["read", "write", "reply"] {
        let count = metrics.sum("rpcrdma_chunks_total", &[&format!("kind=\"{kind}\"")]);
        ensure!(count > 0.0, "metrics count no {kind} chunk");
    }
    Ok(())
}
