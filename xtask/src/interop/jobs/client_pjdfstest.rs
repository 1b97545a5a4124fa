//! pjdfstest, another project's suite for file systems, in mounts of our server and of Linux's.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, nfsd::NfsdOptions, serve::ServeOptions, suites};
use anyhow::{Context as _, ensure};
use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _};

pub(super) const JOB: Job = Job {
    name: "client-pjdfstest",
    about: "pjdfstest in mounts of our server and of Linux's, in 4.2 and 3: no test fails with ours that passes with Linux's",
    seconds: 900,
    guests: 2,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// Versions of NFS, as the mount option `vers` names them.
const VERSIONS: [&str; 2] = ["4.2", "3"];

fn run(context: &Context) -> anyhow::Result<()> {
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    let server = context.serve(ServeOptions::new(export))?;
    let nfsd = context.nfsd(NfsdOptions::new())?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/pjdfstest.sh")).mounts(&server);
    let guest = guest.set("LINUX_PORT", nfsd.port()).set("LINUX_MOUNT", nfsd.mount_port());
    let guest = guest.set("VERSIONS", VERSIONS.join(" "));
    let ended = context.boot(guest.with_program(&suites::pjdfstest(context.image())?))?.finish()?;
    nfsd.finish()?;
    server.finish()?;

    let mut worse = Vec::new();
    for version in VERSIONS {
        let results = |server: &str| -> anyhow::Result<BTreeMap<String, String>> {
            results(&ended.read(&format!("{server}-{version}.txt"))?)
        };
        let (ours, linux) = (results("ours")?, results("linux")?);
        let count = |results: &BTreeMap<String, String>, wanted: &str| {
            results.values().filter(|&result| result == wanted).count()
        };
        ensure!(
            count(&ours, OK) > 0 && ours.len() == linux.len(),
            "not the same tests ran; see {}",
            ended.dir().display()
        );
        let [failed, failed_linux] = [&ours, &linux].map(|results| count(results, FAILED));
        context
            .note(format!("{version}: of {} tests {failed} fail with ours, {failed_linux} with Linux's", ours.len()));
        let is_worse =
            |(name, result): &(&String, &String)| *result != OK && linux.get(*name).is_some_and(|linux| linux == OK);
        worse.extend(ours.iter().filter(is_worse).map(|(name, result)| format!("{name} in {version}: {result}")));
    }
    ensure!(
        worse.is_empty(),
        "tests that pass with Linux's server: {}; see {}",
        worse.join(", "),
        ended.dir().display()
    );
    Ok(())
}

const OK: &str = "ok";
const FAILED: &str = "FAILED";

/// The last result of each test, from the lines `NAME RESULT`. All other lines are indented.
fn results(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let lines = text.lines().filter(|line| line.contains("::") && !line.starts_with(char::is_whitespace));
    let named = lines.map(|line| {
        let (name, result) = line.split_once(char::is_whitespace).with_context(|| format!("no result: {line:?}"))?;
        Ok((name.to_owned(), result.trim().to_owned()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::results;

    #[test]
    fn reads_what_came_of_each_test() {
        let text = "chmod::works::regular      skipped\nopen::eloop         FAILED\n\tassertion failed: a::b\n\nSummary: 1 failed\n\
            chmod::works::regular      ok\n";
        let found = results(text).unwrap();
        let wanted = [("chmod::works::regular", "ok"), ("open::eloop", "FAILED")];
        assert!(found.iter().map(|(name, result)| (name.as_str(), result.as_str())).eq(wanted), "{found:?}");
    }
}
