//! `rpcrdma lock`: runs a command while a file on a server is locked, as flock(1) does on one machine.
//!
//! This process holds the lock: it renews the lease while the command runs, and ends with the command's status. A lock
//! can be lost, if the server was out of reach for as long as its lease, or took it away. Others may then have it, so
//! the command is ended. What it does after that is not protected.

mod child;

use crate::{
    args::{ClientArgs, parse_bytes, parse_seconds},
    copy::close_after,
    failure::{self, At, Failed, Usage},
    files::umask,
    interrupt::{Interrupted, Signals},
    names::escaped,
    place::Place,
    session::{Session, Sessions},
};
use anyhow::{Context, Result, ensure};
use child::Running;
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::attr::{FileType, NewAttributes};
use rpcrdma_nfs_client::{Access, CreateHow, Error, File, LockKind, TO_THE_END};
use std::{ffi::OsString, fmt, time::Duration};

/// Another client has the lock, with `--nonblock`, or for as long as the command waited: the exit code of flock(1).
const CONFLICT: u8 = 1;
/// The lock was lost, and the command was ended.
const LOST: u8 = 124;
/// The file could not be locked for another reason.
const CANNOT_LOCK: u8 = 125;

/// How often the command checks whether it still has the lock.
const LOOK: Duration = Duration::from_millis(200);
/// How long a command that has lost its lock has to end by itself.
const TIME_TO_END: Duration = Duration::from_secs(10);
/// How long giving the lock back may take: a server that cannot be reached frees it itself.
const TIME_TO_GIVE_BACK: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(after_help = "\
If the file does not exist, the command creates an empty file, as flock(1) does. The lock is a lock
of NFS version 4. It excludes clients that lock the file over NFS, and programs on the server that
use fcntl or lockf.

Exit codes: the exit code of COMMAND; 128 plus the number of the signal that ended it; 1 if another
client has the lock, with --nonblock or after --wait; 2 wrong usage; 124 if the lock was lost, and
COMMAND was therefore ended; 125 if the file could not be locked for another reason; 126 if COMMAND
cannot be run; 127 if COMMAND is not found.")]
pub(crate) struct LockArgs {
    /// The file to lock
    url: NfsUrl,
    /// Take a shared lock, beside which other clients can have shared locks too
    #[arg(short, long)]
    shared: bool,
    /// Lock LENGTH bytes from OFFSET on, such as 0,4096 or 1M,512. LENGTH 0 means up to the end of the file, also when
    /// the file grows; so 0,0 is the whole file
    #[arg(long, value_name = "OFFSET,LENGTH", value_parser = parse_range, default_value = "0,0")]
    range: Range,
    /// Do not wait for a lock that another client has
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,
    /// Wait at most this many seconds for the lock (default: without a limit)
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    wait: Option<Duration>,
    /// If the lock is lost, only report it and let the command go on. Without this option, a lost lock ends the command
    /// with SIGTERM, and ten seconds later with SIGKILL
    #[arg(long)]
    keep_running: bool,
    /// Show neither who has the lock nor that the server does not answer
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The command to run, and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    offset: u64,
    length: u64,
}

fn parse_range(text: &str) -> Result<Range, String> {
    let (offset, length) = text.split_once(',').ok_or_else(|| format!("{text:?} is not OFFSET,LENGTH"))?;
    let (offset, length) = (parse_bytes(offset)?, parse_bytes(length)?);
    let length = if length == 0 { TO_THE_END } else { length };
    // The last byte that can be locked is the one of the highest number.
    if length != TO_THE_END && offset.checked_add(length - 1).is_none() {
        return Err(format!("{text:?} is out of range"));
    }
    Ok(Range { offset, length })
}

/// The exit code that an error ends the command with, as its context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    pub(crate) code: u8,
    what: &'static str,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

/// Ends with a code; all messages have been written.
fn ends_with(code: u8) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(anyhow::Error::from(Failed).context(Code { code, what: "has ended" })),
    }
}

pub(crate) async fn run(args: LockArgs) -> Result<()> {
    let mut signals = Signals::new()?;
    let (session, file) = match signals.unless_interrupted(locked(&args)).await? {
        Ok(Some(locked)) => locked,
        Ok(None) => return ends_with(CONFLICT),
        Err(error) if error.is::<Usage>() || error.is::<Interrupted>() => return Err(error),
        Err(error) => {
            return Err(error
                .context(At::new(&args.url.path))
                .context(Code { code: CANNOT_LOCK, what: "cannot lock" }));
        }
    };
    let code = run_locked(&args, &session, &file, &mut signals).await;
    // A loss was reported, and without a server there is no lock to give back.
    if is_held(&session, &file).is_ok() {
        let given_back = async {
            let unlocked = file.unlock(args.range.offset, args.range.length).await;
            close_after(file.clone(), unlocked.map_err(Into::into)).await
        };
        let given_back = tokio::time::timeout(TIME_TO_GIVE_BACK, given_back).await;
        if let Err(error) = given_back.unwrap_or_else(|_| Err(anyhow::anyhow!("the server does not answer"))) {
            tell_kept(&args, error);
        }
    }
    ends_with(code?)
}

/// Opens and locks the file. `None` if another client has the lock.
async fn locked(args: &LockArgs) -> Result<Option<(std::sync::Arc<Session>, File)>> {
    let mut sessions = Sessions::new(args.client.clone().into())?;
    sessions.watch().set_quiet(args.quiet);
    let (session, path) = sessions.open(&args.url).await?;
    ensure!(
        session.files.version_4().is_some(),
        "versions 2 and 3 of NFS have no locks of their own, and this program does not speak NLM, which has them; say \
         version=4.2 in the URL"
    );
    let file = open(args, &session, &path).await?;
    let kind = if args.shared { LockKind::Shared } else { LockKind::Exclusive };
    let Range { offset, length } = args.range;
    let first = file.lock(kind, offset, length).await;
    let locked = match first {
        Err(error) if error.conflict().is_some() => {
            let told = |what: &str| {
                if !args.quiet {
                    failure::warning(&format!("{}: {what}{error}", escaped(&args.url.path)));
                }
            };
            if args.nonblock {
                told("");
                return close_after(file, Ok(None)).await;
            }
            told("waiting: ");
            let locked = match args.wait {
                None => Some(file.lock_when_free(kind, offset, length).await),
                Some(limit) => tokio::time::timeout(limit, file.lock_when_free(kind, offset, length)).await.ok(),
            };
            let Some(locked) = locked else {
                told("not waiting any longer: ");
                return close_after(file, Ok(None)).await;
            };
            locked
        }
        locked => locked,
    };
    match locked {
        Ok(()) => Ok(Some((session, file))),
        Err(error) => close_after(file, Err(error.into())).await,
    }
}

/// Opens the file, and makes it if it does not exist.
async fn open(args: &LockArgs, session: &Session, path: &[u8]) -> Result<File> {
    let access = if args.shared { Access::Read } else { Access::Write };
    let found = session.files.walk(&session.root, path, true).await;
    let place = match found {
        Err(error) if error.is_absent() => Place::find(session, path).await?,
        Err(error) => return Err(session.explained(error, path).await.into()),
        Ok(found) => {
            ensure!(found.attributes.file_type == FileType::Regular, "is not a file");
            return Ok(session.files.open(found, access).await?);
        }
    };
    ensure!(!place.slash, "is not a directory");
    let attributes = NewAttributes { mode: Some(0o666 & !umask()), ..Default::default() };
    let how = CreateHow::Unchecked(attributes);
    Ok(session.files.create(&place.directory, &place.name, how).await?.file)
}

/// Runs the command while the lock is held. Returns the exit code.
async fn run_locked(args: &LockArgs, session: &Session, file: &File, signals: &mut Signals) -> Result<u8> {
    let mut running = match Running::start(&args.command) {
        Ok(running) => running,
        Err(error) => {
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            let what = args.command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(anyhow::Error::from(error).context(what).context(Code { code, what: "cannot run" }));
        }
    };
    let mut is_lost = false;
    let mut kill_at = None;
    loop {
        let kill = async {
            match kill_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = running.ended() => break,
            signal = signals.next() => running.forward(signal.signal()),
            () = kill => {
                running.kill();
                kill_at = None;
            }
            () = tokio::time::sleep(LOOK), if !is_lost => {
                let Err(why) = is_held(session, file) else { continue };
                is_lost = true;
                tell_lost(args, why);
                if !args.keep_running {
                    running.terminate();
                    kill_at = Some(tokio::time::Instant::now() + TIME_TO_END);
                }
            }
        }
    }
    let code = running.code().context("waiting for the command")?;
    Ok(if is_lost && !args.keep_running { LOST } else { code })
}

fn tell_kept(args: &LockArgs, why: anyhow::Error) {
    let kept = why.context(At::new(&args.url.path));
    failure::tell(&kept.context("the lock could not be given back"));
}

fn tell_lost(args: &LockArgs, why: anyhow::Error) {
    let lost = why.context(At::new(&args.url.path));
    failure::tell(&lost.context("the lock is lost, others may have it now"));
}

/// Whether the lock is surely held.
fn is_held(session: &Session, file: &File) -> Result<()> {
    file.is_held().map_err(|error: Error| anyhow::Error::from(error))?;
    let is_alive = session.files.lease_left() != Some(Duration::ZERO);
    ensure!(is_alive, "the server has not answered for the time of a lease");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_an_offset_and_a_length() {
        let all = Range { offset: 0, length: TO_THE_END };
        assert_eq!(parse_range("0,0"), Ok(all));
        assert_eq!(parse_range("1M,512"), Ok(Range { offset: 1 << 20, length: 512 }));
        assert_eq!(parse_range("18446744073709551615,1"), Ok(Range { offset: u64::MAX, length: 1 }));
        for text in ["", "7", "a,1", "1,b", "18446744073709551615,2", "-1,2", "1,2,3"] {
            assert!(parse_range(text).is_err(), "{text:?}");
        }
    }
}
