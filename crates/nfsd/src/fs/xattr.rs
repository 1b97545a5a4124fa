//! Extended attributes of users: the file system does not interpret their names and values.
//!
//! Names here do not have the prefix that Linux gives the namespace (`user.`).

use bytes::Bytes;

/// The largest value of an extended attribute in bytes: Linux's `XATTR_SIZE_MAX`.
pub const MAX_XATTR_BYTES: usize = 64 << 10;

/// How to set an extended attribute if its name may already exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// Set it in either case.
    Either,
    /// Fail if it exists.
    Create,
    /// Fail if it does not exist.
    Replace,
}

/// A part of the names of a file's extended attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XattrNames {
    /// The names.
    pub names: Vec<Bytes>,
    /// Where to go on.
    pub cookie: u64,
    /// Whether the last of them is the file's last.
    pub end: bool,
}

impl XattrNames {
    /// Of all names of a file, those that come after `cookie`, as many as `take` accepts; `take` gets the bytes of
    /// each. `place` gives each name a number, which is their order. The number stays the same whatever happens to the
    /// other names: so a listing that goes on misses no name that existed all the time. No number may be 0.
    pub fn after(
        cookie: u64,
        all: impl IntoIterator<Item = Bytes>,
        place: impl Fn(&[u8]) -> u64,
        mut take: impl FnMut(usize) -> bool,
    ) -> Self {
        let placed = all.into_iter().map(|name| (place(&name), name));
        let mut left: Vec<_> = placed.filter(|(place, _)| *place > cookie).collect();
        left.sort_unstable();
        let mut told = Self { names: Vec::new(), cookie, end: true };
        for (place, name) in left {
            if !take(name.len()) {
                told.end = false;
                break;
            }
            // NFS4-8276-8.4-d
            told.cookie = place;
            told.names.push(name);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_behind_its_last_name_whatever_came_or_went() {
        let place = |name: &[u8]| u64::from(name[0]);
        let names = |all: &str| all.bytes().map(|name| Bytes::copy_from_slice(&[name])).collect::<Vec<_>>();
        let some = |cookie, all: &str, mut count: usize| {
            XattrNames::after(cookie, names(all), place, |_| {
                count = count.wrapping_sub(1);
                count != usize::MAX
            })
        };
        let first = some(0, "dbac", 2);
        assert_eq!(first, XattrNames { names: names("ab"), cookie: b'b'.into(), end: false });
        assert_eq!(some(first.cookie, "dacx", 2), XattrNames { names: names("cd"), cookie: b'd'.into(), end: false });
        assert_eq!(some(first.cookie, "dac", 2), XattrNames { names: names("cd"), cookie: b'd'.into(), end: true });
        assert_eq!(some(0, "", 0), XattrNames { names: vec![], cookie: 0, end: true });
        assert_eq!(some(7, "a", 0), XattrNames { names: vec![], cookie: 7, end: false });
    }
}
