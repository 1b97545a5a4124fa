//! What is remembered of servers from one command to the next: which of them have no version 2 of RPC-over-RDMA.
//!
//! Asking costs a round trip, or seconds where a server does not even answer. A file in the user's cache directory has a
//! line for each such server: the time at which it was found out, in seconds since 1970, and the server's address and port. Whatever
//! cannot be read or written is as if it had never been found out.

use rpcrdma::{Event, Observer};
use std::{
    fs,
    io::Read,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long a server is believed not to have changed.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Servers that are remembered; the oldest are forgotten first.
const MAX_SERVERS: usize = 256;
/// The most octets of the file that are looked at: so many servers, with IPv6 addresses.
const MAX_FILE_OCTETS: u64 = 32 << 10;
const FILE: &str = "rpcrdma/without-version-2";

/// The file of this user, where there is a cache directory.
pub(crate) fn file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    cache.or_else(|| variable("HOME").map(|home| home.join(".cache"))).map(|cache| cache.join(FILE))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The servers that are remembered, with their times, the oldest first.
fn read(file: &Path, now: u64) -> Vec<(u64, SocketAddr)> {
    let mut text = String::new();
    let opened = fs::File::open(file).and_then(|file| file.take(MAX_FILE_OCTETS).read_to_string(&mut text));
    if opened.is_err() {
        return Vec::new();
    }
    let entry = |line: &str| {
        let (time, server) = line.split_once(' ')?;
        Some((time.parse().ok()?, server.parse().ok()?))
    };
    // A time in the future was written by another clock.
    let is_fresh = |(time, _): &(u64, SocketAddr)| *time <= now && now - time < KEPT.as_secs();
    text.lines().filter_map(entry).filter(is_fresh).collect()
}

/// Whether the server was found to have no version 2, not long ago.
pub(crate) fn lacks_version_2(file: &Path, server: SocketAddr) -> bool {
    read(file, now()).iter().any(|(_, known)| *known == server)
}

/// Remembers that the server has no version 2.
fn remember(file: &Path, server: SocketAddr, now: u64) -> std::io::Result<()> {
    let mut servers = read(file, now);
    servers.retain(|(_, known)| *known != server);
    servers.push((now, server));
    let from = servers.len().saturating_sub(MAX_SERVERS);
    let text: String = servers[from..].iter().map(|(time, server)| format!("{time} {server}\n")).collect();
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    // Moved into place whole: other commands read it at any time.
    let draft = file.with_extension(std::process::id().to_string());
    fs::write(&draft, text)?;
    fs::rename(&draft, file)
}

/// Remembers what is found out about one server, and passes everything on.
pub(crate) struct Remembering {
    pub(crate) file: PathBuf,
    pub(crate) server: SocketAddr,
    pub(crate) next: Arc<dyn Observer>,
}

impl Observer for Remembering {
    fn event(&self, peer: SocketAddr, event: &Event) {
        if let Event::NoVersion2(_) = event
            && let Err(error) = remember(&self.file, self.server, now())
        {
            tracing::debug!(file = %self.file.display(), %error, "not remembered");
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

    #[test]
    fn a_server_is_remembered_for_a_day_by_address_and_port() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("a/b");
        assert!(!lacks_version_2(&file, server(1)), "nothing is known at first");
        remember(&file, server(1), now()).unwrap();
        assert!(lacks_version_2(&file, server(1)) && !lacks_version_2(&file, server(2)));
        let day = KEPT.as_secs();
        assert_eq!(read(&file, now() + day - 10).len(), 1);
        assert_eq!(read(&file, now() + day + 10).len(), 0, "a day later");
        assert_eq!(read(&file, now() - 1000).len(), 0, "a clock that was wrong");
        assert_eq!(fs::read_dir(scratch.path().join("a")).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_bad_lines_are_skipped() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, format!("nonsense\n{} 192.0.2.1:1 more\n-1 192.0.2.1:2\n{} [::1]:3\n", now(), now())).unwrap();
        assert_eq!(read(&file, now()).len(), 1);
        for port in 1..=MAX_SERVERS as u16 + 1 {
            remember(&file, server(port), now()).unwrap();
        }
        assert_eq!(read(&file, now()).len(), MAX_SERVERS);
        assert!(!lacks_version_2(&file, server(1)) && lacks_version_2(&file, server(2)));
        fs::write(&file, [0xff; 100]).unwrap();
        assert!(!lacks_version_2(&file, server(2)));
        assert!(remember(Path::new("/proc/nowhere/file"), server(1), now()).is_err());
    }
}
