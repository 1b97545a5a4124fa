//! A guest's kernel crashes: the results must contain its last words.

use super::Job;
use crate::interop::{
    context::Context,
    crash::{CONSOLE_LOG, Crash},
    flavour,
    guest::GuestOptions,
};
use anyhow::{Context as _, ensure};

pub(super) const JOB: Job = Job {
    name: "linux-crashes",
    about: "a guest whose kernel is made to crash: its last words, with the call trace, stand in the result",
    seconds: 60,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

const SCRIPT: &str = "step work\necho c >/proc/sysrq-trigger\n";

fn run(context: &Context) -> anyhow::Result<()> {
    let guest = context.boot(GuestOptions::new("client", SCRIPT))?;
    let console = guest.dir().join(CONSOLE_LOG);
    let failure = guest.finish().err().context("a guest that crashed is thought to have ended well")?.to_string();
    for told in ["== work", "Kernel panic - not syncing: sysrq triggered crash", "Call Trace:", "sysrq_handle_crash+0x"]
    {
        ensure!(failure.contains(told), "the result does not say {told:?}: {failure}");
    }
    let crash = Crash::find(&std::fs::read_to_string(&console)?).context("no crash is found")?;
    ensure!(crash.our_fault().is_none(), "it is taken for the harness's fault: {}", crash.words());
    Ok(())
}
