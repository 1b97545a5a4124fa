//! Locks of version 3: two Linux clients, each with its own address, their rpcbind, lockd and statd, and programs on
//! the server's machine.
//!
//! The same job with Linux's server shows that it judges right. [`Side`] says what Linux 6.12 itself does not do.

use super::{
    Job,
    holders::{self, Holders, LEFT, NAMES, RANGES, RELEASED_WITHIN, RIGHT, Step, WHOLE_FILES},
};
use crate::interop::{
    context::Context,
    flavour,
    guest::{Guest, GuestOptions},
    network::{self, Network},
    nfsd::{Nfsd, NfsdOptions},
    process::Talking,
    serve::{ServeOptions, Server},
    tshark,
};
use anyhow::{Context as _, ensure};
use std::{
    cell::RefCell,
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "client-nlm",
    about: "locks of version 3: two clients, one of version 4 and a program of the host; waiting, a server that is killed, a client that is killed and boots again",
    seconds: 600,
    guests: 2,
    scales: false,
    flavours: flavour::OLDEST,
    run: ours,
};

pub(super) const LINUX: Job = Job {
    name: "client-nlm-linux",
    about: "the same with Linux's server",
    flavours: flavour::ONE,
    guests: 3,
    run: linux,
    ..JOB
};

/// How long the server waits after a start for clients that held locks, in seconds: longer than the job cuts a client
/// off.
const GRACE: u64 = 40;

/// How long a client is cut off while the server starts: the server has to send its notice again.
const AWAY: Duration = Duration::from_secs(4);

/// How long all clients may take to get their notice and reclaim, in an emulated guest.
const RECLAIMED_WITHIN: Duration = Duration::from_secs(25);

/// How long a client may wait for a lock that is free, in seconds, if the server calls it. Without a call it asks after
/// 30 s.
const CALLED_WITHIN: u64 = 20;

/// The same if the server does not call.
const ASKS_WITHIN: u64 = 50;

/// How long a new lock may take when the time of grace is over, in seconds: Linux asks each 5 s.
const ASKS_IN_GRACE: u64 = 15;

/// Where our server has its lock manager and its status monitor.
const LOCKD_PORT: u16 = 4045;
const STATD_PORT: u16 = 4046;

/// A step that Linux 6.12's server answers differently: if both the client that tests and another client hold a shared
/// lock, it does not report the other's. It does refuse the lock.
const NOT_LINUX: Step = (LEFT, "test write 2000 1", "read 1000 0");

/// The files that the job locks.
const FILES: [&str; 6] = ["ranges", "whole", "waited", "shared", "kept", "lost"];

/// NLM 4: the procedures by which a server calls a client that waits.
const GRANTED: [u32; 2] = [5, 10];

fn ours(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    for name in FILES {
        fs::write(export.join(name), [])?;
    }
    let options = ServeOptions::new(export).argument("-v").argument("--grace").argument(GRACE.to_string());
    let side = Side::Ours(network.serve(with_locks(options, network.host()))?);
    run(context, &network, &[0, 1], side)
}

/// Options for a server with locks for version 3, and a portmapper through which clients find them. Ports are fixed:
/// nothing else runs in this network.
pub(super) fn with_locks(options: ServeOptions, host: Ipv4Addr) -> ServeOptions {
    let options = options.argument("--locks").argument("on").argument("--rpcbind").argument("own");
    let options = options.argument("--lockd").argument(format!("{host}:{LOCKD_PORT}"));
    options.argument("--statd").argument(format!("{host}:{STATD_PORT}"))
}

fn linux(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let nfsd = NfsdOptions::new().with(|guest| guest.with_tools().before(holders::WORDS).capture());
    let nfsd = network.nfsd(nfsd)?;
    for name in FILES {
        nfsd.run(&format!(": >/exports/{name}"))?;
    }
    run(context, &network, &[1, 2], Side::Linux(nfsd))
}

/// Which server serves.
enum Side {
    Ours(Server),
    Linux(Nfsd),
}

impl Side {
    fn host(&self, network: &Network<'_>) -> Ipv4Addr {
        match self {
            Side::Ours(_) => network.host(),
            Side::Linux(nfsd) => nfsd.host(),
        }
    }

    /// A guest that mounts this server in the job's flavour, with locks; Linux's server over TCP. Behind soft-iWARP,
    /// nfsd can lose the first call of a connection: then a client that has reconnected gets no answer for a minute.
    fn mounted(&self, context: &Context, options: GuestOptions) -> GuestOptions {
        let (options, transport, port, mount_port) = match self {
            Side::Ours(server) => {
                let port = server.tcp_port().unwrap_or(server.port());
                (options.mounts(server), context.flavour().transport, port, server.mount_port())
            }
            Side::Linux(nfsd) => {
                let (port, mount_port) = (nfsd.tcp_port(), nfsd.mount_port());
                let options = options.mounts_at(port, mount_port, "/exports").after_all("HOST", nfsd.host());
                (options, "tcp", port, mount_port)
            }
        };
        options.set("MOUNT", format!("vers=3,proto={transport},port={port},mountport={mount_port},mountproto=tcp"))
    }

    /// Whether the server calls clients that wait. Linux up to 6.6 and from 6.13 on does so for usual file systems.
    fn calls(&self) -> bool {
        matches!(self, Side::Ours(_))
    }

    /// The commands with which the guest makes a second mount, in version 4.
    fn mount_of_version_4(&self) -> String {
        let over = match self {
            Side::Ours(_) => "proto=$NFS_TRANSPORT,port=$NFS_PORT".to_owned(),
            Side::Linux(nfsd) => format!("proto=tcp,port={}", nfsd.tcp_port()),
        };
        format!("modprobe nfsv4; mkdir -p /mnt4; mount -t nfs -o vers=4.2,{over} $HOST:$EXPORT /mnt4")
    }

    /// How many notices of restarted clients the server has accepted; Linux's server does not count them.
    fn notices(&self) -> anyhow::Result<Option<f64>> {
        let count = |server: &Server| -> anyhow::Result<f64> {
            Ok(server.metrics()?.sum("rpcrdma_nsm_notices_received_total", &["believed=\"yes\""]))
        };
        match self {
            Side::Ours(server) => count(server).map(Some),
            Side::Linux(_) => Ok(None),
        }
    }

    /// A process on the server's machine that holds locks.
    fn local(&self, file: &str) -> anyhow::Result<Local<'_>> {
        match self {
            Side::Ours(server) => {
                let mut command = Command::new("/proc/self/exe");
                command.arg("locks").arg(server.export().join(file)).arg("--commands");
                Ok(Local::Host(RefCell::new(Talking::start(command)?)))
            }
            Side::Linux(nfsd) => {
                nfsd.run(&format!("holder local /exports/{file}"))?;
                Ok(Local::Guest(nfsd))
            }
        }
    }

    /// The server dies without a word, and starts again.
    fn crash(&self) -> anyhow::Result<()> {
        match self {
            Side::Ours(server) => {
                server.kill()?;
                server.start()
            }
            // A stop in order makes nfsd forget the clients that it has to notify: so their list is saved and put back.
            Side::Linux(nfsd) => {
                nfsd.run("rm -rf /tmp/sm; cp -a /var/lib/nfs/sm /tmp/sm; ls /tmp/sm")?;
                nfsd.stop()?;
                nfsd.run(&format!(
                    "cp -a /tmp/sm/. /var/lib/nfs/sm/; echo {GRACE} >/proc/fs/nfsd/nfsv4leasetime; \
                     echo {GRACE} >/proc/fs/nfsd/nfsv4gracetime; echo {GRACE} >/proc/sys/fs/nfs/nlm_grace_period"
                ))?;
                nfsd.start("")?;
                nfsd.run("rm -f /run/sm-notify.pid; sm-notify -f").map(drop)
            }
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Side::Ours(server) => server.finish().map(drop),
            Side::Linux(nfsd) => nfsd.finish(),
        }
    }
}

/// A process on the server's machine that holds locks.
enum Local<'a> {
    Host(RefCell<Talking>),
    Guest(&'a Nfsd),
}

impl Local<'_> {
    fn ask(&self, words: &str, wanted: &str) -> anyhow::Result<()> {
        let found = self.answer(words)?;
        ensure!(found == wanted, "on the server's machine {words:?} is answered {found:?} instead of {wanted:?}");
        Ok(())
    }

    fn answer(&self, words: &str) -> anyhow::Result<String> {
        match self {
            Local::Host(talking) => talking.borrow_mut().ask(words),
            Local::Guest(nfsd) => Ok(nfsd.run(&format!("ask local {words}"))?.trim().to_owned()),
        }
    }

    fn end(self) -> anyhow::Result<()> {
        match self {
            Local::Host(_) => Ok(()),
            Local::Guest(nfsd) => nfsd.run("tell local end; gone local").map(drop),
        }
    }
}

struct Run<'a> {
    context: &'a Context<'a>,
    network: &'a Network<'a>,
    /// The guests' places in the network.
    places: &'a [u8; 2],
    side: Side,
    guests: Holders,
}

fn run(context: &Context, network: &Network<'_>, places: &[u8; 2], side: Side) -> anyhow::Result<()> {
    let options = |name: &str, who: &str| client(side.mounted(context, script(name, who)));
    let mut guests = Vec::new();
    // One after the other: if two clients connect at the same moment, nfsd over soft-iWARP can lose the first call of
    // one.
    for name in NAMES {
        let mut guest = network.guest(options(name, name))?;
        guest.wait_for_mark("ready")?;
        guests.push(guest);
    }
    let guests = Holders::new(context, guests);
    let mut run = Run { context, network, places, side, guests };
    let linux = matches!(run.side, Side::Linux(_));
    let ranges: Vec<_> = RANGES.iter().copied().filter(|step| !(linux && *step == NOT_LINUX)).collect();
    run.guests.steps("ranges", &ranges)?;
    run.guests.steps("whole", WHOLE_FILES)?;
    run.with_the_host()?;
    run.with_version_4()?;
    run.waiting()?;
    run.server_dies()?;
    run.client_dies()?;
    run.finish()
}

fn script(name: &str, who: &str) -> GuestOptions {
    let options = GuestOptions::new(name, include_str!("../../../interop/guest/nlm.sh")).before(holders::WORDS);
    options.set("WHO", who).with_tools().capture()
}

/// Allows what a client's kernel may log while servers die.
fn client(options: GuestOptions) -> GuestOptions {
    let options =
        options.allow("nfs: server * not responding, still trying", "the server is killed, cables are pulled");
    let options = options.allow("nfs: server * OK", "and come back");
    let options = options.allow("lockd: server * not responding, *", "the same for its lockd");
    options.allow("lockd: server * OK", "the same for its lockd")
}

impl Run<'_> {
    /// How long a process may wait for a lock that is free.
    fn waits(&self) -> u64 {
        if self.side.calls() { CALLED_WITHIN } else { ASKS_WITHIN }
    }

    /// A program on the server's machine and both clients keep each other out.
    fn with_the_host(&self) -> anyhow::Result<()> {
        let local = self.side.local("shared")?;
        self.guests.holders("shared", "shared")?;
        self.whole_files_and_the_host(&local)?;
        self.guests.ask("shared", (LEFT, "write 0 100", "ok"))?;
        local.ask("write 0 100", "taken")?;
        local.ask("test read 50 1", "write 0 100")?;
        local.ask("write 100 100", "ok")?;
        self.guests.ask("shared", (RIGHT, "read 150 1", "taken"))?;
        self.guests.ask("shared", (RIGHT, "test write 150 0", "write 100 100"))?;
        self.guests.ask("shared", (LEFT, "write 100 1", "taken"))?;
        // A program of the machine releases a lock: only the server can notice that, for a client that waits.
        self.guests.run(RIGHT, "tell shared wait write 100 10")?;
        self.guests.still_waits("shared", RIGHT, 2)?;
        local.ask("unlock 100 100", "ok")?;
        let begin = Instant::now();
        let found = self.guests.run(RIGHT, &format!("answer shared {ASKS_WITHIN}"))?;
        ensure!(found == "ok", "what a program of the server's machine gave back is answered {found:?}");
        self.context
            .note(format!("got {:.1} s after a program of the host gave it back", begin.elapsed().as_secs_f64()));
        local.ask("read 105 1", "taken")?;
        self.guests.ask("shared", (RIGHT, "unlock 0 0", "ok"))?;
        self.guests.ask("shared", (LEFT, "read 0 0", "ok"))?;
        local.ask("read 0 0", "ok")?;
        local.ask("write 0 1", "taken")?;
        local.end()?;
        for who in [LEFT, RIGHT] {
            self.guests.run(who, "tell shared end; gone shared")?;
        }
        Ok(())
    }

    /// A client's flock(2) excludes fcntl(2) locks of the machine's programs on any range of the file, and the reverse.
    fn whole_files_and_the_host(&self, local: &Local<'_>) -> anyhow::Result<()> {
        self.guests.ask("shared", (LEFT, "exclusive", "ok"))?;
        local.ask("read 5 1", "taken")?;
        self.guests.ask("shared", (LEFT, "shared", "ok"))?;
        local.ask("write 5 1", "taken")?;
        local.ask("read 5 1", "ok")?;
        self.guests.ask("shared", (RIGHT, "shared", "ok"))?;
        self.guests.ask("shared", (LEFT, "none", "ok"))?;
        self.guests.ask("shared", (RIGHT, "exclusive", "taken"))?;
        local.ask("unlock 0 0", "ok")?;
        self.guests.ask("shared", (RIGHT, "exclusive", "ok"))?;
        local.ask("read 5 1", "taken")?;
        self.guests.ask("shared", (RIGHT, "none", "ok"))?;
        local.ask("write 5 1", "ok")?;
        self.guests.ask("shared", (LEFT, "shared", "taken"))?;
        local.ask("unlock 0 0", "ok")
    }

    /// Locks that one client takes in version 3 exclude locks that the other takes in version 4, and the reverse.
    fn with_version_4(&self) -> anyhow::Result<()> {
        self.guests.run(RIGHT, &self.side.mount_of_version_4())?;
        self.guests.run(LEFT, "holder three shared")?;
        self.guests.run(RIGHT, "holder four /mnt4/shared")?;
        self.guests.ask("three", (LEFT, "write 0 100", "ok"))?;
        self.guests.ask("four", (RIGHT, "write 50 1", "taken"))?;
        self.guests.ask("four", (RIGHT, "test read 50 1", "write 0 100"))?;
        self.guests.ask("four", (RIGHT, "write 100 100", "ok"))?;
        self.guests.ask("three", (LEFT, "read 150 1", "taken"))?;
        self.guests.ask("three", (LEFT, "test write 150 0", "write 100 100"))?;
        for (holder, who, words, back) in
            [("four", RIGHT, "wait write 0 10", "unlock 0 100"), ("three", LEFT, "wait write 100 10", "unlock 0 0")]
        {
            let (other, has) = if who == RIGHT { ("three", LEFT) } else { ("four", RIGHT) };
            self.guests.run(who, &format!("tell {holder} {words}"))?;
            self.guests.still_waits(holder, who, 2)?;
            self.guests.ask(other, (has, back, "ok"))?;
            let found = self.guests.run(who, &format!("answer {holder} {}", self.waits()))?;
            ensure!(found == "ok", "{words:?} of {} is answered {found:?} when {other} gave it back", NAMES[who]);
        }
        self.guests.run(LEFT, "tell three end; gone three")?;
        self.guests.run(RIGHT, "tell four end; gone four; umount /mnt4").map(drop)
    }

    /// A client waits for a lock, and the server calls it; the capture of the guest's interface shows the call.
    fn waiting(&self) -> anyhow::Result<()> {
        let before = self.calls_seen()?;
        self.guests.wait_and_end(self.context, self.waits())?;
        let seen = self.calls_seen()? - before;
        self.context.note(format!("{seen} calls to clients that wait"));
        if self.side.calls() {
            ensure!(seen >= 3, "three times a client got a lock that it waited for, and it was called {seen} times");
        }
        Ok(())
    }

    /// How often the server called the guests, according to the captures of their interfaces.
    fn calls_seen(&self) -> anyhow::Result<usize> {
        let host = self.side.host(self.network);
        let folders = NAMES.map(|name| self.context.dir().join(name).join("wire.pcap"));
        folders.iter().map(|capture| tshark::nlm_calls(self.context, capture, host, &GRANTED)).sum()
    }

    /// The server dies while both clients hold locks, and one of them is cut off when the server comes back.
    fn server_dies(&self) -> anyhow::Result<()> {
        self.guests.holders("kept", "kept")?;
        // This process has the file open and holds no lock.
        self.guests.run(LEFT, "holder new kept")?;
        self.guests.ask("kept", (LEFT, "write 0 100", "ok"))?;
        self.guests.ask("kept", (RIGHT, "write 100 100", "ok"))?;
        self.guests.ask("kept", (RIGHT, "read 300 0", "ok"))?;
        let cable = self.places[RIGHT];
        self.network.plug(cable, false)?;
        self.side.crash()?;
        let begin = Instant::now();
        thread::sleep(AWAY);
        self.network.plug(cable, true)?;
        // A process on the server's machine can see when the clients have their locks back.
        let local = self.side.local("kept")?;
        self.guests.run(LEFT, "tell new wait write 250 10")?;
        // The machine may show two adjacent ranges as one.
        let is = |words: &str, wanted: &str| Ok::<_, anyhow::Error>(local.answer(words)?.starts_with(wanted));
        let reclaimed = || {
            Ok(is("test write 0 100", "write 0 ")?
                && is("test write 150 50", "write ")?
                && is("test read 300 0", "free")?
                && is("test write 300 0", "read 300 0")?)
        };
        self.context.wait_for("both clients have reclaimed", RECLAIMED_WITHIN, reclaimed)?;
        self.context.note(format!("all locks reclaimed {:.1} s after the start", begin.elapsed().as_secs_f64()));
        self.guests.still_waits("new", LEFT, 2)?;
        ensure!(begin.elapsed() < Duration::from_secs(GRACE), "too late to see that nothing new is given in grace");
        local.ask("write 0 1", "taken")?;
        local.end()?;
        let rest = GRACE.saturating_sub(begin.elapsed().as_secs()) + ASKS_IN_GRACE;
        let found = self.guests.run(LEFT, &format!("answer new {rest}"))?;
        ensure!(found == "ok", "a new lock is answered {found:?} after the time of grace");
        self.context.note(format!("the first new lock {:.1} s after the start", begin.elapsed().as_secs_f64()));
        self.guests.ask("kept", (LEFT, "write 100 1", "taken"))?;
        self.guests.ask("kept", (LEFT, "write 400 1", "taken"))?;
        self.guests.ask("kept", (LEFT, "test write 100 100", "write 100 100"))?;
        self.guests.ask("kept", (RIGHT, "write 99 1", "taken"))?;
        self.guests.ask("kept", (RIGHT, "test read 0 50", "write 0 100"))?;
        self.guests.run(LEFT, "tell new end; gone new")?;
        for who in [LEFT, RIGHT] {
            self.guests.run(who, "tell kept end; gone kept")?;
        }
        Ok(())
    }

    /// A client's power is cut while it holds a lock and the other waits for it. It boots again with statd's saved
    /// state and notifies the server: the locks that it held become free.
    fn client_dies(&mut self) -> anyhow::Result<()> {
        self.guests.holders("lost", "lost")?;
        self.guests.ask("lost", (RIGHT, "write 0 10", "ok"))?;
        self.guests.run(LEFT, "tell lost wait write 0 10")?;
        self.guests.still_waits("lost", LEFT, 2)?;
        let name = "right-again";
        let (context, network, places) = (self.context, self.network, self.places);
        let options = client(self.side.mounted(context, script(name, NAMES[RIGHT])));
        let before = self.side.notices()?;
        let begin = Instant::now();
        let boot = || -> anyhow::Result<Guest> {
            copy(&context.dir().join(NAMES[RIGHT]).join("kept"), &context.folder(name)?.join("kept"))?;
            let mut guest = network.again(places[RIGHT], options)?;
            guest.wait_for_mark("ready")?;
            Ok(guest)
        };
        self.guests.replace(RIGHT, boot)?;
        let booted = context.dir().join(name).join("sm-at-boot");
        ensure!(fs::read_dir(&booted)?.count() > 0, "the client had nobody to notify; see {}", booted.display());
        let found = self.guests.run(LEFT, &format!("answer lost {}", self.waits()))?;
        ensure!(found == "ok", "the lock of a client that booted again is answered {found:?}");
        self.context
            .note(format!("a lock was got {:.1} s after its holder lost its power", begin.elapsed().as_secs_f64()));
        if let Some(before) = before {
            // The server updates its counts only now and then.
            let heard = || Ok(self.side.notices()? == Some(before + 1.0));
            self.context.wait_for("the server counts one notice more that it believed", RELEASED_WITHIN, heard)?;
        }
        self.guests.run(RIGHT, "holder lost lost")?;
        self.guests.ask("lost", (RIGHT, "write 9 1", "taken"))?;
        self.guests.ask("lost", (LEFT, "unlock 0 0", "ok"))?;
        self.guests.gets("lost", RIGHT, "write 0 0", RELEASED_WITHIN)?;
        for who in [LEFT, RIGHT] {
            self.guests.run(who, "tell lost end; gone lost")?;
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        self.guests.finish()?;
        self.side.finish()
    }
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().context("cp")?;
    ensure!(status.success(), "{} could not be copied", from.display());
    Ok(())
}
