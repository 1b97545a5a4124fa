//! Counts with a limit. Dropping a place gives it back.

use rpcrdma_oncrpc::ClientNetwork;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// This many places.
pub(super) struct Room {
    used: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), most })
    }

    /// A place, if one is free.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let take = |used: usize| (used < self.most).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Place(self.clone()))
    }

    /// How many places are taken.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// A place in a room.
pub(super) struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls to hosts that are under way, in all and by client.
pub(super) struct Calls {
    all: Arc<Room>,
    to_client: usize,
    clients: Mutex<HashMap<ClientNetwork, usize>>,
}

impl Calls {
    pub(super) fn new(all: usize, to_client: usize) -> Arc<Self> {
        Arc::new(Self { all: Room::new(all), to_client, clients: Mutex::default() })
    }

    /// Room for a call to this client, if there is some.
    pub(super) fn begin(self: &Arc<Self>, client: ClientNetwork) -> Option<UnderWay> {
        let place = self.all.take()?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = clients.get(&client).copied().unwrap_or(0);
        if count >= self.to_client {
            return None;
        }
        clients.insert(client, count + 1);
        Some(UnderWay { calls: self.clone(), client, _place: place })
    }

    /// How many calls are under way.
    pub(super) fn count(&self) -> usize {
        self.all.used()
    }
}

/// One call under way, or several to the same client, one after another.
pub(super) struct UnderWay {
    calls: Arc<Calls>,
    client: ClientNetwork,
    _place: Place,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut clients = self.calls.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = clients.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let room = Room::new(2);
        let places = [room.take().unwrap(), room.take().unwrap()];
        assert!(room.take().is_none());
        drop(places);
        assert!(room.take().is_some() && room.used() == 0);
    }

    #[test]
    fn one_client_does_not_take_the_calls_of_others() {
        let client = |last| ClientNetwork::of(std::net::IpAddr::from([192, 0, 2, last]));
        let calls = Calls::new(3, 2);
        let first = [calls.begin(client(1)).unwrap(), calls.begin(client(1)).unwrap()];
        assert!(calls.begin(client(1)).is_none(), "one past the limit of a client");
        let other = calls.begin(client(2)).unwrap();
        assert!(calls.begin(client(3)).is_none(), "one past that of all");
        drop(first);
        assert!(calls.begin(client(1)).is_some());
        drop(other);
        assert_eq!((calls.count(), calls.clients.lock().unwrap().len()), (0, 0));
    }
}
