//! Agreeing with a server on a version of NFS: the client tries 4.2 first, then 4.1, 4.0 and at last 3, whose NULL or
//! MOUNT procedure the caller calls next. It uses version 2 only if a URL asks for it.
//!
//! The client tries a lower version only if the server itself says that it does not serve the higher one, and tries it
//! on the same connection: it waits for an absent server only once.

use super::NfsVersion;
use rpcrdma_env::Env;
use rpcrdma_nfs_client::v4::{Callbacks, Error, Nfs4, Options};
use rpcrdma_oncrpc::{CallError, Client, Rejection};
use std::{fmt, ops::RangeInclusive};

/// The version of NFS that a session speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionVersion {
    /// Version 2.
    V2,
    /// Version 3.
    V3,
    /// Version 4, with this minor version.
    V4(u32),
}

impl fmt::Display for SessionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionVersion::V2 => f.write_str("2"),
            SessionVersion::V3 => f.write_str("3"),
            SessionVersion::V4(minor) => write!(f, "4.{minor}"),
        }
    }
}

impl NfsVersion {
    /// The minor versions of version 4 that the client may use, grouped in the order in which it tries them. Version
    /// 4.0 has no sessions and is a group of its own: its servers would call a port of the client, and this client has
    /// none.
    fn minors(self) -> &'static [RangeInclusive<u32>] {
        match self {
            NfsVersion::V2 | NfsVersion::V3 => &[],
            NfsVersion::V4_0 => &[0..=0],
            NfsVersion::V4_1 => &[1..=1],
            NfsVersion::V4_2 => &[2..=2],
            NfsVersion::Auto => &[1..=2, 0..=0],
        }
    }

    /// Whether a session of this version may be made for a URL that asks for `self`.
    pub(super) fn allows(self, spoken: SessionVersion) -> bool {
        match spoken {
            SessionVersion::V2 => self == NfsVersion::V2,
            SessionVersion::V3 => matches!(self, NfsVersion::Auto | NfsVersion::V3),
            SessionVersion::V4(spoken) => self.minors().iter().any(|minors| minors.contains(&spoken)),
        }
    }

    /// Whether a session may begin with a mount: in the versions before 4.
    pub(super) fn has_mount(self) -> bool {
        self.allows(SessionVersion::V3) || self.allows(SessionVersion::V2)
    }

    /// Whether servers may call back over a session that the URL asks for.
    pub(super) fn has_callbacks(self) -> bool {
        self.minors().iter().any(|minors| *minors.end() > 0)
    }
}

/// A client of version 4, in the highest minor version that the URL and the server have in common.
///
/// # Errors
/// [`Error::is_no_version_4`] says whether version 3 may be tried instead.
pub(super) async fn version_4(
    client: &Client,
    env: &Env,
    version: NfsVersion,
    callbacks: Option<&Callbacks>,
) -> Result<Nfs4, Error> {
    let host = String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned();
    let mut lowest = 0;
    for minors in version.minors() {
        lowest = *minors.start();
        let mut options = Options::new(host.clone()).with_minors(minors.clone());
        options.callbacks = callbacks.filter(|_| lowest > 0).cloned();
        match Nfs4::connect(client.clone(), env, options).await {
            Err(Error::NoMinor { .. }) => {}
            connected => return connected,
        }
    }
    Err(Error::NoMinor { lowest })
}

/// Whether a server says that it does not serve the version of the program that was called.
pub fn is_no_such_version(error: &CallError) -> bool {
    matches!(error, CallError::Rejected(Rejection::ProgramMismatch { .. } | Rejection::ProgramUnavailable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_allows_the_versions_that_it_names() {
        use NfsVersion::{Auto, V2, V3, V4_0, V4_1, V4_2};
        let all = [SessionVersion::V3, SessionVersion::V4(0), SessionVersion::V4(1), SessionVersion::V4(2)];
        assert!(all.into_iter().all(|spoken| Auto.allows(spoken)));
        for (version, only) in [V3, V4_0, V4_1, V4_2].into_iter().zip(all) {
            let allowed: Vec<_> = all.into_iter().filter(|spoken| version.allows(*spoken)).collect();
            assert_eq!(allowed, [only], "{version}");
        }
        assert!([Auto, V4_1, V4_2].into_iter().all(NfsVersion::has_callbacks));
        assert!(
            !Auto.allows(SessionVersion::V2)
                && V2.allows(SessionVersion::V2)
                && !V2.allows(SessionVersion::V3)
                && !V3.allows(SessionVersion::V2)
        );
        assert!(![V2, V3, V4_0].into_iter().any(NfsVersion::has_callbacks));
    }

    #[test]
    fn the_highest_minor_version_is_tried_first() {
        let tried: Vec<u32> = NfsVersion::Auto.minors().iter().flat_map(|minors| minors.clone().rev()).collect();
        assert_eq!(tried, [2, 1, 0]);
    }
}
