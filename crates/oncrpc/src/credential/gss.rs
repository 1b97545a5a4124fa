//! A caller that RPCSEC_GSS has proven.

use std::sync::Arc;

/// What the protection of a call covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GssService {
    /// The header is signed: who calls is proven.
    Authentication,
    /// Arguments and results are signed, too.
    Integrity,
    /// Arguments and results are sealed.
    Privacy,
}

/// A principal that calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GssCaller {
    /// Its name, `user@REALM`.
    pub principal: Arc<str>,
    /// The user of this machine that stands for the principal, if there is one.
    pub user: Option<GssUser>,
    /// What the protection of the call covers.
    pub service: GssService,
}

impl GssCaller {
    /// A principal, and the user of this machine that stands for it, if there is one.
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
