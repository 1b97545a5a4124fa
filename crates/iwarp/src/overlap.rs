//! Decides when posted work leaves before all completions of a read are handed out.
//!
//! An end with many calls or replies at hand could handle all of them and send everything that follows with one write.
//! Then the ends would take turns: while one works the other has nothing to do, and each waits for the other's whole
//! batch. So a batch leaves in quarters, and both ends work at the same time.

/// The portions in which the work that follows from one read leaves.
const PARTS: usize = 4;

/// Counts the completions of a read, and the Sends posted since the last write.
#[derive(Debug, Default)]
pub(crate) struct Overlap {
    came: usize,
    posted: usize,
}

impl Overlap {
    /// A read has brought so many completions.
    pub(crate) fn came(&mut self, completions: usize) {
        self.came = completions;
    }

    /// A Send was posted.
    pub(crate) fn posted(&mut self) {
        self.posted += 1;
    }

    /// The posted Sends have been written, or wait for the socket.
    pub(crate) fn wrote(&mut self) {
        self.posted = 0;
    }

    /// Whether a portion is complete.
    pub(crate) fn is_due(&self) -> bool {
        self.posted > 0 && self.posted * PARTS >= self.came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_leaves_in_quarters_and_a_single_answer_at_once() {
        let mut overlap = Overlap::default();
        assert!(!overlap.is_due(), "nothing is posted");
        overlap.came(32);
        let mut written = Vec::new();
        for answer in 1..=32 {
            overlap.posted();
            if overlap.is_due() {
                written.push(answer);
                overlap.wrote();
            }
        }
        assert_eq!(written, [8, 16, 24, 32]);
        overlap.came(1);
        overlap.posted();
        assert!(overlap.is_due());
    }
}
