//! `xtask locks FILE`: locks of fcntl(2) and flock(2), which shells cannot take. In one mode this process holds a lock
//! and others of the same program try to get it; in another, several processes count in the file, each number under a
//! lock; in the third, it follows commands.

use anyhow::{Context as _, bail, ensure};
use rustix::{
    fs::{FlockOperation, fcntl_lock, flock},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _, Write as _},
    path::PathBuf,
    process::Command,
};

mod commands;

/// What `xtask locks` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file
    file: PathBuf,
    /// System call with which to lock
    #[arg(long, value_name = "CALL", default_value = "fcntl")]
    by: Call,
    /// Only try to get a lock of this kind, and print `free` or `taken`
    #[arg(long, value_name = "KIND", conflicts_with = "count")]
    attempt: Option<Kind>,
    /// Append this many lines to the file; each is written under a lock, and contains its own line number
    #[arg(long, value_name = "N")]
    count: Option<usize>,
    /// Read commands from standard input, one on each line, and answer each with a line: `write 0 100`, `unlock 40 20`,
    /// `test read 0 0`, `exclusive`
    #[arg(long, conflicts_with_all = ["count", "attempt"])]
    commands: bool,
}

/// System calls that lock.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Call {
    /// A lock of the whole file that belongs to a process
    Fcntl,
    /// A lock of the whole file that belongs to an open file
    Flock,
}

/// Kinds of locks.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// One process at a time can have it
    Exclusive,
    /// Several processes can have it at a time
    Shared,
}

impl Call {
    fn word(self) -> &'static str {
        match self {
            Call::Fcntl => "fcntl",
            Call::Flock => "flock",
        }
    }

    fn lock(self, file: &File, operation: FlockOperation) -> Result<(), Errno> {
        match self {
            Call::Fcntl => fcntl_lock(file, operation),
            Call::Flock => flock(file, operation),
        }
    }

    /// Takes a lock if it is free. Returns whether it was.
    fn attempt(self, file: &File, kind: Kind) -> anyhow::Result<bool> {
        let operation = match kind {
            Kind::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Kind::Shared => FlockOperation::NonBlockingLockShared,
        };
        match self.lock(file, operation) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error).context("cannot lock the file"),
        }
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Exclusive => "exclusive",
            Kind::Shared => "shared",
        }
    }
}

/// Does what the arguments ask for.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(&arguments.file).context("cannot open the file")?;
    if arguments.commands {
        return commands::obey(&file, std::io::stdin().lock(), std::io::stdout().lock());
    }
    match (arguments.attempt, arguments.count) {
        (Some(kind), _) => {
            println!("{}", if arguments.by.attempt(&file, kind)? { "free" } else { "taken" });
            Ok(())
        }
        (None, Some(lines)) => (0..lines).try_for_each(|_| count(arguments.by, &mut file)),
        (None, None) => judge(arguments, &file),
    }
}

/// Appends the number of lines, under a lock.
fn count(by: Call, file: &mut File) -> anyhow::Result<()> {
    by.lock(file, FlockOperation::LockExclusive).context("cannot wait for the lock")?;
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    writeln!(file, "{}", text.lines().count() + 1)?;
    by.lock(file, FlockOperation::Unlock).context("cannot unlock")
}

/// While this process holds no lock, then one of each kind: fails unless other processes are kept out as they should
/// be.
fn judge(arguments: &Arguments, file: &File) -> anyhow::Result<()> {
    let by = arguments.by;
    let judge_others = |held: &str, exclusive: bool, shared: bool| -> anyhow::Result<()> {
        for (kind, wanted) in [(Kind::Exclusive, exclusive), (Kind::Shared, shared)] {
            let found = other_process(arguments, kind)?;
            ensure!(
                found == wanted,
                "beside {held} lock of this process another gets its {} one: {found}",
                kind.word()
            );
        }
        Ok(())
    };
    judge_others("no", true, true)?;
    ensure!(by.attempt(file, Kind::Exclusive)?, "this process gets no exclusive lock");
    judge_others("an exclusive", false, false)?;
    ensure!(by.attempt(file, Kind::Shared)?, "this process gets no shared lock in the place of its exclusive one");
    judge_others("a shared", false, true)?;
    by.lock(file, FlockOperation::Unlock).context("cannot unlock")?;
    judge_others("no", true, true)?;
    println!("locks: {} ok", by.word());
    Ok(())
}

/// Whether another process gets a lock; the lock ends with that process.
fn other_process(arguments: &Arguments, kind: Kind) -> anyhow::Result<bool> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("locks").arg(&arguments.file).args(["--by", arguments.by.word(), "--attempt", kind.word()]);
    let output = command.output()?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "free" => Ok(true),
        "taken" => Ok(false),
        _ => bail!("another process cannot try: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
