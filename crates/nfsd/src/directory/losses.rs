//! When data that clients wrote and did not commit may be lost, and how clients learn it.
//!
//! Clients learn it by the write verifier (RFC 1813 section 3.3.7): when it changes, a client sends its uncommitted
//! data again. One verifier serves a whole file system, since some clients keep one for each mount. So a loss in one
//! file makes all clients send again, and a client that can provoke losses (for example, on a disk that is full beneath
//! its file system) must not cause that again and again. The first loss changes the verifier at once. After that it
//! changes once in a pause, which doubles while losses go on. Until then COMMIT of the files with losses returns "try
//! again later", so that no client takes lost data for committed. Owns no files; nothing here fails.

use crate::FileId;
use rpcrdma_env::Timestamp;
use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The time between the first two changes of the verifier.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two changes. Clients take less from a WRITE to its COMMIT.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// Losses have ended when there was none for this many pauses.
const QUIET_PAUSES: u32 = 3;
/// The most files whose COMMIT waits for the next change: if there are more, the verifier changes at once.
const MAX_WAITING: usize = 1024;

/// The losses of one file system.
#[derive(Default)]
pub(super) struct Losses {
    count: AtomicU64,
    /// A change of the verifier waits for the end of the pause.
    is_due: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the count last changed, and for how long it stays at least.
    changed: Option<(Timestamp, Duration)>,
    /// Files with losses since then.
    waiting: HashSet<FileId>,
}

impl Losses {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Data written to `file` may be lost.
    pub(super) fn add(&self, file: FileId, now: Timestamp) {
        let mut state = self.state();
        let is_pause = state.changed.is_some_and(|(when, pause)| now.since(when) < pause);
        if is_pause && state.waiting.len() < MAX_WAITING {
            state.waiting.insert(file);
            self.is_due.store(true, Ordering::Release);
            return;
        }
        self.change(&mut state, now);
    }

    fn change(&self, state: &mut State, now: Timestamp) {
        let pause = match state.changed {
            // NFS3-LOSS-b
            Some((when, pause)) if now.since(when) < pause * QUIET_PAUSES => (pause * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        state.changed = Some((now, pause));
        state.waiting.clear();
        self.is_due.store(false, Ordering::Release);
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// The number from which the verifier is made.
    pub(super) fn count(&self, now: Timestamp) -> u64 {
        if self.is_due.load(Ordering::Acquire) {
            let mut state = self.state();
            let is_over = state.changed.is_none_or(|(when, pause)| now.since(when) >= pause);
            if is_over && self.is_due.load(Ordering::Acquire) {
                self.change(&mut state, now);
            }
        }
        self.count.load(Ordering::Acquire)
    }

    /// Whether clients still have to learn of a loss in `file`.
    pub(super) fn is_waiting(&self, file: FileId) -> bool {
        self.is_due.load(Ordering::Acquire) && self.state().waiting.contains(&file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> FileId {
        FileId::new(&number.to_be_bytes()).unwrap()
    }

    fn at(seconds: f64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(1000) + Duration::from_secs_f64(seconds)
    }

    /// proves: NFS3-LOSS-b
    #[test]
    fn the_first_loss_is_told_at_once_and_further_ones_after_a_pause() {
        let losses = Losses::default();
        assert_eq!(losses.count(at(0.0)), 0);
        losses.add(id(1), at(0.0));
        assert_eq!((losses.count(at(0.0)), losses.is_waiting(id(1))), (1, false));
        losses.add(id(2), at(0.5));
        assert_eq!((losses.count(at(0.9)), losses.is_waiting(id(2)), losses.is_waiting(id(1))), (1, true, false));
        assert_eq!((losses.count(at(1.0)), losses.is_waiting(id(2))), (2, false));
    }

    /// A client causes a loss every tenth of a second for an hour.
    /// proves: NFS3-LOSS-b
    #[test]
    fn whoever_provokes_losses_makes_others_send_again_once_a_minute() {
        let losses = Losses::default();
        let mut changes = Vec::new();
        let mut count = 0;
        for tenth in 0..36_000 {
            let now = at(f64::from(tenth) / 10.0);
            losses.add(id(1), now);
            if losses.count(now) != count {
                count = losses.count(now);
                changes.push(tenth / 10);
            }
            assert!(losses.is_waiting(id(1)) || changes.last() == Some(&(tenth / 10)));
        }
        assert_eq!(changes[..7], [0, 1, 3, 7, 15, 31, 63]);
        assert!(changes.len() < 63, "{}", changes.len());
        let later = 3600.0 + 3.0 * 64.0 + 1.0;
        losses.count(at(later));
        losses.add(id(1), at(2.0 * later));
        losses.add(id(2), at(2.0 * later + 0.5));
        assert_eq!(losses.count(at(2.0 * later + 1.0)), losses.count(at(2.0 * later + 1.9)), "quickly again");
        assert!(!losses.is_waiting(id(2)));
    }

    #[test]
    fn files_that_wait_end_at_the_limit() {
        let losses = Losses::default();
        losses.add(id(0), at(0.0));
        for number in 1..=MAX_WAITING {
            losses.add(id(number), at(0.1));
        }
        assert_eq!(losses.count(at(0.1)), 1, "at the limit");
        losses.add(id(MAX_WAITING + 1), at(0.1));
        assert_eq!(losses.count(at(0.1)), 2, "one past it");
    }
}
