//! Counts the calls under way over each of several connections (`spread.rs`).

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// What one of several connections carries.
#[derive(Default)]
pub(crate) struct Load {
    /// The bytes of all calls under way, with the largest replies that they can have.
    octets: AtomicUsize,
    /// Whether the last call that has ended was answered.
    answers: AtomicBool,
}

impl Load {
    pub(crate) fn octets(&self) -> usize {
        self.octets.load(Ordering::Relaxed)
    }

    /// Whether there is no sign that a call would wait here.
    pub(crate) fn is_free(&self) -> bool {
        self.answers.load(Ordering::Relaxed) || self.octets() == 0
    }
}

/// Counts a call's bytes until it is dropped.
pub(crate) struct UnderWay {
    load: Arc<Load>,
    octets: usize,
}

impl UnderWay {
    /// A call begins.
    pub(crate) fn begin(load: &Arc<Load>, octets: usize) -> Self {
        load.octets.fetch_add(octets, Ordering::Relaxed);
        Self { load: load.clone(), octets }
    }

    /// The call has ended, and was answered or not.
    pub(crate) fn end(self, is_answered: bool) {
        self.load.answers.store(is_answered, Ordering::Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.load.octets.fetch_sub(self.octets, Ordering::Relaxed);
    }
}
