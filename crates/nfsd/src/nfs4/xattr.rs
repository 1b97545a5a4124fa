//! Extended attributes: GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276), and the rights to them in ACCESS.

use super::{
    compound::Compound,
    tell::{change_info, status},
};
use crate::{
    Fault, ListingBudget, MAX_XATTR_BYTES, Rights, SetXattr, claims::Kind, opened::Opened, transfer::MAX_LISTING_BYTES,
};
use rpcrdma_nfs::v4::{
    Name, Opaque, Status,
    ops::{self, Answer, MAX_XATTR_NAMES, SetXattrOption, access},
};

/// Bytes of an outcome before its results: the operation's number and the status.
const OUTCOME_BYTES: usize = 8;
/// Bytes of LISTXATTRS' results without a name: the cookie, the number of names, and whether they are the last.
const EMPTY_LIST_BYTES: usize = 8 + 4 + 4;
/// Bytes of a name beside its own: its length.
const NAME_BYTES: usize = 4;
/// The most bytes of names: if all names are the shortest, of one word, this is as many as clients accept.
const MAX_NAMES_BYTES: usize = MAX_XATTR_NAMES * (NAME_BYTES + 4);
/// Bytes of GETXATTR's results before the value: its length.
const VALUE_BYTES: usize = 4;

/// The bits of ACCESS for extended attributes, each with the right to the file that it needs, as with Linux's server.
const NEEDED: [(u32, Rights); 3] =
    // NFS4-8276-8.4-a
    [(access::XATTR_READ, Rights::READ), (access::XATTR_WRITE, Rights::MODIFY), (access::XATTR_LIST, Rights::READ)];

/// The rights to a file that the bits for extended attributes in `asked` need.
pub(super) fn needed(asked: u32) -> Rights {
    let asked = NEEDED.into_iter().filter(|(right, _)| asked & right != 0);
    asked.fold(Rights::NONE, |all, (_, needed)| all | needed)
}

/// The bits for extended attributes in `asked` that these rights to a file give.
pub(super) fn granted(asked: u32, rights: Rights) -> u32 {
    let granted = NEEDED.into_iter().filter(|(right, needed)| asked & right != 0 && rights.contains(*needed));
    granted.fold(0, |all, (right, _)| all | right)
}

/// The status for a fault. Only regular files and directories have extended attributes.
// NFS4-8276-8.4-b, NFS4-8276-8.4-c
fn cause(fault: Fault) -> Status {
    match fault {
        Fault::IsSymlink => Status::WRONG_TYPE,
        fault => status(fault),
    }
}

impl Compound {
    /// The current file, if its file system supports extended attributes.
    // NFS4-8276-8.2-a
    fn file_with_xattrs(&self) -> Result<Opened, Status> {
        let file = self.file()?;
        if file.file_system.features().xattrs { Ok(file) } else { Err(Status::NOTSUPP) }
    }

    /// The same for an operation that changes an extended attribute.
    fn file_to_change_xattrs(&self) -> Result<Opened, Status> {
        let file = self.file_with_xattrs()?;
        if file.read_only { Err(Status::ROFS) } else { Ok(file) }
    }

    // NFS4-8276-8.4-e
    pub(super) async fn get_xattr(&mut self, args: ops::GetXattr) -> Answer<ops::GetXattrOk> {
        let file = self.file_with_xattrs()?;
        check_name(&args.name)?;
        // The value counts as that much of the connection's memory until it was sent. The server reads it only when
        // there is memory: otherwise the calls that wait for memory would each hold a value besides.
        let most = self.buffer(VALUE_BYTES + MAX_XATTR_BYTES).await?;
        let value = file.file_system.xattr(file.caller.clone(), file.file, args.name.0).await.map_err(cause)?;
        self.counted = Some(self.fitted(most, VALUE_BYTES + value.len()));
        Ok(ops::GetXattrOk { value: Opaque(value) })
    }

    // NFS4-8276-8.4-b
    pub(super) async fn set_xattr(&mut self, args: ops::SetXattr) -> Answer<ops::SetXattrOk> {
        let file = self.file_to_change_xattrs()?;
        check_name(&args.name)?;
        if args.value.as_slice().len() > MAX_XATTR_BYTES {
            return Err(Status::XATTR2BIG);
        }
        let how = match args.option {
            SetXattrOption::Either => SetXattr::Either,
            SetXattrOption::Create => SetXattr::Create,
            SetXattrOption::Replace => SetXattr::Replace,
        };
        // RFC 8276 section 8.4.2.4: extended attributes are part of a delegated file.
        let _using = self.using(&file, Kind::Write).await?;
        let Opened { file_system, caller, file, .. } = file;
        match file_system.set_xattr(caller, file, args.name.0, args.value.0, how).await {
            Ok(changed) => Ok(ops::SetXattrOk { change: change_info(&changed) }),
            Err(failed) => Err(cause(failed.fault)),
        }
    }

    pub(super) async fn list_xattrs(&mut self, args: ops::ListXattrs, room: usize) -> Answer<ops::ListXattrsOk> {
        let file = self.file_with_xattrs()?;
        let max = usize::try_from(args.max_count).unwrap_or(usize::MAX);
        let octets = max.min(room.saturating_sub(OUTCOME_BYTES)).min(MAX_LISTING_BYTES);
        let left = octets.checked_sub(EMPTY_LIST_BYTES).ok_or(Status::TOOSMALL)?;
        let budget = ListingBudget::new(left.min(MAX_NAMES_BYTES), NAME_BYTES);
        // Before the names are read, as for values.
        let most = self.buffer(octets).await?;
        let listed = file.file_system.list_xattrs(file.caller.clone(), file.file, args.cookie, budget).await;
        let mut listed = listed.map_err(cause)?;
        if listed.names.is_empty() && !listed.end {
            return Err(Status::TOOSMALL);
        }
        let names: Vec<Name> = listed.names.drain(..).map(Name).collect();
        let taken = names.iter().map(|name| NAME_BYTES + name.as_slice().len().next_multiple_of(4)).sum::<usize>();
        self.counted = Some(self.fitted(most, EMPTY_LIST_BYTES + taken));
        Ok(ops::ListXattrsOk { cookie: listed.cookie, names: names.into(), end: listed.end })
    }

    pub(super) async fn remove_xattr(&mut self, args: ops::RemoveXattr) -> Answer<ops::RemoveXattrOk> {
        let file = self.file_to_change_xattrs()?;
        check_name(&args.name)?;
        let _using = self.using(&file, Kind::Write).await?;
        match file.file_system.remove_xattr(file.caller.clone(), file.file, args.name.0).await {
            Ok(changed) => Ok(ops::RemoveXattrOk { change: change_info(&changed) }),
            Err(failed) => Err(cause(failed.fault)),
        }
    }
}

/// Checks a name. It is not a name of a file: `/`, `.` and `..` are allowed. The file system checks its length.
// NFS4-8276-8.4-c
fn check_name(name: &Name) -> Result<(), Status> {
    match name.as_slice() {
        octets if octets.is_empty() || octets.contains(&0) => Err(Status::INVAL),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
