//! The proven caller.

use super::GssService;
use std::{io, sync::Arc};

/// A principal that calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GssCaller {
    /// Its name, `user@REALM`.
    pub principal: Arc<str>,
    /// The user of this machine that it is, if it is one.
    pub user: Option<GssUser>,
    /// What the protection of the call covers.
    pub service: GssService,
}

impl GssCaller {
    /// A principal, and the user that it is.
    pub fn new(principal: impl Into<Arc<str>>, user: Option<GssUser>, service: GssService) -> Self {
        Self { principal: principal.into(), user, service }
    }
}

/// A user of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GssUser {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's group.
    pub gid: u32,
    /// All supplementary groups.
    pub groups: Arc<[u32]>,
}

/// Whether a user is known without asking others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// The user is known, or it is known that there is no such user on this machine.
    Now(Option<GssUser>),
    /// [`Names::user`] must look it up.
    Later,
}

/// Which users of this machine principals are.
pub trait Names: Send + Sync {
    /// The user that `principal` is, if that takes no waiting.
    fn known(&self, _principal: &str, _local: Option<&str>) -> Known {
        Known::Later
    }

    /// The user that `principal` is; `local` is the name that the mechanism's rules give it. Asked once for each
    /// context, in its client's turn, on a thread for such questions. May wait.
    ///
    /// # Errors
    /// If that cannot be known now. The context is not made then.
    fn user(&self, principal: &str, local: Option<&str>) -> io::Result<Option<GssUser>>;
}
