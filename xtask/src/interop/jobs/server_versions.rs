//! Linux's nfsd serves fewer and fewer versions of NFS. A client that names a version which nfsd still serves works; a
//! client that names another one fails with a clear message; `version=auto` takes the newest version that nfsd serves.

use super::Job;
use crate::interop::{context::Context, flavour, nfsd::NfsdOptions};
use anyhow::{Context as _, ensure};

pub(super) const JOB: Job = Job {
    name: "server-versions",
    about: "Linux's nfsd without 4.2, without 4.1, without 4: our client works in what is left, and says what is not",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// All versions, the newest first.
const ALL: [&str; 4] = ["4.2", "4.1", "4.0", "3"];

/// The options by which rpc.nfsd leaves out versions: each time one more, the newest of [`ALL`] that it still served.
const WITHOUT: [&str; 4] = ["", "-N 4.2", "-N 4.2 -N 4.1", "-N 4"];

const TRANSPORTS: [&str; 2] = ["rdma", "tcp"];

/// The file that is read.
const FILE: &str = "hello.txt";
const HELLO: &str = "hello from linux nfsd\n";

fn run(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new())?;
    let cat = |name: &str, url: &str, more: &[&str]| context.rpcrdma(name, [&["cat"], more, &[url]].concat());
    for (gone, without) in WITHOUT.iter().enumerate() {
        nfsd.stop()?;
        nfsd.start(without)?;
        nfsd.end_grace()?;
        for (at, version) in ALL.iter().enumerate() {
            for transport in TRANSPORTS {
                let url = nfsd.url_in(version, transport, FILE);
                let said = cat(&format!("cat-{version}-{transport}-{gone}"), &url, &[])?;
                let tried = || format!("rpcrdma cat {url}, nfsd with {without:?}");
                if at >= gone {
                    let read = said.expect_success().with_context(tried)?;
                    ensure!(read.stdout == HELLO, "{}: {:?}", tried(), read.stdout);
                } else {
                    let _ = said.expect_failure(&refusal(version, gone)).with_context(tried)?;
                }
            }
        }
        let capture = context.dir().join(format!("auto-{gone}.pcapng"));
        let captured = capture.to_string_lossy();
        for transport in TRANSPORTS {
            let url = nfsd.url_in("auto", transport, FILE);
            let captured: &[&str] = if transport == "rdma" { &["--capture", &captured] } else { &[] };
            let read = cat(&format!("cat-auto-{transport}-{gone}"), &url, captured)?;
            let read = read.expect_success().with_context(|| format!("rpcrdma cat {url}, nfsd with {without:?}"))?;
            ensure!(read.stdout == HELLO, "{url}: {:?}", read.stdout);
        }
        let mut command = context.command();
        command.arg("decode").arg(&capture).args(["--procedure", "READ"]);
        let shown = context.run(&format!("decode-auto-{gone}"), command)?.expect_success()?.stdout;
        let newest = ALL[gone];
        let wanted = match newest.strip_prefix("4.") {
            Some(minor) => format!("Call NFS 4 COMPOUND minor {minor} "),
            None => "Call NFS 3 READ ".to_owned(),
        };
        let calls: Vec<_> = shown.lines().filter(|line| line.contains("Call NFS")).collect();
        ensure!(
            !calls.is_empty() && calls.iter().all(|line| line.contains(&wanted)),
            "version=auto does not READ in {newest} from nfsd with {without:?}; see {}",
            capture.display()
        );
        context.note(format!("nfsd {without:?}: auto is {newest}"));
    }
    nfsd.finish()
}

/// The message about a version that nfsd does not serve any more.
fn refusal(version: &str, gone: usize) -> String {
    match version.strip_prefix("4.") {
        Some(minor) if ALL[gone] != "3" => format!("the server does not serve minor version {minor} of NFS version 4"),
        _ => "the server does not serve version 4 of NFS".to_owned(),
    }
}
