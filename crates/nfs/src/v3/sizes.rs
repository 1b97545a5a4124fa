//! Sizes in octets of encoded results, from which the largest replies are computed.

use super::{MAX_HANDLE_BYTES, MAX_NAME_BYTES};
use rpcrdma_xdr::padded;

/// The most octets that this implementation sends or takes in one READ or WRITE: the most that Linux's client and
/// server use in one call.
pub const MAX_TRANSFER_BYTES: usize = 1 << 20;

pub(super) const WORD: usize = 4;
pub(crate) const STATUS: usize = WORD;
/// `fattr3`.
pub(super) const ATTRIBUTES: usize = 84;
/// `post_op_attr`, present.
pub(crate) const OPTIONAL_ATTRIBUTES: usize = WORD + ATTRIBUTES;
/// `wcc_data`, both sides present.
pub(super) const WEAK_CACHE: usize = WORD + 24 + OPTIONAL_ATTRIBUTES;
/// `nfs_fh3` at its longest.
pub(super) const HANDLE: usize = WORD + MAX_HANDLE_BYTES;
/// `post_op_fh3`, present.
pub(super) const OPTIONAL_HANDLE: usize = WORD + HANDLE;
/// `cookieverf3` or `writeverf3`.
pub(super) const VERIFIER: usize = 8;
/// The end of an entry list and the end-of-directory flag.
const LIST_END: usize = 2 * WORD;

/// The octets of a READDIR or READDIRPLUS answer without entries: status, directory attributes, verifier, the end of
/// the list, the end-of-directory flag.
pub const fn read_directory_bytes() -> usize {
    STATUS + OPTIONAL_ATTRIBUTES + VERIFIER + LIST_END
}

/// The octets of an [`Entry`](super::Entry) with a name of `name_bytes`: the list's flag, file id, name, cookie.
pub const fn entry_bytes(name_bytes: usize) -> usize {
    WORD + 8 + WORD + padded(name_bytes) + 8
}

/// The octets of an [`EntryPlus`](super::EntryPlus) with a name of `name_bytes` and a handle of `handle_bytes`, its
/// attributes and handle present.
pub const fn entry_plus_bytes(name_bytes: usize, handle_bytes: usize) -> usize {
    entry_bytes(name_bytes) + OPTIONAL_ATTRIBUTES + 2 * WORD + padded(handle_bytes)
}

/// The largest READDIR or READDIRPLUS answer for a client that asked for `count` octets. Servers differ in what `count`
/// covers, and the first entry may exceed it: there is room for both.
pub(super) fn largest_directory_reply(count: u32) -> usize {
    let first_entry = entry_plus_bytes(MAX_NAME_BYTES, MAX_HANDLE_BYTES);
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(2 * MAX_TRANSFER_BYTES);
    read_directory_bytes() + count.max(first_entry)
}
