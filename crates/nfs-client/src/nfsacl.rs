//! NFSACL: access control lists for files of NFS version 3, over its transport and as its caller (ULB-4.2-a).
//!
//! If a server does not have the program, the client asks it only once: every later call fails at once with the same
//! error.

use crate::{Error, Nfs3};
use rpcrdma_nfs::{
    attr::{Acls, PosixAcl},
    nfsacl::{GetAcl, List, Lists, SetAcl, mask},
    v3::Handle,
};
use rpcrdma_oncrpc::{CallError, Rejection};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{Mutex, MutexGuard};

/// Both lists of a file.
const BOTH: u32 = mask::ACCESS | mask::DEFAULT;

/// Whether a server has answered that it does not have the program. Clones of a client share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing(Arc<Knowledge>);

#[derive(Debug, Default)]
struct Knowledge {
    is_missing: AtomicBool,
    /// Whether the server has answered a call to the program.
    is_known: AtomicBool,
    /// Held by the first call until its reply: the others wait for it.
    first: Mutex<()>,
}

impl Missing {
    /// Lets a call be made. Before the server has answered the first one, only the caller with the guard may call.
    async fn check(&self, procedure: &'static str) -> Result<Option<MutexGuard<'_, ()>>, Error> {
        let Knowledge { is_missing, is_known, first } = &*self.0;
        let first = if is_known.load(Ordering::Relaxed) { None } else { Some(first.lock().await) };
        match is_missing.load(Ordering::Relaxed) {
            true => Err(Error::Call { procedure, source: Rejection::ProgramUnavailable.into() }),
            false => Ok(first.filter(|_| !is_known.load(Ordering::Relaxed))),
        }
    }

    /// If a server has only another version of the program, it counts as a server without it.
    fn learn<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        use Rejection::{ProgramMismatch, ProgramUnavailable};
        if matches!(result, Ok(_) | Err(Error::Status { .. })) {
            self.0.is_known.store(true, Ordering::Relaxed);
        }
        match result {
            Err(Error::Call {
                procedure,
                source: CallError::Rejected(ProgramUnavailable | ProgramMismatch { .. }),
            }) => {
                self.0.is_missing.store(true, Ordering::Relaxed);
                Err(Error::Call { procedure, source: ProgramUnavailable.into() })
            }
            other => other,
        }
    }
}

impl Nfs3 {
    /// GETACL: the access control lists of a file; if it has none, the lists that its mode means. The reply has room
    /// for the longest possible lists (ULB-4.2-c).
    ///
    /// # Errors
    /// If the server has no lists, [`Error::is_not_supported`] is true; see [`Error`].
    pub async fn acls(&self, file: &Handle) -> Result<Acls, Error> {
        const GETACL: &str = "GETACL";
        let _first = self.acls_missing().check(GETACL).await?;
        let told = self.simple(&GetAcl { file: file.clone(), mask: BOTH }).await;
        let lists = self.acls_missing().learn(told)?.lists;
        let nonsense = |what| Error::Nonsense { procedure: GETACL, what };
        let (Some(access), Some(default)) = (lists.access(), lists.default()) else {
            return Err(nonsense("gave fewer lists than were asked for"));
        };
        let posix =
            |list: &List| list.posix().ok_or_else(|| nonsense("sent entries that are not an access control list"));
        let default = if default.entries().is_empty() { None } else { Some(posix(default)?) };
        Ok(Acls { access: posix(access)?, default })
    }

    /// SETACL: sets both lists of a file, and with them the permissions of its mode. If `acls` has no default list, a
    /// directory loses its own; other files cannot have one.
    ///
    /// # Errors
    /// As [`acls`](Self::acls); also `NFS3ERR_FBIG` if a list has more entries than a call can carry.
    pub async fn set_acls(&self, file: &Handle, acls: &Acls) -> Result<(), Error> {
        const SETACL: &str = "SETACL";
        let _first = self.acls_missing().check(SETACL).await?;
        // Servers look only at the rights of the owner and the group.
        let nobody = (0, 0);
        let default = |acl: &PosixAcl| List::of_default(acl, nobody);
        let default = acls.default.as_ref().map_or(Some(List::default()), default);
        let (Some(access), Some(default)) = (List::of(&acls.access, nobody), default) else {
            let status = rpcrdma_nfs::v3::Status::FBIG.into();
            return Err(Error::Status { procedure: SETACL, status, denied: None });
        };
        let call = SetAcl { file: file.clone(), lists: Lists::new(BOTH, access, default) };
        let set = self.simple(&call).await;
        self.acls_missing().learn(set).map(drop)
    }
}
