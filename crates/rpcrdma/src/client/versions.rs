//! What is remembered of servers from one command to the next: which of them have no version 2 of RPC-over-RDMA.
//!
//! Asking costs a round trip, or seconds if a server does not even answer. A file in the user's cache directory has a
//! line for each such server: the time of the discovery, in seconds since 1970, and the server's address and port; then
//! a question mark if it is uncertain. What cannot be read or written counts as unknown.
//!
//! If a server refuses version 2, that counts for a day. If it is silent or ends the connection, there may be another
//! reason: it was restarting, or the network failed. Such an observation counts only if the next connection, in version
//! 1, succeeded at the first attempt and had a call answered; it then makes a suspicion, which spares the commands of
//! the next minute the attempt. If the first attempt after that minute ends in the same way, that is two in a row, and
//! counts for a day. A server that speaks version 2 is forgotten at once.

use rpcrdma_transport::{Event, NoVersion2, Observer};
use std::{
    fs,
    io::Read,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long we assume that a server has not changed.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a suspicion spares the attempt: longer than a server takes to be restarted, and no more than a nuisance
/// where it is wrong.
const SUSPECTED: Duration = Duration::from_secs(60);
/// Servers that are remembered; the oldest are forgotten first.
const MAX_SERVERS: usize = 256;
/// The most bytes of the file that are read. It limits the number of servers.
const MAX_FILE_BYTES: u64 = 32 << 10;
const FILE: &str = "rpcrdma/without-version-2";
/// The last field of a line that is a suspicion.
const UNSURE: &str = "?";

/// The version of RPC-over-RDMA that a server may or may not have.
const VERSION_2: u32 = 2;

/// The file of this user, where there is a cache directory.
pub(super) fn file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    cache.or_else(|| variable("HOME").map(|home| home.join(".cache"))).map(|cache| cache.join(FILE))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Seconds since 1970.
    since: u64,
    server: SocketAddr,
    sure: bool,
}

impl Entry {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (since, server) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let sure = match (words.next(), words.next()) {
            (None, _) => true,
            (Some(UNSURE), None) => false,
            _ => return None,
        };
        Some(Self { since, server, sure })
    }

    fn line(&self) -> String {
        let mark = if self.sure { "" } else { " ?" };
        format!("{} {}{mark}\n", self.since, self.server)
    }

    /// Whether the server need not be asked.
    fn spares_asking(&self, now: u64) -> bool {
        self.sure || now.saturating_sub(self.since) < SUSPECTED.as_secs()
    }
}

/// The servers that are remembered, the oldest first.
fn read(file: &Path, now: u64) -> Vec<Entry> {
    let mut text = String::new();
    let opened = fs::File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
    if opened.is_err() {
        return Vec::new();
    }
    // A time in the future comes from a clock that was wrong.
    let is_fresh = |entry: &Entry| entry.since <= now && now - entry.since < KEPT.as_secs();
    text.lines().filter_map(Entry::read).filter(is_fresh).collect()
}

/// Moved into place whole: other commands read it at any time.
fn write(file: &Path, servers: &[Entry]) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let text: String = servers.iter().map(Entry::line).collect();
    let draft = file.with_extension(std::process::id().to_string());
    fs::write(&draft, text)?;
    fs::rename(&draft, file)
}

/// Whether the file remembers that the server has no version 2, so that the client need not ask now.
pub(super) fn lacks_version_2(file: &Path, server: SocketAddr) -> bool {
    let now = now();
    read(file, now).iter().any(|known| known.server == server && known.spares_asking(now))
}

/// Remembers that the server has no version 2, if that is sure, or else seen for the second time.
fn remember(file: &Path, server: SocketAddr, sure: bool, now: u64) -> std::io::Result<()> {
    let mut servers = read(file, now);
    let before = servers.iter().find(|known| known.server == server).copied();
    let entry = match before {
        // Another command, which began before the silence was known, proves nothing more.
        Some(known) if !sure && known.spares_asking(now) => known,
        Some(_) => Entry { since: now, server, sure: true },
        None => Entry { since: now, server, sure },
    };
    servers.retain(|known| known.server != server);
    servers.push(entry);
    write(file, &servers[servers.len().saturating_sub(MAX_SERVERS)..])
}

/// Forgets what the file remembers of a server. If it remembers nothing of it, nothing is written.
fn forget(file: &Path, server: SocketAddr, now: u64) -> std::io::Result<()> {
    let mut servers = read(file, now);
    let known = servers.len();
    servers.retain(|known| known.server != server);
    if servers.len() < known { write(file, &servers) } else { Ok(()) }
}

/// Remembers what is found out about one server, and passes everything on.
pub(super) struct Remembering {
    file: PathBuf,
    server: SocketAddr,
    next: Arc<dyn Observer>,
    /// The server did not answer the attempt, and the connection in version 1 that follows has had no call answered
    /// yet.
    unanswered: AtomicBool,
}

impl Remembering {
    pub(super) fn new(file: PathBuf, server: SocketAddr, next: Arc<dyn Observer>) -> Self {
        Self { file, server, next, unanswered: AtomicBool::new(false) }
    }

    fn look(&self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::NoVersion2(NoVersion2::Refused) => remember(&self.file, self.server, true, now()),
            Event::NoVersion2(_) => {
                self.unanswered.store(true, Ordering::Relaxed);
                Ok(())
            }
            // The network or the server is in trouble: what it did before shows nothing.
            Event::Reconnecting { .. } | Event::Closed { .. } => {
                self.unanswered.store(false, Ordering::Relaxed);
                Ok(())
            }
            Event::Answered { .. } if self.unanswered.swap(false, Ordering::Relaxed) => {
                remember(&self.file, self.server, false, now())
            }
            Event::Negotiated(made) if made.version == VERSION_2 => forget(&self.file, self.server, now()),
            _ => Ok(()),
        }
    }
}

impl Observer for Remembering {
    fn event(&self, peer: SocketAddr, event: &Event) {
        if let Err(error) = self.look(event) {
            tracing::debug!(file = %self.file.display(), %error, "cannot remember whether the server has version 2");
        }
        self.next.event(peer, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    const DAY: u64 = KEPT.as_secs();
    const MINUTE: u64 = SUSPECTED.as_secs();

    #[test]
    fn a_server_is_remembered_for_a_day_by_address_and_port() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("a/b");
        assert!(!lacks_version_2(&file, server(1)), "nothing is known at first");
        remember(&file, server(1), true, now()).unwrap();
        assert!(lacks_version_2(&file, server(1)) && !lacks_version_2(&file, server(2)));
        assert_eq!(read(&file, now() + DAY - 10).len(), 1);
        assert_eq!(read(&file, now() + DAY + 10).len(), 0, "a day later");
        assert_eq!(read(&file, now() - 1000).len(), 0, "a clock that was wrong");
        assert_eq!(fs::read_dir(scratch.path().join("a")).unwrap().count(), 1, "no draft is left");
        forget(&file, server(2), now()).unwrap();
        assert!(lacks_version_2(&file, server(1)));
        forget(&file, server(1), now()).unwrap();
        assert!(!lacks_version_2(&file, server(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_bad_lines_are_skipped() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        let (now, bad) = (now(), "192.0.2.1:1 more");
        let text =
            format!("nonsense\n{now} {bad}\n{now} {bad} ?\n{now} 192.0.2.1:1 ? ?\n-1 192.0.2.1:2\n{now} [::1]:3\n");
        fs::write(&file, text).unwrap();
        assert_eq!(read(&file, now).len(), 1);
        for port in 1..=MAX_SERVERS as u16 + 1 {
            remember(&file, server(port), port % 2 == 0, now).unwrap();
        }
        assert_eq!(read(&file, now).len(), MAX_SERVERS);
        assert!(!lacks_version_2(&file, server(1)) && lacks_version_2(&file, server(2)));
        fs::write(&file, [0xff; 100]).unwrap();
        assert!(!lacks_version_2(&file, server(2)));
        assert!(remember(Path::new("/proc/nowhere/file"), server(1), true, now).is_err());
    }

    /// What the file says of the one server in it: whether it is sure, and whether it spares the question now.
    fn known(file: &Path, now: u64) -> Option<(bool, bool)> {
        read(file, now).first().map(|entry| (entry.sure, entry.spares_asking(now)))
    }

    #[test]
    fn silence_counts_for_a_day_when_it_was_met_twice() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        let begin = now();
        remember(&file, server(1), false, begin).unwrap();
        assert_eq!(known(&file, begin + MINUTE - 1), Some((false, true)));
        assert_eq!(known(&file, begin + MINUTE), Some((false, false)));
        // Commands that ran at the same time prove nothing more, and do not make it last longer.
        remember(&file, server(1), false, begin + MINUTE - 1).unwrap();
        assert_eq!(known(&file, begin + MINUTE), Some((false, false)));
        remember(&file, server(1), false, begin + MINUTE).unwrap();
        assert_eq!(known(&file, begin + MINUTE + DAY - 1), Some((true, true)));
        assert_eq!(known(&file, begin + MINUTE + DAY), None);
        // Another silence does not make it less sure; a refusal is sure at once.
        remember(&file, server(1), false, begin + 2 * MINUTE).unwrap();
        assert_eq!(known(&file, begin + 3 * MINUTE), Some((true, true)));
        forget(&file, server(1), begin).unwrap();
        remember(&file, server(1), false, begin).unwrap();
        remember(&file, server(1), true, begin + 1).unwrap();
        assert_eq!(known(&file, begin + 2 * MINUTE), Some((true, true)));
    }

    /// What is in the file after these events.
    fn after(file: &Path, events: &[Event]) -> Option<bool> {
        let _ = fs::remove_file(file);
        let observer = Remembering::new(file.to_owned(), server(1), Arc::new(rpcrdma_transport::Quiet));
        events.iter().for_each(|event| observer.event(server(1), event));
        known(file, now()).map(|(sure, _)| sure)
    }

    #[test]
    fn silence_counts_only_when_version_1_works_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        let answered = || Event::Answered { xid: 1, inline_bytes: 4, placed_bytes: 0, retransmitted: true };
        let lost = || Event::Closed { error: None };
        let waits = || Event::Reconnecting { pause: Duration::from_millis(100) };
        assert_eq!(after(&file, &[Event::NoVersion2(NoVersion2::Refused)]), Some(true), "the server said so");
        for why in [NoVersion2::Dropped, NoVersion2::NoAnswer] {
            let silent = || Event::NoVersion2(why);
            assert_eq!(after(&file, &[lost(), silent(), answered()]), Some(false));
            assert_eq!(after(&file, &[lost(), silent()]), None, "version 1 was not answered either");
            assert_eq!(
                after(&file, &[lost(), silent(), waits(), answered()]),
                None,
                "there was no connection at first"
            );
            assert_eq!(after(&file, &[lost(), silent(), lost(), answered()]), None, "the next ended, too");
        }
        assert_eq!(after(&file, &[answered(), lost(), waits(), answered()]), None, "nobody was asked");
    }
}
