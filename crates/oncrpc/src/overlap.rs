//! When a driver stops in the middle of what has come, so that both ends of a connection work at the same time.
//!
//! A driver that first handles everything that has come, and only then lets other tasks work, makes the ends of a
//! connection take turns: the callers wait until all replies are handed out, and the server waits until all of them
//! have called again. So a driver handles a portion at a time, and what follows from it leaves before the next. Smaller
//! portions than a half cost more writes and gain nothing, except for messages that take long to handle because they
//! are large.

/// Portions of messages that came together.
const PARTS: usize = 2;
/// The octets that complete a portion in any case.
const OCTETS: usize = 64 << 10;

/// What was handled since other tasks had their turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portion {
    messages: usize,
    octets: usize,
}

impl Portion {
    /// A message was handled that moved so many octets.
    pub fn add(&mut self, octets: usize) {
        self.messages += 1;
        self.octets = self.octets.saturating_add(octets);
    }

    /// The number of messages.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Whether other tasks get their turn now; `all` messages are under way together.
    pub fn is_complete(&self, all: usize) -> bool {
        self.messages > 0 && (self.messages.saturating_mul(PARTS) >= all || self.octets >= OCTETS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portion(messages: usize, octets: usize) -> Portion {
        let mut portion = Portion::default();
        (0..messages).for_each(|_| portion.add(octets));
        portion
    }

    #[test]
    fn a_portion_is_a_half_and_at_least_one_message() {
        assert!(!portion(0, 0).is_complete(0) && !portion(0, 0).is_complete(3));
        assert!(portion(1, 100).is_complete(1) && portion(1, 100).is_complete(2) && !portion(1, 100).is_complete(3));
        assert!(!portion(15, 100).is_complete(32) && portion(16, 100).is_complete(32));
    }

    #[test]
    fn large_messages_complete_a_portion_sooner() {
        assert!(portion(1, 1 << 20).is_complete(8) && portion(4, 16 << 10).is_complete(32));
        assert!(!portion(3, 16 << 10).is_complete(32));
    }
}
