//! Two Linux clients with an address each and the locks that they take from each other: fcntl(2) and flock(2), also
//! when a holder dies, the server is killed, or a client vanishes.

use super::{Job, faults_copying::same_on_disk};
use crate::interop::{
    context::Context,
    flavour,
    guest::{Guest, GuestOptions},
    network::{self, Network},
    serve::{ServeOptions, Server},
};
use anyhow::{Context as _, ensure};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    thread,
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

/// The guests in the order in which they boot.
const NAMES: [&str; 2] = ["left", "right"];
const LEFT: usize = 0;
const RIGHT: usize = 1;
const CABLES: [u8; 2] = [0, 1];

/// For how long the server believes in a client that it does not hear, in seconds.
const LEASE: u64 = 15;

/// How long it waits after a start for clients that held something, in seconds: longer than the job keeps one away.
const GRACE: u64 = 90;

/// How long a lock may stay where it was when its holder is gone: a moment, in a guest that is emulated.
const RELEASED_WITHIN: Duration = Duration::from_secs(10);

/// How long a process may wait for a lock that is free: Linux asks again after 1, 2, 4, 8 s and so on.
const WAITS: u64 = 20;

/// How long a client may take to find a server or a network that is back, in seconds: Linux's second and third attempt
/// come 5 and 15 s after the first.
const BACK: u64 = 40;

/// A guest, what its holder is told, what it answers.
type Step = (usize, &'static str, &'static str);

const RANGES: &[Step] = &[
    (LEFT, "write 0 100", "ok"),
    (RIGHT, "write 0 100", "taken"),
    (RIGHT, "read 50 1", "taken"),
    (RIGHT, "test write 0 0", "write 0 100"),
    (RIGHT, "test write 100 0", "free"),
    // Ranges that touch do not overlap.
    (RIGHT, "write 100 100", "ok"),
    (LEFT, "write 99 2", "taken"),
    (LEFT, "test read 0 0", "write 100 100"),
    (RIGHT, "write 99 1", "taken"),
    // An unlock in the middle leaves both ends.
    (LEFT, "unlock 40 20", "ok"),
    (RIGHT, "write 40 20", "ok"),
    (RIGHT, "write 39 1", "taken"),
    (RIGHT, "write 60 1", "taken"),
    (LEFT, "write 40 20", "taken"),
    (LEFT, "test read 30 40", "write 40 20"),
    (RIGHT, "unlock 0 0", "ok"),
    (LEFT, "write 40 20", "ok"),
    (RIGHT, "test read 40 1", "write 0 100"),
    (LEFT, "unlock 0 0", "ok"),
    // To the end of all files.
    (RIGHT, "write 1000 0", "ok"),
    (LEFT, "write 9223372036854775806 1", "taken"),
    (LEFT, "write 999 1", "ok"),
    (LEFT, "test write 0 0", "write 1000 0"),
    // Shared.
    (RIGHT, "read 1000 0", "ok"),
    (LEFT, "read 0 0", "ok"),
    (LEFT, "write 2000 1", "taken"),
    (RIGHT, "write 2000 1", "taken"),
    (LEFT, "test write 2000 1", "read 1000 0"),
    (LEFT, "test read 2000 1", "free"),
    (RIGHT, "unlock 0 0", "ok"),
    (LEFT, "write 2000 1", "ok"),
    (RIGHT, "read 2000 1", "taken"),
    (RIGHT, "read 1999 1", "ok"),
    (RIGHT, "write 2001 1", "taken"),
    (LEFT, "unlock 0 0", "ok"),
    (RIGHT, "write 0 0", "ok"),
    (LEFT, "read 0 1", "taken"),
    (RIGHT, "unlock 0 0", "ok"),
    (LEFT, "test write 0 0", "free"),
];

const WHOLE_FILES: &[Step] = &[
    (LEFT, "exclusive", "ok"),
    (RIGHT, "exclusive", "taken"),
    (RIGHT, "shared", "taken"),
    (LEFT, "shared", "ok"),
    (RIGHT, "shared", "ok"),
    (RIGHT, "exclusive", "taken"),
    (LEFT, "none", "ok"),
    (RIGHT, "exclusive", "ok"),
    (LEFT, "shared", "taken"),
    (RIGHT, "none", "ok"),
    (LEFT, "exclusive", "ok"),
    (LEFT, "none", "ok"),
];

struct Pair<'a> {
    context: &'a Context<'a>,
    network: Network<'a>,
    server: Server,
    guests: Vec<Guest>,
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
    let pair = Pair { context, network, server, guests };
    pair.steps("ranges", RANGES)?;
    pair.steps("whole", WHOLE_FILES)?;
    pair.wait_and_end()?;
    pair.restart()?;
    pair.vanish()?;
    pair.finish()
}

impl Pair<'_> {
    /// Runs a command in a guest.
    fn run(&self, who: usize, command: &str) -> anyhow::Result<String> {
        Ok(self.guests[who].run(command)?.trim().to_owned())
    }

    /// Tells a holder something, and fails if it answers something else.
    fn ask(&self, holder: &str, (who, words, wanted): Step) -> anyhow::Result<()> {
        let found = self.run(who, &format!("ask {holder} {words}"))?;
        ensure!(
            found == wanted,
            "{holder} of {}: {words:?} is answered {found:?} instead of {wanted:?}; see {}",
            NAMES[who],
            self.server.log().display()
        );
        Ok(())
    }

    /// Fails if a holder has answered already.
    fn still_waits(&self, holder: &str, who: usize, seconds: u64) -> anyhow::Result<()> {
        let found = self.run(who, &format!("answer {holder} {seconds}"))?;
        ensure!(found == "nothing", "{holder} of {} has to wait, and is answered {found:?}", NAMES[who]);
        Ok(())
    }

    /// Waits until a lock is got that somebody else has had, and says how long that took.
    fn gets(&self, holder: &str, who: usize, words: &str, within: Duration) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        while self.run(who, &format!("ask {holder} {words}"))? != "ok" {
            ensure!(begin.elapsed() < within, "{} does not get {words:?} within {within:?}", NAMES[who]);
            thread::sleep(Duration::from_millis(500));
        }
        Ok(begin.elapsed())
    }

    /// A holder of a file in each guest.
    fn holders(&self, holder: &str, file: &str) -> anyhow::Result<()> {
        for who in [LEFT, RIGHT] {
            self.run(who, &format!("holder {holder} {file}"))?;
        }
        Ok(())
    }

    fn steps(&self, file: &str, steps: &[Step]) -> anyhow::Result<()> {
        self.holders(file, file)?;
        steps.iter().try_for_each(|&step| self.ask(file, step))?;
        for who in [LEFT, RIGHT] {
            self.run(who, &format!("tell {file} end; gone {file}"))?;
        }
        Ok(())
    }

    /// A lock is waited for until its holder gives it back, closes the file, or dies.
    fn wait_and_end(&self) -> anyhow::Result<()> {
        for (kind, back, waiter) in
            [("write 0 10", "unlock 0 10", RIGHT), ("exclusive", "none", LEFT), ("write 0 10", "end", RIGHT)]
        {
            self.holders("waited", "waited")?;
            let holder = 1 - waiter;
            self.ask("waited", (holder, kind, "ok"))?;
            self.run(waiter, &format!("tell waited wait {kind}"))?;
            self.still_waits("waited", waiter, 2)?;
            self.run(holder, &format!("tell waited {back}"))?;
            let begin = Instant::now();
            let found = self.run(waiter, &format!("answer waited {WAITS}"))?;
            ensure!(found == "ok", "{} waits for {kind:?}, which is free, and is answered {found:?}", NAMES[waiter]);
            self.context.note(format!("{kind} got {:.1} s after {back}", begin.elapsed().as_secs_f64()));
            if back != "end" {
                self.run(holder, "tell waited end")?;
            }
            self.run(holder, "gone waited")?;
            // Killed, it gives back what it holds as well.
            self.run(waiter, "kill -9 $(cat /tmp/waited.pid); gone waited")?;
            self.run(holder, "holder waited waited")?;
            self.gets("waited", holder, kind, RELEASED_WITHIN)?;
            self.run(holder, "tell waited end; gone waited")?;
        }
        Ok(())
    }

    /// The server is killed while both hold locks and write, and one of them cannot be reached.
    fn restart(&self) -> anyhow::Result<()> {
        self.holders("kept", "kept")?;
        // Has the file open, and holds nothing.
        self.run(LEFT, "holder new kept")?;
        self.ask("kept", (LEFT, "write 0 100", "ok"))?;
        self.ask("kept", (RIGHT, "write 100 100", "ok"))?;
        self.ask("kept", (RIGHT, "read 300 0", "ok"))?;
        let refused = || -> anyhow::Result<()> {
            self.ask("kept", (LEFT, "write 100 1", "taken"))?;
            self.ask("kept", (LEFT, "write 400 1", "taken"))?;
            self.ask("kept", (LEFT, "test write 100 100", "write 100 100"))?;
            self.ask("kept", (RIGHT, "write 99 1", "taken"))?;
            self.ask("kept", (RIGHT, "test read 0 50", "write 0 100"))
        };
        refused()?;
        for (who, name) in NAMES.iter().enumerate() {
            self.run(who, &format!("writes written-{name}"))?;
        }
        let blocks = |who| -> anyhow::Result<u64> {
            self.run(who, "cat /tmp/blocks 2>/dev/null || echo 0")?.parse().context("blocks written")
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
        self.run(LEFT, "tell new wait write 250 10")?;
        let counted = |operation: &str, status: &str| -> anyhow::Result<f64> {
            let labels = [format!("operation=\"{operation}\""), format!("status=\"{status}\"")];
            Ok(self.server.metrics()?.sum("rpcrdma_nfs4_operations_total", &labels.each_ref().map(String::as_str)))
        };
        let in_grace = || Ok(counted("RECLAIM_COMPLETE", "OK")? == 1.0 && counted("LOCK", "GRACE")? > 0.0);
        let within = Duration::from_secs(BACK);
        self.context.wait_for("one client has reclaimed, and is given no new lock", within, in_grace)?;
        ensure!(counted("LOCK", "OK")? == 1.0, "a client has reclaimed one lock, and no other lock was given");
        self.still_waits("new", LEFT, 2)?;
        self.network.plug(CABLES[RIGHT], true)?;
        let plugged = Instant::now();
        let found = self.run(LEFT, &format!("answer new {BACK}"))?;
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
            let sum = self.run(who, &format!("written {file}"))?;
            same_on_disk(self.context, &self.server, &sum.replace('-', &file), "")?;
        }
        self.run(LEFT, "tell new end; gone new")?;
        for who in [LEFT, RIGHT] {
            self.run(who, "tell kept end; gone kept")?;
        }
        Ok(())
    }

    /// A client vanishes: its lock is its own for a lease, and another's from then on, also when it comes back.
    fn vanish(&self) -> anyhow::Result<()> {
        self.holders("lost", "lost")?;
        self.ask("lost", (RIGHT, "write 0 10", "ok"))?;
        self.network.plug(CABLES[RIGHT], false)?;
        let pulled = Instant::now();
        self.ask("lost", (LEFT, "write 0 10", "taken"))?;
        let within = Duration::from_secs(LEASE) + RELEASED_WITHIN;
        self.gets("lost", LEFT, "write 0 10", within)?;
        let after = pulled.elapsed();
        self.context.note(format!("a lock of who vanished got after {:.1} s", after.as_secs_f64()));
        self.ask("lost", (LEFT, "put 0 left", "ok"))?;
        self.network.plug(CABLES[RIGHT], true)?;
        // Linux knows then that it has lost the lock: what is written under it fails.
        let found = self.run(RIGHT, &format!("tell lost put 0 right; answer lost {BACK}"))?;
        ensure!(found != "ok" && found != "nothing", "{} has lost its lock, and writes: {found:?}", NAMES[RIGHT]);
        let said = fs::read_to_string(self.server.export().join("lost"))?;
        ensure!(said == "left", "under the lock of {} the file became {said:?}", NAMES[LEFT]);
        self.run(RIGHT, "tell lost end; gone lost; holder lost lost")?;
        self.ask("lost", (RIGHT, "write 0 10", "taken"))?;
        self.ask("lost", (LEFT, "unlock 0 10", "ok"))?;
        self.ask("lost", (RIGHT, "write 0 10", "ok"))?;
        // As long as the server tells of a loss, Linux takes the locks for lost that it gets, too.
        self.ask("lost", (RIGHT, "put 0 right", "ok"))?;
        self.ask("lost", (LEFT, "write 9 1", "taken"))?;
        self.ask("lost", (RIGHT, "put 5 again", "ok"))?;
        for who in [LEFT, RIGHT] {
            self.run(who, "tell lost end; gone lost")?;
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        for guest in &self.guests {
            guest.say("end")?;
        }
        for guest in self.guests {
            guest.finish()?;
        }
        let held = || Ok(self.server.metrics()?.sum("rpcrdma_nfs4_stateids", &[]) == 0.0);
        self.context.wait_for("the server counts no open and no lock any more", RELEASED_WITHIN, held)?;
        self.server.finish()?;
        Ok(())
    }
}
