//! When a driver stops in the middle of what has come, so that both ends of a connection work at the same time.
//!
//! A driver that first handles everything that has come, and only then lets other tasks work, makes the ends of a
//! connection take turns: the callers wait until all replies are handed out, and the server waits until all of them
//! have called again. So a driver handles a quarter at a time, and what follows from each quarter leaves before the
//! next.

/// Portions in which messages that came together are handled.
const PARTS: usize = 4;

/// Whether other tasks get their turn after `done` of the messages that have come; `all` are under way together.
pub fn is_part(done: usize, all: usize) -> bool {
    done > 0 && done.saturating_mul(PARTS) >= all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_quarter_and_at_least_one() {
        assert!(!is_part(0, 0) && !is_part(0, 3));
        assert!(is_part(1, 1) && is_part(1, 4) && !is_part(1, 5));
        assert!(!is_part(7, 32) && is_part(8, 32));
    }
}
