//! What `get` and `put` share: how much is under way, what was done, and reporting it.

use crate::{
    ahead::Ahead,
    args::Placing,
    depth::TooDeep,
    failure::{self, Failed, is_hopeless},
    interrupt::Interrupted,
    names,
    waiting::Watch,
};
use anyhow::{Context, Result};
use futures_util::{Stream, StreamExt};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use rpcrdma_nfs_client::File;
use std::{
    io::{IsTerminal, Write},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

/// READs or WRITEs of one file under way.
pub(crate) const DEPTH: usize = 8;
/// Files being copied at a time.
pub(crate) const FILES: usize = 8;
/// How many files that were left out are listed again at the end, with the reason; the rest are counted.
const LEFT_OUT_TOLD: usize = 10;
/// Holes are looked for in units of this many bytes: the block size of most file systems.
const HOLE_BYTES: usize = 4096;

/// The block size, and how many blocks at a time, for a file of `size` bytes: a small file takes one call.
pub(crate) fn block_size(size: u64, largest: u32, depth: usize) -> (u32, usize) {
    let block = u32::try_from(size).unwrap_or(u32::MAX).clamp(1, largest.max(1));
    let blocks = usize::try_from(size.div_ceil(u64::from(block))).unwrap_or(usize::MAX);
    (block, blocks.clamp(1, depth))
}

/// The runs of `octets` that are not merely zero, as ranges, in units that a file system can leave out.
pub(crate) fn data_runs(octets: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, unit) in octets.chunks(HOLE_BYTES).enumerate() {
        if unit.iter().all(|&octet| octet == 0) {
            continue;
        }
        let begin = index * HOLE_BYTES;
        let end = begin + unit.len();
        match runs.last_mut() {
            Some(last) if last.end == begin => last.end = end,
            _ => runs.push(begin..end),
        }
    }
    runs
}

/// Does something while copies go on, and keeps the results of those that end meanwhile. A copy that is not polled
/// keeps what it holds, such as a slot of the session or the turn to repair it, and the work here may have to wait for
/// that.
pub(crate) async fn beside<T, Ended>(
    doing: impl Future<Output = T>,
    mut copies: impl Stream<Item = Ended> + Unpin,
    ended: &mut Vec<Ended>,
) -> T {
    let mut doing = pin!(doing);
    loop {
        tokio::select! {
            biased;
            done = &mut doing => return done,
            Some(one) = copies.next() => ended.push(one),
        }
    }
}

/// Closes a file after its copy has succeeded or failed. If both fail, the error of the copy counts.
pub(crate) async fn close_after<T>(file: File, copied: Result<T>) -> Result<T> {
    // Without a server there is nothing to close.
    if !copied.as_ref().is_err_and(is_hopeless) {
        let closed = file.close().await;
        if copied.is_ok() {
            closed?;
        }
    }
    copied
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// What has been copied, shown while it happens and reported at the end.
pub(crate) struct Tally {
    begin: Instant,
    bar: Option<ProgressBar>,
    ahead: Arc<Ahead>,
    /// A summary goes to every reader, not only to a terminal.
    is_tree: bool,
    placing: Placing,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) links: u64,
    /// Named pipes, sockets and devices.
    pub(crate) special: u64,
    pub(crate) octets: u64,
    /// Files that were whole already.
    pub(crate) skipped: u64,
    pub(crate) errors: u64,
    /// Files of other users, which kept their modes and times.
    attributes_not_kept: u64,
    /// Extended attributes and lists that were not kept.
    extras_not_kept: u64,
    /// How many of the bytes the server copied itself, where that can be.
    by_server: Option<u64>,
    /// The first files that could not be copied, and why.
    left_out: Vec<(String, String)>,
}

/// A copy's progress line while only the work that was done is known.
const BAR: &str = "{spinner} {prefix}{bytes}, {binary_bytes_per_sec}, {msg}";
/// The same once it is known how much there is.
const BAR_OF_TOTAL: &str = "{spinner} {prefix}{bytes} of {total_bytes}, {binary_bytes_per_sec}, {msg}, {eta} left";

impl Tally {
    /// Counts from zero; with a progress bar if standard error is a terminal.
    pub(crate) fn new(quiet: bool) -> Self {
        let watched = !quiet && std::io::stderr().is_terminal();
        let bar = watched.then(|| {
            let bar = ProgressBar::new_spinner();
            set_style(&bar, BAR);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self {
            begin: Instant::now(),
            bar,
            ahead: Arc::default(),
            is_tree: false,
            placing: Placing::default(),
            files: 0,
            directories: 0,
            links: 0,
            special: 0,
            octets: 0,
            skipped: 0,
            errors: 0,
            attributes_not_kept: 0,
            extras_not_kept: 0,
            by_server: None,
            left_out: vec![],
        }
    }

    /// Sets how files take their places: that decides whether a later copy can go on.
    pub(crate) fn placed(self, placing: Placing) -> Self {
        Self { placing, ..self }
    }

    /// A tree is copied: its summary is written in any case.
    pub(crate) fn of_tree(self, is_tree: bool) -> Self {
        Self { is_tree, ..self }
    }

    /// A server may copy bytes itself, and the summary says so.
    pub(crate) fn with_servers(self) -> Self {
        Self { by_server: Some(0), ..self }
    }

    /// Waits for a server are shown in the progress line, if there is one.
    pub(crate) fn shared_with(self, watch: &Watch) -> Self {
        if let Some(bar) = &self.bar {
            watch.share(bar.clone());
        }
        self
    }

    /// Where a walk ahead of the copy reports how much there is; none if nothing would show it.
    pub(crate) fn ahead(&self) -> Option<Arc<Ahead>> {
        self.bar.is_some().then(|| self.ahead.clone())
    }

    pub(crate) fn moved(&mut self, octets: usize) {
        self.octets += octets as u64;
        if let Some(bar) = &self.bar {
            bar.inc(octets as u64);
            if bar.length().is_none() {
                self.show_files();
            }
        }
    }

    /// Bytes that the server has copied itself.
    pub(crate) fn moved_by_server(&mut self, octets: u64) {
        self.by_server = Some(self.by_server.unwrap_or(0).saturating_add(octets));
        self.moved(usize::try_from(octets).unwrap_or(usize::MAX));
    }

    pub(crate) fn file_done(&mut self) {
        self.files += 1;
        self.show_files();
    }

    /// A file of `octets` was whole already.
    pub(crate) fn passed_over(&mut self, octets: u64) {
        self.skipped += 1;
        if let Some(bar) = &self.bar {
            bar.inc(octets);
        }
        self.show_files();
    }

    fn show_files(&self) {
        let Some(bar) = &self.bar else { return };
        let done = self.files + self.skipped;
        match self.ahead.total() {
            Some(total) => {
                if bar.length().is_none() {
                    bar.set_length(total.octets);
                    set_style(bar, BAR_OF_TOTAL);
                }
                bar.set_message(format!("{done} of {} files", total.files));
            }
            None => bar.set_message(format!("{done} files")),
        }
    }

    /// Reports an error and goes on, unless that is hopeless.
    pub(crate) fn check(&mut self, what: &[u8], error: anyhow::Error) -> Result<()> {
        if is_hopeless(&error) {
            return Err(error);
        }
        self.failed(what, &error);
        Ok(())
    }

    /// The same for a path on the server.
    pub(crate) fn check_remote(&mut self, path: &[u8], error: anyhow::Error) -> Result<()> {
        if is_hopeless(&error) {
            return Err(error);
        }
        self.left_out(path, &failure::line_at(path, &error), &error);
        Ok(())
    }

    /// Reports what could not be copied, and goes on.
    pub(crate) fn failed(&mut self, what: &[u8], error: &anyhow::Error) {
        self.left_out(what, &failure::line_of_local(what, error), error);
    }

    /// Reports that a file of the server has not got the mode and times of its source.
    pub(crate) fn attributes_not_kept(&mut self, what: &[u8], note: &str) {
        self.attributes_not_kept += 1;
        self.note(what, note);
    }

    /// Reports which extended attributes and lists of a file were not kept.
    pub(crate) fn extras_not_kept(&mut self, what: &[u8], notes: &[String]) {
        for note in notes {
            self.extras_not_kept += 1;
            self.note(what, note);
        }
    }

    fn left_out(&mut self, what: &[u8], line: &str, error: &anyhow::Error) {
        self.errors += 1;
        self.print(line);
        let what = names::escaped(what);
        if self.left_out.len() < LEFT_OUT_TOLD {
            self.left_out.push((what, names::escaped(format!("{error:#}").as_bytes())));
        }
    }

    /// Writes a notice that is not an error.
    pub(crate) fn note(&self, what: &[u8], note: &str) {
        self.print(&failure::warning_line(&format!("{}: {note}", names::escaped(what))));
    }

    fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| failure::write(line)),
            None => failure::write(line),
        }
    }

    /// Lists once more what was left out; a single file was reported just before.
    fn tell_left_out(&self) {
        if !self.is_tree && self.files + self.skipped + self.errors <= 1 {
            return;
        }
        for (what, why) in &self.left_out {
            failure::write(&failure::warning_line(&format!("left out: {what}: {why}")));
        }
        match self.errors - self.left_out.len() as u64 {
            0 => {}
            more => failure::write(&failure::warning_line(&format!("left out: {more} more"))),
        }
    }

    /// Reports how far a copy came that did not finish.
    fn tell_stopped(&self, done: &Result<()>) {
        if let Err(error) = done
            && (self.files > 0 || self.octets > 0)
        {
            let (files, octets) = (self.files, HumanBytes(self.octets));
            let hint = if self.can_resume(error) { "; --resume skips the files that are whole" } else { "" };
            failure::write(&failure::warning_line(&format!("stopped after {files} files and {octets}{hint}")));
        }
    }

    /// Whether the same copy with `--resume` would have less to do, and could come further.
    fn can_resume(&self, error: &anyhow::Error) -> bool {
        let has_kept = self.files > 0 || self.skipped > 0 || self.placing.resume;
        let may_end =
            error.is::<Interrupted>() || is_hopeless(error) && !error.chain().any(|cause| cause.is::<TooDeep>());
        !self.placing.inplace && has_kept && may_end
    }

    fn to_json(&self, seconds: f64) -> serde_json::Value {
        let left_out: Vec<_> =
            self.left_out.iter().map(|(path, reason)| serde_json::json!({ "path": path, "reason": reason })).collect();
        let mut told = serde_json::json!({
            "files": self.files, "directories": self.directories, "links": self.links, "special": self.special,
            "skipped": self.skipped, "octets": self.octets, "seconds": seconds, "errors": self.errors,
            "left_out": left_out, "left_out_more": self.errors - self.left_out.len() as u64,
            "attributes_not_kept": self.attributes_not_kept, "extras_not_kept": self.extras_not_kept,
        });
        if let (Some(by_server), Some(told)) = (self.by_server, told.as_object_mut()) {
            told.insert("octets_by_server".into(), by_server.into());
            told.insert("octets_through_here".into(), self.octets.saturating_sub(by_server).into());
        }
        told
    }

    /// What was done, on one line.
    fn summary(&self, seconds: f64) -> String {
        let rate = HumanBytes((self.octets as f64 / seconds.max(1e-9)) as u64);
        let mut line = format!(
            "{}, {} in {seconds:.1} s ({rate}/s)",
            counted(self.files, "file", "files"),
            HumanBytes(self.octets)
        );
        if let Some(by_server) = self.by_server {
            let through = self.octets.saturating_sub(by_server);
            let (by_server, through) = (HumanBytes(by_server), HumanBytes(through));
            line.push_str(&format!(", {by_server} of it by the server itself, {through} through this host"));
        }
        let counts = [
            (self.directories, "directory", "directories"),
            (self.links, "link", "links"),
            (self.special, "special file", "special files"),
            (self.skipped, "file skipped", "files skipped"),
            (self.attributes_not_kept, "without its mode and times", "without their mode and times"),
            (self.extras_not_kept, "extended attribute or list not kept", "extended attributes and lists not kept"),
            (self.errors, "left out", "left out"),
        ];
        for (count, one, many) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            line.push_str(&format!(", {}", counted(count, one, many)));
        }
        line
    }

    /// Reports what was done, and what was left out. Fails if anything was, and if `done` has failed.
    pub(crate) fn finish(self, json: bool, quiet: bool, done: Result<()>) -> Result<()> {
        let seconds = self.begin.elapsed().as_secs_f64();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let mut told = Ok(());
        if json {
            let line = names::json(&self.to_json(seconds));
            told = writeln!(std::io::stdout(), "{line}").context("cannot write to the standard output");
        } else if (self.bar.is_some() || self.is_tree) && !quiet {
            failure::write(&self.summary(seconds));
        }
        // The object for a program contains it already.
        if !json {
            self.tell_left_out();
        }
        self.tell_stopped(&done);
        done?;
        if self.errors > 0 { Err(Failed.into()) } else { told }
    }
}

/// A count and what is counted, as in `1 file` and `2 files`.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::FuturesUnordered;

    #[test]
    fn small_files_take_one_call_and_large_ones_a_window() {
        assert_eq!(block_size(0, 1 << 20, 8), (1, 1));
        assert_eq!(block_size(100, 1 << 20, 8), (100, 1));
        assert_eq!(block_size((1 << 20) + 1, 1 << 20, 8), (1 << 20, 2));
        assert_eq!(block_size(u64::MAX, 1 << 20, 8), (1 << 20, 8));
        assert_eq!(block_size(10, 0, 8), (1, 8));
    }

    /// As with a slot of the session: the work beside waits for a copy, which itself waits for nothing.
    #[tokio::test]
    async fn copies_go_on_beside_what_waits_for_them() {
        let slot = tokio::sync::Mutex::new(());
        let copy = async {
            let _slot = slot.lock().await;
            tokio::task::yield_now().await;
            7
        };
        let mut copies = FuturesUnordered::from_iter([copy]);
        let nobody = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(copies.poll_next_unpin(nobody).is_pending(), "it holds the slot");
        let mut ended = Vec::new();
        beside(async { drop(slot.lock().await) }, &mut copies, &mut ended).await;
        assert_eq!(ended, [7]);
        assert_eq!(beside(async { 8 }, &mut copies, &mut ended).await, 8, "where there is none");
    }

    #[test]
    fn what_was_left_out_is_told_up_to_a_limit() {
        let mut tally = Tally::new(true).of_tree(true);
        for number in 0..=LEFT_OUT_TOLD {
            assert_eq!(tally.to_json(1.0)["left_out_more"], 0);
            tally.failed(format!("file {number}").as_bytes(), &anyhow::anyhow!("no\nluck"));
        }
        let told = tally.to_json(1.0);
        assert_eq!(told["left_out"].as_array().map(Vec::len), Some(LEFT_OUT_TOLD));
        assert_eq!(told["left_out"][0], serde_json::json!({ "path": "file 0", "reason": "no\\nluck" }));
        assert_eq!((&told["left_out_more"], &told["errors"]), (&1.into(), &(LEFT_OUT_TOLD + 1).into()));
        (tally.files, tally.special, tally.octets) = (2, 1, 2048);
        assert_eq!(tally.summary(2.0), "2 files, 2.00 KiB in 2.0 s (1.00 KiB/s), 1 special file, 11 left out");
    }

    #[test]
    fn holes_are_found_in_whole_units() {
        let mut octets = vec![0; 5 * HOLE_BYTES + 10];
        assert!(data_runs(&octets).is_empty());
        octets[HOLE_BYTES] = 1;
        octets[3 * HOLE_BYTES - 1] = 1;
        octets[5 * HOLE_BYTES + 9] = 1;
        let end = octets.len();
        assert_eq!(data_runs(&octets), [HOLE_BYTES..3 * HOLE_BYTES, 5 * HOLE_BYTES..end]);
    }
}
