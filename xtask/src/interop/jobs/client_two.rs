//! Two guests use one server. Each has its own address in the job's network: no address is translated.

use super::Job;
use crate::interop::{
    context::Context, flavour, guest::GuestOptions, mountstats, network, process, serve::ServeOptions, wire::Wire,
};
use anyhow::ensure;
use std::{collections::BTreeSet, fs, net::Ipv4Addr, time::Duration};

pub(super) const JOB: Job = Job {
    name: "client-two",
    about: "two clients with an address each at one server: each sees what the other wrote, the server tells them apart, and both can be called",
    seconds: 120,
    guests: 2,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// The port at which each guest tells its name to a caller, as in the script.
const GREETING: u16 = 7007;

/// How long a guest may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The guests in the order in which they boot.
const NAMES: [&str; 2] = ["left", "right"];
const RIGHT: u8 = 1;

/// A step that both guests must reach (its name in the script's marks), and the word that lets both go on.
const STEPS: [(&str, &str); 2] = [("wrote", "read"), ("added", "again")];

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let [left, right] = [network.address(0), network.address(RIGHT)];
    let server = network.serve(ServeOptions::new(context.folder("export")?).argument("-v"))?;
    let strict = ServeOptions::new(context.folder("strict")?).named("strict").argument("--allow");
    let strict = network.serve(strict.argument(format!("{left}/32")))?;

    let boot = |who: &str, other: &str, address: Ipv4Addr| {
        let options = GuestOptions::new(who, include_str!("../../../interop/guest/two.sh")).mounts(&server).capture();
        let options = options.set("WHO", who).set("OTHER", other).set("OTHER_ADDRESS", address);
        network.guest(options.set("STRICT_NFS", strict.port()).set("STRICT_MOUNT", strict.mount_port()))
    };
    let mut guests = [boot(NAMES[0], NAMES[1], right)?, boot(NAMES[1], NAMES[0], left)?];
    let calls = |address: Ipv4Addr| network.call(address, GREETING).ok().map(|said| said.trim().to_owned());
    for guest in &mut guests {
        guest.wait_for_mark("ready")?;
    }
    for (guest, name) in guests.iter().zip(NAMES) {
        let address = guest.address()?;
        let greets = || Ok(calls(address).as_deref() == Some(name));
        context.wait_for("a guest can be called", ANSWERS_WITHIN, greets)?;
        guest.say("both")?;
    }
    for (mark, word) in STEPS {
        for guest in &mut guests {
            guest.wait_for_mark(mark)?;
        }
        for guest in &guests {
            guest.say(word)?;
        }
    }

    guests[0].wait_for_mark("waits")?;
    network.plug(RIGHT, false)?;
    ensure!(calls(right).is_none(), "a guest answers whose cable is pulled");
    guests[0].say("alone")?;
    guests[0].wait_for_mark("alone")?;
    network.plug(RIGHT, true)?;
    for guest in &mut guests {
        guest.wait_for_mark("last")?;
    }
    // Our own client is a third one, at the host's address.
    let mut ours = network.rpcrdma();
    ours.args(["cat", &server.url("alone")]);
    let said = process::run(context, "cat", ours)?.expect_success()?.stdout;
    ensure!(said == "alone\n", "our client reads {said:?} of what a guest wrote");
    for guest in &guests {
        guest.say("end")?;
    }

    for guest in guests {
        let ended = guest.finish()?;
        let stats = mountstats::first(&ended.read("mountstats-1")?)?;
        ensure!(stats.bad_xids + stats.bad_replies == 0, "{stats:?}; see {}", ended.dir().display());
        let wire = Wire::read(context, &ended.wire())?;
        ensure!(wire.connections > 0, "{} has no connection", ended.wire().display());
    }
    server.finish()?;
    let refused = strict.metrics()?.sum("rpcrdma_connections_refused_total", &["reason=\"not_allowed\""]);
    ensure!(refused > 0.0, "the server that serves {left} only has refused nobody; see {}", strict.log().display());
    strict.finish()?;
    judge_addresses(context, &server.log(), &[network.host(), left, right])?;
    judge_addresses(context, &strict.log(), &[left])
}

/// Fails if a server's connections came from other addresses.
fn judge_addresses(context: &Context, log: &std::path::Path, wanted: &[Ipv4Addr]) -> anyhow::Result<()> {
    let text = fs::read_to_string(log)?;
    let ends = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let ends = ends.filter(|line| line["fields"]["message"] == "connection ended");
    let clients = ends.filter_map(|line| Some(line["fields"]["client"].as_str()?.rsplit_once(':')?.0.to_owned()));
    let (found, wanted): (BTreeSet<_>, BTreeSet<_>) =
        (clients.collect(), wanted.iter().map(|a| a.to_string()).collect());
    if found != wanted {
        return Err(context.failed(format!("connections came from {found:?} instead of {wanted:?}"), log));
    }
    Ok(())
}
