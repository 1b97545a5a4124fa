//! Limits of the protocol (RFC 1094 section 3.5), and sizes in octets of encoded results, from which the largest
//! replies are computed.

use rpcrdma_xdr::padded;

/// The octets of a handle, which are always as many (`FHSIZE`).
// NFS2-1094-2.3-a
pub const HANDLE_BYTES: usize = 32;
/// The most octets in one READ or WRITE (`MAXDATA`).
// NFS2-1094-3.5-a
pub const MAX_TRANSFER_BYTES: usize = 8192;
/// The longest path, in octets (`MAXPATHLEN`).
pub const MAX_PATH_BYTES: usize = 1024;
/// The longest name, in octets (`MAXNAMLEN`). Longer ones are read, and answered with `NFSERR_NAMETOOLONG`.
pub const MAX_NAME_BYTES: usize = 255;

pub(super) const WORD: usize = 4;
pub(super) const STATUS: usize = WORD;
/// `fattr`: 17 words.
pub(super) const ATTRIBUTES: usize = 17 * WORD;

/// The octets of a READDIR answer without entries: status, the end of the list, the end-of-directory flag.
pub const fn list_bytes() -> usize {
    STATUS + 2 * WORD
}

/// The octets of an [`Entry`](super::Entry) with a name of `name_bytes`: the list's flag, file id, name, cookie.
pub const fn entry_bytes(name_bytes: usize) -> usize {
    3 * WORD + padded(name_bytes) + WORD
}

/// The largest READDIR answer for a client that asked for `count` octets: the first entry may exceed them.
pub(super) fn largest_directory_reply(count: u32) -> usize {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_TRANSFER_BYTES);
    list_bytes() + count.max(entry_bytes(MAX_NAME_BYTES))
}
