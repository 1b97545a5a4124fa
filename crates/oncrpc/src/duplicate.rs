//! The duplicate request cache: a call that comes again because its reply was lost is answered, not executed again.
//!
//! It owns copies of replies, so that they hold no memory of a transport. Their bytes are limited: if there is no
//! room, the client that holds the most loses its oldest reply, and a reply that is larger than a shard's share is not
//! kept. Entries of calls in progress are never evicted and displace no reply; the transports limit their number.
//! Nothing in it can fail.
//!
//! A duplicate of a call in progress is never executed. On the call's own connection it is dropped, because the reply
//! is on its way. On another connection, from any port of the client's address, it waits for the reply: the first
//! connection has most likely ended, and a client of a reliable transport does not send a third time, so dropping it
//! would leave the client waiting for ever.

mod kept;

use bytes::Bytes;
use kept::Kept;
use rpcrdma_env::Timestamp;
use rpcrdma_xdr::{Part, Payload, StreamPart, padded};
use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// How long a reply is kept: longer than clients take to notice a lost connection and to send again.
pub const DUPLICATE_LIFETIME: Duration = Duration::from_secs(120);
/// How many bytes of replies the cache may hold by default: some 40,000 of usual size.
pub const DUPLICATE_CACHE_BYTES: usize = 16 << 20;
/// What an entry costs beyond its reply's bytes, roughly: key, bookkeeping, allocations.
pub const DUPLICATE_ENTRY_BYTES: usize = 256;
/// How many duplicates wait for one call in progress. Each is from a connection of its own, and only the client's
/// latest matters; when there are more, the one that has waited longest is dropped.
pub(crate) const MAX_WAITING: usize = 4;
/// Into how many parts the cache is divided, each with its lock, so that connections seldom wait for each other.
const SHARDS: usize = 16;

/// Two calls with the same key are the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) client: IpAddr,
    /// The client's port, if only calls from this port get the kept reply; else 0, because a client that connects again
    /// has another port.
    pub(crate) port: u16,
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    /// The caller's number, if the caller is proven; else 0, and the credential is a part of the call.
    pub(crate) caller: u64,
    /// The length in bytes of the whole call, or of the arguments where the caller is proven.
    pub(crate) len: usize,
    /// A checksum of the same bytes; of long data it covers only a sample ([`measure`]).
    pub(crate) checksum: u64,
}

impl Hash for Key {
    /// Passes several fields on together: a hasher that clients cannot foresee takes as long for a word as for four.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let client = match self.client {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let Self { port, xid, program, version, procedure, caller, len, checksum, .. } = *self;
        let join = |words: [u32; 4]| words.into_iter().fold(0, |all, word| (all << 32) | u128::from(word));
        state.write_u128(client.to_bits());
        state.write_u128(join([xid, program, version, procedure]));
        state.write_u128((u128::from(caller) << 64) | u128::from(checksum));
        state.write_u128((u128::from(port) << 64) | len as u128);
    }
}

impl Key {
    /// The key of a call while it is executed. It has no port: a repetition from any port is not executed again.
    fn executing(self) -> Self {
        // RPC-DRC-b
        Self { port: 0, ..self }
    }
}

/// A connection, among all of a server's transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    pub(crate) id: u64,
}

/// How many bytes at the beginning of a call the checksum covers completely: a small call whole, and of a WRITE all but
/// most of its data.
const CHECKED_HEAD: usize = 16 << 10;
/// Behind the head, the checksum covers the first [`SAMPLE`] bytes of each piece of this length.
const SAMPLE_STEP: usize = 32 << 10;
/// One line of the processor's cache.
const SAMPLE: usize = 64;
/// The samples of a mebibyte.
const TOGETHER: usize = 2048;

/// The length in bytes and the checksum of a whole call. Both are the same for each way in which the call can come: an
/// item that was placed directly has no padding, but may have come inline the first time, over another connection.
///
/// Reading a mebibyte once more costs a WRITE a seventh of its rate, so the checksum of a long call covers only a
/// sample (docs/decisions/0015).
pub(crate) fn measure<'a>(parts: impl Iterator<Item = &'a StreamPart>) -> (usize, u64) {
    let mut checksum = Checksum::new();
    let mut len = 0;
    for part in parts {
        let (StreamPart::Run(octets) | StreamPart::Chunk(octets)) = part;
        sample(&mut checksum, len, octets);
        len += octets.len();
        if let StreamPart::Chunk(item) = part {
            let padding = padded(item.len()) - item.len();
            sample(&mut checksum, len, &[0; 4][..padding]);
            len += padding;
        }
    }
    (len, checksum.finish())
}

/// Adds those of `bytes` that the checksum covers; `bytes` begin at position `at` of the call.
fn sample(checksum: &mut Checksum, at: usize, bytes: &[u8]) {
    let mut from = 0;
    while from < bytes.len() {
        let position = at + from;
        let in_step = position % SAMPLE_STEP;
        let covered = match position {
            _ if position < CHECKED_HEAD => CHECKED_HEAD - position,
            _ => SAMPLE.saturating_sub(in_step),
        };
        let end = (from + covered).min(bytes.len());
        checksum.add(&bytes[from..end]);
        from = if covered == 0 { from + SAMPLE_STEP - in_step } else { end };
    }
}

/// A checksum of many short runs. They are put together first: to begin anew for each costs more than the copy.
struct Checksum {
    digest: crc_fast::Digest,
    together: [u8; TOGETHER],
    len: usize,
}

impl Checksum {
    fn new() -> Self {
        let digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        Self { digest, together: [0; TOGETHER], len: 0 }
    }

    fn add(&mut self, run: &[u8]) {
        if let Some(room) = self.together.get_mut(self.len..self.len + run.len()) {
            room.copy_from_slice(run);
            self.len += run.len();
            return;
        }
        self.digest.update(&self.together[..self.len]);
        self.digest.update(run);
        self.len = 0;
    }

    fn finish(mut self) -> u64 {
        self.digest.update(&self.together[..self.len]);
        self.digest.finalize()
    }
}

/// What the cache knows of a call.
pub(crate) enum Lookup {
    /// It is new, and from now on in progress until the guard is used or dropped.
    New(InProgress),
    /// It is being executed, and its reply goes over the same connection.
    InProgress,
    /// It is being executed for another connection. The receiver gets the reply, or nothing if none is kept.
    Wait(oneshot::Receiver<Payload>),
    /// It was executed, with this reply.
    Done(Payload),
}

/// A cache of replies. Cloning shares.
#[derive(Clone)]
pub(crate) struct DuplicateCache {
    shards: Arc<[Mutex<Shard>]>,
    shard_bytes: usize,
}

#[derive(Default)]
struct Shard {
    in_progress: HashMap<Key, Executing>,
    kept: Kept,
}

/// A call in progress: the connection that it came over, and the duplicates that wait for its reply.
struct Executing {
    origin: Origin,
    waiting: Vec<oneshot::Sender<Payload>>,
}

impl DuplicateCache {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, shard_bytes: max_bytes / SHARDS }
    }

    // RPC-DRC-a
    pub(crate) fn lookup(&self, key: Key, origin: Origin, now: Timestamp) -> Lookup {
        let mut shard = self.shard(&key);
        shard.kept.expire(now);
        if let Some(reply) = shard.kept.get(&key) {
            return Lookup::Done(reply.clone());
        }
        match shard.in_progress.get_mut(&key.executing()) {
            Some(Executing { origin: first, .. }) if *first == origin => Lookup::InProgress,
            Some(Executing { waiting, .. }) => {
                waiting.retain(|waiter| !waiter.is_closed());
                if waiting.len() == MAX_WAITING {
                    waiting.remove(0);
                }
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Lookup::Wait(receiver)
            }
            None => {
                shard.in_progress.insert(key.executing(), Executing { origin, waiting: Vec::new() });
                Lookup::New(InProgress { cache: self.clone(), key, finished: false })
            }
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        // A client's XIDs are consecutive, so its calls spread over all shards.
        let at = key.xid as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn octets(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().kept.octets()).sum()
    }

    #[cfg(test)]
    pub(crate) fn in_progress(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().in_progress.len()).sum()
    }
}

/// A call that is being executed. If it is dropped without a reply, the cache forgets the call.
pub(crate) struct InProgress {
    cache: DuplicateCache,
    key: Key,
    finished: bool,
}

impl InProgress {
    /// The call was executed: keeps a copy of its reply.
    pub(crate) fn finish(mut self, reply: &Payload, now: Timestamp) {
        let reply = copied(reply);
        let mut shard = self.cache.shard(&self.key);
        shard.kept.expire(now);
        for waiting in
            shard.in_progress.remove(&self.key.executing()).into_iter().flat_map(|executing| executing.waiting)
        {
            // A duplicate that has stopped waiting comes again.
            let _ = waiting.send(reply.clone());
        }
        self.finished = true;
        shard.kept.insert(now, self.key, reply, self.cache.shard_bytes);
    }
}

impl InProgress {
    /// The call was executed, and may be executed again: passes its reply to the duplicates that wait, and does not
    /// keep it.
    pub(crate) fn pass_on(mut self, reply: &Payload) {
        let waiting = self.cache.shard(&self.key).in_progress.remove(&self.key.executing());
        self.finished = true;
        for waiting in waiting.into_iter().flat_map(|executing| executing.waiting) {
            // A duplicate that has stopped waiting comes again.
            let _ = waiting.send(copied(reply));
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if !self.finished {
            self.cache.shard(&self.key).in_progress.remove(&self.key.executing());
        }
    }
}

/// The same stream in memory of its own, marks kept.
fn copied(payload: &Payload) -> Payload {
    let mut copy = Payload::new();
    for part in payload.parts() {
        match part {
            Part::Run(run) => copy.push_run(Bytes::copy_from_slice(run)),
            Part::Item(data) => copy.push_item(Bytes::copy_from_slice(data)),
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(5);

    fn key(xid: u32) -> Key {
        let client = IpAddr::from([127, 0, 0, 1]);
        Key { client, port: 0, xid, program: 1, version: 1, procedure: 1, caller: 0, len: 40, checksum: 7 }
    }

    fn origin(id: u64) -> Origin {
        Origin { peer: ([127, 0, 0, 1], 700).into(), id }
    }

    fn reply(len: usize) -> Payload {
        Payload::from(Bytes::from(vec![9; len]))
    }

    fn execute(cache: &DuplicateCache, key: Key, len: usize, now: Timestamp) {
        match cache.lookup(key, origin(1), now) {
            Lookup::New(call) => call.finish(&reply(len), now),
            _ => panic!("the call was known"),
        }
    }

    #[test]
    fn a_reply_that_is_passed_on_reaches_who_waits_and_is_not_kept() {
        let cache = DuplicateCache::new(DUPLICATE_CACHE_BYTES);
        let Lookup::New(call) = cache.lookup(key(1), origin(1), NOW) else { panic!("the call was known") };
        let Lookup::Wait(mut waiting) = cache.lookup(key(1), origin(2), NOW) else { panic!("nothing to wait for") };
        call.pass_on(&reply(40));
        assert_eq!(waiting.try_recv().unwrap().len(), 40);
        assert_eq!((cache.octets(), cache.in_progress()), (0, 0));
        assert!(!is_done(&cache, key(1), NOW));
    }

    fn is_done(cache: &DuplicateCache, key: Key, now: Timestamp) -> bool {
        matches!(cache.lookup(key, origin(1), now), Lookup::Done(_))
    }

    #[test]
    fn a_reply_is_kept_for_120_seconds() {
        let cache = DuplicateCache::new(DUPLICATE_CACHE_BYTES);
        execute(&cache, key(1), 100, NOW);
        let end = NOW + DUPLICATE_LIFETIME;
        assert!(is_done(&cache, key(1), Timestamp::from_nanos(end.as_nanos() - 1)));
        assert!(!is_done(&cache, key(1), end));
        assert_eq!(
            (cache.octets(), cache.in_progress()),
            (0, 0),
            "the entry and the guard of the second look are gone"
        );
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let cache = DuplicateCache::new(DUPLICATE_CACHE_BYTES);
        execute(&cache, key(1), 100, NOW);
        let others = [
            Key { client: IpAddr::from([127, 0, 0, 2]), ..key(1) },
            Key { port: 700, ..key(1) },
            key(2),
            Key { program: 2, ..key(1) },
            Key { version: 2, ..key(1) },
            Key { procedure: 2, ..key(1) },
            Key { caller: 1, ..key(1) },
            Key { len: 44, ..key(1) },
            Key { checksum: 8, ..key(1) },
        ];
        for other in others {
            assert!(matches!(cache.lookup(other, origin(1), NOW), Lookup::New(_)), "{other:?}");
        }
        assert!(is_done(&cache, key(1), NOW));
    }

    /// Seed 2792 of the simulation found this: a call came inline, and again in another version of RPC-over-RDMA, where
    /// its item was placed.
    ///
    /// proves: RPC-DRC-a
    #[test]
    fn a_call_is_the_same_whether_its_item_comes_inline_or_placed() {
        for len in 0..=5 {
            let item: Vec<u8> = (1..=len).collect();
            let mut inline = vec![StreamPart::Run(Bytes::from_static(&[7; 8])), StreamPart::Run(item.clone().into())];
            inline.push(StreamPart::Run(vec![0; padded(item.len()) - item.len()].into()));
            inline.push(StreamPart::Run(Bytes::from_static(&[8; 4])));
            let placed = [inline[0].clone(), StreamPart::Chunk(item.into()), inline[3].clone()];
            assert_eq!(measure(inline.iter()), measure(placed.iter()), "{len} bytes");
        }
    }

    /// However a call is cut into parts, and whichever of its bytes that count has changed.
    ///
    /// proves: RPC-DRC-a
    #[test]
    fn a_long_call_is_known_by_its_head_and_by_a_sample_of_its_data() {
        let call: Vec<u8> = (0..100_001u32).map(|at| (at * 7 + at / 256) as u8).collect();
        let in_parts = |call: &[u8], octets: usize| {
            let parts: Vec<_> = call.chunks(octets).map(|part| StreamPart::Run(Bytes::copy_from_slice(part))).collect();
            measure(parts.iter())
        };
        let whole = in_parts(&call, call.len());
        for octets in [1, 63, 64, 4095, 4096, 4097, 16_384, 32_768, 50_000] {
            assert_eq!(in_parts(&call, octets), whole, "in parts of {octets}");
        }
        let last_step = 98_304;
        for (at, counts) in [
            (0, true),
            (CHECKED_HEAD - 1, true),
            (CHECKED_HEAD, false),
            (SAMPLE_STEP - 1, false),
            (SAMPLE_STEP, true),
            (SAMPLE_STEP + SAMPLE - 1, true),
            (SAMPLE_STEP + SAMPLE, false),
            (last_step - 1, false),
            (last_step, true),
            (last_step + SAMPLE - 1, true),
            (last_step + SAMPLE, false),
        ] {
            let mut other = call.clone();
            other[at] ^= 1;
            assert_eq!(in_parts(&other, 70_000) != whole, counts, "byte {at}");
        }
        assert_ne!(in_parts(&call[..100_000], 70_000).0, whole.0, "the length counts in any case");
    }

    #[test]
    fn a_call_in_progress_is_known_until_it_is_dropped() {
        let cache = DuplicateCache::new(0);
        let call = cache.lookup(key(1), origin(1), NOW);
        assert!(matches!(call, Lookup::New(_)), "even without any room");
        assert!(matches!(cache.lookup(key(1), origin(1), NOW), Lookup::InProgress));
        drop(call);
        assert!(matches!(cache.lookup(key(1), origin(1), NOW), Lookup::New(_)));
        assert_eq!((cache.octets(), cache.in_progress()), (0, 0));
    }

    /// proves: RPC-DRC-b
    #[test]
    fn duplicates_from_other_connections_wait_and_not_too_many() {
        let cache = DuplicateCache::new(0);
        let wait = |id| match cache.lookup(key(1), origin(id), NOW) {
            Lookup::Wait(receiver) => receiver,
            _ => panic!("connection {id} does not wait"),
        };
        let Lookup::New(call) = cache.lookup(key(1), origin(1), NOW) else { panic!("the call was known") };
        let mut waiting: Vec<_> = (2..).take(MAX_WAITING).map(wait).collect();
        assert!(waiting[0].try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty), "at the limit");
        waiting.push(wait(99));
        assert!(waiting[0].try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed), "one past it");
        call.finish(&reply(10), NOW);
        for waiter in &mut waiting[1..] {
            assert_eq!(waiter.try_recv().unwrap().len(), 10, "though the reply is too large to be kept");
        }
        assert_eq!(cache.octets(), 0);
        let Lookup::New(call) = cache.lookup(key(1), origin(1), NOW) else { panic!("the call was known") };
        let mut waiter = wait(2);
        drop(call);
        assert!(waiter.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
    }

    /// A client without sessions loses its connection, and sends the call again from another port while the server
    /// executes it.
    ///
    /// proves: RPC-DRC-b
    #[test]
    fn a_call_in_progress_is_not_executed_for_another_port() {
        let cache = DuplicateCache::new(DUPLICATE_CACHE_BYTES);
        let [first, second] = [700, 701].map(|port| Key { port, ..key(1) });
        for is_kept in [false, true] {
            let Lookup::New(call) = cache.lookup(first, origin(1), NOW) else { panic!("the call was known") };
            let Lookup::Wait(mut waiting) = cache.lookup(second, origin(2), NOW) else {
                panic!("it is executed twice")
            };
            if is_kept {
                call.finish(&reply(40), NOW)
            } else {
                call.pass_on(&reply(40))
            }
            assert_eq!(waiting.try_recv().unwrap().len(), 40);
            assert_eq!(
                (is_done(&cache, first, NOW), is_done(&cache, second, NOW)),
                (is_kept, false),
                "kept for its port"
            );
            assert_eq!(cache.in_progress(), 0);
        }
    }

    #[test]
    fn the_oldest_replies_make_room() {
        let share = 2 * (DUPLICATE_ENTRY_BYTES + 100);
        let cache = DuplicateCache::new(share * SHARDS);
        let [first, second, third] = [0, 1, 2].map(|n| key(n * SHARDS as u32));
        execute(&cache, first, 100, NOW);
        execute(&cache, second, 100, NOW);
        assert_eq!(cache.octets(), share);
        assert!(is_done(&cache, first, NOW), "at the limit nothing goes");
        execute(&cache, third, 100, NOW);
        assert_eq!(cache.octets(), share);
        assert!(!is_done(&cache, first, NOW));
        assert!(is_done(&cache, third, NOW));
    }

    /// A client that keeps its calls from ending displaces no other client's replies.
    ///
    /// proves: RPC-DRC-c
    #[test]
    fn calls_in_progress_and_floods_of_others_drive_no_reply_out() {
        let cache = DuplicateCache::new(100 * DUPLICATE_ENTRY_BYTES * SHARDS);
        execute(&cache, key(0), 100, NOW);
        let other = |n: u32| Key { client: IpAddr::from([192, 0, 2, 9]), ..key(n * SHARDS as u32) };
        let held: Vec<_> = (1..=4000).map(|n| cache.lookup(other(n), origin(9), NOW)).collect();
        assert!(held.iter().all(|looked| matches!(looked, Lookup::New(_))));
        assert!(is_done(&cache, key(0), NOW));
        drop(held);
        (1..=4000).for_each(|n| execute(&cache, other(n), 0, NOW));
        assert!(is_done(&cache, key(0), NOW), "a flood in the same part of the cache");
        assert!(!is_done(&cache, other(1), NOW) && is_done(&cache, other(4000), NOW));
    }

    #[test]
    fn a_reply_above_the_share_is_not_kept() {
        let cache = DuplicateCache::new((DUPLICATE_ENTRY_BYTES + 100) * SHARDS);
        execute(&cache, key(1), 100, NOW);
        assert!(is_done(&cache, key(1), NOW));
        execute(&cache, key(2), 101, NOW);
        assert!(!is_done(&cache, key(2), NOW));
    }

    #[test]
    fn a_kept_reply_holds_no_foreign_memory_and_keeps_its_marks() {
        let data = Bytes::from(vec![1; 64]);
        let mut payload = reply(8);
        payload.push_item(data.clone());
        let copy = copied(&payload);
        assert_eq!(copy.items().count(), 1);
        assert_eq!(copy.to_bytes(), payload.to_bytes());
        assert!(copy.items().all(|(_, item)| item.as_ptr() != data.as_ptr()));
    }
}
