//! How deep a command goes into a tree.

use std::fmt;

/// Directories within each other that a command goes into: bounds what a server with an endless tree makes us keep and
/// do. No path of a local file system has room for as many unless their names are very short.
pub(crate) const MAX_DEPTH: usize = 1024;

/// A tree on a server is deeper than [`MAX_DEPTH`]. This ends a command, because it walks depth first: if each
/// directory contains two, skipping one at the bottom would leave as much to do.
#[derive(Debug)]
pub(crate) struct TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goes more than {MAX_DEPTH} directories deep, or without end")
    }
}

impl std::error::Error for TooDeep {}
