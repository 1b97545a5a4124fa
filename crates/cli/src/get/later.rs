//! What a copy makes when everything else exists: links, and the modes and times of directories.

use super::{Copier, set_file, times};
use crate::{
    partial::{NAMES_TRIED, temporary_name},
    session::Session,
};
use anyhow::{Context, Result, bail, ensure};
use rpcrdma_env::Random;
use rpcrdma_nfs::attr::Attributes;
use rustix::fs::{AtFlags, CWD};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

/// A file of a server: its session, file system and file number. Two servers may have the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId(usize, u64, u64);

impl FileId {
    /// The sessions of a command live as long as it does, so that their addresses identify them.
    pub(super) fn new(session: &Session, attributes: &Attributes) -> Self {
        Self(std::ptr::from_ref(session).addr(), attributes.file_system, attributes.file_id)
    }

    #[cfg(test)]
    pub(super) fn sample() -> Self {
        Self(1, 1, 1)
    }
}

/// Something to make when everything else exists.
pub(super) enum Later {
    HardLink { id: FileId, local: PathBuf },
    Symlink { target: Vec<u8>, id: FileId, local: PathBuf, attributes: Attributes },
}

impl Later {
    fn local(&self) -> &Path {
        match self {
            Later::HardLink { local, .. } | Later::Symlink { local, .. } => local,
        }
    }
}

/// Where a file with several names is copied to first.
struct First {
    local: PathBuf,
    /// Until then, the file at this place is another one.
    is_copied: bool,
}

/// What a run has copied, or is copying.
#[derive(Default)]
pub(super) struct Known {
    first_names: HashMap<FileId, First>,
    /// Where each file goes.
    places: HashMap<PathBuf, FileId>,
}

/// What to do with a file.
pub(super) enum Turn {
    Copy,
    /// It is another name of a file that this run copies.
    Link,
    /// This run copies it to the same place already.
    Again,
}

impl Known {
    /// Begins with a file that goes to `local`.
    pub(super) fn begin(&mut self, id: FileId, links: u32, local: &Path) -> Result<Turn> {
        match self.places.get(local) {
            Some(there) if *there == id => return Ok(Turn::Again),
            Some(_) => bail!("would overwrite what this run has just copied"),
            None => self.places.insert(local.to_owned(), id),
        };
        if links > 1 {
            if self.first_names.contains_key(&id) {
                return Ok(Turn::Link);
            }
            self.first_names.insert(id, First { local: local.to_owned(), is_copied: false });
        }
        Ok(Turn::Copy)
    }

    /// The file exists, and can be given more names.
    pub(super) fn copied(&mut self, id: FileId) {
        if let Some(first) = self.first_names.get_mut(&id) {
            first.is_copied = true;
        }
    }

    /// The file did not come: another name of it may still be copied, and its place is free.
    pub(super) fn failed(&mut self, id: FileId, local: &Path) {
        self.places.remove(local);
        if self.first_names.get(&id).is_some_and(|first| first.local == local) {
            self.first_names.remove(&id);
        }
    }

    fn first(&self, id: FileId) -> Result<PathBuf> {
        let first = self.first_names.get(&id).filter(|first| first.is_copied);
        Ok(first.context("is another name of a file that was not copied")?.local.clone())
    }
}

impl Copier {
    /// Makes the links, and gives directories their modes and times, the innermost first.
    pub(super) fn finish(&self) {
        let mut later = self.later.take();
        // A symbolic link may be the first name of a hard link.
        later.sort_by_key(|later| matches!(later, Later::HardLink { .. }));
        for later in later {
            match self.make(&later) {
                Ok(()) => self.tally.borrow_mut().links += 1,
                Err(error) => self.failed(later.local(), &error),
            }
        }
        for (local, attributes) in self.directories.take().into_iter().rev() {
            let set = File::open(&local).map_err(Into::into).and_then(|directory| set_file(&directory, &attributes));
            if let Err(error) = set {
                self.failed(&local, &error);
            }
        }
    }

    /// Reports what is not made because the command ends early.
    pub(super) fn leave_out_later(&self) {
        for later in self.later.take() {
            self.failed(later.local(), &anyhow::anyhow!("this link was not made, because the command ended early"));
        }
    }

    fn make(&self, later: &Later) -> Result<()> {
        match later {
            Later::HardLink { id, local } => {
                let first = self.known.borrow().first(*id)?;
                if is_one_file(&first, local) {
                    return Ok(());
                }
                put_at(local, &*self.random, |path| fs::hard_link(&first, path))
            }
            Later::Symlink { target, id, local, attributes } => {
                put_at(local, &*self.random, |path| symlink(OsStr::from_bytes(target), path))?;
                self.known.borrow_mut().copied(*id);
                Ok(rustix::fs::utimensat(CWD, local, &times(attributes), AtFlags::SYMLINK_NOFOLLOW)?)
            }
        }
    }
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    let id = |path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

/// Makes something under a name that may be taken, but not by a directory. The old file keeps the name until the new
/// one exists.
fn put_at(local: &Path, random: &dyn Random, make: impl Fn(&Path) -> io::Result<()>) -> Result<()> {
    match make(local) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return Ok(other?),
    }
    ensure!(!fs::symlink_metadata(local)?.is_dir(), "exists and is a directory");
    let name = local.file_name().context("has no name of its own")?;
    for _ in 0..NAMES_TRIED {
        let path = local.with_file_name(OsStr::from_bytes(&temporary_name(name.as_bytes(), random)));
        match make(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        let renamed = fs::rename(&path, local);
        // To rename one name of a file to another name of it does nothing.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context("cannot remove its temporary name");
            }
            _ => return renamed.context("cannot replace the file that is there"),
        }
    }
    bail!("cannot find a free name for a temporary file beside it")
}

#[cfg(test)]
mod tests {
    use super::{super::tests::sample_attributes, *};
    use crate::{args::Placing, copy::Tally};
    use rpcrdma_env::SeededRandom;
    use rpcrdma_nfs::attr::FileType;
    use std::sync::Arc;

    /// A symbolic link with two names, of which the second is known before the first one's target.
    #[test]
    fn a_symbolic_link_may_have_several_names() {
        let scratch = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| scratch.path().join(name));
        let copier = Copier::new(Placing::default(), Arc::new(SeededRandom::new(1)), Tally::new(true));
        let (id, attributes) = (FileId::sample(), sample_attributes(FileType::Symlink));
        copier.known.borrow_mut().begin(id, 2, &first).unwrap();
        copier.later.borrow_mut().extend([
            Later::HardLink { id, local: second.clone() },
            Later::Symlink { target: b"nowhere".to_vec(), id, local: first, attributes },
        ]);
        copier.finish();
        assert_eq!(copier.tally.borrow().errors, 0);
        assert_eq!(fs::read_link(second).unwrap(), Path::new("nowhere"));
    }

    #[test]
    fn what_is_there_stays_until_the_new_thing_is() {
        let scratch = tempfile::tempdir().unwrap();
        let old = scratch.path().join("old");
        fs::write(&old, "old").unwrap();
        let random = SeededRandom::new(1);
        let refuse = |path: &Path| {
            Err(if path.exists() { io::ErrorKind::AlreadyExists } else { io::ErrorKind::PermissionDenied }.into())
        };
        assert!(put_at(&old, &random, refuse).is_err());
        assert_eq!(fs::read(&old).unwrap(), b"old");
        let count = || fs::read_dir(scratch.path()).unwrap().count();
        // Another name of the same file.
        put_at(&old, &random, |path| fs::hard_link(&old, path)).unwrap();
        assert_eq!((count(), fs::read(&old).unwrap()), (1, b"old".to_vec()));
        put_at(&old, &random, |path| symlink("nowhere", path)).unwrap();
        assert_eq!((count(), fs::read_link(&old).unwrap()), (1, "nowhere".into()));
        fs::create_dir(scratch.path().join("directory")).unwrap();
        assert!(put_at(&scratch.path().join("directory"), &random, |path| symlink("nowhere", path)).is_err());
        assert_eq!(count(), 2);
    }

    #[test]
    fn a_file_that_did_not_come_may_come_by_another_name() {
        let [a, b, c] = ["a", "b", "c"].map(Path::new);
        let (id, mut known) = (FileId::sample(), Known::default());
        assert!(matches!(known.begin(id, 2, a), Ok(Turn::Copy)));
        assert!(matches!(known.begin(id, 2, b), Ok(Turn::Link)));
        assert!(known.first(id).is_err(), "not there yet");
        known.failed(id, a);
        assert!(known.first(id).is_err());
        assert!(matches!(known.begin(id, 2, c), Ok(Turn::Copy)));
        known.copied(id);
        assert_eq!(known.first(id).unwrap(), c);
        assert!(matches!(known.begin(id, 2, c), Ok(Turn::Again)));
        assert!(known.begin(FileId(2, 1, 1), 2, c).is_err(), "a file of another server");
    }
}
