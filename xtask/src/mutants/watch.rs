//! Runs a test program up to the first test that fails, with limits on its time and memory.
//!
//! A program runs in a process group of its own. We kill the group when a test has failed or when the time is over,
//! because broken code may do anything.

use super::build::Program;
use anyhow::Context as _;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

/// The address space of a test program, in bytes: a fault that allocates without end must not bring down the machine.
const MEMORY_BYTES: u64 = 8 << 30;
/// The processor time of a test program, in seconds: a program that spins ends even if it outlives us.
const PROCESSOR_SECONDS: u64 = 1800;
/// How often we check whether a program that prints nothing still runs.
const LOOK: Duration = Duration::from_millis(100);
/// How many of a program's last lines are kept, to be shown if it fails without a fault.
const KEPT_LINES: usize = 60;

/// How a test program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    /// A test failed; we did not wait for the others.
    Failed {
        test: String,
    },
    /// The program did not end as test programs do, but for example by a signal.
    Died {
        how: String,
    },
    /// The program did not end in time; these tests had not ended.
    Hung {
        limit: Duration,
        tests: Vec<String>,
    },
}

/// How a test program ended, what it said last, and how long it took.
pub(super) struct Ran {
    pub(super) end: End,
    pub(super) said: Vec<String>,
    pub(super) took: Duration,
}

/// Runs a program, or one of its tests alone, for at most this long.
pub(super) fn run(program: &Program, only: Option<&str>, limit: Duration) -> anyhow::Result<Ran> {
    let begin = Instant::now();
    let (child, lines) = start(program, only)?;
    let mut group = Group(child);
    let mut said: Vec<String> = Vec::new();
    let mut ended = BTreeSet::new();
    let mut failed = None;
    let mut status = None;
    let end = loop {
        let left = limit.saturating_sub(begin.elapsed());
        match lines.recv_timeout(left.min(LOOK)) {
            Ok((is_output, line)) => {
                if let Some((test, passed)) = verdict(&line).filter(|_| is_output) {
                    ended.insert(test.to_owned());
                    if !passed {
                        failed = Some(test.to_owned());
                    }
                }
                if said.len() == KEPT_LINES {
                    said.remove(0);
                }
                said.push(line);
                if let Some(test) = failed.take() {
                    break End::Failed { test };
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                break ended_by(group.0.wait().context("waiting for a test program")?);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Processes that it has started may hold the pipe open.
        if let Some(status) = status {
            break ended_by(status);
        }
        status = group.0.try_wait().context("waiting for a test program")?;
        if status.is_none() && begin.elapsed() >= limit {
            let tests = all_tests(program).into_iter().filter(|test| !ended.contains(test)).collect();
            break End::Hung { limit, tests };
        }
    };
    drop(group);
    Ok(Ran { end, said, took: begin.elapsed() })
}

/// A program and all processes that it has started; dropping the value kills them.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = pid(&self.0) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// A line that a program prints, and whether it prints it on standard output.
type Line = (bool, String);

/// Starts a program; the channel delivers its lines.
fn start(program: &Program, only: Option<&str>) -> anyhow::Result<(Child, Receiver<Line>)> {
    let mut child = Command::new(&program.executable)
        .args(only.into_iter().flat_map(|test| ["--exact", test]))
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", program.executable.display()))?;
    for (resource, limit) in [(Resource::As, MEMORY_BYTES), (Resource::Cpu, PROCESSOR_SECONDS)] {
        // A program that has already ended needs no limit.
        let _ = prlimit(pid(&child), resource, Rlimit { current: Some(limit), maximum: Some(limit) });
    }
    // Two pipes: test programs write a verdict in pieces, and on one pipe other output could come in between.
    let (sender, lines) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        tell_lines(output, true, sender.clone());
    }
    if let Some(errors) = child.stderr.take() {
        tell_lines(errors, false, sender);
    }
    Ok((child, lines))
}

/// Sends the lines of a pipe, until the pipe ends or the receiver is gone.
fn tell_lines(pipe: impl Read + Send + 'static, is_output: bool, sender: Sender<Line>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|octets| octets > 0) {
            if sender.send((is_output, String::from_utf8_lossy(&line).trim_end().to_owned())).is_err() {
                break;
            }
            line.clear();
        }
    });
}

fn ended_by(status: ExitStatus) -> End {
    if status.success() { End::Passed } else { End::Died { how: status.to_string() } }
}

/// The test that a line is about, and whether it passed.
fn verdict(line: &str) -> Option<(&str, bool)> {
    let (test, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let test = test.strip_suffix(" - should panic").unwrap_or(test);
    match verdict {
        "FAILED" => Some((test, false)),
        verdict if verdict.starts_with("ok") || verdict.starts_with("ignored") => Some((test, true)),
        _ => None,
    }
}

/// The tests of a program.
fn all_tests(program: &Program) -> Vec<String> {
    let listed = Command::new(&program.executable).args(["--list", "--format", "terse"]).stdin(Stdio::null()).output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&listed).lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::build::Target;
    use std::path::PathBuf;

    /// A program that is a shell script. Another process writes the file: the system refuses to execute a file that
    /// this process, or the child of another test at that moment, has open for writing.
    fn script(name: &str, text: &str) -> Program {
        let executable = std::env::temp_dir().join(format!("rpcrdma-watch-{}-{name}", std::process::id()));
        let written = Command::new("sh")
            .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .arg(&executable)
            .arg(text)
            .status();
        assert!(written.unwrap().success());
        let target = Target { package: "e".to_owned(), test: None };
        Program { target, executable, folder: PathBuf::from("/") }
    }

    fn end(name: &str, text: &str, limit: Duration) -> End {
        let program = script(name, text);
        let ran = run(&program, None, limit).unwrap();
        std::fs::remove_file(&program.executable).unwrap();
        ran.end
    }

    #[test]
    fn a_program_is_stopped_at_the_first_test_that_fails() {
        let begin = Instant::now();
        let said = "echo 'test a::b ... ok'; echo 'test a::c - should panic ... FAILED'; sleep 60";
        assert_eq!(end("fails", said, Duration::from_secs(50)), End::Failed { test: "a::c".to_owned() });
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_passes_or_says_how_it_died() {
        assert_eq!(end("passes", "echo 'test result: ok. 1 passed'", Duration::from_secs(50)), End::Passed);
        let died = end("dies", "echo 'test a ... ok'; kill -SEGV $$", Duration::from_secs(50));
        assert!(matches!(&died, End::Died { how } if how.contains("signal")), "{died:?}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_has_started() {
        let text = "if [ \"$1\" = --list ]; then echo 'a: test'; echo 'b: test'; exit; fi\necho 'test a ... ok'; sleep 60 & wait";
        let limit = Duration::from_secs(3);
        assert_eq!(end("hangs", text, limit), End::Hung { limit, tests: vec!["b".to_owned()] });
    }

    #[test]
    fn what_is_said_beside_a_verdict_does_not_hide_it() {
        let said = "printf 'test a ... '; echo 'thread a panicked' >&2; echo FAILED; sleep 60";
        assert_eq!(end("beside", said, Duration::from_secs(50)), End::Failed { test: "a".to_owned() });
    }

    #[test]
    fn one_test_can_be_run_alone() {
        let program = script("alone", "[ \"$*\" = '--exact a::b' ]");
        assert_eq!(run(&program, Some("a::b"), Duration::from_secs(50)).unwrap().end, End::Passed);
        assert_ne!(run(&program, None, Duration::from_secs(50)).unwrap().end, End::Passed);
        std::fs::remove_file(&program.executable).unwrap();
    }

    #[test]
    fn a_line_of_another_kind_is_no_verdict() {
        for line in ["test result: FAILED. 0 passed", "test a has been running for over 60 seconds", "running 3 tests"]
        {
            assert_eq!(verdict(line), None, "{line}");
        }
        assert_eq!(verdict("test a ... ignored, why"), Some(("a", true)));
    }
}
