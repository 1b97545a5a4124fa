//! Warnings about answers whose cause an operator can remove: a full disk, a used-up quota, a failing disk, missing
//! files, failures of the server itself.
//!
//! Clients can cause such answers as often as they like. So the log has each status once in a while, with the number of
//! warnings left out, and the code looks up the details only then. A detail that it cannot find is left out; nothing
//! fails.

use crate::{FileId, server::Server};
use bytes::Bytes;
use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_nfs::{
    names::escaped,
    v3::{Handle, Status},
};
use std::{
    fmt::Write,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// For how long after a warning of a status no other follows.
pub(crate) const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);

/// The statuses that the log has, and what an operator should know of each.
const TOLD: [(Status, &str); 5] = [
    (Status::NOSPC, "no space or no inode is left on the served file system: free some there, or make it larger"),
    (Status::DQUOT, "a quota of the served file system is used up: raise it, or remove files of its owner"),
    (
        Status::IO,
        "the served file system could not read or write: look for errors of its disk in the kernel's log (dmesg); if \
         this log says that the index of files cannot be written, look at the disk of --state",
    ),
    (
        Status::STALE,
        "a client uses a file that is gone: harmless if somebody has removed it; if this log says so of every file, \
         the server serves another directory or uses another --state than before: mount again on the clients",
    ),
    (
        Status::SERVERFAULT,
        "the server itself has failed: if this log says that the journal of NFSv4 clients cannot be written, look at \
         the disk of --state; otherwise it is a bug: report it with the log of RUST_LOG=debug",
    ),
];

/// Whether answers with this status are logged.
pub(crate) fn is_told(status: Status) -> bool {
    TOLD.iter().any(|(told, _)| *told == status)
}

/// What a call, or an operation of one, was about.
pub(crate) struct Subject {
    /// The procedure or operation.
    pub(crate) procedure: &'static str,
    /// The prefix of its error names.
    pub(crate) errors: &'static str,
    pub(crate) client: SocketAddr,
    /// The file, or the directory in which `name` is.
    pub(crate) file: Option<Handle>,
    /// A name in the directory; for MNT the path that the client sent.
    pub(crate) name: Option<Bytes>,
}

/// Counts the warnings that are logged and left out.
pub(crate) struct Troubles {
    clock: Arc<dyn Clock>,
    /// In the order of [`TOLD`].
    told: Mutex<[Told; TOLD.len()]>,
}

#[derive(Clone, Copy, Default)]
struct Told {
    last: Option<Timestamp>,
    untold: u64,
}

impl Troubles {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, told: Mutex::default() }
    }

    /// Whether to log an answer with this status now: how many warnings before it were left out, and the text.
    fn count(&self, status: Status) -> Option<(u64, &'static str)> {
        let at = TOLD.iter().position(|(told, _)| *told == status)?;
        let now = self.clock.now();
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = all.get_mut(at)?;
        if told.last.is_some_and(|last| now < last + BETWEEN_WARNINGS) {
            told.untold += 1;
            return None;
        }
        told.last = Some(now);
        Some((std::mem::take(&mut told.untold), TOLD.get(at)?.1))
    }
}

impl Server {
    /// A call, or an operation of one, ends with this status: warns the operator if the status is in [`TOLD`]. Such
    /// statuses have the same numbers in versions 3 and 4.
    pub(crate) fn answered(&self, status: Status, subject: impl FnOnce() -> Subject) {
        if status == Status::OK {
            return;
        }
        let Some((untold, text)) = self.troubles.count(status) else { return };
        let subject = subject();
        let target = subject.file.as_ref().and_then(|handle| self.target(handle.as_slice()));
        let export = match &target {
            Some(target) => self.exports.iter().find(|export| export.id == target.export),
            // MNT has no handle.
            None => subject.name.as_ref().and_then(|path| self.export_of(path)).map(|(_, export)| export),
        };
        let served = export.and_then(|export| export.file_system.path(export.file_system.root()));
        let file = target.as_ref().map(|target| target.file);
        let path = match (export, file) {
            (Some(export), Some(file)) => {
                export.file_system.path(file).map(|path| below(&path, subject.name.as_deref()))
            }
            (_, None) => subject.name.as_deref().map(escaped),
            (None, Some(_)) => None,
        };
        tracing::warn!(
            status = %format_args!("{}{}", subject.errors, status.word().unwrap_or_default()),
            procedure = subject.procedure,
            client = %subject.client,
            export = export.map(|export| escaped(&export.path)),
            served = served.map(|path| escaped(path.as_os_str().as_bytes())),
            path,
            file = file.map(hexadecimal),
            untold,
            "{text}"
        );
    }
}

fn below(path: &Path, name: Option<&[u8]>) -> String {
    let mut text = escaped(path.as_os_str().as_bytes());
    if let Some(name) = name {
        text += "/";
        text += &escaped(name);
    }
    text
}

fn hexadecimal(file: FileId) -> String {
    file.as_slice().iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::v4;

    #[test]
    fn what_is_told_has_one_number_in_both_versions() {
        for (status, _) in TOLD {
            assert!(is_told(status));
            assert_eq!(v4::Status(status.0).word(), status.word());
        }
        assert!(!is_told(Status::OK) && !is_told(Status::NOENT));
    }
}
