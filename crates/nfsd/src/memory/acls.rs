//! Access control lists of files in memory. They count as pages of the file system, rounded up for each file.
//!
//! A node has lists only if they say more than its mode; the mode and the access list always agree.

use super::{
    pages::PAGE_BYTES,
    tree::{Node, Tree},
};
use crate::{Caller, Fault};
use rpcrdma_nfs::attr::{Acls, Asker, FileType, PosixAcl, Time};

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o777;

/// How many pages a file's lists count as.
pub(super) fn pages(acls: Option<&Acls>) -> u64 {
    let named = |acl: &PosixAcl| size_of_val(acl.users()) + size_of_val(acl.groups());
    let octets = |acls: &Acls| size_of_val(acls) + named(&acls.access) + acls.default.as_ref().map_or(0, named);
    acls.map_or(0, octets).div_ceil(PAGE_BYTES) as u64
}

impl Node {
    /// Whether the node's list lets a caller do something; `None` if the mode decides.
    pub(super) fn list_allows(&self, caller: &Caller, owners: (u32, u32), rights: u32) -> Option<bool> {
        let access = self.acls.as_ref().map(|acls| &acls.access).filter(|access| !access.is_mode())?;
        let groups: Vec<u32> = caller.groups.iter().copied().chain([caller.gid]).collect();
        Some(access.allows(Asker { uid: caller.uid, groups: &groups }, owners, rights as u8))
    }

    /// Adapts the lists to a mode that was set.
    pub(super) fn lists_follow_mode(&mut self) {
        if let Some(acls) = &mut self.acls {
            acls.access = acls.access.with_mode(self.mode);
        }
    }
}

impl Tree {
    pub(super) fn acl(&self, number: u64) -> Result<Acls, Fault> {
        let node = self.node(number)?;
        Ok(node.acls.as_deref().cloned().unwrap_or_else(|| Acls::of_mode(node.mode)))
    }

    pub(super) fn set_acl(&mut self, caller: &Caller, number: u64, acls: Acls, now: Time) -> Result<(), Fault> {
        let node = self.node(number)?;
        let is_directory = node.file_type() == FileType::Directory;
        let is_had = self.has_acls || acls.is_mode();
        if node.file_type() == FileType::Symlink || acls.default.is_some() && !is_directory || !is_had {
            return Err(Fault::Unsupported);
        }
        if !node.is_owner(caller) {
            return Err(Fault::NotOwner);
        }
        self.put_acls(number, acls)?;
        self.node_mut(number)?.change(now);
        Ok(())
    }

    /// The list that new files in a directory get.
    pub(super) fn default_of(&self, directory: u64) -> Option<PosixAcl> {
        self.node(directory).ok()?.acls.as_ref()?.default.clone()
    }

    /// A new node begins with its directory's default list: its mode gives no more rights than the list, and the list
    /// no more than the mode.
    pub(super) fn inherit(&mut self, number: u64, default: PosixAcl) -> Result<(), Fault> {
        let node = self.node(number)?;
        // NFSACL-LINUX-c
        let access = default.with_mode(default.mode() & node.mode);
        let default = (node.file_type() == FileType::Directory).then_some(default);
        self.put_acls(number, Acls { access, default })
    }

    fn put_acls(&mut self, number: u64, acls: Acls) -> Result<(), Fault> {
        let node = self.node(number)?;
        let mode = node.mode & !PERMISSIONS | acls.access.mode();
        let acls = Some(acls).filter(|acls| !acls.is_mode()).map(Box::new);
        let taken = self.pages - pages(node.acls.as_deref()) + pages(acls.as_deref());
        if taken > self.max_pages && taken > self.pages {
            return Err(Fault::NoSpace);
        }
        self.pages = taken;
        let node = self.node_mut(number)?;
        (node.mode, node.acls) = (mode, acls);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tree::ROOT;
    use bytes::Bytes;

    /// Lists without room are refused, removed lists free their room, and a removed file takes its lists along.
    #[test]
    fn lists_count_as_pages_and_are_given_back() {
        let mut tree = Tree::new(1, 4 * PAGE_BYTES as u64, Time::default());
        let users = |count: usize| (0..count as u32).map(|uid| (uid, 7)).collect::<Vec<_>>();
        let acls = |count| {
            let access = PosixAcl::new([7; 3], users(count), vec![], Some(7)).unwrap();
            Acls { access: access.clone(), default: Some(access) }
        };
        let set = |tree: &mut Tree, number, acls| tree.set_acl(&Caller::root(), number, acls, Time::default());
        set(&mut tree, ROOT, acls(1)).unwrap();
        assert_eq!(tree.pages, 1);
        let entry = size_of::<(u32, u8)>();
        let most = (4 * PAGE_BYTES - size_of::<Acls>()) / (2 * entry);
        assert_eq!(set(&mut tree, ROOT, acls(most + 1)), Err(Fault::NoSpace));
        assert_eq!((tree.pages, tree.acl(ROOT)), (1, Ok(acls(1))), "what was there is there");
        set(&mut tree, ROOT, acls(most)).unwrap();
        assert_eq!(tree.pages, 4);
        set(&mut tree, ROOT, Acls::of_mode(0o755)).unwrap();
        assert_eq!(tree.pages, 0);
        let number = tree.new_directory(ROOT, 0o700, &Caller::root(), Time::default());
        tree.enter(ROOT, Bytes::from_static(b"d"), number, Time::default()).unwrap();
        set(&mut tree, number, acls(1)).unwrap();
        tree.leave(ROOT, b"d", Time::default()).unwrap();
        tree.unlink(number, Time::default()).unwrap();
        assert_eq!(tree.pages, 0);
    }
}
