//! Receives, and the credits for which they are posted.
//!
//! The only rule: receives posted >= credits granted to the peer's calls + calls of ours not yet answered + 1. The
//! additional one is for messages that no credit covers. Owns nothing. Credits are promised only through this ledger,
//! so their receives are always asked for first.

use crate::receives::Receives;

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) receives: Receives,
    granted: u32,
    unanswered: usize,
    /// Calls of ours that we have sent since our last answer to a call of the peer.
    since_answer: u32,
}

/// Receives beyond those that credits cover.
const SPARE_RECEIVES: usize = 1;

impl Ledger {
    /// A ledger of `posted` receives, in which the peer already has `granted` credits.
    pub(crate) fn new(posted: usize, granted: u32) -> Self {
        Self { receives: Receives::new(posted), granted, unanswered: 0, since_answer: 0 }
    }

    /// The most credits that the peer may know of.
    pub(crate) fn granted(&self) -> u32 {
        self.granted
    }

    /// Calls of ours that are not answered, including cancelled ones.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// The next message to the peer grants `credits`. If a grant is lower than before, its receives stay posted: they
    /// cover what the peer sends until the new grant reaches it.
    // V1-3.3.1-h, IE-4.5-a, V1-3.3.1-g
    pub(crate) fn grant(&mut self, credits: u32) {
        self.granted = self.granted.max(credits);
        self.settle();
    }

    /// A call of ours is about to be sent.
    // V1-3.3.1-i
    pub(crate) fn sending(&mut self) {
        self.unanswered += 1;
        self.since_answer = self.since_answer.saturating_add(1);
        self.settle();
    }

    /// Calls of ours that we have sent since our last answer to a call of the peer.
    pub(crate) fn since_answer(&self) -> u32 {
        self.since_answer
    }

    /// We are about to answer a call of the peer.
    pub(crate) fn answering(&mut self) {
        self.since_answer = 0;
    }

    /// A call of ours was answered.
    // V1-3.3.1-a
    pub(crate) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Asks for the receives that are missing.
    // V1-3.3.1-i, IE-4.5-a
    pub(crate) fn settle(&mut self) {
        let needed = self.granted as usize + self.unanswered + SPARE_RECEIVES;
        self.receives.ensure(needed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posts(ledger: &mut Ledger) -> usize {
        ledger.receives.take_asked().unwrap_or(0)
    }

    /// proves: V1-3.3.1-h, V1-3.3.1-i
    #[test]
    fn receives_are_asked_for_before_they_are_promised() {
        let mut ledger = Ledger::new(2, 1);
        ledger.settle();
        assert_eq!(posts(&mut ledger), 0, "two receives back the first credit");
        ledger.receives.consumed();
        ledger.grant(8);
        assert_eq!(posts(&mut ledger), 8);
        ledger.sending();
        assert_eq!(posts(&mut ledger), 1);
        ledger.receives.consumed();
        ledger.answered();
        ledger.settle();
        assert_eq!(posts(&mut ledger), 0, "the reply's receive is not needed any more");
        ledger.grant(2);
        ledger.receives.consumed();
        ledger.settle();
        assert_eq!(posts(&mut ledger), 1, "a lower grant frees no receive");
    }
}
