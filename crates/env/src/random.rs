//! Randomness: from the system, or from a seed.

use std::{
    fs::File,
    io::Read,
    sync::{Mutex, PoisonError},
};

/// The source of unpredictable numbers.
pub trait Random: Send + Sync {
    /// Fills `out`.
    fn fill(&self, out: &mut [u8]);

    /// 32 random bits.
    fn next_u32(&self) -> u32 {
        let mut octets = [0; 4];
        self.fill(&mut octets);
        u32::from_ne_bytes(octets)
    }

    /// 64 random bits.
    fn next_u64(&self) -> u64 {
        let mut octets = [0; 8];
        self.fill(&mut octets);
        u64::from_ne_bytes(octets)
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias is below `bound / 2^64`.
    fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The operating system's generator, read through a small buffer so that few numbers cost a system call.
pub struct OsRandom {
    state: Mutex<OsState>,
}

struct OsState {
    source: File,
    stock: [u8; OS_STOCK_BYTES],
    used: usize,
}

/// Bytes read from the system at a time.
const OS_STOCK_BYTES: usize = 512;

impl OsRandom {
    /// Opens the system's generator.
    ///
    /// # Errors
    /// Whatever opening `/dev/urandom` says.
    pub fn open() -> std::io::Result<Self> {
        let mut source = File::open("/dev/urandom")?;
        let mut stock = [0; OS_STOCK_BYTES];
        source.read_exact(&mut stock)?;
        Ok(Self { state: Mutex::new(OsState { source, stock, used: 0 }) })
    }
}

impl Random for OsRandom {
    /// # Panics
    /// If the system's generator can be opened and then not read: it would be worse to continue with predictable
    /// numbers.
    fn fill(&self, out: &mut [u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for octet in out {
            if state.used == OS_STOCK_BYTES {
                let OsState { source, stock, used } = &mut *state;
                source.read_exact(stock).expect("/dev/urandom was opened and never ends");
                *used = 0;
            }
            let at = state.used;
            *octet = std::mem::take(&mut state.stock[at]);
            state.used += 1;
        }
    }
}

/// A generator whose numbers depend only on its seed (SplitMix64), for simulations and tests. It is not secret: a few
/// of its numbers reveal the others.
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }

    fn step(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Random for SeededRandom {
    fn fill(&self, out: &mut [u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in out.chunks_mut(8) {
            let word = Self::step(&mut state).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything() {
        let mut first = [0; 100];
        let mut second = [0; 100];
        SeededRandom::new(42).fill(&mut first);
        SeededRandom::new(42).fill(&mut second);
        assert_eq!(first, second);
        SeededRandom::new(43).fill(&mut second);
        assert_ne!(first, second);
    }

    #[test]
    fn the_system_refills_its_stock() {
        let random = OsRandom::open().unwrap();
        let mut many = vec![0; 3 * OS_STOCK_BYTES + 1];
        random.fill(&mut many);
        assert!(many.windows(64).all(|w| w.iter().any(|&o| o != 0)));
    }

    #[test]
    fn below_stays_below() {
        let random = SeededRandom::new(1);
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
