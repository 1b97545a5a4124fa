//! The life of a connection after its set-up: one table of transitions.
//!
//! ```text
//! Open -> Draining (we end it, what is posted goes first) -> Lingering (FIN sent, the peer's awaited) -> Over
//!      -> Terminating (a rule was broken, the Terminate goes first) -> Lingering
//! ```
//! In Lingering the octets of the peer are read and dropped: closing a socket with unread octets would reset the
//! connection and could take a Terminate with it.

use rpcrdma_fabric::CloseReason;

/// Where a connection stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Work is done.
    Open,
    /// We are ending it: work posted before is done, none is taken.
    Draining,
    /// All work has come back; a Terminate is on its way out.
    Terminating(CloseReason),
    /// All work has come back and everything is written; the peer's end is awaited.
    Lingering(CloseReason),
    /// The connection is over.
    Over(CloseReason),
}

/// What can happen to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The owner wants to end it.
    Disconnect,
    /// Nothing is left to write or to wait for.
    Drained,
    /// The peer broke a rule, and a Terminate for it was queued.
    Violated(CloseReason),
    /// The peer's Terminate has come.
    Terminated(CloseReason),
    /// The peer has sent its FIN between two FPDUs.
    PeerFin,
    /// The socket failed, or the peer's FIN came within an FPDU.
    Broken(CloseReason),
    /// Time is up: for the peer to take or to send octets, or for its FIN.
    TimeUp(CloseReason),
}

impl Phase {
    /// The transition. An event that means nothing here changes nothing.
    // RDMAP-5040-5.4-a, RDMAP-5040-6.2-a
    pub fn next(self, event: Event) -> Phase {
        use Event::*;
        use Phase::*;
        match (self, event) {
            (Open, Disconnect) => Draining,
            (Draining, Drained) => Lingering(CloseReason::Local),
            (Terminating(why), Drained) => Lingering(why),
            (Open | Draining, Violated(why)) => Terminating(why),
            // Nothing more is to be sent after a Terminate came (RFC 5040 section 5.4).
            (Open | Draining, Terminated(why)) => Lingering(why),
            (Open, PeerFin) => Over(CloseReason::Remote),
            (Draining, PeerFin) => Over(CloseReason::Local),
            (Open | Draining, Broken(why) | TimeUp(why)) => Over(why),
            (Terminating(why) | Lingering(why), PeerFin | Broken(_) | TimeUp(_)) => Over(why),
            (phase, _) => phase,
        }
    }

    /// Whether work is still done.
    pub fn is_live(&self) -> bool {
        matches!(self, Phase::Open | Phase::Draining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every event in every phase.
    /// proves: RDMAP-5040-5.4-a, RDMAP-5040-6.2-a
    #[test]
    fn the_whole_table() {
        let reset = || CloseReason::Broken("reset".into());
        let told = || CloseReason::Terminated("told".into());
        let stalled = || CloseReason::Stalled { seconds: 1 };
        let events = [
            Event::Disconnect,
            Event::Drained,
            Event::Violated(reset()),
            Event::Terminated(told()),
            Event::PeerFin,
            Event::Broken(reset()),
            Event::TimeUp(stalled()),
        ];
        use Phase::*;
        let local = || CloseReason::Local;
        let table = [
            (
                Open,
                [
                    Draining,
                    Open,
                    Terminating(reset()),
                    Lingering(told()),
                    Over(CloseReason::Remote),
                    Over(reset()),
                    Over(stalled()),
                ],
            ),
            (
                Draining,
                [
                    Draining,
                    Lingering(local()),
                    Terminating(reset()),
                    Lingering(told()),
                    Over(local()),
                    Over(reset()),
                    Over(stalled()),
                ],
            ),
            (
                Terminating(told()),
                [
                    Terminating(told()),
                    Lingering(told()),
                    Terminating(told()),
                    Terminating(told()),
                    Over(told()),
                    Over(told()),
                    Over(told()),
                ],
            ),
            (
                Lingering(local()),
                [
                    Lingering(local()),
                    Lingering(local()),
                    Lingering(local()),
                    Lingering(local()),
                    Over(local()),
                    Over(local()),
                    Over(local()),
                ],
            ),
            (Over(local()), std::array::from_fn(|_| Over(local()))),
        ];
        for (from, expected) in table {
            for (event, to) in events.iter().zip(expected) {
                assert_eq!(from.clone().next(event.clone()), to, "{from:?} and {event:?}");
            }
        }
    }
}
