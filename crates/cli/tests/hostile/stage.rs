//! A server under attack, with a decent client beside it, and checks of the server afterwards.

use crate::{
    common::{Server, contents, rpcrdma},
    peer::{Peer, dial},
    rpc::{self, Reply, Status, Xdr, status},
};
use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    process::Stdio,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How much the server's memory may have grown afterwards, in KiB: allocators and pools keep some, and more in the
/// debug build.
const MEMORY_SLACK_KIB: u64 = 48 << 10;
/// How many more descriptors may be open than before, without served files: the server keeps a bounded number of those
/// open for the next call.
const DESCRIPTOR_SLACK: usize = 0;
/// How many threads may have started: threads for the file system start when they are first needed.
const THREAD_SLACK: u64 = 64;
/// If nothing changes for so long, nothing is under way.
const SETTLED: Duration = Duration::from_millis(200);
/// How soon everything must be as before.
const RECOVERY: Duration = Duration::from_secs(10);
/// The most bytes in the log besides ends of connections: peers must not cause any, but a little room is left for lines
/// with other causes.
const MAX_LOG_BYTES: usize = 2048;
/// How many ends of connections the server logs in a minute.
const ENDS_A_MINUTE: u64 = 60;
/// The size of the file that the decent client reads, in bytes.
pub(crate) const FILE_BYTES: usize = 100_000;

pub(crate) struct Stage {
    begin: Instant,
    pub(crate) scratch: TempDir,
    pub(crate) server: Server,
    good: Peer,
    good_xid: u32,
    before: Resources,
}

#[derive(Clone, Copy, Debug)]
struct Resources {
    descriptors: usize,
    threads: u64,
    memory_kib: u64,
}

impl Resources {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
        let number = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Self {
            descriptors: descriptors(pid).iter().filter(|target| !target.contains("/export")).count(),
            threads: number("Threads:"),
            memory_kib: number("VmRSS:"),
        }
    }
}

/// The open descriptors of a process.
fn descriptors(pid: u32) -> Vec<String> {
    let open =
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    open.map(|target| target.display().to_string()).collect()
}

impl Stage {
    /// A server with some files, and a decent client that has used it.
    pub(crate) fn new(more: &[&str]) -> Self {
        Self::after(more, |_| {})
    }

    /// The same after more work: what the server holds after that is what it may hold at the end.
    pub(crate) fn after(more: &[&str], begin: impl FnOnce(&mut Self)) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let export = scratch.path().join("export");
        fs::create_dir(&export).unwrap();
        fs::set_permissions(&export, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(export.join("file"), contents(FILE_BYTES)).unwrap();
        fs::set_permissions(export.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
        fs::write(export.join("written"), [0; 64]).unwrap();
        fs::set_permissions(export.join("written"), fs::Permissions::from_mode(0o666)).unwrap();
        symlink("/etc/passwd", export.join("out")).unwrap();
        let log = File::create(scratch.path().join("log")).unwrap();
        let state = scratch.path().join("state");
        let server = Server::start_logged(&export, &state, Stdio::from(log), more);
        let mut good = Peer::connect(&server.rdma);
        good.send(&rpc::inline(&rpc::null(1)));
        assert_eq!(Reply::read(&good.message().unwrap()).xid(), 1);
        let mut stage =
            Self { begin: Instant::now(), scratch, good, good_xid: 1, before: Resources::of(server.pid()), server };
        stage.a_good_client_is_served();
        begin(&mut stage);
        stage.before = Resources::of(stage.server.pid());
        stage
    }

    /// The connection from before the attack works, and so does a new one: in version 3, which uses no client record in
    /// the server.
    pub(crate) fn a_good_client_is_served(&mut self) {
        self.the_open_connection_works();
        let output = rpcrdma().arg("cat").arg(self.server.url_3("file")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == contents(FILE_BYTES), "other bytes");
    }

    /// The connection from before the attack works.
    pub(crate) fn the_open_connection_works(&mut self) {
        self.good_xid += 1;
        self.good.send(&rpc::inline(&rpc::null(self.good_xid)));
        let reply = Reply::read(&self.good.message().expect("the good connection stands"));
        assert!(matches!(&reply, Reply::Rpc(octets) if status(octets) == Status::Success(Vec::new())), "{reply:?}");
        assert_eq!(reply.xid(), self.good_xid);
    }

    /// The server's open descriptors, without served files.
    pub(crate) fn descriptors(&self) -> usize {
        Resources::of(self.server.pid()).descriptors
    }

    /// The same once nothing has changed for a moment: the server closes its end of a connection after the client.
    pub(crate) fn settled_descriptors(&self) -> usize {
        let mut seen = (self.descriptors(), Instant::now());
        while seen.1.elapsed() < SETTLED {
            std::thread::sleep(SETTLED / 20);
            let now = self.descriptors();
            if now != seen.0 {
                seen = (now, Instant::now());
            }
        }
        seen.0
    }

    /// The server's resident memory, in KiB, beyond what it had at the beginning.
    pub(crate) fn grown_kib(&self) -> u64 {
        Resources::of(self.server.pid()).memory_kib.saturating_sub(self.before.memory_kib)
    }

    /// After all attackers have gone: the server must serve the good client, hold nothing, and have logged nothing.
    pub(crate) fn finish(self) {
        self.finish_keeping(0);
    }

    /// The same, if the server keeps `kept_kib` KiB more for later use.
    pub(crate) fn finish_keeping(mut self, kept_kib: u64) {
        self.a_good_client_is_served();
        let begin = Instant::now();
        let pid = self.server.pid();
        loop {
            let (now, before) = (Resources::of(pid), self.before);
            let back = now.descriptors <= before.descriptors + DESCRIPTOR_SLACK
                && now.threads <= before.threads + THREAD_SLACK
                && now.memory_kib <= before.memory_kib + MEMORY_SLACK_KIB + kept_kib;
            if back {
                break;
            }
            assert!(begin.elapsed() < RECOVERY, "before {before:?}, now {now:?}, open {:?}", descriptors(pid));
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = self.scratch.path().join("log");
        let log = fs::read_to_string(log).unwrap();
        let (ends, others): (Vec<_>, Vec<_>) = log.lines().partition(|line| line.contains("connection ended"));
        assert!(others.concat().len() <= MAX_LOG_BYTES, "{others:#?}");
        let minutes = self.begin.elapsed().as_secs() / 60 + 1;
        assert!(ends.len() as u64 <= ENDS_A_MINUTE * minutes, "{} ends in {minutes} minutes", ends.len());
    }

    /// The handle of the exported directory, by MOUNT over TCP.
    pub(crate) fn root(&self) -> Vec<u8> {
        of_3(&self.mounted(3))
    }

    /// The same in version 2.
    pub(crate) fn root_2(&self) -> Vec<u8> {
        of_2(&self.mounted(1))
    }

    fn mounted(&self, version: u32) -> Vec<u8> {
        let mut stream = dial(&self.server.mount);
        rpc::send_record(&mut stream, &rpc::call(7, rpc::MOUNT, version, 1).opaque(b"/").0);
        let Status::Success(results) = status(&rpc::read_record(&mut stream).unwrap()) else { panic!() };
        results
    }

    /// The handle of a name in the exported directory.
    pub(crate) fn handle(&self, name: &[u8]) -> Vec<u8> {
        of_3(&self.looked_up((3, 3), Xdr::default().opaque(&self.root()).opaque(name)))
    }

    /// The same in version 2.
    pub(crate) fn handle_2(&self, name: &[u8]) -> Vec<u8> {
        of_2(&self.looked_up((2, 4), Xdr::default().raw(&self.root_2()).opaque(name)))
    }

    fn looked_up(&self, (version, procedure): (u32, u32), args: Xdr) -> Vec<u8> {
        let mut peer = Peer::connect(&self.server.rdma);
        let mut message = rpc::call(8, rpc::NFS, version, procedure);
        message.0.extend(args.0);
        peer.send(&rpc::inline(&message.0));
        let Reply::Rpc(reply) = Reply::read(&peer.message().unwrap()) else { panic!() };
        let Status::Success(results) = status(&reply) else { panic!() };
        results
    }
}

/// The handle behind a status of success: of any length, and of 32 bytes.
fn of_3(results: &[u8]) -> Vec<u8> {
    assert_eq!(rpc::word(results, 0), 0);
    results[8..8 + rpc::word(results, 4) as usize].to_vec()
}

fn of_2(results: &[u8]) -> Vec<u8> {
    assert_eq!(rpc::word(results, 0), 0);
    results[4..36].to_vec()
}
