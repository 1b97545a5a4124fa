//! The state directory: what must survive a restart.
//!
//! It holds the secret for the check in handles (`secret`, which only its owner may read) and an index for each served
//! directory. Opening it creates what is missing.

use crate::SECRET_BYTES;
use rpcrdma_env::Random;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

const SECRET_FILE: &str = "secret";
/// Permissions of users other than the owner, and those of them that allow changes.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// An open state directory.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    secret: [u8; SECRET_BYTES],
}

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It cannot be created, read or written.
    #[error("the state directory {} cannot be used", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Other users could change its contents, or read the secret and forge handles.
    #[error(
        "{} must belong to the server's user or root, and no other user may write to it or, if it is the secret, read \
         it",
        path.display()
    )]
    Exposed {
        /// The file or directory.
        path: PathBuf,
    },
    /// The secret has been changed since it was written.
    #[error("{} does not hold a secret of {SECRET_BYTES} bytes", path.display())]
    BadSecret {
        /// The file.
        path: PathBuf,
    },
}

impl StateDirectory {
    /// Opens the directory; creates it and the secret if they do not exist.
    ///
    /// # Errors
    /// If that fails, if the secret is damaged, or if other users could change the directory or read the secret.
    pub fn open(path: impl Into<PathBuf>, random: &dyn Random) -> Result<Self, StateError> {
        let path = path.into();
        let secret_path = path.join(SECRET_FILE);
        let io = |source| StateError::Io { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io)?;
        let octets = match read_all(&secret_path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_secret(&path, random).map_err(io)?;
                read_all(&secret_path).map_err(io)?
            }
            other => other.map_err(io)?,
        };
        let Ok(secret) = octets.try_into() else { return Err(StateError::BadSecret { path: secret_path }) };
        for (path, others) in [(&path, OTHERS_WRITE), (&secret_path, OTHERS)] {
            let metadata = fs::metadata(path).map_err(io)?;
            let owner = [0, rustix::process::geteuid().as_raw()];
            if metadata.mode() & others != 0 || !owner.contains(&metadata.uid()) {
                return Err(StateError::Exposed { path: path.clone() });
            }
        }
        Ok(Self { path, secret })
    }

    /// The secret.
    pub fn secret(&self) -> [u8; SECRET_BYTES] {
        self.secret
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads at most one byte more than a secret has.
fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    File::open(path)?.take(SECRET_BYTES as u64 + 1).read_to_end(&mut octets)?;
    Ok(octets)
}

/// Writes a new secret to a temporary file and moves it into place, unless another server has been faster.
fn create_secret(directory: &Path, random: &dyn Random) -> io::Result<()> {
    let mut secret = [0; SECRET_BYTES];
    random.fill(&mut secret);
    let draft = directory.join(format!("{SECRET_FILE}.{:016x}", random.next_u64()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    let placed = fs::hard_link(&draft, directory.join(SECRET_FILE));
    fs::remove_file(&draft)?;
    match placed {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(directory)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::SeededRandom;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_made_once_and_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a/b");
        let first = StateDirectory::open(&path, &SeededRandom::new(1)).unwrap().secret();
        assert_eq!(StateDirectory::open(&path, &SeededRandom::new(2)).unwrap().secret(), first);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("secret"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn what_others_could_read_or_change_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let open = || StateDirectory::open(scratch.path(), &SeededRandom::new(1));
        let set = |name: &str, mode| fs::set_permissions(scratch.path().join(name), fs::Permissions::from_mode(mode));
        for (directory, secret, fine) in
            [(0o755, 0o600, true), (0o775, 0o600, false), (0o1777, 0o600, false), (0o700, 0o640, false)]
        {
            set("", 0o700).unwrap();
            drop(open());
            set("", directory).unwrap();
            set("secret", secret).unwrap();
            match open() {
                Ok(_) => assert!(fine, "{directory:o} {secret:o}"),
                Err(error) => assert!(!fine && matches!(error, StateError::Exposed { .. }), "{error}"),
            }
        }
    }

    #[test]
    fn a_damaged_secret_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        for octets in [&[][..], &[1; 15], &[1; 17]] {
            fs::write(scratch.path().join("secret"), octets).unwrap();
            let opened = StateDirectory::open(scratch.path(), &SeededRandom::new(1));
            assert!(matches!(opened, Err(StateError::BadSecret { .. })));
        }
        let opened = StateDirectory::open("/proc/nowhere", &SeededRandom::new(1));
        assert!(matches!(opened, Err(StateError::Io { .. })));
    }
}
