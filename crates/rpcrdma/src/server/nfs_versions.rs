//! Which versions of NFS are served.

use super::{Options, Result, dialler::TcpDialler};
use rpcrdma_env::Env;
use rpcrdma_nfsd::{Nfsd, Observer, Queue, StateDirectory, Version4};
use std::{fmt, ops::RangeInclusive, str::FromStr, sync::Arc, time::Duration};

/// The versions that are served by default.
pub const DEFAULT_NFS_VERSIONS: &str = "3,4.0,4.1,4.2";

/// What a list of versions may name, in order.
const KNOWN: [&str; 5] = ["2", "3", "4.0", "4.1", "4.2"];

/// The part of `--memory` for the replies that sessions of version 4 remember: a sixteenth.
const REPLIES_PART: usize = 16;

/// The versions of NFS that are served: what `rpcrdma serve --nfs` reads, such as `3,4.1,4.2`. By default 3, 4.0, 4.1
/// and 4.2.
///
/// ```
/// let versions: rpcrdma::server::NfsVersions = "4.1,4.2".parse()?;
/// assert!(versions.has_4() && !versions.has_3());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsVersions {
    /// In the order of [`KNOWN`].
    served: [bool; 5],
}

impl Default for NfsVersions {
    fn default() -> Self {
        Self { served: KNOWN.map(|name| name != "2") }
    }
}

impl NfsVersions {
    /// No version: for a server that serves no files.
    pub(super) const NONE: Self = Self { served: [false; 5] };

    /// Whether version 2 is served.
    pub fn has_2(self) -> bool {
        self.served[0]
    }

    /// Whether version 3 is served.
    pub fn has_3(self) -> bool {
        self.served[1]
    }

    /// Whether a version is served that goes with MOUNT, and with locks by programs of their own.
    pub fn has_mount(self) -> bool {
        self.has_2() || self.has_3()
    }

    /// Whether a minor version of version 4 is served.
    pub fn has_4(self) -> bool {
        self.minors().is_some()
    }

    /// The minor versions of version 4, from the first to the last: a list that was read has no gap.
    fn minors(self) -> Option<RangeInclusive<u32>> {
        let served = || (0..).zip(&self.served[2..]).filter(|(_, is_served)| **is_served).map(|(minor, _)| minor);
        Some(served().min()?..=served().max()?)
    }

    /// Their names, in order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        KNOWN.into_iter().zip(self.served).filter(|(_, is_served)| *is_served).map(|(name, _)| name)
    }

    /// How many of `memory` bytes are for calls under way, and how many for the remembered replies of version 4.
    pub(super) fn share(self, memory: usize) -> (usize, usize) {
        let replies = if self.has_4() { memory / REPLIES_PART } else { 0 };
        (memory - replies, replies)
    }
}

impl FromStr for NfsVersions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut served = [false; 5];
        for name in text.split(',').map(str::trim) {
            let known = KNOWN.iter().position(|known| *known == name);
            let place = known
                .ok_or_else(|| format!("{name:?} is not a version that this server has: 2, 3, 4.0, 4.1 and 4.2 are"))?;
            served[place] = true;
        }
        if let [_, _, true, false, true] = served {
            return Err("4.0 and 4.2 together need 4.1 between them: add 4.1, or name only one of them".into());
        }
        Ok(Self { served })
    }
}

impl fmt::Display for NfsVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

/// How version 4 is served.
pub(super) struct Version4Options {
    /// How long a client that does not call keeps what it holds.
    pub(super) lease: Option<Duration>,
    /// How long clients may reclaim after a restart; by default as long as the lease.
    pub(super) grace: Option<Duration>,
    /// Whether locks of clients also exclude programs of the host.
    pub(super) host_locks: bool,
    /// Whether files are delegated to clients.
    pub(super) delegations: bool,
    /// The most bytes that remembered replies may take.
    pub(super) reply_bytes: usize,
    /// Is called with each operation.
    pub(super) observer: Option<Arc<dyn Observer>>,
}

impl Version4Options {
    pub(super) fn of(options: &Options, reply_bytes: usize, observer: Option<Arc<dyn Observer>>) -> Self {
        let Options { lease, grace, host_locks, delegations, .. } = *options;
        Self { lease, grace, host_locks, delegations, reply_bytes, observer }
    }
}

/// Makes the server speak these versions. `id` says which of the servers that share the state directory it is.
///
/// # Errors
/// If the table of version 2 or the journal of version 4 cannot be used.
pub(super) fn serve(
    nfsd: Nfsd,
    versions: NfsVersions,
    options: Version4Options,
    (state, id, queue): (&StateDirectory, u64, Arc<Queue>),
    env: &Env,
) -> Result<Nfsd> {
    // Adding another version needs to know whether version 3 is served.
    let nfsd = match versions.has_2() {
        true => nfsd.with_version_2((state, id, queue.clone()), versions.has_3(), env)?,
        false => nfsd,
    };
    let Some(minors) = versions.minors() else { return Ok(nfsd) };
    let mut version_4 = Version4::new(state, queue)
        .with_server_id(id)
        .with_minors(minors)
        .with_dialler(Arc::new(TcpDialler))
        .with_host_locks(options.host_locks)
        .with_delegations(options.delegations)
        .with_cache_bytes(options.reply_bytes);
    if let Some(lease) = options.lease {
        version_4 = version_4.with_lease(lease);
    }
    if let Some(grace) = options.grace.or(options.lease) {
        version_4 = version_4.with_grace(grace);
    }
    if let Some(observer) = options.observer {
        version_4 = version_4.with_observer(observer);
    }
    Ok(nfsd.with_version_4(version_4, versions.has_3(), env)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(text: &str) -> NfsVersions {
        text.parse().unwrap()
    }

    #[test]
    fn lists_of_versions_are_read_in_any_order() {
        assert_eq!(versions("4.2, 3,4.1,3").to_string(), "3,4.1,4.2");
        assert_eq!(versions("3,4.1,4.2").minors(), Some(1..=2));
        assert_eq!(versions("4.1").minors(), Some(1..=1));
        assert_eq!(versions("4.2").minors(), Some(2..=2));
        assert_eq!(versions("3").minors(), None);
        assert_eq!(NfsVersions::default(), versions(DEFAULT_NFS_VERSIONS));
        assert!(versions("3").has_3() && versions("4.2,3").has_3() && !versions("4.2").has_3());
        assert_eq!(versions("3,4.0").minors(), Some(0..=0));
        assert_eq!(versions("2,4.1").minors(), Some(1..=1));
        assert!(versions("2").has_2() && versions("2").has_mount() && !versions("2").has_3());
        assert!(!versions(DEFAULT_NFS_VERSIONS).has_2() && !versions("4.2").has_mount(), "only where it is asked for");
        assert_eq!(versions("4.0,4.1").minors(), Some(0..=1));
        assert_eq!(versions("3,4.0,4.1,4.2").minors(), Some(0..=2));
        for wrong in ["", "4", "4.0,4.2", "4.2,3,4.0", "3,", "1", "4.3", "3;4.1"] {
            assert!(wrong.parse::<NfsVersions>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn remembered_replies_take_a_sixteenth_where_version_4_is_served() {
        assert_eq!(versions("3").share(1 << 30), (1 << 30, 0));
        assert_eq!(versions("4.2").share(1 << 30), ((1 << 30) - (1 << 26), 1 << 26));
        assert_eq!(versions("3,4.1").share(15), (15, 0));
    }
}
