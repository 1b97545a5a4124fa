//! Two Linux clients, each with its own address, contend for locks: fcntl(2) and flock(2), also when a holder dies, the
//! server is killed, or a client vanishes.

use super::{
    Job,
    faults_copying::same_on_disk,
    holders::{self, Holders, LEFT, NAMES, RANGES, RELEASED_WITHIN, RIGHT, WHOLE_FILES},
};
use crate::interop::{
    context::Context,
    flavour,
    guest::GuestOptions,
    network::{self, Network},
    serve::{ServeOptions, Server},
};
use anyhow::{Context as _, ensure};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "client-locks",
    about: "two clients and their locks: ranges, shared and exclusive, waiting, holders that die, a server that is killed, a client that vanishes",
    seconds: 600,
    guests: 2,
    scales: false,
    flavours: flavour::VERSION_4,
    run,
};

const CABLES: [u8; 2] = [0, 1];

/// The lease: how long the server keeps the state of a client that it does not hear, in seconds.
const LEASE: u64 = 15;

/// How long the server waits after a start for clients that held something, in seconds: longer than the job cuts a
/// client off.
const GRACE: u64 = 90;

/// How long a process may wait for a lock that is free: Linux asks again after 1, 2, 4, 8 s and so on.
const WAITS: u64 = 20;

/// How long a client may take to find a server or a network that is back, in seconds: Linux's second and third attempt
/// come 5 and 15 s after the first.
const BACK: u64 = 40;

struct Pair<'a> {
    context: &'a Context<'a>,
    network: Network<'a>,
    server: Server,
    guests: Holders,
}

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    for name in ["ranges", "whole", "waited", "kept", "lost"] {
        fs::write(export.join(name), [])?;
    }
    let mut options = ServeOptions::new(export).argument("-v");
    for (option, value) in [("--lease", LEASE.to_string()), ("--grace", GRACE.to_string())] {
        options = options.argument(option).argument(value);
    }
    let server = network.serve(options)?;
    let (flavour, port) = (context.flavour(), server.tcp_port().unwrap_or(server.port()));
    let mount = format!("vers={},proto={},port={port}", flavour.version, flavour.transport);
    let boot = |who: &&str| {
        let options = GuestOptions::new(who, include_str!("../../../interop/guest/locks.sh")).mounts(&server).capture();
        let options = options.before(holders::WORDS);
        let options = options.set("WHO", who).set("MOUNT", &mount).with_tools();
        let options =
            options.allow("nfs: server * not responding, still trying", "the server is killed, cables are pulled");
        let options = options.allow("nfs: server * OK", "and come back");
        let options =
            options.allow("NFS: * lost 1 locks", "the client that vanished has, as long as another wanted it");
        network.guest(options)
    };
    let mut guests = NAMES.iter().map(boot).collect::<anyhow::Result<Vec<_>>>()?;
    for guest in &mut guests {
        guest.wait_for_mark("ready")?;
    }
    let pair = Pair { context, network, server, guests: Holders::new(context, guests) };
    pair.guests.steps("ranges", RANGES)?;
    pair.guests.steps("whole", WHOLE_FILES)?;
    pair.guests.wait_and_end(context, WAITS)?;
    pair.restart()?;
    pair.vanish()?;
    pair.finish()
}

impl Pair<'_> {
    /// The server is killed while both clients hold locks and write, and one of them is cut off.
    fn restart(&self) -> anyhow::Result<()> {
        self.guests.holders("kept", "kept")?;
        // This process has the file open and holds no lock.
        self.guests.run(LEFT, "holder new kept")?;
        self.guests.ask("kept", (LEFT, "write 0 100", "ok"))?;
        self.guests.ask("kept", (RIGHT, "write 100 100", "ok"))?;
        self.guests.ask("kept", (RIGHT, "read 300 0", "ok"))?;
        let refused = || -> anyhow::Result<()> {
            self.guests.ask("kept", (LEFT, "write 100 1", "taken"))?;
            self.guests.ask("kept", (LEFT, "write 400 1", "taken"))?;
            self.guests.ask("kept", (LEFT, "test write 100 100", "write 100 100"))?;
            self.guests.ask("kept", (RIGHT, "write 99 1", "taken"))?;
            self.guests.ask("kept", (RIGHT, "test read 0 50", "write 0 100"))
        };
        refused()?;
        for (who, name) in NAMES.iter().enumerate() {
            self.guests.run(who, &format!("writes written-{name}"))?;
        }
        let blocks = |who| -> anyhow::Result<u64> {
            self.guests.run(who, "cat /tmp/blocks 2>/dev/null || echo 0")?.parse().context("blocks written")
        };
        let write_on = |who: usize, more: u64| {
            let before = blocks(who)?;
            let words = format!("{} writes on", NAMES[who]);
            self.context.wait_for(&words, Duration::from_secs(BACK), || Ok(blocks(who)? >= before + more))
        };
        [LEFT, RIGHT].into_iter().try_for_each(|who| write_on(who, 3))?;

        self.network.plug(CABLES[RIGHT], false)?;
        self.server.kill()?;
        self.server.start()?;
        self.guests.run(LEFT, "tell new wait write 250 10")?;
        let counted = |operation: &str, status: &str| -> anyhow::Result<f64> {
            let labels = [format!("operation=\"{operation}\""), format!("status=\"{status}\"")];
            Ok(self.server.metrics()?.sum("rpcrdma_nfs4_operations_total", &labels.each_ref().map(String::as_str)))
        };
        let in_grace = || Ok(counted("RECLAIM_COMPLETE", "OK")? == 1.0 && counted("LOCK", "GRACE")? > 0.0);
        let within = Duration::from_secs(BACK);
        self.context.wait_for("one client has reclaimed, and is given no new lock", within, in_grace)?;
        ensure!(counted("LOCK", "OK")? == 1.0, "a client has reclaimed one lock, and no other lock was given");
        self.guests.still_waits("new", LEFT, 2)?;
        self.network.plug(CABLES[RIGHT], true)?;
        let plugged = Instant::now();
        let found = self.guests.run(LEFT, &format!("answer new {BACK}"))?;
        ensure!(found == "ok", "a new lock is answered {found:?} when all have reclaimed");
        self.context
            .note(format!("grace was over {:.1} s after the cable was plugged", plugged.elapsed().as_secs_f64()));
        for (operation, count) in [("RECLAIM_COMPLETE", 2.0), ("LOCK", 4.0)] {
            let found = counted(operation, "OK")?;
            ensure!(found == count, "{found} of {operation} instead of {count} after the restart");
        }
        refused()?;
        [LEFT, RIGHT].into_iter().try_for_each(|who| write_on(who, 3))?;
        for (who, name) in NAMES.iter().enumerate() {
            let file = format!("written-{name}");
            let sum = self.guests.run(who, &format!("written {file}"))?;
            same_on_disk(self.context, &self.server, &sum.replace('-', &file), "")?;
        }
        self.guests.run(LEFT, "tell new end; gone new")?;
        for who in [LEFT, RIGHT] {
            self.guests.run(who, "tell kept end; gone kept")?;
        }
        Ok(())
    }

    /// A client vanishes: it keeps its lock for a lease. Then another client gets the lock, and keeps it when the first
    /// comes back.
    fn vanish(&self) -> anyhow::Result<()> {
        self.guests.holders("lost", "lost")?;
        self.guests.ask("lost", (RIGHT, "write 0 10", "ok"))?;
        self.network.plug(CABLES[RIGHT], false)?;
        let pulled = Instant::now();
        self.guests.ask("lost", (LEFT, "write 0 10", "taken"))?;
        let within = Duration::from_secs(LEASE) + RELEASED_WITHIN;
        self.guests.gets("lost", LEFT, "write 0 10", within)?;
        let after = pulled.elapsed();
        self.context.note(format!("a lock of who vanished got after {:.1} s", after.as_secs_f64()));
        self.guests.ask("lost", (LEFT, "put 0 left", "ok"))?;
        self.network.plug(CABLES[RIGHT], true)?;
        // Linux then knows that it has lost the lock: writes under it fail.
        let found = self.guests.run(RIGHT, &format!("tell lost put 0 right; answer lost {BACK}"))?;
        ensure!(found != "ok" && found != "nothing", "{} has lost its lock, and writes: {found:?}", NAMES[RIGHT]);
        let said = fs::read_to_string(self.server.export().join("lost"))?;
        ensure!(said == "left", "under the lock of {} the file became {said:?}", NAMES[LEFT]);
        self.guests.run(RIGHT, "tell lost end; gone lost; holder lost lost")?;
        self.guests.ask("lost", (RIGHT, "write 0 10", "taken"))?;
        self.guests.ask("lost", (LEFT, "unlock 0 10", "ok"))?;
        self.guests.ask("lost", (RIGHT, "write 0 10", "ok"))?;
        // As long as the server reports a loss, Linux considers new locks lost as well.
        self.guests.ask("lost", (RIGHT, "put 0 right", "ok"))?;
        self.guests.ask("lost", (LEFT, "write 9 1", "taken"))?;
        self.guests.ask("lost", (RIGHT, "put 5 again", "ok"))?;
        for who in [LEFT, RIGHT] {
            self.guests.run(who, "tell lost end; gone lost")?;
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        self.guests.finish()?;
        let held = || Ok(self.server.metrics()?.sum("rpcrdma_nfs4_stateids", &[]) == 0.0);
        self.context.wait_for("the server counts no open and no lock any more", RELEASED_WITHIN, held)?;
        self.server.finish()?;
        Ok(())
    }
}
