//! Small files, many in one call: PUTFH and READ for each of them, one behind the other.
//!
//! They are read without an open, as version 3 reads: one READ of a file sees it as it is at one moment, an open would
//! add nothing, and the server judges by the same rules (who denies others to read, and who has the file delegated, is
//! asked; RFC 8881 section 9.1.4.3). None of the data is placed directly, since a call has one Write chunk at most
//! (ULB-5.1.2.2-b): all of it comes in the reply.

use super::{
    Error, Nfs4,
    compound::{Plan, put},
    data::check_read,
    reply::done,
};
use rpcrdma_nfs::v4::{
    Args, Handle, Op, StateId,
    ops::{self, ReadOk},
};

/// The most files that one call reads.
const MAX_FILES: usize = 30;
/// The most octets of data that one call asks for: what a transport lends memory for at once.
const MAX_OCTETS: u32 = 256 << 10;
/// Octets of results around the data of one file, and of the call as a whole.
const AROUND_FILE_OCTETS: u32 = 32;
const AROUND_CALL_OCTETS: u32 = 256;
/// Operations for each file.
const OPERATIONS: usize = 2;

/// What was gathered: one result for each file, in their order, up to the first that could not be read.
pub type Gathered = Vec<Result<ReadOk, Error>>;

impl Nfs4 {
    /// How many files [`gather`](Self::gather) reads in one call, and of how many octets in all; one at least.
    pub fn gathers(&self) -> (usize, u32) {
        let session = self.inner.standing().session.clone();
        let operations = session.map_or(usize::MAX, |session| session.fore.max_operations as usize);
        let files = (operations.saturating_sub(1) / OPERATIONS).clamp(1, MAX_FILES);
        let around = AROUND_CALL_OCTETS.saturating_add(AROUND_FILE_OCTETS.saturating_mul(files as u32));
        (files, self.transfer().read.min(MAX_OCTETS).saturating_sub(around).max(1))
    }

    /// READs the first octets of files, of each as many as stand beside it. The call ends at the first that cannot be
    /// read: those behind it have no result.
    ///
    /// Not for any server: of several READs in one COMPOUND Linux's nfsd (6.12) answers some with other octets than the
    /// file's.
    ///
    /// # Errors
    /// See [`Error`]: if the call has no results at all.
    pub async fn gather(&self, files: &[(Handle, u32)]) -> Result<Gathered, Error> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let read = |count| Args::Read(ops::Read { state: StateId::ANONYMOUS, offset: 0, count });
        let ops: Vec<_> = files.iter().flat_map(|(file, count)| [put(file), read(*count)]).collect();
        let plan = Plan::looks(Op::Read).in_parts();
        let mut reply = self.inner.perform(plan, None, &mut |_| Ok(ops.clone())).await?;
        let mut gathered = Vec::with_capacity(files.len());
        for (_, count) in files {
            let read = done!(reply, Read).and_then(|read| {
                check_read(&read, *count)?;
                Ok(ReadOk { end: read.end, data: read.data.into_bytes() })
            });
            let has_failed = read.is_err();
            gathered.push(read);
            if has_failed {
                break;
            }
        }
        Ok(gathered)
    }
}
