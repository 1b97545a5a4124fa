//! On which processors a measurement runs.

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two processors that this process may use.
pub(super) fn two_processors() -> Result<[usize; 2]> {
    match allowed()?[..] {
        [first, second, ..] => Ok([first, second]),
        _ => bail!("--apart needs two processors"),
    }
}

/// The first processor that this process may use.
pub(super) fn one_processor() -> Result<usize> {
    allowed()?.first().copied().context("this process may not use any processor")
}

fn allowed() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("cannot read which processors this process may use")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// Runs this thread, and those that it starts, on one processor from now on.
pub(super) fn stay_on(cpu: usize) -> Result<()> {
    ensure!(cpu < CpuSet::MAX_CPU, "there is no processor {cpu}");
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).with_context(|| format!("cannot move to processor {cpu}"))
}
