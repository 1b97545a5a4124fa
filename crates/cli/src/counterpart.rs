//! Which path on the server a local file of a copy belongs to: errors name both.

use crate::{
    failure::{At, is_the_servers},
    names::join,
};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The tops of the trees that a command copies, with their paths on the server.
#[derive(Debug, Default)]
pub(crate) struct Counterparts(Vec<(PathBuf, Vec<u8>)>);

impl Counterparts {
    /// A tree is copied: `local` belongs to `remote`.
    pub(crate) fn add(&mut self, local: &Path, remote: Vec<u8>) {
        self.0.push((local.to_owned(), remote));
    }

    /// The path on the server of the file at `local`, or of the file that will be there.
    fn of(&self, local: &Path) -> Option<Vec<u8>> {
        let (below, remote) =
            self.0.iter().rev().find_map(|(top, remote)| Some((local.strip_prefix(top).ok()?, remote)))?;
        let names = below.iter();
        Some(names.fold(remote.clone(), |path, name| join(&path, name.as_bytes())))
    }

    /// Adds the path on the server to an error about `local`, if the error comes from the server.
    pub(crate) fn name(&self, local: &Path, error: anyhow::Error) -> anyhow::Error {
        match self.of(local).filter(|_| is_the_servers(&error)) {
            Some(remote) => error.context(At::copied(remote)),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_tree_has_its_counterpart() {
        let mut counterparts = Counterparts::default();
        counterparts.add(Path::new("here"), b"/there/".to_vec());
        counterparts.add(Path::new("/else/file"), b"/other".to_vec());
        assert_eq!(counterparts.of(Path::new("here/a/b")).as_deref(), Some(&b"/there/a/b"[..]));
        assert_eq!(counterparts.of(Path::new("/else/file")).as_deref(), Some(&b"/other"[..]));
        assert_eq!(counterparts.of(Path::new("/else")), None);
    }
}
