//! Processor time of this process and of the server.

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// Where in `/proc/PID/stat` user and system time stand, counted from after the command's name (proc(5), fields 14,
/// 15).
const USER_FIELD: usize = 11;
const SYSTEM_FIELD: usize = 12;

/// The processes whose time is measured.
pub(super) struct CpuMeter {
    other: Option<u32>,
}

/// Their times at the beginning.
pub(super) struct CpuStart {
    own_s: f64,
    other_s: Option<f64>,
}

impl CpuMeter {
    /// Measures this process and, if there is one, another.
    ///
    /// # Errors
    /// If there is no such process.
    pub(super) fn new(other: Option<u32>) -> Result<Self> {
        other.map(other_seconds).transpose()?;
        Ok(Self { other })
    }

    pub(super) fn start(&self) -> Result<CpuStart> {
        Ok(CpuStart { own_s: own_seconds(), other_s: self.other.map(other_seconds).transpose()? })
    }
}

impl CpuStart {
    /// Seconds of this process and of the other since the start.
    pub(super) fn elapsed(&self, meter: &CpuMeter) -> Result<(f64, Option<f64>)> {
        let now = meter.start()?;
        let other = now.other_s.zip(self.other_s).map(|(now, then)| now - then);
        Ok((now.own_s - self.own_s, other))
    }
}

/// Processor time that this process has used.
pub(super) fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn other_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    let ticks = ticks(&stat).with_context(|| format!("/proc/{pid}/stat is not understood"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system time together, in clock ticks.
fn ticks(stat: &str) -> Option<u64> {
    // The name stands in parentheses and may contain anything.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(USER_FIELD);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.nth(SYSTEM_FIELD - USER_FIELD - 1)?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 17 25 0 0 20 0 1 0 99";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("42 (a) S 1"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn this_process_uses_time() {
        let meter = CpuMeter::new(Some(std::process::id())).unwrap();
        let start = meter.start().unwrap();
        let mut sum = 0_u64;
        while start.elapsed(&meter).unwrap().1.unwrap() < 0.02 {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        let (own, other) = start.elapsed(&meter).unwrap();
        assert!(own > 0.0 && other.is_some(), "{sum}");
        assert!(CpuMeter::new(Some(u32::MAX)).is_err());
    }
}
