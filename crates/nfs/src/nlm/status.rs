//! The outcome of a call.

use std::fmt;

xdr_enum! {
    /// A status (`nlm_stats`, `nlm4_stats`). Those from [`Deadlock`](Self::Deadlock) on exist in version 4 alone.
    // NLM-6.1.4-a
    pub enum Status: "status of NLM" {
        /// Done. UNLOCK and FREE_ALL return it also if there was nothing to do.
        Granted = 0,
        /// Not done, because another host has it; later the answer may differ.
        Denied = 1,
        /// Not done, as the server has no room for it.
        DeniedNoLocks = 2,
        /// The caller waits, and GRANTED tells it when it has the lock.
        Blocked = 3,
        /// Not done: the server has just started, and accepts only claims for what a host had before.
        DeniedGracePeriod = 4,
        /// Waiting for it would never end.
        Deadlock = 5,
        /// The file system can only be read.
        ReadOnly = 6,
        /// The handle means no file.
        StaleHandle = 7,
        /// An offset or a length is beyond what the server knows.
        TooBig = 8,
        /// Not done, and asking again is of no use.
        Failed = 9,
    }
}

impl Status {
    /// All of them, by number.
    pub const ALL: [Self; 10] = [
        Self::Granted,
        Self::Denied,
        Self::DeniedNoLocks,
        Self::Blocked,
        Self::DeniedGracePeriod,
        Self::Deadlock,
        Self::ReadOnly,
        Self::StaleHandle,
        Self::TooBig,
        Self::Failed,
    ];

    /// The name that version 4 gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "NLM4_GRANTED",
            Self::Denied => "NLM4_DENIED",
            Self::DeniedNoLocks => "NLM4_DENIED_NOLOCKS",
            Self::Blocked => "NLM4_BLOCKED",
            Self::DeniedGracePeriod => "NLM4_DENIED_GRACE_PERIOD",
            Self::Deadlock => "NLM4_DEADLCK",
            Self::ReadOnly => "NLM4_ROFS",
            Self::StaleHandle => "NLM4_STALE_FH",
            Self::TooBig => "NLM4_FBIG",
            Self::Failed => "NLM4_FAILED",
        }
    }

    /// The nearest status of this version. In versions 1 and 3 a deadlock becomes a lock that another host has, and a
    /// failure that no retry changes becomes a server that has no locks to give.
    // NLM-6.1.4-a
    pub fn in_version(self, version: u32) -> Self {
        match self {
            status if version >= super::VERSION_4 => status,
            Self::Deadlock => Self::Denied,
            Self::ReadOnly | Self::StaleHandle | Self::TooBig | Self::Failed => Self::DeniedNoLocks,
            status => status,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
