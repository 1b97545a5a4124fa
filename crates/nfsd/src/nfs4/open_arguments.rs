//! The arguments of OPEN that this server understands (RFC 9754 section 4): the only place that lists them.

use rpcrdma_nfs::v4::{Bitmap, OpenArguments};

/// Values of `share_access`: reading, writing, both.
const SHARE_ACCESS: [u32; 3] = [1, 2, 3];
/// Values of `share_deny`: nothing, reading, writing, both.
const SHARE_DENY: [u32; 4] = [0, 1, 2, 3];
/// Wishes, by their number in `share_access`: any delegation (3), none (4), cancel an earlier wish (5).
const WANTS: [u32; 3] = [3, 4, 5];
/// Claims by number: by name, from before a restart, by a delegation and a name, by handle, by a delegation's handle.
const CLAIMS: [u32; 5] = [0, 1, 2, 4, 5];
/// Ways to create by number: all.
const CREATE_MODES: [u32; 4] = [0, 1, 2, 3];

/// The value of the attribute.
// NFS4-9754-4-a
pub(super) fn open_arguments() -> OpenArguments {
    OpenArguments {
        share_access: Bitmap::of_numbers(SHARE_ACCESS),
        share_deny: Bitmap::of_numbers(SHARE_DENY),
        share_access_want: Bitmap::of_numbers(WANTS),
        open_claim: Bitmap::of_numbers(CLAIMS),
        create_mode: Bitmap::of_numbers(CREATE_MODES),
    }
}
