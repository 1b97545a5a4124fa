//! When a driver stops in the middle of what has come, so that both ends of a connection work at the same time.
//!
//! A driver that first handles everything that has come, and only then lets anybody else work, makes the ends of a
//! connection take turns: the callers wait until all replies are handed out, and the server waits until all of them
//! have called again. So what has come is handled in quarters, and what follows from each leaves before the next.

/// Parts in which what has come together is handled.
const PARTS: usize = 4;

/// Whether `done` of what has come is a part after which others get their turn, where `all` are under way together.
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
