//! Cookies of directories in 32 bits, where file systems have 64.
//!
//! A cookie below 2^31 stands for itself: so do those of tmpfs, of xfs and of our own memory. For any other cookie the
//! client gets 31 bits of its SipHash under the server's secret, with the highest bit set. The server remembers the
//! last cookie of each reply, because a client goes on there; at the limit the oldest goes first. If the server does
//! not remember a cookie (after a restart, or in the middle of a reply), it lists the directory from the beginning
//! until an entry has the same bits. Forgetting costs only time: a client that makes the server forget others' cookies
//! makes it list again.

use crate::{FileId, SECRET_BYTES};
use siphasher::sip::SipHasher24;
use std::{
    collections::{HashMap, VecDeque},
    hash::Hasher,
    sync::{Mutex, PoisonError},
};

/// The most cookies that the server remembers, for all directories together: some 2 MiB.
pub(super) const MAX_PLACES: usize = 1 << 16;
/// Cookies from here on do not stand for themselves.
const FIRST_HASHED: u64 = 1 << 31;

/// The hash of a directory's id.
type Directory = u64;

/// The cookies of a server.
pub(super) struct Cookies {
    secret: [u8; SECRET_BYTES],
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    places: HashMap<(Directory, u32), u64>,
    order: VecDeque<(Directory, u32)>,
    /// The verifier of the cookies of each file system.
    verifiers: HashMap<u64, [u8; 8]>,
}

/// Where to go on in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// After this cookie.
    After(u64),
    /// After the entry whose cookie has these bits.
    Search,
}

impl Cookies {
    pub(super) fn new(secret: [u8; SECRET_BYTES]) -> Self {
        Self { secret, remembered: Mutex::default() }
    }

    fn directory(&self, file_system: u64, directory: FileId) -> Directory {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(file_system);
        hasher.write(directory.as_slice());
        hasher.finish()
    }

    /// The cookie for the client, from a cookie of the file system.
    pub(super) fn of(&self, cookie: u64) -> u32 {
        // NFS2-COOKIE-a
        if cookie < FIRST_HASHED {
            return cookie as u32;
        }
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(cookie);
        (hasher.finish() as u32) | FIRST_HASHED as u32
    }

    fn with<T>(&self, work: impl FnOnce(&mut Remembered) -> T) -> T {
        work(&mut self.remembered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A reply has ended at this cookie.
    // NFS2-COOKIE-b
    pub(super) fn remember(&self, file_system: u64, directory: FileId, cookie: u64) {
        if cookie < FIRST_HASHED {
            return;
        }
        let key = (self.directory(file_system, directory), self.of(cookie));
        self.with(|all| {
            if all.places.insert(key, cookie).is_some() {
                return;
            }
            if all.order.len() == MAX_PLACES
                && let Some(oldest) = all.order.pop_front()
            {
                all.places.remove(&oldest);
            }
            all.order.push_back(key);
        });
    }

    /// Where the listing of a client goes on.
    // NFS2-COOKIE-b
    pub(super) fn place(&self, file_system: u64, directory: FileId, cookie: u32) -> Place {
        if u64::from(cookie) < FIRST_HASHED {
            return Place::After(cookie.into());
        }
        let key = (self.directory(file_system, directory), cookie);
        self.with(|all| all.places.get(&key).copied()).map_or(Place::Search, Place::After)
    }

    /// The last known verifier of a file system's cookies.
    pub(super) fn verifier(&self, file_system: u64) -> Option<[u8; 8]> {
        self.with(|all| all.verifiers.get(&file_system).copied())
    }

    /// Remembers this verifier: one for each file system, so at most one for each export.
    pub(super) fn told(&self, file_system: u64, verifier: [u8; 8]) {
        self.with(|all| all.verifiers.insert(file_system, verifier));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(number: u8) -> FileId {
        FileId::new(&[number]).unwrap()
    }

    /// proves: NFS2-COOKIE-a
    #[test]
    fn small_cookies_stand_for_themselves_and_others_are_remembered_by_directory() {
        let cookies = Cookies::new([3; SECRET_BYTES]);
        for small in [0, 1, FIRST_HASHED - 1] {
            assert_eq!(u64::from(cookies.of(small)), small);
            assert_eq!(cookies.place(1, directory(1), small as u32), Place::After(small));
        }
        for large in [FIRST_HASHED, 1 << 40, u64::MAX] {
            let short = cookies.of(large);
            assert!(u64::from(short) >= FIRST_HASHED);
            assert_eq!(cookies.place(1, directory(1), short), Place::Search);
            cookies.remember(1, directory(1), large);
            assert_eq!(cookies.place(1, directory(1), short), Place::After(large));
            assert_eq!(cookies.place(1, directory(2), short), Place::Search);
            assert_eq!(cookies.place(2, directory(1), short), Place::Search);
        }
        assert_ne!(Cookies::new([4; SECRET_BYTES]).of(u64::MAX), cookies.of(u64::MAX));
    }

    /// proves: NFS2-COOKIE-b
    #[test]
    fn what_is_remembered_is_bounded() {
        let cookies = Cookies::new([3; SECRET_BYTES]);
        let place = |number: usize| u64::MAX - number as u64;
        (0..MAX_PLACES).for_each(|number| cookies.remember(1, directory(1), place(number)));
        let first = || cookies.place(1, directory(1), cookies.of(place(0)));
        assert_eq!(first(), Place::After(place(0)), "at the limit");
        // Some cookies have the same bits as others.
        (MAX_PLACES..MAX_PLACES + 16).for_each(|number| cookies.remember(1, directory(1), place(number)));
        assert_eq!(first(), Place::Search, "beyond it");
        cookies.with(|all| assert!(all.order.len() <= MAX_PLACES && all.places.len() == all.order.len()));
    }
}
