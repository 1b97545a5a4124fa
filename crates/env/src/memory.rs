//! Memory: buffers with one owner, and their sources.
//!
//! A [`Buffer`] has one owner, who may write to it. [`Buffer::freeze`] turns it into shared, immutable [`Bytes`]
//! without a copy; after the last clone is dropped, the memory returns to its source. The [`Allocator`] decides which
//! memory that is: the heap, or a pool registered with an RDMA device.

use crate::BoxFuture;
use bytes::Bytes;
use smallvec::{Array, SmallVec};
use std::any::Any;

/// Memory behind a [`Buffer`]. Its address and length never change while it lives. Dropping it returns it to its
/// source.
///
/// It may be allocated at the first write: until then [`octets`](Memory::octets) returns none, or the bytes that it
/// [holds](Memory::hold), and [`capacity`](Memory::capacity) says how many there will be.
pub trait Memory: Any + Send + Sync {
    /// All bytes.
    fn octets(&self) -> &[u8];
    /// All bytes, to write to.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// How many bytes [`bytes_mut`](Memory::bytes_mut) gives.
    fn capacity(&self) -> usize {
        self.octets().len()
    }
    /// The caller does not need the written bytes any more. Memory that is allocated at the first write may be freed
    /// until the next write.
    fn release(&mut self) {}
    /// Takes these bytes, which lie elsewhere, in place of its own, without a copy; the next write copies them. Memory
    /// that cannot do so returns them.
    ///
    /// # Errors
    /// The same bytes.
    fn hold(&mut self, octets: Bytes) -> Result<(), Bytes> {
        Err(octets)
    }
    /// The bytes that it [holds](Memory::hold), which it does not hold any more.
    fn take_held(&mut self) -> Option<Bytes> {
        None
    }
    /// The buffer of this memory is gone. Code that makes many buffers may use the box again.
    fn give_back(self: Box<Self>) {}
}

/// Takes the place of the memory that a buffer has given back.
struct Nothing;

impl Memory for Nothing {
    fn octets(&self) -> &[u8] {
        &[]
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

impl Memory for Vec<u8> {
    fn octets(&self) -> &[u8] {
        self
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// A buffer with exactly one owner: `capacity` bytes, of which the first `len` are meaningful.
///
/// ```
/// use rpcrdma_env::Buffer;
/// let mut buffer = Buffer::from_vec(vec![0; 8]);
/// buffer.bytes_mut()[..3].copy_from_slice(b"abc");
/// buffer.set_len(3);
/// assert_eq!(&buffer.freeze()[..], b"abc");
/// ```
pub struct Buffer {
    memory: Box<dyn Memory>,
    len: usize,
}

impl Buffer {
    /// A buffer over `memory`, which holds no data yet.
    pub fn new(memory: Box<dyn Memory>) -> Self {
        Self { memory, len: 0 }
    }

    /// A buffer over a vector, which holds no data yet.
    pub fn from_vec(octets: Vec<u8>) -> Self {
        Self::new(Box::new(octets))
    }

    /// How many bytes the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// How many of its bytes are meaningful.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no data.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Declares that the first `len` bytes are meaningful, at most the capacity.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
        if self.memory.octets().len() < self.len {
            // The memory does not exist yet, because nothing was written to it.
            self.len = self.len.min(self.memory.bytes_mut().len());
        }
    }

    /// Forgets the data. If the maker of the memory supports it, the memory is freed until the next write.
    pub fn clear(&mut self) {
        self.len = 0;
        self.memory.release();
    }

    /// Makes these bytes the meaningful ones, at most the capacity. A provider does that with a short message that it
    /// has in other memory: memory that is allocated at the first write is not touched.
    pub fn hold(&mut self, octets: Bytes) {
        self.len = octets.len().min(self.capacity());
        if let Err(octets) = self.memory.hold(octets) {
            self.memory.bytes_mut()[..self.len].copy_from_slice(&octets[..self.len]);
        }
    }

    /// The bytes that the buffer [holds](Self::hold) in other memory, if it does. Afterwards it holds no data.
    pub fn take_held(&mut self) -> Option<Bytes> {
        let mut held = self.memory.take_held()?;
        held.truncate(std::mem::take(&mut self.len));
        Some(held)
    }

    /// The meaningful bytes.
    pub fn filled(&self) -> &[u8] {
        &self.memory.octets()[..self.len]
    }

    /// All bytes up to the capacity. Bytes that were never written may be left over from an earlier use of the memory:
    /// do not send them anywhere.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Shares the meaningful bytes, without a copy. The memory is returned when the last clone of the
    /// result is dropped.
    pub fn freeze(mut self) -> Bytes {
        match self.take_held() {
            Some(held) => held,
            None if self.len == 0 => Bytes::new(),
            None => Bytes::from_owner(self),
        }
    }

    /// The memory itself, for the provider that made it (see [`Any`]).
    pub fn memory(&self) -> &dyn Any {
        &*self.memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // `Nothing` has no size, so this box allocates nothing.
        std::mem::replace(&mut self.memory, Box::new(Nothing)).give_back();
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.filled()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} of {})", self.len, self.capacity())
    }
}

/// The bytes of one message, in their order. Most messages are a header and one more slice: these need no memory of
/// their own.
pub type Slices = SmallVec<[Bytes; 2]>;

/// These items, of which there are usually none or one. `collect` reserves and counts, which costs more than they do.
///
/// ```
/// use smallvec::SmallVec;
/// let few: SmallVec<[u32; 1]> = rpcrdma_env::few([1, 2].into_iter().filter(|n| n % 2 == 0));
/// assert_eq!(few[..], [2]);
/// ```
pub fn few<A: Array>(items: impl IntoIterator<Item = A::Item>) -> SmallVec<A> {
    let mut few = SmallVec::new();
    for item in items {
        few.push(item);
    }
    few
}

/// The source of buffers. An implementation may make a caller wait until memory is free
/// ([`allocate`](Allocator::allocate)); no implementation clears memory that was used before.
pub trait Allocator: Send + Sync {
    /// A buffer of at least `len` bytes capacity, at once, or `None` if that would exceed the
    /// allocator's budget.
    fn try_allocate(&self, len: usize) -> Option<Buffer>;

    /// A buffer of at least `len` bytes capacity, as soon as the budget allows it. A request larger than the whole
    /// budget succeeds when everything else has been returned.
    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer>;
}

/// The heap, without a budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

impl Allocator for Heap {
    fn try_allocate(&self, len: usize) -> Option<Buffer> {
        Some(Buffer::from_vec(vec![0; len]))
    }

    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(std::future::ready(Buffer::from_vec(vec![0; len])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    struct Counted(Vec<u8>, Arc<AtomicUsize>);
    impl Memory for Counted {
        fn octets(&self) -> &[u8] {
            &self.0
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn memory_that_cannot_hold_bytes_gets_a_copy() {
        let octets = Bytes::from(vec![1, 2, 3]);
        let mut buffer = Buffer::from_vec(vec![9; 4]);
        buffer.hold(octets.clone());
        assert_eq!((buffer.take_held(), buffer.filled()), (None, &octets[..]));
        assert_ne!(buffer.freeze().as_ptr(), octets.as_ptr());
        let mut small = Buffer::from_vec(vec![9; 2]);
        small.hold(octets.clone());
        assert_eq!(small.freeze(), octets[..2]);
    }

    #[test]
    fn memory_returns_once_the_last_clone_is_gone() {
        let returned = Arc::new(AtomicUsize::new(0));
        let mut buffer = Buffer::new(Box::new(Counted(vec![7; 4], returned.clone())));
        buffer.set_len(9);
        assert_eq!(buffer.len(), 4, "never beyond the capacity");
        let address = buffer.filled().as_ptr();
        let shared = buffer.freeze();
        assert_eq!(shared.as_ptr(), address, "freezing moves no byte");
        let part = shared.slice(1..2);
        drop(shared);
        assert_eq!(returned.load(Ordering::Relaxed), 0);
        drop(part);
        assert_eq!(returned.load(Ordering::Relaxed), 1);
    }

    /// Four bytes that are allocated at the first write.
    struct Late(Vec<u8>);
    impl Memory for Late {
        fn octets(&self) -> &[u8] {
            &self.0
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            self.0.resize(4, 7);
            &mut self.0
        }
        fn capacity(&self) -> usize {
            4
        }
    }

    #[test]
    fn memory_may_come_into_being_when_it_is_first_used() {
        let buffer = || Buffer::new(Box::new(Late(Vec::new())));
        assert_eq!((buffer().capacity(), buffer().len(), buffer().filled().len()), (4, 0, 0));
        assert!(buffer().freeze().is_empty());
        let mut written = buffer();
        written.bytes_mut()[0] = 1;
        written.set_len(1);
        assert_eq!(&written.freeze()[..], [1]);
        let mut said = buffer();
        said.set_len(9);
        assert_eq!((said.filled(), said.capacity()), (&[7; 4][..], 4), "what is said to be there is");
    }

    #[test]
    fn the_maker_recognises_its_memory() {
        let buffer = Buffer::from_vec(vec![1]);
        assert!(buffer.memory().is::<Vec<u8>>());
        assert!(!buffer.memory().is::<Counted>());
    }
}
