//! What a program passes to the rpcrdma libraries: time, randomness, memory.
//!
//! No library of this project reads a clock, draws a random number or decides on its own where a
//! buffer comes from. It asks the [`Clock`], the [`Random`] or the [`Allocator`] that it was built
//! with. A program passes the real ones ([`tokio_env`], feature `tokio`); a simulation passes its
//! own and replays a run exactly. Besides, the crate has what drivers of sockets and devices share:
//! when to look for the next message before a thread sleeps ([`BusyPoll`]).
//!
//! ```
//! use rpcrdma_env::{Random, SeededRandom};
//! let a = SeededRandom::new(7);
//! let b = SeededRandom::new(7);
//! assert_eq!(a.next_u64(), b.next_u64());
//! ```
//!
//! # Features
//!
//! * `tokio` (off by default): `tokio_env`, and `TokioClock` for tests that pause tokio's time.

mod busy_poll;
mod clock;
mod memory;
mod random;
mod scratch;
mod thread_clock;
#[cfg(feature = "tokio")]
mod tokio_env;

pub use busy_poll::{BusyPoll, NoBusyPoll, Pause, Spin};
pub use clock::{Clock, Timestamp};
pub use memory::{Allocator, Buffer, Heap, Memory, Slices, few};
pub use random::{OsRandom, Random, SeededRandom};
pub use scratch::Scratch;
pub use thread_clock::ThreadClock;
#[cfg(feature = "tokio")]
pub use tokio_env::{TokioClock, tokio_env};

use std::{future::Future, pin::Pin, sync::Arc};

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Time and randomness together, for code that needs them. Clones are cheap.
#[derive(Clone)]
pub struct Env {
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The source of unpredictable numbers.
    pub random: Arc<dyn Random>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.clock.now()).finish_non_exhaustive()
    }
}
