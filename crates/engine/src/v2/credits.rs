//! Credits of version 2: one credit pays for one message, separately for each direction (draft section 4.2.1).
//!
//! Each message that the peer may send needs a receive, and we post receives before we promise them. We need as many as
//! our ceiling, plus the peer's ceiling (each of its messages obliges us to grant a credit, even without a spare
//! receive), plus spare ones. Our messages spend a balance; the peer's messages add to it, up to the peer's ceiling.
//! Owns only numbers.
//!
//! | number | goes up | goes down |
//! |---|---|---|
//! | `balance` | by what a message grants, up to the peer's ceiling | by each message of ours |
//! | `count` | when a receive can be used for something new | by what a message of ours grants, at least one: a loan |
//! | `least` | by what a message of ours grants, up to our ceiling | by each message of the peer |
//!
//! `least` never exceeds the credits that the peer has after it has read all our messages. If it is zero, the peer may
//! be waiting for us.
//!
//! If the peer's balance is full, a grant is lost, and `count` would owe for it for ever. After one end has sent many
//! more messages than the other, that could narrow the window of either end to one message at a time. Two rules prevent
//! it. The end that calls learns from each reply what the peer has read: everything that was granted up to the call, of
//! which at most our ceiling can be left. The end that answers learns nothing like this; but the client's ceiling is
//! half of the credits that it asks the server for, and this limits how much the server can owe.

use crate::{Config, Side, config::MAX_CREDITS, receives::Receives};
use rpcrdma_wire::v2::Credits as Word;

/// Receives in addition to those for credits: one for a grant without a credit (V2-4.2.1.2-b), and three for grants
/// that crossed messages of ours on their way.
// V2-4.2.1.2-c
pub const SPARE_RECEIVES: usize = 4;

/// The lowest ceiling: a call, and a message that the call has to wait for.
const MIN_CEILING: u32 = 2;

// V2-4.2.1.1-a, V2-4.2.1.1-b
#[derive(Debug)]
pub(crate) struct Credits {
    /// The most messages of the peer that we let be outstanding.
    own: i32,
    /// The highest ceiling that we accept from the peer.
    peer_limit: i32,
    /// The peer's ceiling, limited to what we accept.
    peer: i32,
    balance: i32,
    /// Whether we have sent a grant without a credit since the last message of the peer.
    on_reserve: bool,
    count: i32,
    /// Receives that messages have used and that we cannot promise again yet.
    held: i32,
    /// All credits that our messages have granted.
    granted: u64,
    least: i32,
    /// The most credits that the peer can have: granted, and not yet seen in use.
    most: i64,
    /// Grants that the peer may send without a credit: one for each message of ours that it can have read.
    free: i64,
    pub(crate) receives: Receives,
}

impl Credits {
    /// Credits of a connection with `posted` receives, on which no message of this version has been sent or received.
    pub(crate) fn new(config: &Config, posted: usize) -> Self {
        let wanted = config.credits_wanted.max(config.credits_granted);
        let wanted = if config.side == Side::Client { wanted.div_ceil(2) } else { wanted };
        let own = i32::try_from(wanted.clamp(MIN_CEILING, MAX_CREDITS)).unwrap_or(i32::MAX);
        // V2-4.2.1.1-j, V2-4.2.3-c
        let initial = match config.side {
            Side::Client => (1, 0),
            // The client may send its first message before we have sent anything.
            Side::Server => (0, 1),
        };
        Self {
            own,
            peer_limit: i32::from(config.peer_credits.max(1)),
            peer: 0,
            balance: initial.0,
            on_reserve: false,
            count: own - initial.1,
            held: 0,
            granted: initial.1.unsigned_abs().into(),
            least: initial.1,
            most: initial.1.into(),
            free: 1,
            receives: Receives::new(posted),
        }
    }

    /// Our ceiling, which we announce.
    pub(crate) fn own(&self) -> usize {
        usize::try_from(self.own).unwrap_or(0)
    }

    /// The peer's ceiling, limited to what we accept.
    pub(crate) fn peer(&self) -> usize {
        usize::try_from(self.peer).unwrap_or(0)
    }

    /// A message has used up a receive, and is held until [`released`](Self::released).
    pub(crate) fn consumed(&mut self) {
        self.receives.consumed();
        self.held += 1;
    }
    /// All credits granted so far: the mark of a call that has just been sent.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// A message in reply to a call has come. `mark` is all that was granted when the last part of that call was sent.
    /// The peer has read all of that, and had at most our ceiling before it spent a credit on the reply.
    pub(crate) fn acknowledged(&mut self, mark: u64) {
        let since = i32::try_from(self.granted.saturating_sub(mark)).unwrap_or(i32::MAX);
        let surely_free = 1i32.saturating_sub(since).saturating_sub(self.held);
        self.count = self.count.max(surely_free.min(self.own));
    }

    /// Counts the credits of a message, whatever else is in it. Returns whether the peer had a credit for it.
    // V2-4.2.1.1-h, V2-4.2.1.1-i, V2-4.2.1.1-f
    pub(crate) fn heard(&mut self, word: Word, bare_grant: bool) -> bool {
        let ceiling = i32::from(word.maximum.max(word.granted)).min(self.peer_limit);
        self.peer = ceiling.max(1);
        self.balance = (self.balance + i32::from(word.granted)).min(self.peer).max(0);
        self.on_reserve = false;
        self.least = (self.least - 1).max(0);
        if bare_grant && self.free > 0 {
            self.free -= 1;
            return true;
        }
        self.most -= 1;
        self.most >= 0
    }

    /// A message's receive can be promised again: at once, or for a call when it is answered.
    pub(crate) fn released(&mut self) {
        self.count = (self.count + 1).min(self.own);
        self.held = (self.held - 1).max(0);
    }

    /// Whether a message may be sent.
    // V2-4.2.1.1-e, V2-4.2-a
    pub(crate) fn may_send(&self) -> bool {
        self.balance > 0
    }

    /// Whether another call may be sent while `unanswered` calls are under way. One credit is kept for answers, because
    /// the peer's calls may wait for answers.
    // ULB-3.4.1-a, V2-11.1.4-c
    pub(crate) fn may_call(&self, unanswered: usize) -> bool {
        self.balance > 1 || (self.balance == 1 && unanswered == 0)
    }

    /// Whether a grant may be sent.
    // V2-4.2.1.2-d
    pub(crate) fn may_grant(&self) -> bool {
        self.balance > 0 || !self.on_reserve
    }

    /// Whether the peer may be waiting for a grant, or will soon.
    pub(crate) fn peer_is_short(&self) -> bool {
        self.least <= 0 || (self.count > 0 && self.least <= self.own / 4)
    }

    /// Whether we answer a grant of the peer with one of ours: the peer may have spent its last credit on grants, and
    /// would wait for ever. We answer only with a grant of several credits. The peer must then send as many messages
    /// before the next one, so two ends that both follow this rule soon stop.
    // V2-4.2.1.2-d
    pub(crate) fn peer_is_stuck(&self) -> bool {
        self.least <= 0 && self.count >= MIN_CEILING as i32
    }

    /// The credit word of the next message, which is sent at once. Asks for missing receives first.
    // V2-4.2.1.1-d, V2-4.2.1.1-h, V2-4.2.1.1-c, V2-7-d, V2-4.5.1-d, V2-4.5.2-d
    pub(crate) fn stamp(&mut self) -> Word {
        self.settle();
        if self.balance > 0 {
            self.balance -= 1;
        } else {
            self.on_reserve = true;
        }
        let granted = self.count.clamp(1, i32::from(u16::MAX));
        self.count = (self.count - granted).max(-self.peer);
        self.granted += u64::from(granted.unsigned_abs());
        self.least = (self.least + granted).min(self.own);
        self.most += i64::from(granted);
        self.free = (self.free + 1).min(i64::from(self.own));
        Word::new(u16::try_from(granted).unwrap_or(u16::MAX), u16::try_from(self.own).unwrap_or(u16::MAX))
    }

    /// Asks for the receives that are missing.
    // V2-3.2.2.3-a, V2-4.2.1.2-b, V2-4.2.1.2-c
    pub(crate) fn settle(&mut self) {
        let needed = self.own() + self.peer() + SPARE_RECEIVES;
        self.receives.ensure(needed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_PEER_CREDITS;

    fn credits(side: Side, own: u32) -> Credits {
        let config = Config { credits_wanted: own, credits_granted: own, side, ..Config::client() };
        Credits::new(&config, 2)
    }

    fn stamp(credits: &mut Credits) -> (u16, u16) {
        let word = credits.stamp();
        (word.granted, word.maximum)
    }

    /// proves: V2-4.2.1.1-j, V2-4.2.1.1-d, V2-4.2.1.1-c, V2-4.2.1.2-c, V2-4.2.1.1-b
    #[test]
    fn the_client_begins_with_one_credit_and_the_server_with_none() {
        let (mut client, mut server) = (credits(Side::Client, 8), credits(Side::Server, 4));
        assert!(client.may_send() && !server.may_send());
        client.stamp();
        client.settle();
        assert_eq!(client.receives.take_asked(), Some(6));
        assert!(!client.may_send(), "one message until the server has answered");
        server.consumed();
        assert!(server.heard(Word::new(4, 4), false));
        server.released();
        assert_eq!(stamp(&mut server), (4, 4));
        assert_eq!(server.receives.posted(), 4 + 4 + SPARE_RECEIVES);
        assert_eq!(stamp(&mut server), (1, 4), "never zero: a loan");
    }

    /// proves: V2-4.2.1.1-h, V2-4.2.1.1-f, V2-4.2.1.1-i
    #[test]
    fn the_balance_keeps_within_the_peers_ceiling_and_ours() {
        let mut credits = credits(Side::Server, 4);
        for (granted, maximum, balance) in [(3, 9, 3), (0, 9, 3), (7, 9, 9), (0, 5, 5), (8, 2, 8), (u16::MAX, 1, 64)] {
            credits.heard(Word::new(granted, maximum), false);
            assert_eq!((credits.balance, granted, maximum), (balance, granted, maximum));
        }
        assert_eq!(credits.peer(), usize::from(MAX_PEER_CREDITS), "a ceiling is believed up to the limit");
        credits.settle();
        assert_eq!(credits.receives.posted(), 4 + 64 + SPARE_RECEIVES);
    }

    /// proves: V2-4.2.1.2-d
    #[test]
    fn without_a_credit_one_grant_may_be_sent_until_the_peer_is_heard() {
        let mut credits = credits(Side::Server, 4);
        assert!(credits.may_grant() && !credits.may_send());
        stamp(&mut credits);
        assert!(!credits.may_grant());
        credits.heard(Word::new(0, 4), true);
        assert!(credits.may_grant() && !credits.may_send());
        credits.heard(Word::new(1, 4), true);
        stamp(&mut credits);
        assert!(credits.may_grant(), "that one cost a credit");
    }

    #[test]
    fn a_loan_is_repaid_by_receives_and_never_above_the_peers_ceiling() {
        let mut credits = credits(Side::Server, 2);
        credits.heard(Word::new(3, 3), false);
        for _ in 0..10 {
            stamp(&mut credits);
        }
        assert_eq!(credits.count, -3);
        for count in [-2, -1, 0, 1, 2, 2] {
            credits.released();
            assert_eq!(credits.count, count);
        }
    }

    #[test]
    fn a_peer_that_sends_more_than_it_has_is_found_out() {
        let mut credits = credits(Side::Server, 2);
        assert!(credits.heard(Word::new(1, 1), false));
        assert!(credits.heard(Word::new(1, 1), true), "the reserved receive");
        assert!(!credits.heard(Word::new(1, 1), true));
    }

    /// The server has sent five messages for each of the client's, and most of their grants were lost, because the
    /// client's balance was full. When the client then sends more, the server still has receives to promise.
    #[test]
    fn the_server_owes_less_than_it_can_grant() {
        let mut server = credits(Side::Server, 8);
        server.heard(Word::new(4, 4), false);
        server.released();
        for _ in 0..100 {
            stamp(&mut server);
        }
        assert_eq!(server.count, -4, "half of what it can let be outstanding");
        for _ in 0..8 {
            server.consumed();
            server.heard(Word::new(1, 4), false);
            server.released();
        }
        assert!(server.peer_is_short());
        assert_eq!(stamp(&mut server), (4, 8), "all of the client's credits are used up, and it gets several");
    }

    /// proves: V2-4.2.1.1-h
    #[test]
    fn a_reply_says_what_was_read_of_our_grants() {
        let mut client = credits(Side::Client, 16);
        stamp(&mut client);
        client.consumed();
        client.heard(Word::new(8, 8), false);
        client.released();
        // A call in six parts, and its reply: five grants were lost because the balance was full.
        for _ in 0..6 {
            stamp(&mut client);
        }
        let mark = client.granted();
        assert_eq!(client.count, -5);
        client.consumed();
        client.heard(Word::new(6, 8), false);
        client.acknowledged(mark);
        client.released();
        assert_eq!(client.count, 1, "the receive of the reply, and no debt");
        // The peer may not have read what was granted after the call, and another reply is held.
        let mark = client.granted();
        for _ in 0..3 {
            stamp(&mut client);
        }
        assert_eq!(client.count, -2);
        client.consumed();
        client.consumed();
        client.acknowledged(mark);
        assert_eq!(client.count, -2, "at least one less three less two is no news");
        client.acknowledged(client.granted());
        assert_eq!(client.count, -1);
        client.acknowledged(0);
        assert_eq!(client.count, -1, "a mark of long ago lowers nothing");
    }
}
