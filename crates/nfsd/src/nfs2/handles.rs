//! Handles of 32 bytes: clients of version 2 hold them, for files of all versions.
//!
//! ```text
//! in itself                                   by the table
//! byte 0       2                             byte 0       3
//! byte 1       n, the length of the file's   bytes 1-15   0
//!               id, at most 14                bytes 16-31  SipHash-2-4 (128 bits) of format, export,
//! bytes 2-5    the export                                  file system and id: where the table has them
//! bytes 6-19   the file's id, then zeroes
//! bytes 20-31  96 bits of SipHash-2-4 of format, export, file system and id
//! ```
//!
//! The first format has room for ids of ext4, xfs, tmpfs and our own memory. The second serves longer ids (btrfs, and
//! file systems without handles). Both depend on the server's secret, and a file always has the same handle.

use super::table::{Digest, Table};
use crate::{FileId, SECRET_BYTES, handle::Target};
use rpcrdma_nfs::v2::{HANDLE_BYTES, Handle};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// The formats. Version 3 has format 1: the same secret makes the checks for all formats.
const IN_ITSELF: u8 = 2;
const BY_TABLE: u8 = 3;
/// The longest id that a handle itself has room for.
const MAX_ID_BYTES: usize = 14;
const ID_AT: usize = 6;
const CHECK_AT: usize = ID_AT + MAX_ID_BYTES;
const DIGEST_AT: usize = 16;

/// Makes checks and digests.
#[derive(Clone)]
pub(super) struct Seal2 {
    secret: [u8; SECRET_BYTES],
}

impl Seal2 {
    pub(super) fn new(secret: [u8; SECRET_BYTES]) -> Self {
        Self { secret }
    }

    fn hash(&self, format: u8, target: &Target) -> Digest {
        let id = target.file.as_slice();
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(&[format, id.len() as u8]);
        hasher.write(&target.export.to_be_bytes());
        hasher.write(&target.file_system.to_be_bytes());
        hasher.write(id);
        hasher.finish128().as_bytes()
    }

    /// The key of a target in the table.
    pub(super) fn digest(&self, target: &Target) -> Digest {
        self.hash(BY_TABLE, target)
    }

    /// The handle of a target with a short id.
    pub(super) fn in_itself(&self, target: &Target) -> Option<Handle> {
        let id = target.file.as_slice();
        let mut octets = [0; HANDLE_BYTES];
        octets.get_mut(ID_AT..CHECK_AT)?.get_mut(..id.len())?.copy_from_slice(id);
        (octets[0], octets[1]) = (IN_ITSELF, id.len() as u8);
        octets[2..ID_AT].copy_from_slice(&target.export.to_be_bytes());
        octets[CHECK_AT..].copy_from_slice(&self.hash(IN_ITSELF, target)[..HANDLE_BYTES - CHECK_AT]);
        Some(Handle(octets))
    }
}

/// The handle of a target in the table.
pub(super) fn by_table(digest: &Digest) -> Handle {
    let mut octets = [0; HANDLE_BYTES];
    octets[0] = BY_TABLE;
    octets[DIGEST_AT..].copy_from_slice(digest);
    Handle(octets)
}

/// The target of a handle that this server has made, else `None`. `file_system_of` returns the file system of an
/// export, which the handle does not contain.
pub(super) fn open(
    seal: &Seal2,
    table: &Table,
    handle: &[u8],
    file_system_of: impl Fn(u32) -> Option<u64>,
) -> Option<Target> {
    let octets: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
    match octets[0] {
        IN_ITSELF => {
            let [_, len, e0, e1, e2, e3, ..] = *octets;
            let export = u32::from_be_bytes([e0, e1, e2, e3]);
            let id = octets[ID_AT..CHECK_AT].get(..len.into())?;
            let target = Target { export, file_system: file_system_of(export)?, file: FileId::new(id)? };
            // NFS2-FH-a
            is_same(&seal.in_itself(&target)?.0, octets).then_some(target)
        }
        BY_TABLE => {
            let digest: &Digest = octets[DIGEST_AT..].try_into().ok()?;
            is_same(&by_table(digest).0, octets).then_some(())?;
            table.find(digest)
        }
        _ => None,
    }
}

/// Takes the same time wherever the bytes differ.
fn is_same(left: &[u8; HANDLE_BYTES], right: &[u8; HANDLE_BYTES]) -> bool {
    left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(id: &[u8]) -> Target {
        Target { export: 7, file_system: 9, file: FileId::new(id).unwrap() }
    }

    fn seal() -> Seal2 {
        Seal2::new([3; SECRET_BYTES])
    }

    fn opened(seal: &Seal2, handle: &[u8]) -> Option<Target> {
        open(seal, &Table::in_memory(4), handle, |export| (export == 7).then_some(9))
    }

    /// proves: NFS2-FH-a
    #[test]
    fn a_handle_is_accepted_only_as_it_was_made() {
        let seal = seal();
        for id in [&[5; MAX_ID_BYTES][..], &[5; 8], &[]] {
            let handle = seal.in_itself(&target(id)).unwrap();
            assert_eq!(opened(&seal, &handle.0), Some(target(id)));
            for at in 0..HANDLE_BYTES {
                for bit in 0..8 {
                    let mut octets = handle.0;
                    octets[at] ^= 1 << bit;
                    assert_eq!(opened(&seal, &octets), None, "byte {at} bit {bit}");
                }
            }
            assert_eq!(opened(&Seal2::new([4; SECRET_BYTES]), &handle.0), None, "another server's secret");
            let moved = open(&seal, &Table::in_memory(4), &handle.0, |_| Some(10));
            assert_eq!(moved, None, "another file system in the export's place");
            assert_eq!(opened(&seal, &handle.0[..31]), None);
        }
        assert!(seal.in_itself(&target(&[5; MAX_ID_BYTES + 1])).is_none(), "this one goes by the table");
    }

    /// proves: NFS2-FH-a
    #[test]
    fn what_the_table_does_not_have_is_no_handle() {
        let (seal, table) = (seal(), Table::in_memory(4));
        let long = target(&[5; 22]);
        let digest = seal.digest(&long);
        let handle = by_table(&digest);
        let open = |octets: &[u8]| open(&seal, &table, octets, |_| Some(9));
        assert_eq!(open(&handle.0), None);
        table.add(digest, long).unwrap();
        assert_eq!(open(&handle.0), Some(long));
        for at in 0..HANDLE_BYTES {
            let mut octets = handle.0;
            octets[at] ^= 1;
            assert_eq!(open(&octets), None, "byte {at}");
        }
        assert_ne!(seal.digest(&target(&[6; 22])), digest);
    }

    proptest! {
        #[test]
        fn no_octets_are_a_handle_by_chance(mut octets: [u8; HANDLE_BYTES], format in 0_u8..5) {
            octets[0] = format;
            octets[1] &= 15;
            prop_assert_eq!(opened(&seal(), &octets), None);
        }
    }
}
