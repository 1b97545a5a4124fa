//! The lock tests of cthon04, another project's suite, in mounts of our server and of Linux's.

use super::{Job, client_nlm::with_locks};
use crate::interop::{
    context::Context,
    flavour,
    guest::{Ended, GuestOptions},
    network,
    nfsd::NfsdOptions,
    serve::ServeOptions,
    suites,
};
use anyhow::ensure;
use std::{fs, os::unix::fs::PermissionsExt as _};

pub(super) const JOB: Job = Job {
    name: "client-cthon",
    about: "the lock tests of cthon04 in mounts of our server and of Linux's, in version 3 with its lock manager",
    seconds: 400,
    guests: 2,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// The servers, by their names in the script's files. Linux's comes first: it shows that the guest itself is right.
const SERVERS: [&str; 2] = ["linux", "ours"];

fn run(context: &Context) -> anyhow::Result<()> {
    let programs = suites::cthon_locks(context.image())?;
    let network = context.network(network::ETHERNET)?;
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    let server = network.serve(with_locks(ServeOptions::new(export), network.host()))?;
    let nfsd = network.nfsd(NfsdOptions::new())?;

    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/cthon.sh")).mounts(&server).capture();
    let guest = guest.set("WHO", "client").set("LINUX", nfsd.host());
    let guest = guest.set("LINUX_PORT", nfsd.port()).set("LINUX_MOUNT", nfsd.mount_port());
    let names: Vec<_> =
        programs.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect();
    let guest = guest.set("PROGRAMS", names.join(" "));
    let guest = programs.iter().fold(guest, |guest, program| guest.with_program(program));
    let ended = network.guest(guest)?.finish()?;
    for server in SERVERS {
        for name in &names {
            judge(context, &ended, name, server)?;
        }
    }
    nfsd.finish()?;
    server.finish().map(drop)
}

/// Fails unless the program came to its end and none of its tests failed.
fn judge(context: &Context, ended: &Ended, name: &str, server: &str) -> anyhow::Result<()> {
    let file = format!("{name}-{server}.txt");
    let said = ended.read(&file)?;
    let Passed { tests, warned } = passed(&said).ok_or_else(|| {
        let failed = said.lines().find(|line| line.contains("FAILED") || line.contains("error"));
        context.failed(
            format!(
                "{name} with {server}: {}",
                failed.or(said.lines().next_back()).unwrap_or("it said nothing").trim()
            ),
            &ended.dir().join(&file),
        )
    })?;
    ensure!(tests > 0, "{name} has tested nothing; see {}", ended.dir().join(&file).display());
    context.note(format!("{name} with {server}: {tests} passed, {warned} of them with a warning"));
    Ok(())
}

/// What the two processes of the program have passed.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    tests: u64,
    warned: u64,
}

/// Reads what the program prints at its end: a line for the parent and one for the child, `49/49 pass, 1/1 warn, 0/0
/// fail`. None if a line is missing, a test failed, or the program ended with another status than 0.
fn passed(said: &str) -> Option<Passed> {
    let mut sum = Passed { tests: 0, warned: 0 };
    let mut lines = 0;
    for line in said.lines().filter(|line| line.starts_with("**") && line.contains("pass 1 results:")) {
        let count = |word: &str| -> Option<u64> {
            let before = line.split(word).next()?;
            before.rsplit([' ', ':']).next()?.split('/').next()?.parse().ok()
        };
        sum.tests += count(" pass,")?;
        sum.warned += count(" warn,")?;
        if count(" fail ")? > 0 {
            return None;
        }
        lines += 1;
    }
    (lines == 2 && said.lines().next_back() == Some("status 0")).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::{Passed, passed};

    const GOOD: &str = "\n** PARENT pass 1 results: 49/49 pass, 1/1 warn, 0/0 fail (pass/total).\n\n\
        **  CHILD pass 1 results: 64/64 pass, 0/0 warn, 0/0 fail (pass/total).\nstatus 0\n";

    #[test]
    fn reads_what_came_of_both_processes() {
        assert_eq!(passed(GOOD), Some(Passed { tests: 113, warned: 1 }));
        for (from, to) in [("0/0 fail", "1/1 fail"), ("CHILD pass 1 results", "CHILD"), ("status 0", "status 1")] {
            assert_eq!(passed(&GOOD.replacen(from, to, 1)), None, "{to}");
        }
    }
}
