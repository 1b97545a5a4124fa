//! Values of every type at random, for tests that go over all operations. Each is a function of a seed.
//!
//! Strings and lists are mostly short, and now and then as long as they may be.

use bytes::Bytes;
use rpcrdma_oncrpc::SysCredential;

/// Draws numbers: a counter, mixed well (SplitMix64).
pub(crate) struct Draw(u64);

/// The most octets of a drawn string, where its type would allow more: tests cut messages at every octet.
const LONG_BYTES: usize = 300;

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.u64() % end.max(1) as u64) as usize
    }

    pub(crate) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// How many elements, at most `max`.
    pub(crate) fn count(&mut self, max: usize) -> usize {
        match self.below(8) {
            0 => 0,
            1 => max.min(5),
            _ => self.below(4).min(max),
        }
    }

    pub(crate) fn octets(&mut self, max: usize) -> Bytes {
        let len = match self.below(16) {
            0 => max.min(LONG_BYTES),
            1 => 0,
            _ => self.below(12).min(max),
        };
        (0..len).map(|_| self.u64() as u8).collect()
    }
}

/// A type of which values can be drawn.
pub(crate) trait Sample: Sized {
    fn sample(draw: &mut Draw) -> Self;
}

impl Sample for () {
    fn sample(_: &mut Draw) -> Self {}
}

impl Sample for bool {
    fn sample(draw: &mut Draw) -> Self {
        draw.below(2) == 1
    }
}

impl Sample for u32 {
    fn sample(draw: &mut Draw) -> Self {
        let word = draw.u64() as u32;
        draw.one_of(&[0, 1, u32::MAX, word, word, word & 0xFFFF])
    }
}

impl Sample for i32 {
    fn sample(draw: &mut Draw) -> Self {
        u32::sample(draw) as i32
    }
}

impl Sample for u64 {
    fn sample(draw: &mut Draw) -> Self {
        let word = draw.u64();
        draw.one_of(&[0, 1, u64::MAX, word, word, word & 0xFFFF])
    }
}

impl Sample for i64 {
    fn sample(draw: &mut Draw) -> Self {
        u64::sample(draw) as i64
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(draw: &mut Draw) -> Self {
        bool::sample(draw).then(|| T::sample(draw))
    }
}

impl<T: Sample> Sample for Box<T> {
    fn sample(draw: &mut Draw) -> Self {
        Box::new(T::sample(draw))
    }
}

impl<A: Sample, B: Sample> Sample for (A, B) {
    fn sample(draw: &mut Draw) -> Self {
        (A::sample(draw), B::sample(draw))
    }
}

impl Sample for SysCredential {
    fn sample(draw: &mut Draw) -> Self {
        let machine = draw.octets(255);
        let groups = (0..draw.count(16)).map(|_| u32::sample(draw)).collect();
        Self { stamp: u32::sample(draw), machine, uid: u32::sample(draw), gid: u32::sample(draw), groups }
    }
}
