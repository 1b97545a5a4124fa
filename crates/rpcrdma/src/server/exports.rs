//! The exports, and the checks of exports against each other.

use super::Result;
use crate::Error;
use rpcrdma_nfsd::{Cidr, FileSystem, Securities, Security};
use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory of this machine or a file system of the program's own, as clients may use it.
///
/// ```
/// use rpcrdma::{fs, server::Export};
///
/// let scratch = Export::files("/scratch", fs::memory(1 << 30)?);
/// let data = Export::directory("/data", "/srv/data").read_only().allow("192.0.2.0/24".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Export {
    /// What is served.
    pub(super) source: Source,
    /// Where clients see it: absolute, with no empty name in it.
    pub(super) path: Vec<u8>,
    /// Clients cannot change anything in it.
    pub(super) read_only: bool,
    /// The networks whose clients may use it; all networks if it is empty.
    pub(super) clients: Vec<Cidr>,
    /// The flavours that it takes, if it names its own.
    pub(super) securities: Option<Securities>,
}

/// What is served.
#[derive(Clone)]
pub(super) enum Source {
    Directory(PathBuf),
    Files(Arc<dyn FileSystem>),
}

impl Export {
    fn of(path: impl Into<Vec<u8>>, source: Source) -> Self {
        Self { source, path: path.into(), read_only: false, clients: Vec::new(), securities: None }
    }

    /// A directory of this machine, which clients see at `path`: absolute, with no empty name in it.
    pub fn directory(path: impl Into<Vec<u8>>, directory: impl Into<PathBuf>) -> Self {
        Self::of(path, Source::Directory(directory.into()))
    }

    /// A file system of the program's own, which clients see at `path`.
    pub fn files(path: impl Into<Vec<u8>>, files: impl FileSystem + 'static) -> Self {
        Self::of(path, Source::Files(Arc::new(files)))
    }

    /// Nothing can be changed through it.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Serves clients of this network and of the networks that other calls of this method name, instead of those that
    /// the server allows.
    pub fn allow(mut self, network: Cidr) -> Self {
        self.clients.push(network);
        self
    }

    /// The security flavours of this export, best first, in place of the server's.
    pub fn security(mut self, flavours: impl IntoIterator<Item = Security>) -> Self {
        self.securities = Some(Securities::new(flavours));
        self
    }

    /// Its directory, if it is one of this machine.
    pub(super) fn path_here(&self) -> Option<&Path> {
        match &self.source {
            Source::Directory(directory) => Some(directory),
            Source::Files(_) => None,
        }
    }
}

impl Export {
    /// What is served, for a person.
    fn shown(&self) -> String {
        self.path_here().map_or_else(|| "a file system".into(), |directory| directory.display().to_string())
    }
}

fn bad<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::misuse(why))
}

/// Checks the exports against each other. Their directories must exist.
///
/// # Errors
/// If two exports have the same name or would serve the same files, or if the name of one lies in another where that
/// one has no directory.
pub(super) fn check(exports: &[Export]) -> Result<()> {
    for (at, export) in exports.iter().enumerate() {
        for other in &exports[..at] {
            if other.path == export.path {
                return bad(format!(
                    "clients would see both {} and {} as {}: give one of them another name with pseudo=",
                    other.shown(),
                    export.shown(),
                    export.path.escape_ascii()
                ));
            }
            for (outer, inner) in [(other, export), (export, other)] {
                if lies_in(inner, outer) {
                    return bad(format!(
                        "{} lies in {}, which is exported, too: its files would be served twice, with two sets of \
                         rights and of locks; export only one of the two, or directories beside each other",
                        inner.shown(),
                        outer.shown()
                    ));
                }
            }
        }
    }
    exports.iter().try_for_each(|inner| has_its_place(inner, exports))
}

/// Checks that the outer export has a directory where the inner one covers it.
fn has_its_place(inner: &Export, exports: &[Export]) -> Result<()> {
    let behind = |outer: &Export| {
        let outer = if outer.path == b"/" { &b""[..] } else { &outer.path };
        inner.path.strip_prefix(outer).filter(|rest| rest.starts_with(b"/") && rest.len() > 1).map(<[u8]>::to_vec)
    };
    let outer = exports.iter().filter_map(|outer| Some((outer, behind(outer)?)));
    let Some((outer, rest)) = outer.max_by_key(|(outer, _)| outer.path.len()) else { return Ok(()) };
    // Nothing is checked inside a file system of the program's own.
    let Some(mut place) = outer.path_here().map(Path::to_owned) else { return Ok(()) };
    for name in rest.split(|octet| *octet == b'/').filter(|name| !name.is_empty()) {
        place.push(OsStr::from_bytes(name));
        if !std::fs::symlink_metadata(&place).is_ok_and(|metadata| metadata.is_dir()) {
            return bad(format!(
                "clients would see {} as {}, within the export {}: make the directory {} for it (an empty one is \
                 enough), or give it a name outside with pseudo=",
                inner.shown(),
                inner.path.escape_ascii(),
                outer.path.escape_ascii(),
                place.display()
            ));
        }
    }
    Ok(())
}

/// Whether the server of `outer` would serve the files of `inner`: that is the same directory or lies in it, with no
/// other file system mounted between.
fn lies_in(inner: &Export, outer: &Export) -> bool {
    let (Some(inner), Some(outer)) = (inner.path_here(), outer.path_here()) else { return false };
    let id = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let (Some(of_outer), Some(of_inner), Ok(path)) = (id(outer), id(inner), inner.canonicalize()) else { return false };
    of_outer.0 == of_inner.0 && path.ancestors().any(|above| id(above) == Some(of_outer))
}

#[cfg(test)]
mod tests;
