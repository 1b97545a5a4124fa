//! What each service of Kerberos costs: READ and WRITE of 1 MiB by our client, with our server on the host over RDMA
//! and TCP, and in one guest over TCP with Linux's nfsd, then with our server.
//!
//! A guest is emulated: only the comparison of the two servers counts there. The figures are in docs/performance.md.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    network::{self, Network},
    nfsd::{Nfsd, NfsdOptions},
    process,
    realm::{self, Realm},
    serve::{KERBEROS_TCP_PORT, ServeOptions},
};
use anyhow::{Context as _, ensure};
use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

pub(super) const JOB: Job = Job {
    name: "kerberos-bench",
    about: "bench of READ and WRITE with sys, krb5, krb5i and krb5p: our server over RDMA and TCP, and beside nfsd in a guest",
    seconds: 400,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

const SECURITY: [&str; 4] = ["sys", "krb5", "krb5i", "krb5p"];
const CALLS: [&str; 2] = ["read", "write"];
const USER: &str = "anna";

/// How each is measured.
const HOW: &str = "--json --block 1M --depth 8 --seconds 2 --overwrite";

/// The size of the file, which exists before the measurement.
const MIB: usize = 64;

/// A mode: everybody may make files in the folder.
const COMMON: u32 = 0o1777;

/// Starts our server in the guest in the place of nfsd, which has ended. Over TCP, Kerberos is served on port 2049
/// only.
const OURS: &str = "mkdir -p /tmp/ours /tmp/state && cp /exports/bench /tmp/ours/bench
chmod 1777 /tmp/ours; chmod 666 /tmp/ours/bench
export XDG_CACHE_HOME=/tmp/cache
/job/rpcrdma serve /tmp/ours --listen $ADDRESS:20149 --tcp $ADDRESS:2049 --mountd $ADDRESS:20148 --locks off \\
    --state /tmp/state --threads 2 --sec sys,krb5,krb5i,krb5p --keytab /job/server.keytab >/job/ours.out 2>/job/ours.log &
echo $! >/job/ours.pid
for i in $(seq 100); do ! grep -q ^ready /job/ours.out || exit 0; sleep 0.1; done
tail -3 /job/ours.log; exit 1";

/// Ends that server in order.
const STOP: &str = "ours=$(cat /job/ours.pid); kill $ours
for i in $(seq 100); do kill -0 $ours 2>/dev/null || exit 0; sleep 0.1; done
tail -3 /job/ours.log; exit 1";

/// For each call, the rate with each service, in MiB a second.
type Measured = [[f64; SECURITY.len()]; CALLS.len()];

fn measure(mut bench: impl FnMut(&str, &str) -> anyhow::Result<String>) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for (op, row) in CALLS.iter().zip(&mut measured) {
        for (security, cell) in SECURITY.iter().zip(row) {
            let said = bench(op, security)?;
            let line = said.lines().last().unwrap_or_default();
            let report: serde_json::Value =
                serde_json::from_str(line).with_context(|| format!("{op} with {security}: {said}"))?;
            *cell = report["mib_per_s"].as_f64().with_context(|| format!("no mib_per_s in {line}"))?;
            ensure!(*cell > 0.0, "{op} with {security} stands still: {line}");
        }
    }
    Ok(measured)
}

fn note(context: &Context, of: &str, measured: &Measured) {
    for (op, row) in CALLS.iter().zip(measured) {
        let [sys, ..] = row;
        let cells =
            SECURITY.iter().zip(row).map(|(security, cell)| format!("{security} {cell:.0} ({:.2})", cell / sys));
        context.note(format!("{of}: {op} 1 MiB, MiB/s: {}", cells.collect::<Vec<_>>().join(", ")));
    }
}

/// Our server on the host.
fn on_the_host(context: &Context, network: &Network, realm: &Realm) -> anyhow::Result<()> {
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(COMMON))?;
    let file = export.join("bench");
    fs::write(&file, vec![0x5A; MIB << 20])?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
    let server = network.serve(ServeOptions::new(export).kerberos(realm, &SECURITY.join(",")))?;
    for (transport, port) in [("rdma", server.port()), ("tcp", KERBEROS_TCP_PORT)] {
        let measured = measure(|op, security| {
            let url = format!("nfs://{}:{port}/bench?version=4.2&transport={transport}&sec={security}", realm::SERVER);
            let mut command: Command = network.rpcrdma();
            command.args(["bench", "--op", op]).args(HOW.split(' ')).arg(url);
            command.envs(realm.environment()).env("KRB5CCNAME", realm.cache(USER));
            let name = format!("bench-{transport}-{op}-{security}");
            Ok(process::run(context, &name, command)?.expect_success()?.stdout)
        })?;
        note(context, &format!("our server, {transport}"), &measured);
    }
    server.finish().map(drop)
}

/// Measures with our client in the guest, against the server on port 2049 there.
fn in_the_guest(nfsd: &Nfsd, folder: &str) -> anyhow::Result<Measured> {
    measure(|op, security| {
        let url = format!("nfs://{}:2049{folder}/bench?version=4.2&transport=tcp&sec={security}", realm::SERVER);
        nfsd.run(&format!("XDG_CACHE_HOME=/tmp/cache /job/rpcrdma bench --op {op} {HOW} '{url}'"))
    })
}

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let realm = Realm::in_network(context, &network)?;
    realm.ticket(context, &network, USER)?;
    network.place("hosts", &format!("127.0.0.1 localhost\n{} {}\n", network.host(), realm::SERVER))?;
    on_the_host(context, &network, &realm)?;

    let there = network.address(0);
    let options = NfsdOptions::new().called(realm::SERVER).with(|guest| {
        let guest = realm.guest(guest).with_program(context.program());
        guest.set("SERVER_ADDRESS", there).set("SEC", SECURITY.join(":"))
    });
    let nfsd = network.nfsd(options)?;
    nfsd.run(&format!("head -c {MIB}M /dev/urandom >/exports/bench; chmod 666 /exports/bench"))?;
    nfsd.run(&format!("kinit -k -t /etc/users.keytab {USER}"))?;
    let linux = in_the_guest(&nfsd, "/exports")?;
    note(context, "nfsd in a guest, tcp", &linux);
    nfsd.stop()?;
    nfsd.run(&format!("ADDRESS={there}\n{OURS}"))?;
    let ours = in_the_guest(&nfsd, "")?;
    note(context, "our server in the same guest, tcp", &ours);
    nfsd.run(STOP)?;
    nfsd.finish()
}
