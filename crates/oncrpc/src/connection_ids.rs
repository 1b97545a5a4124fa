//! Numbers for connections.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The source of the numbers of connections ([`Connection::id`](crate::Connection::id)). Clones share one counter: a
/// program gives the same one to all its servers, on all threads and for all transports, so that a number means one
/// connection in the whole process. Sessions of NFS version 4 are bound to these numbers.
#[derive(Clone, Debug, Default)]
pub struct ConnectionIds(Arc<AtomicU64>);

impl ConnectionIds {
    /// The next number. No number is returned twice.
    pub fn next_id(&self) -> u64 {
        // At one number a nanosecond, they last for 584 years.
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionIds;
    use std::{collections::HashSet, thread};

    #[test]
    fn no_number_comes_twice_from_whichever_clone_and_thread() {
        let ids = ConnectionIds::default();
        let threads = [(); 4].map(|()| {
            let ids = ids.clone();
            thread::spawn(move || (0..1_000).map(|_| ids.next_id()).collect::<Vec<_>>())
        });
        let all: HashSet<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(all.len(), 4_000);
    }
}
