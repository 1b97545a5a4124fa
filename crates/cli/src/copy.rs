//! What `get` and `put` share: how much is under way, what was done, and telling it.

use crate::{Failed, names};
use anyhow::Result;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use rpcrdma_nfs_client::Error;
use rpcrdma_oncrpc::CallError;
use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

/// READs or WRITEs of one file under way.
pub(crate) const DEPTH: usize = 8;
/// Files being copied at a time.
pub(crate) const FILES: usize = 8;
/// Holes are looked for in units of this many octets: the block size of most file systems.
const HOLE_OCTETS: usize = 4096;

/// In which blocks and how many of them at a time to move a file of `size` octets: a small file takes one call.
pub(crate) fn block_size(size: u64, largest: u32, depth: usize) -> (u32, usize) {
    let block = u32::try_from(size).unwrap_or(u32::MAX).clamp(1, largest.max(1));
    let blocks = usize::try_from(size.div_ceil(u64::from(block))).unwrap_or(usize::MAX);
    (block, blocks.clamp(1, depth))
}

/// The runs of `octets` that are not merely zero, as ranges, in units that a file system can leave out.
pub(crate) fn data_runs(octets: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, unit) in octets.chunks(HOLE_OCTETS).enumerate() {
        if unit.iter().all(|&octet| octet == 0) {
            continue;
        }
        let begin = index * HOLE_OCTETS;
        let end = begin + unit.len();
        match runs.last_mut() {
            Some(last) if last.end == begin => last.end = end,
            _ => runs.push(begin..end),
        }
    }
    runs
}

/// Whether to give up, rather than go on with the next file: the server cannot be reached or makes no sense.
pub(crate) fn is_hopeless(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref::<Error>(), Some(Error::Call(CallError::Transport(_))))
            || matches!(cause.downcast_ref::<CallError>(), Some(CallError::Transport(_)))
    })
}

/// What has been copied, shown while it happens and told at the end.
pub(crate) struct Tally {
    begin: Instant,
    bar: Option<ProgressBar>,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) links: u64,
    pub(crate) octets: u64,
    pub(crate) errors: u64,
}

impl Tally {
    /// Counts from zero; with a progress bar if somebody watches.
    pub(crate) fn new(quiet: bool) -> Self {
        let watched = !quiet && std::io::stderr().is_terminal();
        let bar = watched.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { begin: Instant::now(), bar, files: 0, directories: 0, links: 0, octets: 0, errors: 0 }
    }

    pub(crate) fn moved(&mut self, octets: usize) {
        self.octets += octets as u64;
        if let Some(bar) = &self.bar {
            bar.inc(octets as u64);
        }
    }

    pub(crate) fn file_done(&mut self) {
        self.files += 1;
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} files", self.files));
        }
    }

    /// Tells an error and goes on, unless that is hopeless.
    pub(crate) fn check(&mut self, what: &[u8], error: anyhow::Error) -> Result<()> {
        if is_hopeless(&error) {
            return Err(error);
        }
        self.failed(what, &error);
        Ok(())
    }

    /// Tells what could not be copied, and goes on.
    pub(crate) fn failed(&mut self, what: &[u8], error: &anyhow::Error) {
        self.errors += 1;
        let line = format!("rpcrdma: {}: {error:#}", names::escaped(what));
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Tells what was done. Fails if anything could not be.
    pub(crate) fn finish(self, json: bool, quiet: bool) -> Result<()> {
        let seconds = self.begin.elapsed().as_secs_f64();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if json {
            let (files, directories, links) = (self.files, self.directories, self.links);
            let (octets, errors) = (self.octets, self.errors);
            println!(
                "{}",
                serde_json::json!({
                    "files": files, "directories": directories, "links": links,
                    "octets": octets, "seconds": seconds, "errors": errors,
                })
            );
        } else if self.bar.is_some() && !quiet {
            let rate = (self.octets as f64 / seconds.max(1e-9)) as u64;
            eprintln!("{} files, {} in {seconds:.1} s ({}/s)", self.files, HumanBytes(self.octets), HumanBytes(rate));
        }
        if self.errors > 0 { Err(Failed.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_take_one_call_and_large_ones_a_window() {
        assert_eq!(block_size(0, 1 << 20, 8), (1, 1));
        assert_eq!(block_size(100, 1 << 20, 8), (100, 1));
        assert_eq!(block_size((1 << 20) + 1, 1 << 20, 8), (1 << 20, 2));
        assert_eq!(block_size(u64::MAX, 1 << 20, 8), (1 << 20, 8));
        assert_eq!(block_size(10, 0, 8), (1, 8));
    }

    #[test]
    fn holes_are_found_in_whole_units() {
        let mut octets = vec![0; 5 * HOLE_OCTETS + 10];
        assert!(data_runs(&octets).is_empty());
        octets[HOLE_OCTETS] = 1;
        octets[3 * HOLE_OCTETS - 1] = 1;
        octets[5 * HOLE_OCTETS + 9] = 1;
        let end = octets.len();
        assert_eq!(data_runs(&octets), [HOLE_OCTETS..3 * HOLE_OCTETS, 5 * HOLE_OCTETS..end]);
    }
}
