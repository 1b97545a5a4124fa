//! How large results can become, in octets: the sizes of their fields, and the largest sizes of fields whose size is
//! not fixed.

use super::{
    Attribute, BITMAP_BYTES, Bitmap, MAX_ATTRIBUTES_BYTES, MAX_HANDLE_BYTES, MAX_OPAQUE_BYTES, MAX_PRINCIPAL_BYTES,
    MAX_TRANSFER_BYTES, ops,
};
use rpcrdma_xdr::padded;

pub(super) const WORD: usize = 4;
pub(super) const STATE_ID: usize = 16;
pub(super) const VERIFIER: usize = 8;
pub(super) const CHANGE: usize = 20;
pub(super) const TIME: usize = 12;
pub(super) const HANDLE: usize = WORD + MAX_HANDLE_BYTES;
const OPAQUE: usize = WORD + MAX_OPAQUE_BYTES;
/// `LOCK4denied` with the longest owner.
pub(super) const LOCK_DENIED: usize = 8 + 8 + WORD + 8 + OPAQUE;
/// `nfsace4` with the longest name.
const ACE: usize = 3 * WORD + WORD + MAX_PRINCIPAL_BYTES;
/// `open_delegation4`: a delegation for writing.
pub(super) const DELEGATION: usize = WORD + STATE_ID + WORD + 3 * WORD + ACE;
/// `OPEN4resok`.
pub(super) const OPEN: usize = STATE_ID + CHANGE + WORD + BITMAP_BYTES + DELEGATION;
/// `secinfo4<>` with all flavours.
pub(super) const FLAVOURS: usize = WORD + ops::MAX_FLAVOURS * (WORD + WORD + ops::MAX_OID_BYTES + 2 * WORD);
/// `netaddr4`.
pub(super) const NET_ADDRESS: usize = 2 * (WORD + ops::MAX_ADDRESS_BYTES);
/// `netloc4`: a name or URL.
pub(super) const SERVER_LOCATION: usize = WORD + OPAQUE;
/// `channel_attrs4`.
pub(super) const CHANNEL: usize = 6 * WORD + 2 * WORD;
/// `write_response4`.
pub(super) const WRITE_RESPONSE: usize = WORD + STATE_ID + 8 + WORD + VERIFIER;

/// The size that a client offers for an attribute whose size it cannot know before (ULB-5.2-a): the longest access
/// control list that Linux takes. If a session's `ca_maxresponsesize` is lower, a client offers that.
pub const GUESSED_BYTES: usize = 64 << 10;

/// How many octets a READ with this count can bring.
pub(super) fn transfer(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX).min(MAX_TRANSFER_BYTES)
}

/// `fattr4` with all of these attributes.
pub(super) fn attributes(asked: &Bitmap) -> usize {
    let known = asked.iter().filter_map(Attribute::from_number);
    let values: usize = known.map(|attribute| attribute.largest_bytes().unwrap_or(GUESSED_BYTES)).sum();
    BITMAP_BYTES + WORD + values.min(MAX_ATTRIBUTES_BYTES)
}

/// A listing for which the arguments say how large it may be: its server counts all of it (RFC 8881 section 18.23.3,
/// RFC 8276 section 8.4.3).
pub(super) fn listing(max_count: u32) -> usize {
    let asked = usize::try_from(max_count).unwrap_or(usize::MAX);
    asked.clamp(ops::ReadDirOk::EMPTY_BYTES, 2 * MAX_TRANSFER_BYTES)
}

/// Layouts and devices, for which the arguments say how large they may be.
pub(super) fn layouts(max_count: u32) -> usize {
    let asked = usize::try_from(max_count).unwrap_or(usize::MAX);
    asked.clamp(GUESSED_BYTES, 2 * MAX_TRANSFER_BYTES)
}

/// READ_PLUS: the data, and as many pieces as there can be.
pub(super) fn read_plus(count: u32) -> usize {
    let piece = WORD + 8 + 8 + WORD;
    2 * WORD + padded(transfer(count)) + ops::MAX_PIECES * piece
}

/// EXCHANGE_ID: a server protects state as the client asks, or does not protect it.
pub(super) fn exchange_id(asked: &ops::StateProtection) -> usize {
    let ops = 2 * BITMAP_BYTES;
    let protection = match asked {
        ops::StateProtection::None => 0,
        ops::StateProtection::MachineCredential(_) => ops,
        ops::StateProtection::Ssv(_) => ops + 5 * WORD + ops::MAX_SSV_CHOICES * (WORD + ops::MAX_GSS_HANDLE_BYTES),
    };
    let implementation = WORD + 2 * OPAQUE + TIME;
    8 + 2 * WORD + WORD + protection + 8 + OPAQUE + OPAQUE + implementation
}
