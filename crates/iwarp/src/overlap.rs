//! Decides when posted work leaves before all completions of a read are handed out.
//!
//! An end with many calls or replies at hand could handle all of them and send everything that follows with one write.
//! If both ends do that they take turns: while one works the other has nothing to do, and each waits for the other's
//! whole batch. If one end sends in two portions both work at the same time. That is the end which asked for the
//! connection, since a second end with portions only makes more writes, and a write costs as much as some small calls.
//! Large messages leave soon at both ends: their octets are still in the processor's cache.

use crate::protocol::Role;

/// The portions in which the connecting end sends what follows from one read.
const PARTS: usize = 2;
/// The octets with which posted work leaves in any case.
const OCTETS: usize = 64 << 10;

/// Counts the completions of a read, and the work posted since the last write.
#[derive(Debug)]
pub(crate) struct Overlap {
    role: Role,
    came: usize,
    sends: usize,
    octets: usize,
}

impl Overlap {
    pub(crate) fn new(role: Role) -> Self {
        Self { role, came: 0, sends: 0, octets: 0 }
    }

    /// A read has brought so many completions.
    pub(crate) fn came(&mut self, completions: usize) {
        self.came = completions;
    }

    /// A Send of so many octets was posted.
    pub(crate) fn posted_send(&mut self, octets: usize) {
        self.sends += 1;
        self.octets = self.octets.saturating_add(octets);
    }

    /// A Write of so many octets was posted.
    pub(crate) fn posted_write(&mut self, octets: usize) {
        self.octets = self.octets.saturating_add(octets);
    }

    /// What was posted has been written, or waits for the socket.
    pub(crate) fn wrote(&mut self) {
        (self.sends, self.octets) = (0, 0);
    }

    /// Whether a portion is complete. A Write belongs to the Send behind it.
    pub(crate) fn is_due(&self) -> bool {
        let is_part = self.role == Role::Initiator && self.sends * PARTS >= self.came;
        self.sends > 0 && (is_part || self.octets >= OCTETS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After which of 32 answers of so many octets something leaves.
    fn left(role: Role, octets: usize) -> Vec<usize> {
        let mut overlap = Overlap::new(role);
        assert!(!overlap.is_due(), "nothing is posted");
        overlap.came(32);
        let mut written = Vec::new();
        for answer in 1..=32 {
            overlap.posted_write(octets / 2);
            assert!(!overlap.is_due(), "no Send is posted");
            overlap.posted_send(octets / 2);
            if overlap.is_due() {
                written.push(answer);
                overlap.wrote();
            }
        }
        written
    }

    #[test]
    fn small_messages_leave_in_halves_at_one_end_and_together_at_the_other() {
        assert_eq!(left(Role::Initiator, 100), [16, 32]);
        assert_eq!(left(Role::Responder, 100), [0; 0]);
        let mut overlap = Overlap::new(Role::Initiator);
        overlap.came(1);
        overlap.posted_send(100);
        assert!(overlap.is_due());
    }

    #[test]
    fn large_messages_leave_soon() {
        for role in [Role::Initiator, Role::Responder] {
            assert_eq!(left(role, 8 << 10), [8, 16, 24, 32]);
            assert_eq!(left(role, 1 << 20).len(), 32);
        }
    }
}
