//! Types that many operations use: clients, sessions, state, owners, changes (RFC 8881 sections 2.4, 2.10, 8.2, 3.3).

use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use smallvec::SmallVec;
use std::fmt;

/// The most octets in a handle (`NFS4_FHSIZE`).
pub const MAX_HANDLE_BYTES: usize = 128;

/// The most octets in the name that a client gives itself or an owner (`NFS4_OPAQUE_LIMIT`).
pub const MAX_OPAQUE_BYTES: usize = 1024;

/// Octets of a session id (`NFS4_SESSIONID_SIZE`).
pub const SESSION_ID_BYTES: usize = 16;

/// Octets of a stateid without its sequence number (`NFS4_OTHER_SIZE`).
pub const STATE_ID_OTHER_BYTES: usize = 12;

/// Octets of a verifier (`NFS4_VERIFIER_SIZE`).
pub const VERIFIER_BYTES: usize = 8;

/// A client, as the server names it (`clientid4`): two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl Encode for ClientId {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u64(self.0);
    }
}

impl Decode for ClientId {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.u64().map(ClientId)
    }
}

#[cfg(test)]
impl crate::sample::Sample for ClientId {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self(draw.u64())
    }
}

xdr_fixed! {
    /// A session, as the server names it (`sessionid4`): 16 octets.
    pub struct SessionId: SESSION_ID_BYTES;

    /// Octets that distinguish one incarnation, directory, or exclusive create from another (`verifier4`): 8 octets.
    pub struct Verifier: VERIFIER_BYTES;
}

xdr_words! {
    /// Names an open, a lock or a delegation, and how often it has changed (`stateid4`): 16 octets.
    #[derive(Copy, Hash)]
    pub struct StateId {
        /// Counts the changes of the state, from 1; 0 means the current number (RFC 8881 section 8.2.2).
        pub sequence: u32,
        /// Names the state.
        pub other: StateIdOther,
    }
}

xdr_struct! {
    /// An owner of opens or locks: a name that only its client understands (`state_owner4`).
    #[derive(Hash)]
    pub struct Owner {
        /// The client. Minor versions from 1 on ignore it, because the session shows to which client the owner belongs.
        pub client: ClientId,
        /// The name, of at most [`MAX_OPAQUE_BYTES`].
        pub name: OwnerName,
    }

    /// The change number of a directory before and after an operation (`change_info4`): 20 octets.
    #[derive(Copy)]
    pub struct ChangeInfo {
        /// Whether nothing else changed the directory between the two.
        pub atomic: bool,
        /// Before.
        pub before: u64,
        /// After.
        pub after: u64,
    }

    /// A time since 1970-01-01 00:00 UTC (`nfstime4`): 12 octets.
    #[derive(Copy, Default, PartialOrd, Ord, Hash)]
    pub struct Time {
        /// Seconds, negative before 1970.
        pub seconds: i64,
        /// Nanoseconds after that second.
        pub nanoseconds: u32,
    }
}

xdr_fixed! {
    /// A [`StateId`] without its sequence number: 12 octets.
    pub struct StateIdOther: STATE_ID_OTHER_BYTES;
}

impl StateId {
    /// All zero: no state (RFC 8881 section 8.2.3).
    pub const ANONYMOUS: StateId = StateId { sequence: 0, other: StateIdOther([0; STATE_ID_OTHER_BYTES]) };
    /// All ones: a READ that passes over locks.
    pub const BYPASS: StateId = StateId { sequence: u32::MAX, other: StateIdOther([0xFF; STATE_ID_OTHER_BYTES]) };
    /// The current stateid of the COMPOUND (minor versions from 1 on).
    pub const CURRENT: StateId = StateId { sequence: 1, other: StateIdOther([0; STATE_ID_OTHER_BYTES]) };
    /// Names no state, where an operation returns one that is not to be used.
    pub const INVALID: StateId = StateId { sequence: u32::MAX, other: StateIdOther([0; STATE_ID_OTHER_BYTES]) };

    /// Whether the part without the sequence number is all zero or all ones, which names no state with any sequence
    /// number.
    pub fn is_special(&self) -> bool {
        self.other == Self::ANONYMOUS.other || self.other == Self::BYPASS.other
    }
}

xdr_bytes! {
    /// The name of an [`Owner`]: at most [`MAX_OPAQUE_BYTES`].
    pub struct OwnerName: MAX_OPAQUE_BYTES, copied;

    /// The name that a client gives itself: at most [`MAX_OPAQUE_BYTES`].
    pub struct ClientName: MAX_OPAQUE_BYTES, copied;
}

/// The octets that a [`Handle`] holds itself. A longer one takes memory of its own, which is slower and otherwise the
/// same.
const USUAL_HANDLE_BYTES: usize = 48;

/// A file handle (`nfs_fh4`): a length word and up to [`MAX_HANDLE_BYTES`]. One of a usual length needs no memory of
/// its own.
#[derive(PartialEq, Eq, Hash)]
pub struct Handle(SmallVec<[u8; USUAL_HANDLE_BYTES]>);

impl Handle {
    /// A handle of these octets; `None` if there are more than [`MAX_HANDLE_BYTES`].
    pub fn new(octets: &[u8]) -> Option<Self> {
        (octets.len() <= MAX_HANDLE_BYTES).then(|| Self(SmallVec::from_slice(octets)))
    }

    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl Clone for Handle {
    /// All octets at once: `SmallVec::clone` copies them one by one.
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(")?;
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

impl Encode for Handle {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(&self.0);
    }
}

impl Decode for Handle {
    /// Copies the octets, so that a handle that is kept does not keep the message.
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque_with(MAX_HANDLE_BYTES, |octets| Self(SmallVec::from_slice(octets)))
    }
}

#[cfg(test)]
impl crate::sample::Sample for Handle {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self(SmallVec::from_slice(&draw.octets(MAX_HANDLE_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// proves: NFS4-KEPT-a
    #[test]
    fn what_is_kept_does_not_keep_the_message() {
        let message = Bytes::from([&[0, 0, 0, 4][..], b"name"].concat());
        let begins = |octets: &[u8]| message.as_ptr_range().contains(&octets.as_ptr());
        let decoder = || Decoder::new(message.clone().into());
        assert!(!begins(OwnerName::decode(&mut decoder()).unwrap().as_slice()));
        assert!(!begins(ClientName::decode(&mut decoder()).unwrap().as_slice()));
        assert!(!begins(Handle::decode(&mut decoder()).unwrap().as_slice()));
        assert!(!begins(crate::v4::Tag::decode(&mut decoder()).unwrap().as_slice()));
        assert!(begins(crate::v4::Name::decode(&mut decoder()).unwrap().as_slice()), "a name is used and forgotten");
    }

    #[test]
    fn handles_end_at_their_limit() {
        let decoded = |octets: usize| {
            let mut encoder = Encoder::new();
            encoder.opaque(&vec![7; octets]);
            Handle::decode(&mut Decoder::new(encoder.finish().to_bytes().into()))
        };
        assert_eq!(decoded(MAX_HANDLE_BYTES).ok(), Handle::new(&[7; MAX_HANDLE_BYTES]));
        assert!(matches!(decoded(MAX_HANDLE_BYTES + 1), Err(DecodeError::TooLong { .. })));
        assert_eq!(Handle::new(&[7; MAX_HANDLE_BYTES + 1]), None);
    }

    #[test]
    fn special_stateids_name_no_state() {
        let of = |sequence, other| StateId { sequence, other: StateIdOther([other; STATE_ID_OTHER_BYTES]) };
        assert!(
            [StateId::ANONYMOUS, StateId::BYPASS, StateId::CURRENT, StateId::INVALID].iter().all(StateId::is_special)
        );
        assert!(of(7, 0).is_special() && of(7, 0xFF).is_special() && !of(0, 1).is_special());
    }
}
