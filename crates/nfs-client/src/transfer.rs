//! In which sizes a client moves data.

/// How a client moves data, in bytes per call: what the server says, as far as the transport and the session allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The largest READ.
    pub read: u32,
    /// The largest WRITE.
    pub write: u32,
    /// The best READDIR and READDIRPLUS.
    pub directory: u32,
}
