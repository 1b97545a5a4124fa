//! The place of something that is to be made, moved or removed: a name in an existing directory.

use crate::{names::escaped, session::Session};
use anyhow::{Result, ensure};
use rpcrdma_nfs::attr::FileType;
use rpcrdma_nfs_client::{Handle, Name};

/// Where copies and moved files go.
pub(crate) enum Target {
    /// Into an existing directory.
    Directory(Handle),
    /// To a name, new or not, in an existing directory.
    Name(Handle, Name),
}

impl Target {
    /// What `path` stands for. Symbolic links are followed if they lead somewhere.
    pub(crate) async fn find(session: &Session, path: &[u8]) -> Result<Self> {
        match session.files.walk(&session.root, path, true).await {
            Ok(found) if found.attributes.file_type == FileType::Directory => return Ok(Target::Directory(found.file)),
            Ok(_) => {}
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(session.explained(error, path).await.into()),
        }
        let place = Place::find(session, path).await?;
        Ok(Target::Name(place.directory, place.name))
    }

    /// The place of a file that is called `own` if it goes into a directory.
    pub(crate) fn for_file(&self, own: &Name) -> Place {
        let (directory, name) = match self {
            Target::Directory(directory) => (directory.clone(), own.clone()),
            Target::Name(directory, name) => (directory.clone(), name.clone()),
        };
        Place { directory, name, slash: false }
    }
}

/// A name, taken or not, in an existing directory.
pub(crate) struct Place {
    pub(crate) directory: Handle,
    pub(crate) name: Name,
    /// The path ended in a slash: only a directory is meant.
    pub(crate) slash: bool,
}

impl Place {
    /// The place of the last name of `path`, which is not followed if it is a symbolic link.
    ///
    /// # Errors
    /// If the path has no last name of its own, or the directory does not exist.
    pub(crate) async fn find(session: &Session, path: &[u8]) -> Result<Self> {
        let (above, name) = split_last(path);
        ensure!(!name.is_empty(), "/ is the export itself");
        ensure!(!matches!(name, b"." | b".."), "{} has no name of its own", escaped(path));
        let directory = session.find(above, true).await?;
        if directory.attributes.file_type != FileType::Directory {
            return Err(no_directory(session, above));
        }
        Ok(Self { directory: directory.file, name: Name::from(name), slash: path.ends_with(b"/") })
    }
}

/// The error if a file on the way to a name is not a directory: the same that a server would answer to LOOKUP.
pub(crate) fn no_directory(session: &Session, path: &[u8]) -> anyhow::Error {
    anyhow::Error::from(session.files.no_directory())
        .context(format!("{} is not a directory", escaped(&session.shown(path))))
}

/// The path above the last name, and the name. Slashes at the end do not count.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let mut path = path;
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    match path.iter().rposition(|&octet| octet == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_slashes_do_not_count() {
        assert_eq!(split_last(b"/a/b//"), (&b"/a"[..], &b"b"[..]));
        assert_eq!(split_last(b"a"), (&b""[..], &b"a"[..]));
        assert_eq!(split_last(b"//"), (&b""[..], &b""[..]));
        assert_eq!(split_last(b"/a/.."), (&b"/a"[..], &b".."[..]));
    }
}
