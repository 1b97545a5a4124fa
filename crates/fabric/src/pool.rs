//! Pools of buffers: memory that is used again, and its budgets.
//!
//! A [`Pool`] keeps returned blocks by size class, so that the data path neither asks the system for memory nor zeroes
//! it. A [`Budget`] is an allocator over a pool that hands out at most a fixed number of bytes at a time and makes
//! callers wait, first come first served. Blocks return to pool and budget when the last user drops them.
//!
//! A buffer takes its bytes from the pool at the first write: so a receive that waits for its message costs only some
//! words, and an idle connection has a hundred of them. A budget counts the bytes that the caller asked for, from the
//! beginning. A large block begins at a page of memory.

mod octets;

use bytes::Bytes;
use octets::Octets;
use rpcrdma_env::{Allocator, BoxFuture, Buffer, Memory};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The smallest block, in bytes: an inline message.
const MIN_BLOCK_BYTES: usize = 4096;
/// Classes double from the smallest block: 4 KiB to 4 MiB. Larger blocks are not kept.
const CLASSES: usize = 11;
/// Unused bytes that the pool keeps for each class. This limits the memory of an idle process.
const KEPT_BYTES_PER_CLASS: usize = 32 << 20;
/// Blocks without bytes that the pool keeps; each has less than a hundred bytes.
const KEPT_EMPTY: usize = 1024;
/// The unit of a budget, in bytes, so that its count fits the semaphore's.
const BUDGET_UNIT_BYTES: usize = 1024;

/// Blocks of memory, kept for the next user. Clones are cheap and share the blocks.
#[derive(Clone, Default)]
pub struct Pool {
    free: Arc<FreeLists>,
    /// If set, this allocator provides the memory and keeps it: a provider's pool, whose memory is registered.
    source: Option<Arc<dyn Allocator>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("free", &self.free).field("source", &self.source.is_some()).finish()
    }
}

#[derive(Debug, Default)]
struct FreeLists {
    classes: [Mutex<Vec<Octets>>; CLASSES],
    /// Blocks without bytes.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    empty: Mutex<Vec<Box<Block>>>,
}

/// The class whose blocks hold `len` bytes, if there is one.
fn class_of(len: usize) -> Option<usize> {
    let blocks = len.div_ceil(MIN_BLOCK_BYTES).max(1).checked_next_power_of_two()?;
    let class = blocks.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

/// The size in bytes of the block that holds `len` bytes.
fn block_bytes(len: usize) -> usize {
    class_of(len).map_or(len, |class| MIN_BLOCK_BYTES << class)
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// A pool whose memory comes from `source`, for budgets over a [provider's pool](crate::Fabric::pool). If `source`
    /// has none free, memory comes from the heap.
    pub fn over(source: Arc<dyn Allocator>) -> Self {
        Self { free: Arc::default(), source: Some(source) }
    }

    /// An allocator over this pool that hands out at most `octets` at a time.
    pub fn budget(&self, octets: usize) -> Budget {
        let units = (octets / BUDGET_UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Budget { pool: self.clone(), units: units as u32, left: Arc::new(Semaphore::new(units)), whole: None }
    }

    fn take(&self, len: usize, permits: Permits) -> Buffer {
        if let Some(mut buffer) = self.source.as_ref().and_then(|source| source.try_allocate(len)) {
            buffer.set_len(buffer.capacity());
            return Buffer::new(Box::new(Borrowed { buffer, _permits: permits }));
        }
        let mut block = self.free.take_empty();
        (block.size, block.free, block.permits) = (block_bytes(len), Some(self.free.clone()), permits);
        Buffer::new(block)
    }
}

impl Allocator for Pool {
    fn try_allocate(&self, len: usize) -> Option<Buffer> {
        Some(self.take(len, Permits::default()))
    }

    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(std::future::ready(self.take(len, Permits::default())))
    }
}

/// An allocator with a limit on memory in use. Clones share the limit.
#[derive(Clone, Debug)]
pub struct Budget {
    pool: Pool,
    units: u32,
    left: Arc<Semaphore>,
    /// If this budget is a share: the whole budget, with its units.
    whole: Option<(Arc<Semaphore>, u32)>,
}

/// The units that a block takes from its budget, and from the whole budget if its own is a share.
#[derive(Debug, Default)]
struct Permits {
    _own: Option<OwnedSemaphorePermit>,
    _whole: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// A share of this budget: an allocator that hands out at most `octets` of it at a time, so that its users leave
    /// the rest to others. A share of a share is a share of the whole.
    pub fn share(&self, octets: usize) -> Budget {
        let whole = self.whole.clone().unwrap_or_else(|| (self.left.clone(), self.units));
        let share = self.pool.budget(octets.min(whole.1 as usize * BUDGET_UNIT_BYTES));
        Budget { whole: Some(whole), ..share }
    }

    /// The most bytes that the budget hands out at a time.
    pub fn limit(&self) -> usize {
        self.units as usize * BUDGET_UNIT_BYTES
    }

    /// Bytes that are handed out at present.
    pub fn in_use(&self) -> usize {
        (self.units as usize).saturating_sub(self.left.available_permits()) * BUDGET_UNIT_BYTES
    }

    /// The units that a block of `len` bytes takes. If they exceed the budget, callers take the whole budget instead.
    fn units_for(len: usize) -> u32 {
        let units = block_bytes(len).div_ceil(BUDGET_UNIT_BYTES);
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

impl Allocator for Budget {
    fn try_allocate(&self, len: usize) -> Option<Buffer> {
        let units = Self::units_for(len);
        let own = self.left.clone().try_acquire_many_owned(units.min(self.units)).ok()?;
        let whole = match &self.whole {
            Some((left, all)) => Some(left.clone().try_acquire_many_owned(units.min(*all)).ok()?),
            None => None,
        };
        Some(self.pool.take(len, Permits { _own: Some(own), _whole: whole }))
    }

    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(async move {
            // The semaphore is never closed; without a permit the budget would only not count the block.
            let units = Self::units_for(len);
            let own = self.left.clone().acquire_many_owned(units.min(self.units)).await.ok();
            // A caller that waits here already holds units of its share, so it delays only callers of the same share.
            let whole = match &self.whole {
                Some((left, all)) => left.clone().acquire_many_owned(units.min(*all)).await.ok(),
                None => None,
            };
            self.pool.take(len, Permits { _own: own, _whole: whole })
        })
    }
}

/// A buffer of another allocator, whose whole capacity counts as written.
struct Borrowed {
    buffer: Buffer,
    _permits: Permits,
}

impl Memory for Borrowed {
    fn octets(&self) -> &[u8] {
        self.buffer.filled()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }
}

/// A block of a pool, or an empty block that waits for its next user and counts for no budget.
#[derive(Debug, Default)]
struct Block {
    /// Empty before the first write, then `size` bytes.
    octets: Octets,
    size: usize,
    free: Option<Arc<FreeLists>>,
    permits: Permits,
    /// Bytes that lie elsewhere, in place of its own.
    held: Option<Bytes>,
}

impl Memory for Block {
    fn octets(&self) -> &[u8] {
        self.held.as_deref().unwrap_or(&self.octets)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Some(free) = self.free.as_ref().filter(|_| self.octets.is_empty()) {
            self.octets = free.take(self.size);
        }
        if let Some(held) = self.held.take() {
            let both = held.len().min(self.octets.len());
            self.octets[..both].copy_from_slice(&held[..both]);
        }
        &mut self.octets
    }

    fn hold(&mut self, octets: Bytes) -> Result<(), Bytes> {
        self.held = Some(octets);
        Ok(())
    }

    fn take_held(&mut self) -> Option<Bytes> {
        self.held.take()
    }

    fn capacity(&self) -> usize {
        self.size
    }

    fn release(&mut self) {
        self.held = None;
        if let Some(free) = self.free.as_ref().filter(|_| !self.octets.is_empty()) {
            free.keep(std::mem::take(&mut self.octets));
        }
    }

    fn give_back(mut self: Box<Self>) {
        self.release();
        self.permits = Permits::default();
        if let Some(free) = self.free.take() {
            free.keep_empty(self);
        }
    }
}

impl FreeLists {
    /// Bytes that were used before, or new ones from the heap.
    fn take(&self, size: usize) -> Octets {
        let kept =
            class_of(size).and_then(|class| self.classes[class].lock().unwrap_or_else(PoisonError::into_inner).pop());
        kept.unwrap_or_else(|| Octets::new(size))
    }

    /// Keeps bytes for the next user, within the limit.
    fn keep(&self, octets: Octets) {
        let size = octets.len();
        let Some(class) = class_of(size).filter(|_| size > 0) else { return };
        let mut kept = self.classes[class].lock().unwrap_or_else(PoisonError::into_inner);
        if (kept.len() + 1) * size <= KEPT_BYTES_PER_CLASS {
            kept.push(octets);
        }
    }

    /// A block that was used before, or a new one. It never waits for the lock, so no caller waits for another.
    fn take_empty(&self) -> Box<Block> {
        self.empty.try_lock().ok().and_then(|mut empty| empty.pop()).unwrap_or_default()
    }

    fn keep_empty(&self, block: Box<Block>) {
        if let Ok(mut empty) = self.empty.try_lock()
            && empty.len() < KEPT_EMPTY
        {
            empty.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: &mut BoxFuture<'_, T>) -> Poll<T> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_returned_block_serves_the_next_request_of_its_class() {
        let pool = Pool::new();
        let first = pool.try_allocate(5000).unwrap();
        assert_eq!(first.capacity(), 8192);
        let mut first = first;
        let address = first.bytes_mut().as_ptr();
        first.set_len(10);
        let shared = first.freeze();
        drop(shared);
        assert_eq!(pool.try_allocate(8192).unwrap().bytes_mut().as_ptr(), address);
    }

    /// The next buffer uses the parts of the last one: neither its bytes nor the structures around them come from the
    /// heap again.
    #[test]
    fn a_block_is_used_again_and_counts_for_nobody_meanwhile() {
        let pool = Pool::new();
        let budget = pool.budget(4096);
        let address = |buffer: &Buffer| std::ptr::from_ref(buffer.memory()).cast::<()>();
        let first = budget.try_allocate(1).unwrap();
        let block = address(&first);
        drop(first);
        assert_eq!((budget.in_use(), pool.free.empty.lock().unwrap().len()), (0, 1));
        let again = budget.try_allocate(4096).unwrap();
        assert_eq!((address(&again), again.capacity(), budget.in_use()), (block, 4096, 4096));
        // A larger buffer uses the same block, too.
        drop(again);
        assert_eq!(pool.try_allocate(5000).unwrap().capacity(), 8192);
        // No block keeps its pool alive.
        let free = Arc::downgrade(&pool.free);
        drop((pool, budget));
        assert!(free.upgrade().is_none());
    }

    /// A receive that has received nothing yet costs no memory, and leaves none behind.
    #[test]
    fn a_block_that_nobody_writes_to_is_not_there() {
        let pool = Pool::new();
        let of_class = |class: usize| pool.free.classes[class].lock().unwrap().len();
        let budget = pool.budget(64 << 10);
        let mut waiting: Vec<_> = (0..2).map(|_| budget.try_allocate(4096).unwrap()).collect();
        assert_eq!((waiting[0].capacity(), waiting[0].filled().len(), budget.in_use()), (4096, 0, 8192));
        waiting[1].bytes_mut()[0] = 1;
        drop(waiting);
        assert_eq!((of_class(0), budget.in_use()), (1, 0), "the one that was written to is kept");
        drop(pool.try_allocate(4096).unwrap().freeze());
        assert_eq!(of_class(0), 1, "and stays where it is until somebody writes");
        let mut used = budget.try_allocate(4096).unwrap();
        used.bytes_mut()[0] = 1;
        used.set_len(1);
        assert_eq!(of_class(0), 0);
        used.clear();
        assert_eq!(
            (of_class(0), used.len(), used.capacity(), budget.in_use()),
            (1, 0, 4096, 4096),
            "others may have it"
        );
        used.bytes_mut()[4095] = 1;
        assert_eq!(of_class(0), 0);
    }

    /// A short message needs no block: a receive may hold it where it lies.
    #[test]
    fn a_block_may_hold_bytes_that_lie_elsewhere() {
        let pool = Pool::new();
        let octets = Bytes::from(vec![1, 2, 3]);
        let holding = || {
            let mut buffer = pool.try_allocate(4096).unwrap();
            buffer.hold(octets.clone());
            buffer
        };
        assert_eq!((holding().filled(), holding().len(), holding().capacity()), (&[1, 2, 3][..], 3, 4096));
        assert_eq!(holding().freeze().as_ptr(), octets.as_ptr(), "without a copy");
        let mut taken = holding();
        assert_eq!(taken.take_held().map(|held| held.as_ptr()), Some(octets.as_ptr()));
        assert_eq!((taken.take_held(), taken.len()), (None, 0), "and nothing twice");
        let mut cut = holding();
        cut.set_len(2);
        assert_eq!(cut.filled(), [1, 2]);
        assert_eq!(cut.take_held(), Some(octets.slice(..2)));
        let mut cleared = holding();
        cleared.clear();
        assert_eq!((cleared.take_held(), cleared.len()), (None, 0));
        drop((taken, cut, cleared));
        let kept = || pool.free.classes[0].lock().unwrap().len();
        assert_eq!(kept(), 0, "no block was taken so far");
        let mut written = holding();
        written.bytes_mut()[1] = 7;
        assert_eq!((written.take_held(), written.filled(), &octets[..]), (None, &[1, 7, 3][..], &[1, 2, 3][..]));
        let mut longer = holding();
        longer.set_len(4);
        assert_eq!(longer.filled()[..3], octets);
        drop((written, longer));
        assert_eq!((kept(), holding().filled()), (2, &octets[..]));
    }

    #[test]
    fn classes_end_at_their_limit() {
        let largest = MIN_BLOCK_BYTES << (CLASSES - 1);
        assert_eq!(class_of(0), Some(0));
        assert_eq!(class_of(largest), Some(CLASSES - 1));
        assert_eq!(class_of(largest + 1), None);
        assert_eq!(class_of(usize::MAX), None);
        assert_eq!(block_bytes(largest + 1), largest + 1);
    }

    #[test]
    fn idle_blocks_are_kept_up_to_the_limit_and_no_more() {
        let pool = Pool::new();
        let size = MIN_BLOCK_BYTES << (CLASSES - 1);
        let fits = KEPT_BYTES_PER_CLASS / size;
        let mut blocks: Vec<_> = (0..=fits).map(|_| pool.try_allocate(size).unwrap()).collect();
        blocks.iter_mut().for_each(|block| block.bytes_mut()[0] = 1);
        drop(blocks);
        assert_eq!(pool.free.classes[CLASSES - 1].lock().unwrap().len(), fits);
    }

    #[test]
    fn a_budget_makes_callers_wait_in_order() {
        let budget = Pool::new().budget(16 << 10);
        let first = budget.try_allocate(8 << 10).unwrap();
        let second = budget.try_allocate(8 << 10).unwrap();
        assert_eq!(budget.in_use(), budget.limit());
        assert!(budget.try_allocate(1).is_none());
        let mut large = budget.allocate(16 << 10);
        let mut small = budget.allocate(1);
        assert!(poll(&mut large).is_pending());
        assert!(poll(&mut small).is_pending());
        drop(first);
        assert!(poll(&mut small).is_pending(), "the small request does not overtake the large one");
        drop(second);
        let Poll::Ready(large) = poll(&mut large) else { panic!("everything was returned") };
        assert!(poll(&mut small).is_pending());
        drop(large);
        assert!(poll(&mut small).is_ready());
    }

    #[test]
    fn a_budget_over_another_pool_counts_its_blocks() {
        let source = Pool::new();
        let mut first = source.try_allocate(8192).unwrap();
        let address = first.bytes_mut().as_ptr();
        drop(first);
        let budget = Pool::over(Arc::new(source)).budget(8 << 10);
        let mut block = budget.try_allocate(5000).unwrap();
        assert_eq!((block.bytes_mut().as_ptr(), block.capacity(), block.len()), (address, 8192, 0));
        assert!(budget.try_allocate(1).is_none());
        drop(block);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_share_leaves_the_rest_to_others() {
        let budget = Pool::new().budget(64 << 10);
        let (greedy, modest) = (budget.share(48 << 10), budget.share(48 << 10));
        let held: Vec<_> = (0..6).map(|_| greedy.try_allocate(8 << 10).unwrap()).collect();
        assert_eq!((greedy.in_use(), greedy.limit()), (48 << 10, 48 << 10));
        assert!(greedy.try_allocate(1).is_none(), "its share, and no byte more");
        let mut waits = greedy.allocate(8 << 10);
        assert!(poll(&mut waits).is_pending());
        let other: Vec<_> = (0..2).map(|_| modest.try_allocate(8 << 10).unwrap()).collect();
        assert_eq!((budget.in_use(), modest.in_use()), (64 << 10, 16 << 10));
        assert!(modest.try_allocate(1).is_none(), "all is in use, though not all of its share");
        drop(other);
        assert!(modest.try_allocate(1).is_some(), "and what failed has given back what it had taken of it");
        drop(held);
        assert!(poll(&mut waits).is_ready());
        drop(waits);
        assert_eq!((budget.in_use(), greedy.in_use(), modest.in_use()), (0, 0, 0));
        // A request above its share, and a share above the whole.
        assert!(greedy.try_allocate(1 << 20).is_some());
        assert_eq!(budget.share(1 << 20).limit(), budget.limit());
    }

    #[test]
    fn a_request_above_the_whole_budget_is_served_alone() {
        let budget = Pool::new().budget(8 << 10);
        let huge = budget.try_allocate(1 << 20).unwrap();
        assert!(huge.capacity() >= 1 << 20);
        assert!(budget.try_allocate(1).is_none());
    }
}
