//! RDMA devices through libibverbs. The guest has two software devices: soft-RoCE and soft-iWARP.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    guest::{GuestOptions, HOST},
    host, mountstats, ports,
    serve::ServeOptions,
    tree,
};
use anyhow::{Context as _, bail, ensure};
use std::{fs, path::Path, process::Command};

const PAIR: &str = include_str!("../../../interop/guest/verbs-pair.sh");
const SERVE: &str = include_str!("../../../interop/guest/verbs-serve.sh");
const OURS: &str = include_str!("../../../interop/guest/verbs-ours.sh");
const IPV6: &str = include_str!("../../../interop/guest/verbs-ipv6.sh");
const TREE: &str = include_str!("../../../interop/guest/tree.sh");
const FILES: &str = include_str!("../../../interop/guest/files.sh");
const USERS: &str = include_str!("../../../interop/guest/users.sh");
const NFSD: &str = include_str!("../../../interop/guest/nfsd.sh");
const SCRIPTS: &str = include_str!("../../../interop/guest/verbs-scripts.sh");
const NAMES: &str = include_str!("../../../interop/guest/names.sh");
const PROCESSES: &str = include_str!("../../../interop/guest/processes.sh");
const FSX: &str = include_str!("../../../interop/guest/fsx.sh");
const SUMS: &str = include_str!("../../../interop/guest/verbs-sums.sh");
const WITH_NFSD: &str = include_str!("../../../interop/guest/verbs-nfsd.sh");
/// Goes between scripts, to remove the files of the script before.
pub(super) const FRESH: &str = "cd /; rm -rf /tmp/in /tmp/out /tmp/[wd]-* /tmp/served/*";

pub(in crate::interop) const ROCE: Job = Job {
    name: "verbs-roce",
    about: "soft-RoCE: our server by verbs with our client in both versions and with Linux's; our client with Linux's server",
    seconds: 420,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run: |context| all(context, "rxe"),
};

pub(in crate::interop) const IWARP: Job =
    Job { name: "verbs-iwarp", about: "soft-iWARP: the same", run: |context| all(context, "siw"), ..ROCE };

pub(in crate::interop) const LINUX: Job = Job {
    name: "verbs-linux",
    about: "soft-RoCE: Linux's client with our server by verbs: names, processes, random operations on files",
    seconds: 300,
    run: linux,
    ..ROCE
};

pub(in crate::interop) const SUITE_ROCE: Job = Job {
    name: "verbs-suite-roce",
    about: "the provider suite and the whole of NFS over soft-RoCE",
    seconds: 300,
    run: |context| suite(context, "rxe"),
    ..ROCE
};

pub(in crate::interop) const SUITE_IWARP: Job = Job {
    name: "verbs-suite-iwarp",
    about: "the provider suite and the whole of NFS over soft-iWARP",
    run: |context| suite(context, "siw"),
    ..SUITE_ROCE
};

pub(in crate::interop) const MIXED: Job = Job {
    name: "verbs-and-software",
    about: "our iWARP on the host with soft-iWARP by verbs in the guest, both ways, in both versions",
    seconds: 300,
    run: mixed,
    ..ROCE
};

pub(in crate::interop) const FAULTS: Job = Job {
    name: "verbs-faults",
    about: "no device, another, a port that is down, too little locked memory, a killed server",
    seconds: 300,
    run: faults,
    ..ROCE
};

pub(in crate::interop) const LINK_ROCE: Job = Job {
    name: "verbs-link-roce",
    about: "soft-RoCE: the link lost, and the device removed, under load",
    seconds: 600,
    run: |context| link(context, "rxe"),
    ..ROCE
};

pub(in crate::interop) const LINK_IWARP: Job =
    Job { name: "verbs-link-iwarp", about: "soft-iWARP: the same", run: |context| link(context, "siw"), ..LINK_ROCE };

pub(in crate::interop) const BENCH: Job = Job {
    name: "verbs-bench",
    about: "soft-RoCE: bench of each call, beside our iWARP in software",
    seconds: 300,
    run: bench,
    ..ROCE
};

/// The limit for the time within which 99 of 100 calls are answered, in microseconds: more than emulation takes on a
/// busy machine, and less than a device's retries or any of our time-outs.
const STALL_MICROS: f64 = 8_000_000.0;

/// Entries of a folder, workers at a time, and random operations: the guest does the work of both ends, so these
/// numbers are smaller than in other jobs.
const ENTRIES: usize = 500;
const WORKERS: usize = 2;
const OPERATIONS: u64 = 2_000;
/// Lines as in `client_fsx`: small, large and the largest possible READs and WRITEs, and around the page cache.
const MOUNTS: &str = "
rsize=4096,wsize=2048 60000 20000 0
rsize=1048576,wsize=1048576 1500000 1100000 0
rsize=65536,wsize=131072 400000 150000 0 --direct
";

/// How many mounts the scripts before fsx make: two for names, one for processes.
const UNMOUNTED_BEFORE: usize = 3;

/// A guest with the command in it.
fn guest(context: &Context, link: &'static str, script: &str) -> GuestOptions {
    named(context, "guest", link, script)
}

/// The same guest with another name.
pub(super) fn named(context: &Context, name: &str, link: &'static str, script: &str) -> GuestOptions {
    GuestOptions::new(name, &format!("{SERVE}\n{script}"))
        .link(link)
        .with_program(context.program())
        .allow("rxe0: qp#* make_send_cqe: non-flush error status = *", "soft-RoCE says what it reports")
        .allow("rxe0: qp#* do_complete: non-flush error status = *", "the same of receives")
        .allow("make_send_cqe: * callbacks suppressed", "it says too much of it")
        .allow("do_complete: * callbacks suppressed", "it says too much of it")
        .allow("siw: got TERMINATE. *", "soft-iWARP says that it was told")
        .allow("siw: siw_rx_umem: [QP *]: bogus addr: *", "it was asked for what is not exposed")
}

fn all(context: &Context, link: &'static str) -> anyhow::Result<()> {
    // Linux's client runs the same scripts as over our own iWARP; at the end Linux's server replaces ours.
    let (nfsd, _) = NFSD.split_once("step serve").unwrap_or((NFSD, ""));
    let script = [OURS, TREE, FRESH, FILES, FRESH, USERS, "stop", FRESH, nfsd, WITH_NFSD].join("\n");
    context.boot(guest(context, link, &script))?.finish()?;
    Ok(())
}

fn linux(context: &Context) -> anyhow::Result<()> {
    let script = [IPV6, SCRIPTS, NAMES, FRESH, PROCESSES, FRESH, FSX, SUMS].join("\n");
    let options = guest(context, "rxe", &script).with_tools();
    let options = options.set("ENTRIES", ENTRIES).set("WORKERS", WORKERS).set("MOUNT_OPTIONS", "");
    let options = options.set("MOUNTS", MOUNTS.trim()).after_all("OPS", OPERATIONS);
    let ended = context.boot(options)?.finish()?;
    for number in 1..=MOUNTS.trim().lines().count() + UNMOUNTED_BEFORE {
        let stats = mountstats::first(&ended.read(&format!("mountstats-{number}"))?)?;
        if stats.bad_xids + stats.bad_replies > 0 {
            bail!("the client's transport counted what must not be: {stats:?}; see {}", ended.dir().display());
        }
    }
    Ok(())
}

fn suite(context: &Context, link: &'static str) -> anyhow::Result<()> {
    let script = include_str!("../../../interop/guest/verbs-suite.sh");
    let mut options = guest(context, link, script);
    for (name, program) in ["SUITE", "NFS"].into_iter().zip(host::build_device_tests(&host::root())?) {
        let file = program.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        options = options.with_program(&program).set(name, file);
    }
    let ended = context.boot(options)?.finish()?;
    let said = ended.read("out.log")?;
    let left_out = said.lines().filter(|line| line.contains(": left out, ")).count();
    context.note(format!("{left_out} cases left out, which the device does not keep"));
    // The program passes also without a device: so its output must show what it did.
    for what in ["files", "cuts", "restarts"] {
        let line = format!("NFS over {link}0: {what}");
        ensure!(said.contains(&line), "out.log does not say \"{line}\"");
    }
    Ok(())
}

fn mixed(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?))?;
    let made = server.export().join("tree");
    tree::make(&made, context.seed())?;
    let sums = context.dir().join("sums");
    let mut list = Command::new("sh");
    list.current_dir(&made).arg("-c").arg("find . -type f -print0 | sort -z | xargs -0 sha256sum");
    fs::write(&sums, context.run("list", list)?.expect_success()?.stdout)?;

    let (port, mount_port) = (ports::free()?, ports::free()?);
    let options = guest(context, "siw", include_str!("../../../interop/guest/verbs-mixed.sh"))
        .set("THERE_PORT", server.port())
        .set("THERE_MOUNT", server.mount_port())
        .with_program(&sums)
        .forward(port, 20_049)
        .forward(mount_port, 20_048);
    let mut guest = context.boot(options)?;
    guest.wait_for_mark("serves")?;
    for version in ["1", "2"] {
        tree::same(
            context,
            &format!("by-verbs-{version}"),
            &made,
            &server.export().join(format!("by-verbs-{version}")),
        )?;
        let url = |path: &str| format!("nfs://127.0.0.1:{port}/{path}?mountport={mount_port}&rpcrdma={version}");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let name = format!("in-software-{version}");
        context.rpcrdma(&format!("put-{version}"), ["put", "-q", "-r", &text(&made), &url(&name)])?.expect_success()?;
        let back = context.dir().join(&name);
        context.rpcrdma(&format!("get-{version}"), ["get", "-q", "-r", &url(&name), &text(&back)])?.expect_success()?;
        tree::same(context, &name, &made, &back)?;
    }
    guest.say("end")?;
    guest.finish()?;
    server.finish()?;
    context.note(format!("the guest reached the host at {HOST}, the host reached the guest by a forwarded port"));
    Ok(())
}

fn faults(context: &Context) -> anyhow::Result<()> {
    let options = guest(context, "rxe", include_str!("../../../interop/guest/verbs-faults.sh"))
        .allow("rxe0: pd#* rxe_reg_user_mr: returned err = -12", "too little memory may be locked")
        .allow("rdma_rxe: *", "the device goes and comes")
        .allow("infiniband rxe0: *", "the device goes and comes, its port, too");
    context.boot(options)?.finish()?;
    Ok(())
}

fn link(context: &Context, link: &'static str) -> anyhow::Result<()> {
    let script = [PAIR, include_str!("../../../interop/guest/verbs-link.sh")].join("\n");
    let options = guest(context, link, &script)
        .set("DEVICE", link)
        .allow("infiniband near0: *", "the device goes and comes, its port, too")
        .allow("infiniband far0: *", "the same")
        .allow("*0: qp#* * non-flush error status = *", "soft-RoCE says what it reports")
        .allow(
            "WARNING: CPU: * at drivers/infiniband/sw/rxe/rxe_comp.c:*",
            "soft-RoCE's retries meet an interface that is down",
        );
    context.boot(options)?.finish()?;
    Ok(())
}

fn bench(context: &Context) -> anyhow::Result<()> {
    let options = guest(context, "rxe", include_str!("../../../interop/guest/verbs-bench.sh"));
    let ended = context.boot(options)?.finish()?;
    for carrier in ["device", "software"] {
        for line in ended.read(&format!("{carrier}.json"))?.lines() {
            let measured: serde_json::Value = serde_json::from_str(line)?;
            let number = |name: &str| measured[name].as_f64().with_context(|| format!("no {name} in {line}"));
            if number("ops_per_s")? <= 0.0 || number("p99_us")? > STALL_MICROS {
                bail!("calls stand still over the {carrier}: {line}");
            }
            let (op, block, depth) = (&measured["op"], &measured["block"], &measured["depth"]);
            let (rate, mib, p50) = (number("ops_per_s")?, number("mib_per_s")?, number("p50_us")?);
            context.note(format!(
                "{carrier}: {op} {block} at depth {depth}: {rate:.0}/s, {mib:.1} MiB/s, p50 {p50:.0} us"
            ));
        }
    }
    Ok(())
}
