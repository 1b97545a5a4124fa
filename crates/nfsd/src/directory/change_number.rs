//! The change number of a file: the time of its last change, plus the number of changes through this server that this
//! time does not show. The clock of most file systems moves in ticks of some milliseconds.
//!
//! The object keeps the count. When the cache forgets the object, the number goes back to the time alone: clients only
//! look again. If a process of the host makes a second change within one tick, the number does not show it.

use rustix::fs::Statx;
use std::sync::{Mutex, PoisonError};

type Moment = (i64, u32);

fn moment(stat: &Statx) -> Moment {
    (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec)
}

/// Counts changes that left the time as it was.
#[derive(Default)]
pub(super) struct Unseen(Mutex<(Moment, u64)>);

impl Unseen {
    /// Something was done between these two looks at the file.
    pub(super) fn note(&self, before: &Statx, after: &Statx) {
        let mut unseen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = moment(after);
        if moment(before) != now {
            return;
        }
        *unseen = (now, if unseen.0 == now { unseen.1 + 1 } else { 1 });
    }

    /// How many changes there were after the time in `stat`.
    pub(super) fn count(&self, stat: &Statx) -> u64 {
        let unseen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // NFS4-8881-5.8.1.4-a
        if unseen.0 == moment(stat) { unseen.1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::attributes::stat;
    use super::*;

    #[test]
    fn changes_within_a_tick_are_counted_and_those_that_show_are_not() {
        let unseen = Unseen::default();
        let first = stat(std::fs::File::open("/").unwrap()).unwrap();
        let mut later = first;
        later.stx_ctime.tv_sec += 1;
        assert_eq!(unseen.count(&first), 0);
        unseen.note(&first, &first);
        unseen.note(&first, &first);
        assert_eq!(unseen.count(&first), 2);
        unseen.note(&first, &later);
        assert_eq!((unseen.count(&later), unseen.count(&first)), (0, 2));
        unseen.note(&later, &later);
        assert_eq!((unseen.count(&later), unseen.count(&first)), (1, 0));
    }
}
