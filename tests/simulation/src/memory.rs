//! Watched memory: how much of it is in use, and who owns it.
//!
//! A [`Watched`] allocator gives buffers a number each. The [`Registry`] knows which buffers a provider has: a buffer
//! is given to it at most once, comes back once, and does not return to its allocator meanwhile.

use crate::{lock, plan::Faults, record::Record};
use rpcrdma_env::{Allocator, BoxFuture, Buffer, Clock, Memory, Random};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The longest time for which an empty allocator lets its caller wait.
const MAX_WAIT_MICROS: u64 = 20_000;

#[derive(Default)]
struct Owners {
    next: u64,
    /// Allocated buffers by number, with the name of their allocator.
    live: BTreeMap<u64, &'static str>,
    /// The buffers that a provider has, with their queue pair.
    given: BTreeMap<u64, u64>,
    /// The addresses of bytes that peers may read, by queue pair and handle.
    readable: BTreeMap<(u64, u32), Range<usize>>,
}

/// Knows every buffer of a run.
pub struct Registry {
    owners: Mutex<Owners>,
    record: Arc<Record>,
}

impl Registry {
    /// A registry without buffers.
    pub fn new(record: Arc<Record>) -> Arc<Self> {
        Arc::new(Self { owners: Mutex::default(), record })
    }

    /// A buffer goes to the provider. Buffers of other allocators have no number and are not followed.
    pub fn give(&self, queue_pair: u64, buffer: &Buffer) {
        let Some(number) = number(buffer) else { return };
        if lock(&self.owners).given.insert(number, queue_pair).is_some() {
            self.record.found(format!("buffer {number} was given to the provider, which has it already"));
        }
    }

    /// The provider has the buffers with these numbers.
    pub(crate) fn give_numbers(&self, queue_pair: u64, numbers: &[u64]) {
        lock(&self.owners).given.extend(numbers.iter().map(|number| (*number, queue_pair)));
    }

    /// A buffer comes back from the provider.
    pub fn take(&self, queue_pair: u64, buffer: &Buffer) {
        let Some(number) = number(buffer) else { return };
        if lock(&self.owners).given.remove(&number) != Some(queue_pair) {
            self.record.found(format!("buffer {number} came back from queue pair {queue_pair}, which did not have it"));
        }
    }

    /// A queue pair is dropped, with all its buffers.
    pub fn abandon(&self, queue_pair: u64) {
        let mut owners = lock(&self.owners);
        owners.given.retain(|_, owner| *owner != queue_pair);
        owners.readable.retain(|(owner, _), _| *owner != queue_pair);
    }

    /// The peer may read these bytes from now on.
    pub fn expose(&self, queue_pair: u64, handle: u32, octets: &[u8]) {
        lock(&self.owners).readable.insert((queue_pair, handle), place(octets));
    }

    /// The peer can no longer reach the memory of this handle.
    pub fn fence(&self, queue_pair: u64, handle: u32) {
        lock(&self.owners).readable.remove(&(queue_pair, handle));
    }

    /// Whether a peer may read any of these bytes.
    pub fn is_readable(&self, octets: &[u8]) -> bool {
        let place = place(octets);
        let reaches = |other: &Range<usize>| other.start < place.end && place.start < other.end;
        lock(&self.owners).readable.values().any(reaches)
    }

    /// A queue pair has closed: it has no buffers any more.
    pub fn closed(&self, queue_pair: u64) {
        let kept = lock(&self.owners).given.values().filter(|owner| **owner == queue_pair).count();
        if kept > 0 {
            self.record.found(format!("queue pair {queue_pair} has closed and kept {kept} buffers"));
        }
    }

    /// How many buffers are in use, by the name of their allocator.
    pub fn live(&self) -> BTreeMap<&'static str, usize> {
        let mut live = BTreeMap::new();
        for source in lock(&self.owners).live.values() {
            *live.entry(*source).or_default() += 1;
        }
        live
    }
}

/// The addresses of bytes, to tell whether two pieces of memory are the same.
fn place(octets: &[u8]) -> Range<usize> {
    let begin = octets.as_ptr().addr();
    begin..begin + octets.len()
}

/// The number of a buffer, if a watched allocator gave it one.
pub(crate) fn number(buffer: &Buffer) -> Option<u64> {
    buffer.memory().downcast_ref::<Numbered>().map(|memory| memory.number)
}

/// How many bytes an allocator may hand out in total at a time. A single buffer may be larger.
pub struct Allowance {
    octets: usize,
    /// Bytes in use, and in how many buffers.
    used: Mutex<(usize, usize)>,
}

impl Allowance {
    /// An allowance of so many bytes.
    pub fn new(octets: usize) -> Arc<Self> {
        Arc::new(Self { octets, used: Mutex::default() })
    }

    /// A buffer is handed out. Returns whether that is too much.
    fn take(&self, octets: usize) -> bool {
        let mut used = lock(&self.used);
        *used = (used.0 + octets, used.1 + 1);
        used.0 > self.octets && used.1 > 1
    }

    fn put_back(&self, octets: usize) {
        let mut used = lock(&self.used);
        *used = (used.0 - octets, used.1 - 1);
    }
}

struct Numbered {
    buffer: Buffer,
    number: u64,
    registry: Arc<Registry>,
    allowance: Option<Arc<Allowance>>,
}

impl Memory for Numbered {
    fn octets(&self) -> &[u8] {
        self.buffer.filled()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if let Some(allowance) = &self.allowance {
            allowance.put_back(self.buffer.capacity());
        }
        let given = {
            let mut owners = lock(&self.registry.owners);
            owners.live.remove(&self.number);
            owners.given.remove(&self.number)
        };
        if let Some(queue_pair) = given {
            let number = self.number;
            self.registry.record.found(format!("buffer {number} was freed while queue pair {queue_pair} had it"));
        }
    }
}

/// An allocator whose buffers are followed, and which sometimes has none.
pub struct Watched {
    /// Where the memory comes from.
    pub inner: Arc<dyn Allocator>,
    /// The allocator's name in findings.
    pub name: &'static str,
    /// Follows the buffers.
    pub registry: Arc<Registry>,
    /// Whether memory runs out now and then.
    pub faults: Arc<Faults>,
    /// The world's time, in which callers wait.
    pub clock: Arc<dyn Clock>,
    /// How much memory may be in use at a time, whatever peers ask for.
    pub allowance: Option<Arc<Allowance>>,
}

impl Watched {
    fn number(&self, mut buffer: Buffer) -> Buffer {
        buffer.set_len(buffer.capacity());
        let number = {
            let mut owners = lock(&self.registry.owners);
            owners.next += 1;
            let number = owners.next;
            owners.live.insert(number, self.name);
            number
        };
        let allowance = self.allowance.clone();
        if allowance.as_ref().is_some_and(|allowance| allowance.take(buffer.capacity())) {
            self.registry.record.found(format!("{} has handed out more than it may", self.name));
        }
        Buffer::new(Box::new(Numbered { buffer, number, registry: self.registry.clone(), allowance }))
    }
}

impl Allocator for Watched {
    fn try_allocate(&self, len: usize) -> Option<Buffer> {
        if self.faults.is_scarce() {
            return None;
        }
        self.inner.try_allocate(len).map(|buffer| self.number(buffer))
    }

    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(async move {
            if self.faults.is_scarce() {
                let wait = Duration::from_micros(self.faults.random.below(MAX_WAIT_MICROS));
                self.clock.sleep_until(self.clock.now() + wait).await;
            }
            let buffer = self.inner.allocate(len).await;
            self.number(buffer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::Heap;
    use rpcrdma_sim::World;

    fn watched() -> (Watched, Arc<Record>) {
        let clock = World::new(1).env().clock;
        let record = Record::new(clock.clone());
        let registry = Registry::new(record.clone());
        let faults = Arc::new(Faults::none());
        (Watched { inner: Arc::new(Heap), name: "test", registry, faults, clock, allowance: None }, record)
    }

    #[test]
    fn buffers_are_counted_until_their_last_user_is_gone() {
        let (watched, record) = watched();
        let octets = {
            let mut buffer = watched.try_allocate(10).unwrap();
            buffer.set_len(10);
            buffer.freeze()
        };
        let clone = octets.clone();
        drop(octets);
        assert_eq!(watched.registry.live().get("test"), Some(&1));
        drop(clone);
        assert!(watched.registry.live().is_empty() && record.findings().is_empty());
    }

    #[test]
    fn a_second_owner_is_found() {
        for misdeed in 0..4 {
            let (watched, record) = watched();
            let buffer = watched.try_allocate(10).unwrap();
            let registry = watched.registry.clone();
            registry.give(1, &buffer);
            match misdeed {
                0 => registry.give(2, &buffer),
                1 => registry.take(2, &buffer),
                2 => registry.closed(1),
                _ => drop(buffer),
            }
            assert_eq!(record.findings().len(), 1, "misdeed {misdeed}");
        }
    }

    #[test]
    fn what_comes_back_once_is_no_finding() {
        let (watched, record) = watched();
        let buffer = watched.try_allocate(10).unwrap();
        watched.registry.give(1, &buffer);
        watched.registry.take(1, &buffer);
        watched.registry.closed(1);
        watched.registry.give(2, &buffer);
        watched.registry.abandon(2);
        drop(buffer);
        assert!(record.findings().is_empty());
    }

    #[test]
    fn octets_are_readable_until_they_are_fenced_or_their_queue_pair_is_gone() {
        let registry = watched().0.registry;
        let octets = [7; 100];
        registry.expose(1, 5, &octets[10..20]);
        assert!(registry.is_readable(&octets) && registry.is_readable(&octets[19..30]));
        assert!(!registry.is_readable(&octets[..10]) && !registry.is_readable(&octets[20..]));
        registry.fence(2, 5);
        assert!(registry.is_readable(&octets));
        registry.fence(1, 5);
        assert!(!registry.is_readable(&octets));
        registry.expose(1, 6, &octets);
        registry.abandon(1);
        assert!(!registry.is_readable(&octets));
    }

    #[test]
    fn an_allocator_that_hands_out_more_than_it_may_is_found() {
        let (watched, record) = watched();
        let watched = Watched { allowance: Some(Allowance::new(100)), ..watched };
        let large = watched.try_allocate(1000);
        assert_eq!(record.findings().len(), 0, "one piece may be as large as it has to be");
        drop(large);
        let whole = [60, 40].map(|len| watched.try_allocate(len));
        assert_eq!(record.findings().len(), 0);
        let more = watched.try_allocate(1);
        assert_eq!(record.findings().len(), 1);
        drop((whole, more));
        assert!(watched.try_allocate(100).is_some());
        assert_eq!(record.findings().len(), 1);
    }
}
