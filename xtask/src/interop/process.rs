//! Programs that a job starts. What they print goes to files; they end when their handle is dropped.

use super::context::Context;
use anyhow::{Context as _, bail};
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How often the harness looks whether something happened.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A program that runs.
pub(super) struct Running {
    child: Child,
}

impl Running {
    /// Starts it with its output in two files (both may be the same), which are created, or extended if they exist.
    pub(super) fn start(mut command: Command, out: &Path, err: &Path) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let open = |path: &Path| {
            File::options().create(true).append(true).open(path).with_context(|| path.display().to_string())
        };
        command.stdin(Stdio::null()).stdout(open(out)?).stderr(open(err)?);
        Ok(Self { child: command.spawn().with_context(|| format!("could not start {name}"))? })
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until it ended, or until the moment; `None` if it still runs then.
    pub(super) fn wait_until(&mut self, moment: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if Instant::now() >= moment {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }

    /// Asks it to end (SIGTERM).
    pub(super) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends it a signal; nothing happens if it has ended.
    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(id, signal);
        }
    }

    /// Kills it (SIGKILL).
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program that answers each line with a line. Dropping the value kills it.
pub(super) struct Talking {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talking {
    /// Starts it.
    pub(super) fn start(mut command: Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("could not start {name}"))?;
        let (input, output) = (child.stdin.take().context("no pipe")?, child.stdout.take().context("no pipe")?);
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// Writes a line to it, and waits for its answer.
    pub(super) fn ask(&mut self, words: &str) -> anyhow::Result<String> {
        writeln!(self.input, "{words}")?;
        self.input.flush()?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that ended, and what it printed.
pub(super) struct Finished {
    /// Exit status 0.
    pub(super) ok: bool,
    /// Standard output.
    pub(super) stdout: String,
    /// Standard error.
    pub(super) stderr: String,
    /// The file with standard output; standard error lies beside it.
    pub(super) out: PathBuf,
    pub(super) err: PathBuf,
}

impl Finished {
    /// Returns itself if the exit status was 0, else an error with the last lines.
    pub(super) fn expect_success(self) -> anyhow::Result<Self> {
        if self.ok {
            return Ok(self);
        }
        bail!("failed: {}; see {}", last_lines(&format!("{}{}", self.stdout, self.stderr), 6), self.err.display())
    }

    /// Returns itself if the exit status was not 0 and standard error contains the words.
    pub(super) fn expect_failure(self, words: &str) -> anyhow::Result<Self> {
        if self.ok || !self.stderr.to_lowercase().contains(&words.to_lowercase()) {
            bail!(
                "should have failed with {words:?}, and said: {}; see {}",
                last_lines(&self.stderr, 6),
                self.err.display()
            );
        }
        Ok(self)
    }

    /// Its output as JSON.
    pub(super) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("no JSON in {}", self.out.display()))
    }
}

/// Runs a program to its end, within the job's budget, with its output in `NAME.out` and `NAME.err`.
pub(super) fn run(context: &Context, name: &str, command: Command) -> anyhow::Result<Finished> {
    let out = context.dir().join(format!("{name}.out"));
    let err = context.dir().join(format!("{name}.err"));
    for path in [&out, &err] {
        let _ = fs::remove_file(path);
    }
    let shown = format!("{command:?}").replace('"', "");
    let mut running = Running::start(command, &out, &err)?;
    let Some(status) = running.wait_until(context.deadline())? else {
        bail!("the budget ended during: {shown}; see {}", err.display());
    };
    let read = |path: &Path| -> anyhow::Result<String> { Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned()) };
    Ok(Finished { ok: status.success(), stdout: read(&out)?, stderr: read(&err)?, out, err })
}

/// The last lines of a text, in one line.
pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" | ")
}
