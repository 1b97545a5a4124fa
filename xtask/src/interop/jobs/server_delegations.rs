//! Linux's nfsd delegates files to our client and recalls them when a program of its own machine wants to write. nfsd
//! calls over the connection that our client has made, and our client answers. The job reads the calls in reverse
//! direction from the captures of both ends.

use super::{Job, client_delegations::reverse_direction};
use crate::interop::{
    context::Context,
    flavour, host,
    nfsd::NfsdOptions,
    process::{Running, last_lines},
};
use anyhow::{Context as _, bail, ensure};
use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "server-delegations",
    about: "Linux's nfsd delegates files to our client, and recalls them when a program there opens them for writing",
    seconds: 180,
    guests: 1,
    scales: false,
    flavours: flavour::WITH_SESSIONS,
    run,
};

/// The files that are delegated.
pub(super) const FILES: [&str; 4] = ["dir/file-1", "dir/file-2", "dir/file-3", "hello.txt"];

/// How long the client may take to open them.
const OPENED_WITHIN: Duration = Duration::from_secs(40);

/// How long a program may wait for a file that is delegated: less than the lease of 10 s, after which nfsd revokes
/// delegations.
const RECALLED_WITHIN: Duration = Duration::from_secs(8);

fn run(context: &Context) -> anyhow::Result<()> {
    let program = host::build_delegated(&host::root())?;
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()))?;
    let flavour = context.flavour();
    let capture = context.dir().join("ours.pcapng");
    let mut command = Command::new(program);
    command.args([flavour.transport, &nfsd.address(), flavour.version.trim_start_matches("4.")]).arg(&capture);
    command.args(FILES.map(|file| format!("/exports/{file}")));
    recalled(context, command, |script| nfsd.run(script))?;

    let wire = nfsd.wire();
    nfsd.finish()?;
    if !flavour.is_tcp() {
        reverse_direction(context, &capture, FILES.len())?;
    } else {
        fs::remove_file(&capture)?;
    }
    reverse_direction(context, &wire, FILES.len())
}

/// Runs the program that opens [`FILES`] and keeps their delegations, until programs in the guest have wanted all of
/// them back: `guest` runs a script there.
pub(super) fn recalled(
    context: &Context,
    command: Command,
    guest: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let out = context.dir().join("delegated.out");
    let mut running = Running::start(command, &out, &context.dir().join("delegated.err"))?;
    let said = || fs::read_to_string(&out).unwrap_or_default();
    let delegated = format!("delegated {}\n", FILES.len());
    let mut has_ended = false;
    context.wait_for("nfsd has delegated each file", OPENED_WITHIN, || {
        has_ended = running.ended()?.is_some();
        Ok(has_ended || said().contains(&delegated))
    })?;
    let why = || {
        let errors = fs::read_to_string(context.dir().join("delegated.err")).unwrap_or_default();
        format!("{} {}", last_lines(&said(), 2), last_lines(&errors, 4))
    };
    ensure!(!has_ended, "the client has ended before the files were wanted: {}", why());

    for file in FILES {
        let begin = Instant::now();
        guest(&format!("echo more >>/exports/{file}; tail -1 /exports/{file} | grep -q more"))
            .with_context(|| format!("writing {file} in the guest"))?;
        let took = begin.elapsed();
        context.note(format!("{file} {:.1} s", took.as_secs_f64()));
        ensure!(took < context.patient(RECALLED_WITHIN), "{file}: a program waited {took:?} for the delegation");
    }
    let Some(status) = running.wait_until(context.deadline())? else {
        bail!("the client waits for more recalls: {}", why());
    };
    ensure!(status.success() && said().contains("returned\n"), "the client: {status}: {}", why());
    Ok(())
}
