//! File handles: what clients hold, and cannot forge.
//!
//! ```text
//! byte 0      format, 1
//! byte 1      n, the length of the file's id, at most 34
//! bytes 2-5   the export
//! bytes 6-13  the file system
//! then n       the file's id in its file system (inode and generation, in the file system's own form)
//! then 16      SipHash-2-4 (128 bits) of everything before, under the server's secret
//! ```

use crate::{FileId, MAX_FILE_ID_BYTES};
use rpcrdma_nfs::v3::{Handle, MAX_HANDLE_BYTES};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::{cell::RefCell, hash::Hasher};

const FORMAT: u8 = 1;
const HEAD_OCTETS: usize = 14;
const CHECK_BYTES: usize = 16;
const _: () = assert!(HEAD_OCTETS + MAX_FILE_ID_BYTES + CHECK_BYTES == MAX_HANDLE_BYTES);

/// Bytes in the secret that handles are checked with.
pub const SECRET_BYTES: usize = 16;

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) export: u32,
    pub(crate) file_system: u64,
    pub(crate) file: FileId,
}

/// Makes handles and checks them.
#[derive(Clone)]
pub(crate) struct Seal {
    secret: [u8; SECRET_BYTES],
}

/// A handle that a seal has opened: the next call is usually about the same file.
struct Proven {
    secret: [u8; SECRET_BYTES],
    octets: [u8; MAX_HANDLE_BYTES],
    len: usize,
    target: Target,
}

thread_local! {
    /// The handle that a seal has opened last on this thread.
    static PROVEN: RefCell<Option<Proven>> = const { RefCell::new(None) };
}

/// Whether the bytes are the same. It takes the same time wherever they differ.
fn equal(these: &[u8], those: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (these.as_chunks(), those.as_chunks());
    let differs = |a: &[u8; 8], b: &[u8; 8]| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
    let words = words.iter().zip(other_words).fold(0, |all, (a, b)| all | differs(a, b));
    let rest = rest.iter().zip(other_rest).fold(0, |all, (a, b)| all | (a ^ b));
    these.len() == those.len() && words | u64::from(rest) == 0
}

impl Seal {
    pub(crate) fn new(secret: [u8; SECRET_BYTES]) -> Self {
        Self { secret }
    }

    /// The handle of a target.
    pub(crate) fn handle(&self, target: &Target) -> Handle {
        let mut octets = [0; MAX_HANDLE_BYTES];
        let id = target.file.as_slice();
        let checked = HEAD_OCTETS + id.len();
        octets[0] = FORMAT;
        octets[1] = id.len() as u8;
        octets[2..6].copy_from_slice(&target.export.to_be_bytes());
        octets[6..14].copy_from_slice(&target.file_system.to_be_bytes());
        octets[HEAD_OCTETS..checked].copy_from_slice(id);
        let check = self.check(&octets[..checked]);
        octets[checked..checked + CHECK_BYTES].copy_from_slice(&check);
        Handle::new(&octets[..checked + CHECK_BYTES]).expect("the constants above add up to 64 bytes at most")
    }

    /// The target of a handle that this server has made, else `None`.
    pub(crate) fn open(&self, handle: &Handle) -> Option<Target> {
        self.open_bytes(handle.as_slice())
    }

    /// The same for a handle's bytes from any version: they mean the same file in all versions.
    // NFS3-FH-a
    // NFS3-ESC-b
    pub(crate) fn open_bytes(&self, handle: &[u8]) -> Option<Target> {
        let is_proven =
            |proven: &Proven| equal(&proven.octets[..proven.len], handle) && equal(&proven.secret, &self.secret);
        let known = PROVEN.with_borrow(|proven| proven.as_ref().filter(|proven| is_proven(proven)).map(|it| it.target));
        if known.is_some() {
            return known;
        }
        let target = self.prove(handle)?;
        let mut octets = [0; MAX_HANDLE_BYTES];
        octets[..handle.len()].copy_from_slice(handle);
        PROVEN.set(Some(Proven { secret: self.secret, octets, len: handle.len(), target }));
        Some(target)
    }

    fn prove(&self, handle: &[u8]) -> Option<Target> {
        let (checked, check) = handle.split_last_chunk::<CHECK_BYTES>()?;
        let (head, id) = checked.split_first_chunk::<HEAD_OCTETS>()?;
        if !equal(&self.check(checked), check) || head[0] != FORMAT || usize::from(head[1]) != id.len() {
            return None;
        }
        let [_, _, e0, e1, e2, e3, file_system @ ..] = *head;
        Some(Target {
            export: u32::from_be_bytes([e0, e1, e2, e3]),
            file_system: u64::from_be_bytes(file_system),
            file: FileId::new(id)?,
        })
    }

    fn check(&self, octets: &[u8]) -> [u8; CHECK_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(octets);
        hasher.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(id: &[u8]) -> Target {
        Target { export: 7, file_system: 9, file: FileId::new(id).unwrap() }
    }

    /// proves: NFS3-FH-a
    #[test]
    fn a_handle_is_accepted_only_as_it_was_made() {
        let seal = Seal::new([3; 16]);
        let handle = seal.handle(&target(&[5; MAX_FILE_ID_BYTES]));
        assert_eq!(handle.as_slice().len(), 64);
        for at in 0..64 {
            for bit in 0..8 {
                // The handle that was opened last proves nothing about others.
                assert_eq!(seal.open(&handle), Some(target(&[5; MAX_FILE_ID_BYTES])));
                let mut octets = handle.as_slice().to_vec();
                octets[at] ^= 1 << bit;
                assert_eq!(seal.open(&Handle::new(&octets).unwrap()), None, "byte {at} bit {bit}");
            }
        }
        for len in 0..64 {
            assert_eq!(seal.open(&Handle::new(&handle.as_slice()[..len]).unwrap()), None);
        }
        assert_eq!(Seal::new([4; 16]).open(&handle), None, "another server's secret");
        assert_eq!(Seal::new([3; 16]).open(&handle), Some(target(&[5; MAX_FILE_ID_BYTES])), "after a restart");
    }

    proptest! {
        #[test]
        fn no_octets_are_a_handle_by_chance(octets in prop::collection::vec(any::<u8>(), 0..=64)) {
            prop_assert_eq!(Seal::new([3; 16]).open(&Handle::new(&octets).unwrap()), None);
        }

        #[test]
        fn every_target_survives(export: u32, file_system: u64, id in prop::collection::vec(any::<u8>(), 0..=34)) {
            let target = Target { export, file_system, file: FileId::new(&id).unwrap() };
            let seal = Seal::new([3; 16]);
            prop_assert_eq!(seal.open(&seal.handle(&target)), Some(target));
        }
    }
}
