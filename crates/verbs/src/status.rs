//! What a completion's status means: the error in the contract's words, which end is at fault, and what an
//! administrator can do about it.

use crate::sys::verbs;
use rpcrdma_fabric::{CloseReason, PeerViolation, WorkError};
use std::{ffi::c_int, fmt};

/// A fault that only the device's maker or this project can repair.
const REPORT: &str = "update the device's driver and firmware at both ends, see `dmesg`, and report it if it stays";
/// The device or its driver reports a feature that this crate does not use.
const UNUSED: &str = "this feature is not used here: update the device's driver and firmware, see `dmesg`";
/// The peer's log shows more.
const PEERS_LOG: &str = "see the peer's log, and that both ends are up to date";
/// A fault of the path, or of the peer's machine.
const PATH: &str = "see that the peer is up, that the cable and the switch's ports are, that RoCE's UDP port 4791 is open, and that \
                    the network loses no packets of RoCE (PFC or ECN at both ends)";

/// Which end has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Neither: the connection was over, and there is no fault.
    Nobody,
    /// The peer, whose device has reported the error to ours.
    Peer,
    /// Our end: the device, its driver, or the path to the peer.
    Ours,
}

/// What a status means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Meaning {
    status: c_int,
    whose: Whose,
    /// What has happened.
    what: &'static str,
    /// What to do about it.
    advice: &'static str,
    error: WorkError,
}

impl Meaning {
    /// The meaning of a receive's status: if a message is too long, soft-RoCE reports another number than the interface
    /// defines.
    pub(crate) fn at_receive(status: c_int) -> Self {
        match status {
            verbs::STATUS_LOCAL_WORK => Self { status, ..Self::of(verbs::STATUS_LOCAL_LENGTH) },
            _ => Self::of(status),
        }
    }

    /// The meaning of a status.
    pub(crate) fn of(status: c_int) -> Self {
        use Whose::{Nobody, Ours, Peer};
        let (whose, what, advice) = match status {
            verbs::STATUS_LOCAL_LENGTH => (Ours, "a message is longer than its buffer", PEERS_LOG),
            verbs::STATUS_LOCAL_WORK => (Ours, "the device does not accept a piece of work", REPORT),
            verbs::STATUS_LOCAL_DATAGRAM => (Ours, "the device has failed at a reliable datagram", UNUSED),
            verbs::STATUS_LOCAL_PROTECTION => (Ours, "the device does not find memory that was registered", REPORT),
            verbs::STATUS_FLUSHED => (Nobody, "the device gave its work back unfinished", PATH),
            verbs::STATUS_BIND => (Ours, "the device cannot bind a memory window", REPORT),
            verbs::STATUS_BAD_RESPONSE => (Ours, "the peer's device answers what was not asked", REPORT),
            verbs::STATUS_LOCAL_ACCESS => (Ours, "the device refuses what the peer sent to our memory", REPORT),
            verbs::STATUS_REMOTE_INVALID => (Peer, "the peer's device does not accept a request", PEERS_LOG),
            verbs::STATUS_REMOTE_ACCESS => (Peer, "the peer does not allow an access to its memory", PEERS_LOG),
            verbs::STATUS_REMOTE_OPERATION => (Peer, "the peer's device cannot do what was asked", PEERS_LOG),
            verbs::STATUS_RETRIES => (Ours, "the peer does not answer", PATH),
            verbs::STATUS_NO_RECEIVE => (
                Ours,
                "the peer has no receive ready",
                "it is overloaded, or does not keep to its credits: see its log",
            ),
            verbs::STATUS_DATAGRAM_DOMAIN => (Ours, "the device finds a wrong reliable datagram domain", UNUSED),
            verbs::STATUS_REMOTE_DATAGRAM => (Ours, "the peer's device does not accept a reliable datagram", UNUSED),
            verbs::STATUS_REMOTE_ABORT => (Peer, "the peer's device has given an operation up", PEERS_LOG),
            verbs::STATUS_CONTEXT_NUMBER => (Ours, "the device finds a wrong end-to-end context", UNUSED),
            verbs::STATUS_CONTEXT_STATE => (Ours, "the device finds an end-to-end context in a wrong state", UNUSED),
            verbs::STATUS_FATAL => {
                (Ours, "the device has failed", "see `dmesg`; it may need a reset, other firmware, or another slot")
            }
            verbs::STATUS_NO_RESPONSE => (Ours, "the peer does not respond", PATH),
            verbs::STATUS_GENERAL => (
                Ours,
                "the device reports an error of its own",
                "see `dmesg` and `rdma statistic`, and update its firmware",
            ),
            verbs::STATUS_TAG_MATCHING => (Ours, "the device has failed at tag matching", UNUSED),
            verbs::STATUS_TAG_RENDEZVOUS => (Ours, "the device has not finished a rendezvous by tags", UNUSED),
            _ => (Ours, "the device reports what this program does not know", REPORT),
        };
        Self { status, whose, what, advice, error: contract(status) }
    }

    /// The error in the contract's words.
    pub(crate) fn error(&self) -> WorkError {
        self.error.clone()
    }

    /// Why a connection ends if its own work came back with this status.
    pub(crate) fn of_work(&self) -> CloseReason {
        match self.whose {
            Whose::Peer => CloseReason::Terminated(self.to_string()),
            Whose::Ours | Whose::Nobody => CloseReason::Broken(self.to_string()),
        }
    }

    /// Why a connection ends if a receive came back with this status: a message that is too long, or not allowed, is
    /// the peer's fault.
    pub(crate) fn of_receive(&self) -> CloseReason {
        match self.error() {
            WorkError::LocalLength | WorkError::RemoteAccess | WorkError::RemoteOperation => {
                CloseReason::Violation(PeerViolation { protocol: "verbs", rule: self.to_string() })
            }
            _ => CloseReason::Broken(self.to_string()),
        }
    }
}

/// A status in the contract's words.
fn contract(status: c_int) -> WorkError {
    match status {
        verbs::STATUS_FLUSHED => WorkError::Flushed,
        verbs::STATUS_LOCAL_LENGTH => WorkError::LocalLength,
        verbs::STATUS_REMOTE_ACCESS => WorkError::RemoteAccess,
        verbs::STATUS_REMOTE_INVALID | verbs::STATUS_REMOTE_OPERATION | verbs::STATUS_REMOTE_ABORT => {
            WorkError::RemoteOperation
        }
        verbs::STATUS_NO_RECEIVE => WorkError::NoReceive,
        verbs::STATUS_RETRIES | verbs::STATUS_NO_RESPONSE => WorkError::Unreachable,
        _ => WorkError::Fabric,
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {}): {}", self.what, self.status, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All numbers of `enum ibv_wc_status` besides success, as the header has them.
    const ALL: std::ops::RangeInclusive<c_int> = 1..=23;

    #[test]
    fn every_status_has_a_name_in_the_contract() {
        let named = [
            (1, WorkError::LocalLength),
            (5, WorkError::Flushed),
            (9, WorkError::RemoteOperation),
            (10, WorkError::RemoteAccess),
            (11, WorkError::RemoteOperation),
            (12, WorkError::Unreachable),
            (13, WorkError::NoReceive),
            (16, WorkError::RemoteOperation),
            (20, WorkError::Unreachable),
        ];
        for status in ALL {
            let expected = named.iter().find(|(number, _)| *number == status).map(|(_, error)| error.clone());
            assert_eq!(Meaning::of(status).error(), expected.unwrap_or(WorkError::Fabric), "{status}");
        }
    }

    #[test]
    fn every_status_says_what_has_happened_and_what_to_do() {
        let unknown = Meaning::of(99);
        let mut seen = BTreeSet::new();
        for status in ALL {
            let meaning = Meaning::of(status);
            assert_ne!(meaning.what, unknown.what, "{status} has no words of its own");
            assert!(seen.insert(meaning.what), "{status} shares its words");
            let text = meaning.to_string();
            assert!(text.contains(&format!("(status {status})")), "{text}");
            let told = ["see ", "update "].iter().any(|word| meaning.advice.contains(word));
            assert!(told, "{text} does not say what to do");
        }
        assert!(unknown.to_string().contains("(status 99)"));
        for (status, word) in [(12, "4791"), (13, "credits"), (19, "dmesg"), (10, "peer's log"), (4, "firmware")] {
            assert!(Meaning::of(status).to_string().contains(word), "{status}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_has_two_numbers_at_a_receive() {
        let [usual, soft_roce] = [1, 2].map(Meaning::at_receive);
        assert_eq!((usual.error(), soft_roce.error()), (WorkError::LocalLength, WorkError::LocalLength));
        assert!(soft_roce.to_string().contains("longer than its buffer (status 2)"));
        assert!(matches!(soft_roce.of_receive(), CloseReason::Violation(_)));
        assert_eq!(Meaning::of(2).error(), WorkError::Fabric, "own work that the device does not accept is no message");
        for status in ALL.filter(|status| *status != 2) {
            assert_eq!(Meaning::at_receive(status), Meaning::of(status));
        }
    }

    #[test]
    fn the_end_of_a_connection_names_whose_fault_it_is() {
        for status in ALL {
            let meaning = Meaning::of(status);
            let text = meaning.to_string();
            let by_peer = [9, 10, 11, 16].contains(&status);
            let of_work =
                if by_peer { CloseReason::Terminated(text.clone()) } else { CloseReason::Broken(text.clone()) };
            assert_eq!(meaning.of_work(), of_work);
            let violation = CloseReason::Violation(PeerViolation { protocol: "verbs", rule: text.clone() });
            let of_receive = if by_peer || status == 1 { violation } else { CloseReason::Broken(text) };
            assert_eq!(meaning.of_receive(), of_receive);
        }
    }
}
