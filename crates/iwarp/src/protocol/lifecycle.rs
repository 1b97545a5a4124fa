//! The life of a connection after its set-up: one table of transitions.
//!
//! ```text
//! Open -> Draining (we end it, what is posted goes first) -> Lingering (FIN sent, the peer's awaited) -> Over
//!      -> Terminating (a rule was broken, the Terminate goes first) -> Lingering
//! ```
//! In Lingering we read and drop the peer's octets: closing a socket with unread octets would reset the connection, and
//! the peer could lose a Terminate with it.

use rpcrdma_fabric::CloseReason;

/// The phase of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The connection carries out work.
    Open,
    /// We are ending the connection: it carries out work posted before, and accepts none.
    Draining,
    /// All work has been given back; a Terminate is being sent.
    Terminating(CloseReason),
    /// All work has been given back and everything is written; we wait for the peer's FIN.
    Lingering(CloseReason),
    /// The connection is over.
    Over(CloseReason),
}

/// An event in the life of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The owner wants to end the connection.
    Disconnect,
    /// Nothing is left to write or to wait for.
    Drained,
    /// The peer broke a rule, and a Terminate for this is queued.
    Violated(CloseReason),
    /// The peer's Terminate has arrived.
    Terminated(CloseReason),
    /// The peer has sent its FIN between two FPDUs.
    PeerFin,
    /// The socket failed, or the peer's FIN came within an FPDU.
    Broken(CloseReason),
    /// Time is up: for the peer to accept or to send octets, or to send its FIN.
    TimeUp(CloseReason),
}

impl Phase {
    /// The transition. An event that has no meaning in a phase changes nothing.
    // RDMAP-5040-5.4-a, RDMAP-5040-6.2-a
    pub fn next(self, event: Event) -> Phase {
        use Event::*;
        use Phase::*;
        match (self, event) {
            (Open, Disconnect) => Draining,
            (Draining, Drained) => Lingering(CloseReason::Local),
            (Terminating(why), Drained) => Lingering(why),
            (Open | Draining, Violated(why)) => Terminating(why),
            // After a Terminate has arrived, nothing more may be sent (RFC 5040 section 5.4).
            (Open | Draining, Terminated(why)) => Lingering(why),
            (Open, PeerFin) => Over(CloseReason::Remote),
            (Draining, PeerFin) => Over(CloseReason::Local),
            (Open | Draining, Broken(why) | TimeUp(why)) => Over(why),
            (Terminating(why) | Lingering(why), PeerFin | Broken(_) | TimeUp(_)) => Over(why),
            (phase, _) => phase,
        }
    }

    /// Whether the connection still carries out work.
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
