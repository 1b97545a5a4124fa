//! One holder of locks that follows commands: each line on standard input is a command, and its answer a line on
//! standard output. Its locks end with the process, however it ends.
//!
//! | command | answer |
//! |---|---|
//! | `[wait] read\|write FIRST LENGTH` | `ok`, or `taken` by somebody else |
//! | `unlock FIRST LENGTH` | `ok` |
//! | `test read\|write FIRST LENGTH` | `free`, or the first lock in the way: `read\|write FIRST LENGTH` |
//! | `[wait] shared\|exclusive` | `ok`, or `taken`: flock(2) |
//! | `none` | `ok`: gives the lock of flock(2) back |
//! | `put FIRST WORD` | `ok` when the word is on the server's disk |
//! | `end` | none |
//!
//! A length of 0 reaches to the largest possible offset. If a system call fails, the answer is the error's name.

use anyhow::{Context as _, bail};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::File,
    io::{BufRead, Write},
    os::unix::fs::FileExt as _,
};

/// Carries out `commands`, line by line.
pub(super) fn obey(file: &File, commands: impl BufRead, mut answers: impl Write) -> anyhow::Result<()> {
    for line in commands.lines() {
        let line = line?;
        let words: Vec<_> = line.split_whitespace().collect();
        let answer = match words.as_slice() {
            ["end"] => return Ok(()),
            ["wait", words @ ..] => one(file, words, true),
            words => one(file, words, false),
        };
        writeln!(answers, "{}", answer.with_context(|| line.clone())?)?;
        answers.flush()?;
    }
    Ok(())
}

fn one(file: &File, words: &[&str], wait: bool) -> anyhow::Result<String> {
    Ok(match words {
        ["test", kind, first, length] => test(file, describe(kind, first, length)?)?,
        ["put", first, word] => {
            let done = file.write_all_at(word.as_bytes(), first.parse()?).and_then(|()| file.sync_data());
            done.map_or_else(|error| format!("{:?}", error.kind()), |()| "ok".into())
        }
        [kind @ ("read" | "write" | "unlock"), first, length] => {
            let range = describe(kind, first, length)?;
            let command = if wait { FcntlArg::F_SETLKW(&range) } else { FcntlArg::F_SETLK(&range) };
            match fcntl(file, command) {
                Ok(_) => "ok".into(),
                Err(Errno::EAGAIN | Errno::EACCES) => "taken".into(),
                Err(error) => format!("{error:?}"),
            }
        }
        [kind @ ("shared" | "exclusive" | "none")] => {
            let operation = match (*kind, wait) {
                ("shared", false) => FlockOperation::NonBlockingLockShared,
                ("shared", true) => FlockOperation::LockShared,
                ("exclusive", false) => FlockOperation::NonBlockingLockExclusive,
                ("exclusive", true) => FlockOperation::LockExclusive,
                _ => FlockOperation::Unlock,
            };
            match flock(file, operation) {
                Ok(()) => "ok".into(),
                Err(rustix::io::Errno::AGAIN) => "taken".into(),
                Err(error) => format!("{error:?}"),
            }
        }
        _ => bail!("not a command"),
    })
}

fn describe(kind: &str, first: &str, length: &str) -> anyhow::Result<libc::flock> {
    let kind = match kind {
        "read" => libc::F_RDLCK,
        "write" => libc::F_WRLCK,
        "unlock" => libc::F_UNLCK,
        _ => bail!("not a kind of lock"),
    };
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: first.parse()?,
        l_len: length.parse()?,
        l_pid: 0,
    })
}

fn test(file: &File, mut range: libc::flock) -> anyhow::Result<String> {
    fcntl(file, FcntlArg::F_GETLK(&mut range))?;
    let kind = match libc::c_int::from(range.l_type) {
        libc::F_UNLCK => return Ok("free".into()),
        libc::F_RDLCK => "read",
        _ => "write",
    };
    Ok(format!("{kind} {} {}", range.l_start, range.l_len))
}

#[cfg(test)]
mod tests {
    use super::obey;

    #[test]
    fn answers_each_command_with_a_line() {
        let file = tempfile::tempfile().unwrap();
        let other = file.try_clone().unwrap();
        let commands = "write 0 10\ntest write 0 0\nunlock 3 2\nput 2 abc\nwait exclusive\nnone\nwait read 5 1\n";
        let mut answers = Vec::new();
        obey(&file, commands.as_bytes(), &mut answers).unwrap();
        assert_eq!(String::from_utf8(answers).unwrap(), "ok\nfree\nok\nok\nok\nok\nok\n");
        obey(&file, "end\nlock it\n".as_bytes(), Vec::new()).unwrap();
        assert_eq!(other.metadata().unwrap().len(), 5, "the word was put where it should be");
        obey(&file, "lock it\n".as_bytes(), Vec::new()).unwrap_err();
    }
}
