//! Signals that end `get`, `put` and `cp`, which then remove their temporary files, and `lock`, which gives the lock
//! back: they exit with 128 and the signal's number.

use std::{fmt, io};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal has ended the command.
#[derive(Debug)]
pub(crate) struct Interrupted(SignalKind);

impl Interrupted {
    /// The exit code that shells use for a command that the signal ended.
    pub(crate) fn exit_code(&self) -> u8 {
        u8::try_from(self.0.as_raw_value()).map_or(u8::MAX, |number| number.saturating_add(128))
    }
}

impl Interrupted {
    /// The signal.
    pub(crate) fn signal(&self) -> rustix::process::Signal {
        use rustix::process::Signal;
        [Signal::INT, Signal::HUP]
            .into_iter()
            .find(|signal| signal.as_raw() == self.0.as_raw_value())
            .unwrap_or(Signal::TERM)
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The signals while they are waited for.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal has gone; `None` under nohup(1).
    hang_up: Option<Signal>,
    /// With this handler, a write beyond RLIMIT_FSIZE fails, and does not end the process with its temporary files left
    /// over.
    _too_large: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        // SIGXFSZ has this number on every architecture of Linux but MIPS and PA-RISC.
        const TOO_LARGE: i32 = 25;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: if is_ignored(SignalKind::hangup()) { None } else { Some(signal(SignalKind::hangup())?) },
            _too_large: signal(SignalKind::from_raw(TOO_LARGE))?,
        })
    }

    /// The result of `doing`, unless a signal that ends the command comes first.
    pub(crate) async fn unless_interrupted<T>(&mut self, doing: impl Future<Output = T>) -> Result<T, Interrupted> {
        tokio::select! {
            biased;
            interrupted = self.next() => Err(interrupted),
            done = doing => Ok(done),
        }
    }

    /// The next signal that ends the command.
    pub(crate) async fn next(&mut self) -> Interrupted {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        Interrupted(tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = hang_up => SignalKind::hangup(),
        })
    }
}

/// Whether the process was started with the signal ignored.
fn is_ignored(signal: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw_value() - 1) & 1 == 1)
}
