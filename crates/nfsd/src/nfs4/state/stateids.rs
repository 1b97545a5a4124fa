//! The stateids of opens, locks and delegations, and checks of stateids from clients (RFC 8881 section 8.2).
//!
//! ```text
//! a stateid behind its sequence number: the boot epoch (4 bytes), the number of the client (4), the number of the
//! state (4)
//! ```
//!
//! Stateids are not secret: the server looks them up only among the state of the session's client, so a stateid of
//! another client names nothing.

use super::limits::{MAX_SESSIONS, MAX_SLOTS};
use rpcrdma_nfs::v4::{ClientId, StateId, StateIdOther, Status};

/// How many stateids may be under way at a time. This decides how sequence numbers that wrap are compared.
const WINDOW: u32 = MAX_SESSIONS as u32 * MAX_SLOTS;

/// The epoch in a client id, which is also the first bytes of a stateid.
pub(super) fn epoch_of(client: ClientId) -> u32 {
    (client.0 >> 32) as u32
}

/// Makes the name of a state.
pub(super) fn other(client: ClientId, number: u32) -> StateIdOther {
    let mut octets = [0; 12];
    octets[..8].copy_from_slice(&client.0.to_be_bytes());
    octets[8..].copy_from_slice(&number.to_be_bytes());
    StateIdOther(octets)
}

/// The client that a stateid names: minor version 0 has no session that shows the client.
pub(crate) fn client_of(id: StateId) -> ClientId {
    let [a, b, c, d, e, f, g, h, ..] = id.other.0;
    ClientId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// Whether a stateid of minor version 0 is of this boot. In later minor versions the session shows the boot of a call,
/// and stateids of another boot are never looked up.
///
/// # Errors
/// STALE_STATEID.
// NFS4-8881-15.1.16.5-a, NFS4-7530-9.1.4.4-a
pub(crate) fn check_epoch(id: StateId, epoch: u32) -> Result<(), Status> {
    if epoch_of(client_of(id)) == epoch { Ok(()) } else { Err(Status::STALE_STATEID) }
}

/// A special stateid, which stands for no client's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// No state: READ, WRITE and SETATTR as if the caller had nothing open.
    Anonymous,
    /// READ past locks; anonymous for everything else.
    Bypass,
}

/// The special stateid, or `None` for any other stateid. The caller has replaced [`StateId::CURRENT`] before.
///
/// # Errors
/// BAD_STATEID for all zeroes or ones with a sequence number without a meaning; the stateid for "invalid" is one of
/// these.
pub(crate) fn special(id: StateId) -> Result<Option<Special>, Status> {
    match id {
        StateId::ANONYMOUS => Ok(Some(Special::Anonymous)),
        StateId::BYPASS => Ok(Some(Special::Bypass)),
        // NFS4-8881-8.2.3-a
        id if id.is_special() => Err(Status::BAD_STATEID),
        _ => Ok(None),
    }
}

/// The next sequence number: never zero, which has another meaning.
// NFS4-8881-8.2.2-b
pub(super) fn next(sequence: u32) -> u32 {
    sequence.checked_add(1).unwrap_or(1)
}

/// Compares the sequence number of a client's stateid with the state's.
///
/// # Errors
/// OLD_STATEID or BAD_STATEID.
// NFS4-8881-8.2.2-a
pub(super) fn check_sequence(told: u32, current: u32) -> Result<(), Status> {
    let wraps = |low: u32, high: u32| low < WINDOW && high > u32::MAX - WINDOW;
    let is_old = !wraps(told, current) && (wraps(current, told) || told < current);
    match told {
        0 => Ok(()),
        told if told == current => Ok(()),
        _ if is_old => Err(Status::OLD_STATEID),
        _ => Err(Status::BAD_STATEID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NFS4-8881-8.2.3-a
    #[test]
    fn special_stateids_are_the_defined_ones_and_no_others() {
        let with = |sequence, octet| StateId { sequence, other: StateIdOther([octet; 12]) };
        assert_eq!(special(with(0, 0)), Ok(Some(Special::Anonymous)));
        assert_eq!(special(with(u32::MAX, 0xFF)), Ok(Some(Special::Bypass)));
        for (sequence, octet) in [(u32::MAX, 0), (1, 0), (2, 0), (0, 0xFF), (1, 0xFF), (u32::MAX - 1, 0xFF)] {
            assert_eq!(special(with(sequence, octet)), Err(Status::BAD_STATEID), "{sequence} {octet}");
        }
        assert_eq!(special(with(1, 1)), Ok(None));
    }

    /// proves: NFS4-8881-8.2.2-a, NFS4-8881-8.2.2-b
    #[test]
    fn sequence_numbers_are_compared_around_the_end_of_their_range() {
        let (old, bad) = (Err(Status::OLD_STATEID), Err(Status::BAD_STATEID));
        for (told, current, expected) in [
            (0, 7, Ok(())),
            (7, 7, Ok(())),
            (6, 7, old),
            (8, 7, bad),
            (u32::MAX, 1, old),
            (1, u32::MAX, bad),
            (u32::MAX - WINDOW, 1, bad),
            (u32::MAX - WINDOW + 1, WINDOW - 1, old),
            (u32::MAX, WINDOW, bad),
        ] {
            assert_eq!(check_sequence(told, current), expected, "{told} {current}");
        }
        assert_eq!([next(1), next(u32::MAX)], [2, 1], "never zero");
    }

    /// proves: NFS4-8881-15.1.16.5-a
    #[test]
    fn a_stateid_of_before_a_restart_is_stale_where_no_session_says_so() {
        let id = |epoch: u64| StateId { sequence: 1, other: other(ClientId(epoch << 32 | 9), 4) };
        assert_eq!(client_of(id(7)), ClientId(7 << 32 | 9));
        assert_eq!([id(7), id(6)].map(|id| check_epoch(id, 7)), [Ok(()), Err(Status::STALE_STATEID)]);
    }
}
