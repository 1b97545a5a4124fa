//! How many files this process may have open.

/// How many descriptors are asked for, if the administrator allows as many: what the served files and some thousands of
/// connections take. The usual soft limit of 1024 is for programs that use select(2).
const DESCRIPTORS: u64 = 65_536;

/// Raises this process's limit, as far as the administrator allows it.
pub(super) fn raise() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS);
    if limit.current.is_some_and(|current| current < wanted) {
        // Less is enough to serve, only for fewer clients.
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
            tracing::debug!(%error, "cannot raise the limit of open files");
        }
    }
}
