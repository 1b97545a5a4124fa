//! Listing directories.
//!
//! If the kernel's directory positions stay valid, they are the cookies. Otherwise a cookie is a hash of the name, and
//! entries come in the order of their hashes. A listing that goes on then reads the whole directory again; a bounded
//! part of it is kept for the next replies (see [`kept`](super::kept)). Either way an entry keeps its cookie whatever
//! happens to other entries, also across a restart. The verifier says which kind of cookies it is.

use super::{
    Cover, Inner, Object,
    attributes::{fault, stat},
    kept::{KEPT_ENTRIES, Part},
    resolve::{name_hash, reopen},
};
use crate::{Caller, Failure, Fault, FileId, Listing, ListingBudget, ListingEntry, Told, failed};
use bytes::Bytes;
use rpcrdma_nfs::attr::Attributes;
use rustix::{
    fd::OwnedFd,
    fs::{OFlags, RawDir, SeekFrom, seek},
    io::Errno,
};
use std::{collections::BinaryHeap, mem::MaybeUninit};

/// How many bytes the code asks of the kernel at once.
const BUFFER_BYTES: usize = 32 << 10;
/// The cookies of `.` and `..` if cookies are hashes.
const DOT_COOKIES: [u64; 2] = [1, 2];

/// An entry as the kernel returns it. The order of entries is the order of their cookies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RawEntry {
    pub(super) cookie: u64,
    pub(super) name: Bytes,
    pub(super) inode: u64,
}

impl Inner {
    pub(super) fn list(
        &self,
        caller: &Caller,
        directory: FileId,
        cookie: u64,
        verifier: [u8; 8],
        budget: ListingBudget,
    ) -> Told<Listing> {
        let ours = [0, 0, 0, 0, 0, 0, 0, if self.stable_cookies { 1 } else { 2 }];
        if cookie != 0 && verifier != ours {
            return Err(failed(Fault::BadCookie));
        }
        if let Some(cover) = Cover::of(directory) {
            let attributes = cover.attributes(self.id);
            return Ok(self.list_cover(directory, attributes, cookie, ours, budget));
        }
        let directory = self.directory(directory).map_err(failed)?;
        let listed = self.entries(caller, &directory, cookie, budget);
        let attributes = stat(&directory.fd).ok().map(|stat| directory.told(&stat, self.id));
        match listed {
            Ok((entries, end)) => Ok(Listing::new(entries, end).with_attributes(attributes).with_verifier(ours)),
            Err(fault) => Err(Failure { fault, info: attributes }),
        }
    }

    fn list_cover(
        &self,
        directory: FileId,
        attributes: Attributes,
        cookie: u64,
        verifier: [u8; 8],
        mut budget: ListingBudget,
    ) -> Listing {
        let mut entries = Vec::new();
        for (name, own) in [(&b"."[..], DOT_COOKIES[0]), (b"..", DOT_COOKIES[1])] {
            if own > cookie && budget.take(name.len()) {
                let file = budget.wants_attributes().then(|| (directory, attributes.clone()));
                let name = Bytes::from_static(name);
                entries.push(ListingEntry::new(attributes.file_id, name, own).with_file(file));
            }
        }
        let end = cookie >= DOT_COOKIES[1] || entries.last().is_some_and(|entry| entry.cookie == DOT_COOKIES[1]);
        Listing::new(entries, end).with_attributes(Some(attributes)).with_verifier(verifier)
    }

    fn entries(
        &self,
        caller: &Caller,
        directory: &Object,
        cookie: u64,
        mut budget: ListingBudget,
    ) -> Result<(Vec<ListingEntry>, bool), Fault> {
        let left_out = self.left_out(directory);
        let assumed = self.identity.assume(caller).map_err(fault)?;
        let fd = reopen(&directory.fd, OFlags::RDONLY | OFlags::DIRECTORY).map_err(fault)?;
        let mut entries = Vec::new();
        let mut end = true;
        let budget_at_first = budget;
        let mut add = |raw: RawEntry| {
            // NFS3-ESC-d
            if left_out.as_ref() == Some(&raw.name) {
                return true;
            }
            if !budget.take(raw.name.len()) {
                end = false;
                return false;
            }
            entries.push(self.complete(directory, raw, budget.wants_attributes()));
            true
        };
        if self.stable_cookies {
            if cookie != 0 {
                seek(&fd, SeekFrom::Start(cookie)).map_err(|_| Fault::BadCookie)?;
            }
            each_entry(&fd, &mut |raw: RawName<'_>| add(raw.into())).map_err(fault)?;
        } else {
            // One entry more than the reply returns, to see whether there are more.
            let most = budget_at_first.most_entries() + 1 + usize::from(left_out.is_some());
            let part = self.part(directory, &fd, cookie, most).map_err(fault)?;
            for raw in part.behind(cookie, most).unwrap_or_default() {
                if !add(raw.clone()) {
                    break;
                }
            }
        }
        drop(assumed);
        // As the server itself again, because the index belongs to it.
        for entry in &mut entries {
            if let Some((id, _)) = &entry.file
                && self.remember(*id, directory, &entry.name).is_err()
            {
                entry.file = None;
            }
        }
        Ok((entries, end))
    }

    /// At least the first `most` entries after `cookie`, or all that exist.
    fn part(&self, directory: &Object, fd: &OwnedFd, cookie: u64, most: usize) -> Result<Part, Errno> {
        let before = stat(fd)?;
        // A new listing shows the present state, even if the file system's clock is coarse.
        if cookie != 0
            && let Some(part) = self.kept.find(directory.id, &before, cookie, most)
        {
            return Ok(part);
        }
        let kept = most.max(KEPT_ENTRIES);
        let part = Part::new(cookie, sorted_after(fd, cookie, kept)?, kept);
        self.kept.keep(directory.id, &before, part.clone());
        Ok(part)
    }

    /// Adds the file and its attributes, if the caller wants them.
    fn complete(&self, directory: &Object, raw: RawEntry, plus: bool) -> ListingEntry {
        let RawEntry { cookie, inode, name } = raw;
        let is_root = directory.id == self.root.id;
        match &name[..] {
            // Clients learn nothing of what is above the served directory.
            b".." if is_root => ListingEntry::new(self.root_inode, name, cookie),
            b"." | b".." => ListingEntry::new(inode, name, cookie),
            _ => {
                let file = if plus { self.entry(directory, &name) } else { None };
                ListingEntry::new(inode, name, cookie).with_file(file)
            }
        }
    }
}

/// The same, with a name that is not yet copied.
struct RawName<'a> {
    cookie: u64,
    inode: u64,
    name: &'a [u8],
}

impl From<RawName<'_>> for RawEntry {
    fn from(raw: RawName<'_>) -> Self {
        Self { cookie: raw.cookie, name: Bytes::copy_from_slice(raw.name), inode: raw.inode }
    }
}

/// Calls `add` with each entry from the descriptor's position on, until it says no.
fn each_entry(fd: &OwnedFd, add: &mut dyn FnMut(RawName<'_>) -> bool) -> Result<(), Errno> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !add(RawName { cookie: entry.next_entry_cookie(), inode: entry.ino(), name }) {
            break;
        }
    }
    Ok(())
}

/// The first entries whose hashes lie after `cookie`, at most `most`, in order. However large the directory is, the
/// code keeps no more in memory.
fn sorted_after(fd: &OwnedFd, cookie: u64, most: usize) -> Result<Vec<RawEntry>, Errno> {
    let mut first = BinaryHeap::new();
    each_entry(fd, &mut |mut entry| {
        entry.cookie = match entry.name {
            b"." => DOT_COOKIES[0],
            b".." => DOT_COOKIES[1],
            // Positive, because some clients take it for a file offset.
            name => (name_hash(name) >> 1).max(DOT_COOKIES[1] + 1),
        };
        let is_wanted = first.len() < most || first.peek().is_some_and(|last: &RawEntry| entry.cookie < last.cookie);
        if entry.cookie > cookie && is_wanted {
            if first.len() == most {
                first.pop();
            }
            first.push(entry.into());
        }
        true
    })?;
    Ok(first.into_sorted_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entries_are_kept_and_no_more() {
        let scratch = tempfile::tempdir().unwrap();
        for number in 0..50 {
            std::fs::write(scratch.path().join(number.to_string()), "").unwrap();
        }
        let fd: OwnedFd = std::fs::File::open(scratch.path()).unwrap().into();
        let listed = |cookie, most| {
            seek(&fd, SeekFrom::Start(0)).unwrap();
            sorted_after(&fd, cookie, most).unwrap().into_iter().map(|entry| entry.cookie).collect::<Vec<_>>()
        };
        let all = listed(0, 1000);
        assert_eq!((all.len(), &all[..2]), (52, &DOT_COOKIES[..]));
        assert!(all.is_sorted());
        assert_eq!((listed(0, 52), listed(0, 51)), (all.clone(), all[..51].to_vec()));
        assert_eq!(listed(all[9], 7), all[10..17]);
        assert_eq!(listed(all[51], 7), Vec::<u64>::new());
    }
}
