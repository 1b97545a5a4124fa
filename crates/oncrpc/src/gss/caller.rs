//! Which user of this machine stands for a principal.

use super::GssUser;
use std::io;

/// Whether a user is known without asking others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// The user is known, or it is known that there is no such user on this machine.
    Now(Option<GssUser>),
    /// [`Names::user`] must look it up.
    Later,
}

/// Tells which user of this machine stands for a principal.
pub trait Names: Send + Sync {
    /// The user that stands for `principal`, if the answer needs no wait.
    fn known(&self, _principal: &str, _local: Option<&str>) -> Known {
        Known::Later
    }

    /// The user that stands for `principal`; `local` is the name that the mechanism's rules give it. Called once for
    /// each context, in its client's turn, on a thread for such look-ups. May wait.
    ///
    /// # Errors
    /// If that cannot be known now. The context is not made then.
    fn user(&self, principal: &str, local: Option<&str>) -> io::Result<Option<GssUser>>;
}
