//! The contexts of a server: finished ones, and those that are being made.
//!
//! It owns them. If there is no room for one more, the client that holds the most contexts loses one: the least
//! recently used one of the principals that have the most there. Of unfinished contexts, the oldest goes. A caller
//! learns that its context is gone when it uses it, and makes another.

use super::{GssUser, Handshake, Protection, window::Window};
use crate::ClientNetwork;
use rpcrdma_env::{Random, Timestamp};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How many contexts there are at most: a user of a Linux client has one, or two while it is renewed.
pub const CONTEXTS: usize = 16_384;
/// How many of them a client may hold.
pub const CONTEXTS_OF_CLIENT: usize = 1024;
/// How many contexts can wait for their initiator's next token. Kerberos needs one token.
pub const UNFINISHED: usize = 64;
/// How many of them a client may have.
pub(super) const UNFINISHED_OF_CLIENT: usize = 16;
/// How often the table looks for contexts that are over.
const SWEEP: Duration = Duration::from_secs(60);

/// The name of a context in a client's calls. It is random, so that one name reveals nothing about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handle([u8; 16]);

impl Handle {
    pub(super) fn new(random: &dyn Random) -> Self {
        let halves = [random.next_u64(), random.next_u64()].map(u64::to_be_bytes);
        let mut handle = [0; 16];
        handle[..8].copy_from_slice(&halves[0]);
        handle[8..].copy_from_slice(&halves[1]);
        Self(handle)
    }

    /// The handle in a credential, if it has the right length.
    pub(super) fn read(octets: &[u8]) -> Option<Self> {
        octets.try_into().ok().map(Self)
    }

    pub(super) fn octets(&self) -> &[u8] {
        &self.0
    }
}

/// A finished context.
pub(super) struct Established {
    pub(super) principal: Arc<str>,
    pub(super) user: Option<GssUser>,
    /// The principal's number for the duplicate request cache.
    pub(super) caller: u64,
    /// When it ends; `None` if never.
    pub(super) until: Option<Timestamp>,
    pub(super) live: Mutex<Live>,
}

/// The state that a context's messages change.
pub(super) struct Live {
    pub(super) window: Window,
    /// The number of the next call to the client (see [`BackAuth`](super::BackAuth)).
    pub(super) back: u32,
    pub(super) protection: Box<dyn Protection>,
}

impl Established {
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}

struct Entry {
    context: Arc<Established>,
    client: ClientNetwork,
    /// The table's count of all uses, when this context was last used.
    used: u64,
}

struct Unfinished {
    handshake: Box<dyn Handshake>,
    client: ClientNetwork,
    began: u64,
}

#[derive(Default)]
struct Inner {
    contexts: HashMap<Handle, Entry>,
    held: HashMap<ClientNetwork, usize>,
    unfinished: HashMap<Handle, Unfinished>,
    count: u64,
    swept: Option<Timestamp>,
}

#[derive(Default)]
pub(super) struct Table(Mutex<Inner>);

impl Table {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A finished context; this counts as a use of it.
    pub(super) fn get(&self, handle: Handle) -> Option<Arc<Established>> {
        let mut inner = self.inner();
        inner.count += 1;
        let count = inner.count;
        let entry = inner.contexts.get_mut(&handle)?;
        entry.used = count;
        Some(entry.context.clone())
    }

    pub(super) fn insert(&self, handle: Handle, client: ClientNetwork, context: Established, now: Timestamp) {
        let mut inner = self.inner();
        inner.sweep(now);
        if inner.held.get(&client).is_some_and(|held| *held >= CONTEXTS_OF_CLIENT) {
            inner.forget_one_of(client);
        } else if inner.contexts.len() >= CONTEXTS {
            // GSS-2203-5.4-b
            let most = inner.held.iter().max_by_key(|(_, held)| **held).map(|(client, _)| *client);
            if let Some(most) = most {
                inner.forget_one_of(most);
            }
        }
        inner.count += 1;
        let entry = Entry { context: Arc::new(context), client, used: inner.count };
        inner.contexts.insert(handle, entry);
        *inner.held.entry(client).or_default() += 1;
    }

    pub(super) fn remove(&self, handle: Handle) {
        self.inner().forget(handle);
    }

    /// How many contexts are finished, and how many wait for their initiator's next token.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.contexts.len(), inner.unfinished.len())
    }

    /// Keeps a handshake until the next token.
    pub(super) fn wait(&self, handle: Handle, client: ClientNetwork, handshake: Box<dyn Handshake>) {
        let mut inner = self.inner();
        let of_client = inner.unfinished.values().filter(|waiting| waiting.client == client).count();
        let is_crowded = of_client >= UNFINISHED_OF_CLIENT;
        if is_crowded || inner.unfinished.len() >= UNFINISHED {
            let candidates = inner.unfinished.iter().filter(|(_, waiting)| !is_crowded || waiting.client == client);
            if let Some(oldest) = candidates.min_by_key(|(_, waiting)| waiting.began).map(|(handle, _)| *handle) {
                inner.unfinished.remove(&oldest);
            }
        }
        inner.count += 1;
        let began = inner.count;
        inner.unfinished.insert(handle, Unfinished { handshake, client, began });
    }

    /// Takes a handshake that waits for a token.
    pub(super) fn take(&self, handle: Handle) -> Option<Box<dyn Handshake>> {
        self.inner().unfinished.remove(&handle).map(|waiting| waiting.handshake)
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let inner = self.inner();
        assert_eq!(inner.held.values().sum::<usize>(), inner.contexts.len());
        (inner.contexts.len(), inner.unfinished.len())
    }
}

impl Inner {
    fn forget(&mut self, handle: Handle) {
        let Some(Entry { client, .. }) = self.contexts.remove(&handle) else { return };
        less(&mut self.held, client);
    }

    /// Forgets a context of a client: the least recently used one of the principals that have the most there.
    fn forget_one_of(&mut self, client: ClientNetwork) {
        let of_client = || self.contexts.iter().filter(|(_, entry)| entry.client == client);
        let mut held: HashMap<u64, usize> = HashMap::new();
        of_client().for_each(|(_, entry)| *held.entry(entry.context.caller).or_default() += 1);
        let most = held.values().max();
        let of_most = of_client().filter(|(_, entry)| held.get(&entry.context.caller) == most);
        if let Some(least) = of_most.min_by_key(|(_, entry)| entry.used).map(|(handle, _)| *handle) {
            self.forget(least);
        }
    }

    /// Forgets contexts that are over.
    fn sweep(&mut self, now: Timestamp) {
        if self.swept.is_some_and(|swept| now.since(swept) < SWEEP) {
            return;
        }
        self.swept = Some(now);
        let over: Vec<_> =
            self.contexts.iter().filter(|(_, entry)| entry.context.is_over(now)).map(|(handle, _)| *handle).collect();
        over.into_iter().for_each(|handle| self.forget(handle));
    }
}

/// Counts one context less for a client.
fn less(counts: &mut HashMap<ClientNetwork, usize>, client: ClientNetwork) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gss::{Failure, Progress};
    use bytes::Bytes;
    use rpcrdma_env::SeededRandom;

    /// A protection that these tests never use.
    struct Unasked;

    impl Protection for Unasked {
        fn sign(&mut self, _: &[u8]) -> Result<Bytes, Failure> {
            unreachable!()
        }
        fn verify(&mut self, _: &[u8], _: &[u8]) -> Result<(), Failure> {
            unreachable!()
        }
        fn seal(&mut self, _: &[u8]) -> Result<Bytes, Failure> {
            unreachable!()
        }
        fn open(&mut self, _: &[u8]) -> Result<Bytes, Failure> {
            unreachable!()
        }
    }

    impl Handshake for Unasked {
        fn step(self: Box<Self>, _: &[u8]) -> Result<Progress, Failure> {
            unreachable!()
        }
    }

    const NOW: Timestamp = Timestamp::from_nanos(5);

    fn client(last: u16) -> ClientNetwork {
        let [high, low] = last.to_be_bytes();
        ClientNetwork::of([10, 0, high, low].into())
    }

    fn established(caller: u64, until: Option<Timestamp>) -> Established {
        let live = Mutex::new(Live { window: Window::new(), back: 1, protection: Box::new(Unasked) });
        Established { principal: "alice@REALM".into(), user: None, caller, until, live }
    }

    struct House {
        table: Table,
        random: SeededRandom,
    }

    impl House {
        fn new() -> Self {
            Self { table: Table::default(), random: SeededRandom::new(1) }
        }

        fn insert(&self, of: u16, until: Option<Timestamp>, now: Timestamp) -> Handle {
            let handle = Handle::new(&self.random);
            self.table.insert(handle, client(of), established(1, until), now);
            handle
        }

        /// A context of another principal, from the same client.
        fn insert_for(&self, caller: u64, of: u16) -> Handle {
            let handle = Handle::new(&self.random);
            self.table.insert(handle, client(of), established(caller, None), NOW);
            handle
        }

        fn wait(&self, of: u16) -> Handle {
            let handle = Handle::new(&self.random);
            self.table.wait(handle, client(of), Box::new(Unasked));
            handle
        }
    }

    /// proves: GSS-2203-5.4-b
    #[test]
    fn a_client_loses_its_least_used_context_and_no_one_elses() {
        let house = House::new();
        let others = house.insert(2, None, NOW);
        let handles: Vec<_> = (0..CONTEXTS_OF_CLIENT).map(|_| house.insert(1, None, NOW)).collect();
        assert_eq!(house.table.counts().0, CONTEXTS_OF_CLIENT + 1, "at the limit nothing goes");
        assert!(house.table.get(handles[0]).is_some());
        house.insert(1, None, NOW);
        assert_eq!(house.table.counts().0, CONTEXTS_OF_CLIENT + 1);
        assert!(house.table.get(handles[0]).is_some() && house.table.get(others).is_some());
        assert!(house.table.get(handles[1]).is_none(), "the one that was not used for the longest time");
    }

    #[test]
    fn a_principal_with_many_contexts_drives_out_his_own_and_nobody_elses() {
        let house = House::new();
        let other = house.insert_for(2, 1);
        let own: Vec<_> = (0..CONTEXTS_OF_CLIENT + 8).map(|_| house.insert_for(1, 1)).collect();
        assert_eq!(house.table.counts().0, CONTEXTS_OF_CLIENT);
        assert!(
            house.table.get(other).is_some() && house.table.get(own[8]).is_none() && house.table.get(own[9]).is_some()
        );
    }

    /// Each user of a machine has one context, as usual: active users keep theirs.
    #[test]
    fn of_principals_with_as_many_contexts_the_least_used_one_goes() {
        let house = House::new();
        let handles: Vec<_> = (0..CONTEXTS_OF_CLIENT as u64).map(|caller| house.insert_for(caller, 1)).collect();
        let idle = handles[700];
        let at_work = || handles.iter().filter(|handle| **handle != idle);
        at_work().for_each(|handle| drop(house.table.get(*handle).unwrap()));
        house.insert_for(u64::MAX, 1);
        assert_eq!(house.table.counts().0, CONTEXTS_OF_CLIENT);
        assert!(house.table.get(idle).is_none() && at_work().all(|handle| house.table.get(*handle).is_some()));
    }

    /// proves: GSS-2203-5.4-b
    #[test]
    fn contexts_in_all_are_bounded_and_who_has_most_loses() {
        let house = House::new();
        let small = house.insert(9999, None, NOW);
        let mut count = 1;
        for of in 0.. {
            for _ in 0..CONTEXTS_OF_CLIENT.min(CONTEXTS - count) {
                house.insert(of, None, NOW);
                count += 1;
            }
            if count == CONTEXTS {
                break;
            }
        }
        assert_eq!(house.table.counts().0, CONTEXTS);
        let newcomer = house.insert(9998, None, NOW);
        assert_eq!(house.table.counts().0, CONTEXTS);
        assert!(house.table.get(small).is_some() && house.table.get(newcomer).is_some());
    }

    #[test]
    fn contexts_go_when_they_are_over_or_destroyed() {
        let house = House::new();
        let end = NOW + Duration::from_secs(10);
        let (short, long) = (house.insert(1, Some(end), NOW), house.insert(1, None, NOW));
        let context = house.table.get(short).unwrap();
        assert!(context.is_over(end) && !context.is_over(Timestamp::from_nanos(end.as_nanos() - 1)));
        house.insert(2, None, NOW + SWEEP);
        assert!(house.table.get(short).is_none() && house.table.get(long).is_some());
        house.table.remove(long);
        house.table.remove(long);
        assert_eq!(house.table.counts(), (1, 0));
    }

    #[test]
    fn unfinished_ones_are_few_and_drive_no_finished_one_out() {
        let house = House::new();
        let finished = house.insert(1, None, NOW);
        let others = house.wait(2);
        let own: Vec<_> = (0..UNFINISHED_OF_CLIENT).map(|_| house.wait(1)).collect();
        assert_eq!(house.table.counts().1, UNFINISHED_OF_CLIENT + 1);
        house.wait(1);
        assert_eq!(house.table.counts().1, UNFINISHED_OF_CLIENT + 1);
        assert!(house.table.take(own[0]).is_none() && house.table.take(own[1]).is_some(), "its own oldest goes");
        (100..10_100).for_each(|of| {
            house.wait(of);
        });
        assert_eq!(house.table.counts(), (1, UNFINISHED));
        assert!(house.table.get(finished).is_some() && house.table.take(others).is_none());
    }
}
