//! The memory that queue pairs reach without a further registration: slabs of a few MiB, cut into blocks.
//!
//! A slab is registered once in each protection domain that uses it, and lives until its device and the last block are
//! dropped. Its address is a multiple of its size, so that the address of any byte shows its slab. Each slab has blocks
//! of one size. Above the limit, blocks come from the heap: they work too, but each use costs a registration.

use rpcrdma_env::{Allocator, BoxFuture, Buffer, Heap, Memory};
use std::{
    alloc::Layout,
    collections::BTreeSet,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

/// Bytes in a slab, which are also the largest block and the extent of one registration. Large enough that a connection
/// without windows registers few slabs, small enough for an ordinary memory lock limit of 8 MiB.
pub(crate) const SLAB_BYTES: usize = 4 << 20;
/// The smallest block, in bytes: an inline message.
const MIN_BLOCK_BYTES: usize = 4096;
/// Block sizes double from the smallest to the slab.
const CLASSES: usize = (SLAB_BYTES / MIN_BLOCK_BYTES).trailing_zeros() as usize + 1;

/// All slabs of a device.
pub(crate) struct Slabs {
    /// The most bytes in slabs.
    limit: usize,
    /// The slabs' addresses. None is ever removed.
    bases: RwLock<BTreeSet<usize>>,
    free: Mutex<[Vec<NonNull<u8>>; CLASSES]>,
}

// SAFETY: the pointers name blocks that are not in use. A block has one owner from the moment that it leaves the list.
unsafe impl Send for Slabs {}
// SAFETY: as above; the lists are behind locks.
unsafe impl Sync for Slabs {}

fn layout() -> Layout {
    match Layout::from_size_align(SLAB_BYTES, SLAB_BYTES) {
        Ok(layout) => layout,
        Err(_) => unreachable!("the size is a power of two"),
    }
}

/// The class whose blocks hold `len` bytes, if there is one.
fn class_of(len: usize) -> Option<usize> {
    let blocks = len.div_ceil(MIN_BLOCK_BYTES).max(1).checked_next_power_of_two()?;
    let class = blocks.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Slabs {
    /// An empty set of slabs, which grows to at most `limit` bytes in all.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, bases: RwLock::default(), free: Mutex::default() })
    }

    /// The slab in which some bytes lie, if they lie in one.
    pub(crate) fn slab_of(&self, address: usize, octets: usize) -> Option<usize> {
        let base = address & !(SLAB_BYTES - 1);
        let inside = octets <= SLAB_BYTES - (address - base);
        (inside && self.bases.read().unwrap_or_else(PoisonError::into_inner).contains(&base)).then_some(base)
    }

    /// The address of a new slab, or `None` at the limit.
    fn grow(&self) -> Option<NonNull<u8>> {
        let mut bases = self.bases.write().unwrap_or_else(PoisonError::into_inner);
        if (bases.len() + 1) * SLAB_BYTES > self.limit {
            return None;
        }
        // SAFETY: the layout has a size.
        let slab = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout()) })?;
        bases.insert(slab.as_ptr() as usize);
        Some(slab)
    }

    fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let class = class_of(len)?;
        let octets = MIN_BLOCK_BYTES << class;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let list = &mut free[class];
        if list.is_empty() {
            let slab = self.grow()?;
            // SAFETY: each block lies within the slab that was just made.
            list.extend((0..SLAB_BYTES / octets).rev().map(|at| unsafe { slab.add(at * octets) }));
        }
        let at = list.pop()?;
        Some(Buffer::new(Box::new(Block { at, class, slabs: self.clone() })))
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        let bases = self.bases.get_mut().unwrap_or_else(PoisonError::into_inner);
        for base in std::mem::take(bases) {
            // SAFETY: `grow` allocated it with this layout. Blocks and registrations hold a reference to this value, so
            // none is left.
            unsafe { std::alloc::dealloc(base as *mut u8, layout()) }
        }
    }
}

/// The allocator over the slabs.
pub(crate) struct SlabPool(pub(crate) Arc<Slabs>);

impl Allocator for SlabPool {
    fn try_allocate(&self, len: usize) -> Option<Buffer> {
        self.0.take(len).or_else(|| Heap.try_allocate(len))
    }

    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        match self.0.take(len) {
            Some(buffer) => Box::pin(std::future::ready(buffer)),
            None => Box::pin(async move { Heap.allocate(len).await }),
        }
    }
}

struct Block {
    at: NonNull<u8>,
    class: usize,
    slabs: Arc<Slabs>,
}

// SAFETY: a block is memory with one owner, like a boxed slice.
unsafe impl Send for Block {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Block {}

impl Memory for Block {
    fn octets(&self) -> &[u8] {
        // SAFETY: the block is within its slab, which was zeroed when it was made and lives as long as `slabs`. This
        // block is in no free list, so it has no other owner.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), MIN_BLOCK_BYTES << self.class) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and access is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), MIN_BLOCK_BYTES << self.class) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.slabs.free.lock().unwrap_or_else(PoisonError::into_inner)[self.class].push(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_in_slabs_and_are_used_again() {
        let slabs = Slabs::new(SLAB_BYTES);
        let pool = SlabPool(slabs.clone());
        let mut first = pool.try_allocate(5000).unwrap();
        assert_eq!(first.capacity(), 8192);
        let address = first.bytes_mut().as_ptr() as usize;
        let base = slabs.slab_of(address, 8192).unwrap();
        assert_eq!(slabs.slab_of(base, SLAB_BYTES), Some(base));
        assert_eq!(slabs.slab_of(base + 1, SLAB_BYTES), None, "one byte past the end");
        assert_eq!(slabs.slab_of(base + SLAB_BYTES, 1), None);
        drop(first);
        assert_eq!(pool.try_allocate(8192).unwrap().bytes_mut().as_ptr() as usize, address);
    }

    #[test]
    fn above_the_limit_blocks_come_from_the_heap() {
        let slabs = Slabs::new(2 * SLAB_BYTES - 1);
        let pool = SlabPool(slabs.clone());
        let inside = |buffer: &mut Buffer| {
            let octets = buffer.bytes_mut();
            slabs.slab_of(octets.as_ptr() as usize, octets.len()).is_some()
        };
        let mut largest = pool.try_allocate(SLAB_BYTES).unwrap();
        assert!(inside(&mut largest));
        let mut other = pool.try_allocate(1).unwrap();
        assert!(!inside(&mut other));
        let mut longer = pool.try_allocate(SLAB_BYTES + 1).unwrap();
        assert!(!inside(&mut longer) && longer.capacity() > SLAB_BYTES);
        drop(largest);
        assert!(inside(&mut pool.try_allocate(SLAB_BYTES).unwrap()));
    }

    #[test]
    fn blocks_do_not_overlap_and_outlive_the_pool() {
        let pool = SlabPool(Slabs::new(SLAB_BYTES));
        let mut blocks: Vec<_> = (0..SLAB_BYTES / MIN_BLOCK_BYTES).map(|_| pool.try_allocate(1).unwrap()).collect();
        drop(pool);
        for (n, block) in blocks.iter_mut().enumerate() {
            block.bytes_mut().fill(n as u8);
        }
        for (n, block) in blocks.iter_mut().enumerate() {
            assert!(block.bytes_mut().iter().all(|octet| *octet == n as u8));
        }
    }
}
