//! Which security a file requires (RFC 8881 sections 2.6.3, 18.29, 18.45): SECINFO and SECINFO_NO_NAME return it.
//! Operations that lead to a file with another security than the call's fail with WRONGSEC.
//!
//! These are the operations that set the current file. PUTFH and its like look at the next operation: before LOOKUP,
//! LOOKUPP, OPEN by name, SECINFO and SECINFO_NO_NAME they do not fail, because a client must be able to pass to a file
//! whose security differs, and these operations check for themselves. All other operations may use the current file
//! without a check.
//!
//! SECINFO removes the current file, but not in minor version 0 (RFC 7530 section 16.31.4).

use super::compound::Compound;
use crate::opened::Opened;
use rpcrdma_nfs::v4::{
    Args, List, Op, Status,
    ops::{self, Answer, Claim},
};

/// Checks a file to which an operation has led.
///
/// # Errors
/// WRONGSEC if its export does not take the call's flavour.
pub(super) fn taken(file: Opened) -> Result<Opened, Status> {
    if file.is_taken { Ok(file) } else { Err(Status::WRONGSEC) }
}

/// Whether an operation sets the current file without looking at it: a put filehandle operation, in RFC 8881's words.
pub(super) fn is_put(op: Op) -> bool {
    matches!(op, Op::PutFh | Op::PutRootFh | Op::PutPubFh | Op::RestoreFh)
}

/// Whether the operation after a put filehandle operation uses the file that it has set. NFS4-8881-2.6.3-a to -c
pub(super) fn use_the_file(next: &[Args], minor: u32) -> bool {
    // SAVEFH is skipped, and in minor version 0 also SECINFO, which leaves the file as it is there.
    let is_passed = |args: &&Args| match args {
        Args::SaveFh => true,
        Args::SecInfo(_) => minor == 0,
        _ => false,
    };
    match next.iter().find(|args| !is_passed(args)) {
        None => false,
        Some(Args::Open(args)) => !is_by_name(&args.claim),
        Some(Args::Lookup(_) | Args::LookupP | Args::SecInfo(_) | Args::SecInfoNoName(_)) => false,
        Some(args) => !is_put(args.op()),
    }
}

/// Whether an OPEN looks a name up in the current directory.
pub(super) fn is_by_name(claim: &Claim) -> bool {
    matches!(claim, Claim::Null(_) | Claim::DelegateCurrent(_) | Claim::DelegatePrevious(_))
}

impl Compound {
    /// Whether a put filehandle operation has set a file that the next operation must not use.
    // NFS4-8881-2.6.3-c
    pub(super) fn is_wrong(&self, op: Op, next: &[Args]) -> bool {
        let is_taken = self.current.as_ref().is_none_or(|current| current.file.is_taken);
        !is_taken && is_put(op) && use_the_file(next, self.minor)
    }

    // NFS4-7530-16.31-a
    pub(super) async fn sec_info(&mut self, args: ops::SecInfo) -> Answer<ops::SecInfoOk> {
        let directory = self.file()?;
        let found = self.find(&directory, args.name).await?;
        if self.minor > 0 {
            self.current = None;
        }
        Ok(self.told_securities(&found))
    }

    pub(super) async fn sec_info_no_name(&mut self, args: ops::SecInfoNoName) -> Answer<ops::SecInfoOk> {
        let file = match args.style {
            ops::SecInfoStyle::Parent => self.find_parent().await?,
            ops::SecInfoStyle::Current => self.file()?,
        };
        self.current = None;
        Ok(self.told_securities(&file))
    }

    fn told_securities(&self, file: &Opened) -> ops::SecInfoOk {
        ops::SecInfoOk { flavours: List(self.server.securities(&self.context, file).told()) }
    }
}
