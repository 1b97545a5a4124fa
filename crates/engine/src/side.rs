//! The two ends of a connection.

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It has connected. Its calls are the forward direction.
    Client,
    /// It has accepted. Its calls are the reverse direction (RFC 8167).
    Server,
}
