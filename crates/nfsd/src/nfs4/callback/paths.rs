//! The transports over which the server calls clients, by the connection's number.
//!
//! A connection has an entry from the moment when a session may be called over it until it ends.

use rpcrdma_oncrpc::{ClientTransport, Connection, Gone};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A connection over which the server can call.
#[derive(Clone)]
pub(super) struct Path {
    /// The number of its connection.
    pub(super) connection: u64,
    pub(super) transport: Arc<dyn ClientTransport>,
    gone: Gone,
}

impl Path {
    /// Whether the connection still stands.
    fn is_there(&self) -> bool {
        !self.gone.is_gone()
    }
}

/// The paths of all connections.
#[derive(Default)]
pub(crate) struct Paths(Mutex<HashMap<u64, Path>>);

impl Paths {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Path>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients may be called over this connection from now on.
    pub(super) fn add(&self, connection: &Connection) {
        if let Some(transport) = connection.reverse.clone() {
            let path = Path { connection: connection.id, transport, gone: connection.gone.clone() };
            self.all().insert(connection.id, path);
        }
    }

    /// The path over a connection, if it still stands.
    pub(super) fn get(&self, connection: u64) -> Option<Path> {
        self.all().get(&connection).filter(|path| path.is_there()).cloned()
    }

    /// A connection has ended.
    pub(super) fn remove(&self, connection: u64) {
        self.all().remove(&connection);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }
}
