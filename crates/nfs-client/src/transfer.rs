//! The sizes in which a client moves data.

/// How many bytes a client moves in a call: the server's sizes, within the limits of transport and session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The largest READ.
    pub read: u32,
    /// The largest WRITE.
    pub write: u32,
    /// The best READDIR and READDIRPLUS.
    pub directory: u32,
}
