//! The command that runs while a file is locked.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, waitid};
use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    process::{Child, Command},
};
use tokio::sync::oneshot;

/// A command that runs. Signals go to it while it has not been waited for, so that its number belongs to no other
/// process.
pub(super) struct Running {
    child: Child,
    ended: Option<oneshot::Receiver<()>>,
}

impl Running {
    /// Starts it, with this process's terminal, files and environment.
    pub(super) fn start(command: &[OsString]) -> io::Result<Self> {
        let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(program).args(args).spawn()?;
        let (sender, ended) = oneshot::channel();
        let pid = pid_of(&child);
        std::thread::Builder::new().name("command".into()).spawn(move || {
            if let Some(pid) = pid {
                // The child is not reaped here: until then it can be sent signals.
                while let Err(rustix::io::Errno::INTR) =
                    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
                {}
            }
            let _ = sender.send(());
        })?;
        Ok(Self { child, ended: Some(ended) })
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&mut self) {
        if let Some(ended) = &mut self.ended {
            let _ = ended.await;
            self.ended = None;
        }
    }

    /// Its exit code, or 128 and the number of the signal that ended it. To be called when it has ended.
    pub(super) fn code(&mut self) -> io::Result<u8> {
        let status = self.child.wait()?;
        let code = status.code().or_else(|| status.signal().map(|signal| signal + 128));
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
    }

    /// Passes a signal on, unless the terminal has sent it to the command, too.
    pub(super) fn forward(&self, signal: Signal) {
        let is_terminals = matches!(signal, Signal::INT | Signal::HUP);
        if !(is_terminals && is_in_foreground()) {
            self.send(signal);
        }
    }

    pub(super) fn terminate(&self) {
        self.send(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.send(Signal::KILL);
    }

    fn send(&self, signal: Signal) {
        if let Some(pid) = pid_of(&self.child)
            && let Err(error) = kill_process(pid, signal)
        {
            tracing::debug!(%error, "the command could not be sent a signal");
        }
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Whether this process is in the group that its terminal sends signals to, and so the command is.
fn is_in_foreground() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may contain anything: state, parent, group, session, terminal, the terminal's group.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let group = behind.split_whitespace().nth(5).and_then(|group| group.parse::<i32>().ok());
    group.is_some_and(|group| group == getpgrp().as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str]) -> u8 {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut running = Running::start(&command).unwrap();
        runtime.block_on(running.ended());
        running.code().unwrap()
    }

    #[test]
    fn the_code_is_the_commands() {
        assert_eq!(run(&["true"]), 0);
        assert_eq!(run(&["sh", "-c", "exit 42"]), 42);
        assert_eq!(run(&["sh", "-c", "kill -TERM $$"]), 128 + 15);
        assert_eq!(
            Running::start(&["/no such program".into()]).err().map(|error| error.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }

    #[test]
    fn signals_reach_it() {
        let mut running = Running::start(&["sleep".into(), "100".into()]).unwrap();
        running.terminate();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(running.ended());
        assert_eq!(running.code().unwrap(), 128 + 15);
        // It has been waited for: no other process gets a signal.
        assert!(running.ended.is_none());
    }
}
