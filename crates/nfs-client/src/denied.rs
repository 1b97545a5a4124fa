//! Why a server may have refused a caller: the caller, and the owner of the file or directory.
//!
//! If a server refuses a call, its reply has the attributes of the file or directory, if the server has them. These and
//! the identity in the call are all that a client knows of the reason; it makes no further call to find out more.

use rpcrdma_nfs::v3::{Attributes, FileType, LinkInfo, RenameInfo, Status, WeakCache};
use std::fmt;

/// What the failure of a procedure says about its file or directory.
pub(crate) trait About {
    /// The attributes of the directory with the name; or of the file, if the call was about a file alone or the status
    /// is about the file.
    fn attributes(&self, status: Status) -> Option<&Attributes>;
}

impl About for () {
    fn attributes(&self, _: Status) -> Option<&Attributes> {
        None
    }
}

impl About for Option<Attributes> {
    fn attributes(&self, _: Status) -> Option<&Attributes> {
        self.as_ref()
    }
}

impl About for WeakCache {
    fn attributes(&self, _: Status) -> Option<&Attributes> {
        self.after.as_ref()
    }
}

impl About for RenameInfo {
    /// If the directories differ, the reply does not say which of them refused.
    fn attributes(&self, _: Status) -> Option<&Attributes> {
        let (from, to) = (self.from_directory.after.as_ref()?, self.to_directory.after.as_ref()?);
        ((from.file_system, from.file_id) == (to.file_system, to.file_id)).then_some(to)
    }
}

impl About for LinkInfo {
    /// The server returns PERM to a caller that may not add names to another user's file.
    fn attributes(&self, status: Status) -> Option<&Attributes> {
        match status {
            Status::PERM => self.attributes.as_ref(),
            _ => self.directory.after.as_ref(),
        }
    }
}

/// The owner and the permissions of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permissions, with set-user-id, set-group-id and sticky bit.
    pub mode: u32,
}

impl From<&Attributes> for Owner {
    fn from(attributes: &Attributes) -> Self {
        let Attributes { file_type, uid, gid, mode, .. } = *attributes;
        Self { is_directory: file_type == FileType::Directory, uid, gid, mode: mode & 0o7777 }
    }
}

/// The refused caller, and the rights of the file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The user and the group in the call, if its flavour names them.
    pub caller: Option<(u32, u32)>,
    /// The owner of the file or directory, if the server has sent it.
    pub owner: Option<Owner>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.caller {
            Some((0, gid)) => {
                write!(f, "; called as root (uid 0, gid {gid}): the server may treat root as nobody (root squash)")?
            }
            Some((uid, gid)) => write!(f, "; called as uid {uid}, gid {gid}")?,
            None => {}
        }
        let Some(Owner { is_directory, uid, gid, mode }) = self.owner else { return Ok(()) };
        let what = if is_directory { "directory" } else { "file" };
        write!(f, "; the {what} belongs to uid {uid}, gid {gid}, mode {mode:04o}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(uid: u32) -> Option<Attributes> {
        use rpcrdma_nfs::v3::{Specification, Time};
        Some(Attributes {
            file_type: FileType::Regular,
            mode: 0o644,
            links: 1,
            uid,
            gid: 0,
            size: 0,
            used: 0,
            device: Specification::default(),
            file_system: 1,
            file_id: u64::from(uid),
            accessed: Time::default(),
            modified: Time::default(),
            changed: Time::default(),
        })
    }

    fn changed(uid: u32) -> WeakCache {
        WeakCache { before: None, after: owned(uid) }
    }

    #[test]
    fn the_owner_is_that_of_what_the_status_is_about() {
        let uid = |attributes: Option<&Attributes>| attributes.map(|attributes| attributes.uid);
        let link = LinkInfo { attributes: owned(1), directory: changed(2) };
        assert_eq!(uid(link.attributes(Status::PERM)), Some(1));
        assert_eq!(uid(link.attributes(Status::ACCES)), Some(2));
        let rename = |from, to| RenameInfo { from_directory: changed(from), to_directory: changed(to) };
        assert_eq!(uid(rename(3, 3).attributes(Status::ACCES)), Some(3));
        assert_eq!(uid(rename(3, 4).attributes(Status::ACCES)), None, "either may have refused");
    }

    #[test]
    fn root_learns_of_the_squash_and_others_as_whom_they_called() {
        let owner = Some(Owner { is_directory: true, uid: 7, gid: 8, mode: 0o755 });
        let root = Denied { caller: Some((0, 0)), owner }.to_string();
        assert!(root.contains("root squash") && root.contains("the directory belongs to uid 7, gid 8, mode 0755"));
        let user = Denied { caller: Some((1000, 100)), owner: None }.to_string();
        assert_eq!(user, "; called as uid 1000, gid 100");
        assert_eq!(Denied { caller: None, owner: None }.to_string(), "");
    }
}
