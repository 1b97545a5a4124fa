//! By which transport the server calls over a connection, by the connection's number.
//!
//! A connection has an entry from when a session is called over it until it ends.

use rpcrdma_oncrpc::{ClientTransport, Connection, Gone};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A way to a client.
#[derive(Clone)]
pub(super) struct Path {
    /// The number of its connection.
    pub(super) connection: u64,
    pub(super) transport: Arc<dyn ClientTransport>,
    gone: Gone,
}

impl Path {
    /// Whether the connection stands.
    fn is_there(&self) -> bool {
        !self.gone.is_gone()
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Paths(Mutex<HashMap<u64, Path>>);

impl Paths {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Path>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that clients may be called over.
    pub(super) fn add(&self, connection: &Connection) {
        if let Some(transport) = connection.reverse.clone() {
            let path = Path { connection: connection.id, transport, gone: connection.gone.clone() };
            self.all().insert(connection.id, path);
        }
    }

    /// The way over a connection, if it stands.
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
