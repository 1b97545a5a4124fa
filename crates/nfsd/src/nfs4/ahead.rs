//! READs of several small files in one COMPOUND: PUTFH, READ, PUTFH, READ and so on, as clients send them when they
//! fetch many small files. One job reads them all, because waking a thread for each costs more than the read.
//!
//! Nothing else changes: before any read, each file is checked as if it stood alone (its handle, opens that deny
//! reading, delegations, memory for its data), and the first file that fails a check ends the READs of this job. Its
//! own READ reports the error.

use super::{compound::Compound, data::READ_RESULTS_BYTES};
use crate::{ReadData, Reading, Told, claims::Access};
use rpcrdma_nfs::v4::{Args, StateId, ops};
use rpcrdma_xdr::padded;
use std::collections::VecDeque;

/// The most READs of one job: other jobs wait for its thread.
const MAX_TOGETHER: usize = 32;
/// The most bytes of a READ that is one of several, and of all of them.
const MAX_OCTETS: usize = 64 << 10;
const MAX_BYTES_TOGETHER: usize = 256 << 10;
/// Bytes of PUTFH's results.
const PUTFH_RESULTS_BYTES: usize = 8;

/// The results of READs that come later in the call, in order.
pub(super) type Ahead = VecDeque<Told<ReadData>>;

/// The READs that begin with `first`, and the PUTFHs before them: as many as there is room for their results.
fn together<'a>(
    first: &'a ops::Read,
    behind: &'a [Args],
    room: usize,
) -> impl Iterator<Item = (Option<&'a ops::PutFh>, &'a ops::Read)> {
    let pairs = behind.chunks_exact(2).map_while(|pair| match pair {
        [Args::PutFh(put), Args::Read(read)] => Some((Some(put), read)),
        _ => None,
    });
    let (mut octets, mut results) = (0_usize, 0_usize);
    std::iter::once((None, first)).chain(pairs).take(MAX_TOGETHER).take_while(move |(_, read)| {
        let count = read.count as usize;
        octets = octets.saturating_add(count);
        results = results.saturating_add(padded(count) + READ_RESULTS_BYTES + PUTFH_RESULTS_BYTES);
        read.state == StateId::ANONYMOUS && count <= MAX_OCTETS && octets <= MAX_BYTES_TOGETHER && results <= room
    })
}

impl Compound {
    /// Reads the file of this READ and of those directly behind it, if there are several.
    pub(super) async fn read_ahead(&mut self, first: &ops::Read, behind: &[Args], room: usize) {
        let Ok(file) = self.file() else { return };
        if together(first, behind, room).nth(1).is_none() {
            return;
        }
        let mut reads = Vec::new();
        for (put, read) in together(first, behind, room) {
            let file = match put.map(|put| self.server.open_handle(&self.context, put.file.as_slice())) {
                None => file.clone(),
                Some(Ok(another)) if another.is_taken && another.file_system.id() == file.file_system.id() => another,
                Some(_) => break,
            };
            let Ok(via) = self.via(&file, read.state, Access::READ).await else { break };
            let Ok(buffer) = self.buffer(read.count as usize).await else { break };
            reads.push(Reading { via, offset: read.offset, count: read.count as usize, buffer });
        }
        if !reads.is_empty() {
            self.ahead = file.file_system.read_each(reads).await.into();
        }
    }
}
