//! Our client and Linux's nfsd use what they agreed on, under `bench`'s load. Both captures and the guest's counters
//! must show it.

use super::Job;
use crate::interop::{context::Context, flavour, nfsd::NfsdOptions, wire::Wire};
use anyhow::{Context as _, ensure};

pub(super) const JOB: Job = Job {
    name: "server-uses",
    about: "our bench against Linux's nfsd: Sends no longer than both ends take, remote invalidation, several RDMA Reads and calls at a time, credits kept",
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
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()))?;
    let capture = context.dir().join("ours.pcapng").to_string_lossy().into_owned();
    let bench = |name: &str, arguments: &[&str]| -> anyhow::Result<()> {
        let mut all = vec!["bench", "--json", "--seconds", "2"];
        all.extend_from_slice(arguments);
        let finished =
            context.rpcrdma(name, &all)?.expect_success().with_context(|| format!("rpcrdma {}", all.join(" ")))?;
        finished.json()?;
        Ok(())
    };
    nfsd.run("truncate -s 64M /exports/bench; head -c 16M /dev/urandom | dd of=/exports/bench conv=notrunc 2>/dev/null; chmod 666 /exports/bench")?;
    let file = nfsd.url("bench");
    bench("null", &["--op", "null", "--depth", "40", &file])?;
    bench("getattr", &["--op", "getattr", "--depth", "64", &file])?;
    bench("read-small", &["--op", "read", "--block", "3K", "--depth", "16", &file])?;
    bench("read", &["--op", "read", "--block", "1M", "--depth", "8", &file])?;
    bench("write-small", &["--op", "write", "--block", "3K", "--depth", "16", "--overwrite", &file])?;
    bench("write", &["--op", "write", "--block", "1M", "--depth", "8", "--overwrite", "--capture", &capture, &file])?;
    bench("connections", &["--op", "getattr", "--connections", "4", "--depth", "16", &file])?;
    let counters = nfsd.run("cd /proc/sys/sunrpc/svc_rdma; grep . rdma_stat_* 2>/dev/null || true")?;
    context.note(counters.split_whitespace().collect::<Vec<_>>().join(" "));

    let capture_in_guest = nfsd.wire();
    nfsd.finish()?;
    let wire = Wire::read(context, &capture_in_guest)?;
    context.note(wire.in_short());
    let see = capture_in_guest.display();
    let (ours, linux) = (&wire.initiator, &wire.responder);
    ensure!(
        !ours.private_data.is_empty() && ours.private_data.iter().all(|data| *data == (OURS, true)),
        "our client announced {:?}; see {see}",
        ours.private_data
    );
    ensure!(
        linux.private_data.iter().all(|(size, _)| *size == INLINE),
        "Linux announced {:?}; see {see}",
        linux.private_data
    );
    ensure!(
        ours.long_sends > 0 && ours.longest_send <= INLINE,
        "our longest Send has {} bytes; see {see}",
        ours.longest_send
    );
    ensure!(linux.invalidations > 0, "Linux invalidated nothing of ours; see {see}");
    ensure!(linux.reads_at_a_time > 1, "Linux never had two RDMA Reads outstanding; see {see}");
    ensure!(ours.calls_at_a_time > 16, "at most {} calls of ours were outstanding; see {see}", ours.calls_at_a_time);
    // The capture of our own transport, in the order in which it handed over messages.
    let own = Wire::read(context, &context.dir().join("ours.pcapng"))?;
    ensure!(own.responder.invalidations > 0, "our own capture has no invalidation by Linux: {}", own.in_short());
    ensure!(
        own.responder.reads_at_a_time > 1,
        "our own capture has at most one RDMA Read at a time: {}",
        own.in_short()
    );
    wire.judge_terminates(context, &capture_in_guest)
}
