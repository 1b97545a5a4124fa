//! Holes, space and advice: SEEK, READ_PLUS, ALLOCATE, DEALLOCATE, IO_ADVISE (RFC 7862 sections 15.1, 15.4, 15.5,
//! 15.10, 15.11).
//!
//! READ_PLUS takes memory for its data as READ does. It may return less than the client asked for if the pieces would
//! take more of the reply than the data alone: so a client knows how large a reply can be.

use super::{
    compound::Compound,
    state::{checked::Wanted, stateids::special},
    tell::{failure, status},
};
use crate::{Content, Piece, PieceBudget, claims::Access, opened::Opened};
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::FileType,
    v4::{
        Bitmap, List, MAX_TRANSFER_BYTES, Opaque, Status,
        ops::{self, Answer},
    },
};
use rpcrdma_xdr::padded;

/// Bytes of READ_PLUS's results before the pieces: the operation, its status, the end-of-file flag, and the number of
/// pieces.
const READ_PLUS_BYTES: usize = 16;
/// Bytes of a piece beside its data: its kind, its offset, and the length of a hole (the length of data takes less).
const PIECE_BYTES: usize = 20;
/// The most pieces that READ_PLUS returns. If holes and data alternate page by page, a mebibyte has 256; smaller pieces
/// cost more to find than to send.
const MAX_PIECES: usize = 256;
const _: () = assert!(MAX_PIECES <= ops::MAX_PIECES);

/// IO_ADVISE's hints: no special access, and a range that will be read soon (`IO_ADVISE4_NORMAL`,
/// `IO_ADVISE4_WILLNEED`).
const NORMAL: u32 = 0;
const WILL_NEED: u32 = 4;

/// The end of a range.
///
/// # Errors
/// INVAL if the end is beyond all numbers.
pub(super) fn end(offset: u64, length: u64) -> Result<u64, Status> {
    offset.checked_add(length).ok_or(Status::INVAL)
}

/// Puts the data behind the heads of its pieces.
fn told(pieces: Vec<Piece>, mut data: Bytes) -> Vec<ops::Piece> {
    let tell = |Piece { offset, length, content }| match content {
        Content::Hole => ops::Piece::Hole(ops::HolePiece { offset, length }),
        Content::Data => {
            let len = usize::try_from(length).unwrap_or(usize::MAX).min(data.len());
            ops::Piece::Data(ops::DataPiece { offset, data: Opaque(data.split_to(len)) })
        }
    };
    pieces.into_iter().map(tell).collect()
}

impl Compound {
    /// Checks the type of a file that is read: it must have data.
    ///
    /// # Errors
    /// ISDIR, SYMLINK, WRONG_TYPE.
    // NFS4-7862-15.10.3-c
    async fn check_has_data(&self, file: &Opened) -> Result<(), Status> {
        match file.attributes().await.map_err(status)?.file_type {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Status::ISDIR),
            FileType::Symlink => Err(Status::SYMLINK),
            _ => Err(Status::WRONG_TYPE),
        }
    }

    /// Operations that change space, and copies, have one status for any file that is not a regular one.
    ///
    /// # Errors
    /// WRONG_TYPE.
    // NFS4-7862-15.1.3-b
    pub(super) async fn check_is_regular(file: &Opened) -> Result<(), Status> {
        match file.attributes().await.map_err(status)?.file_type {
            FileType::Regular => Ok(()),
            _ => Err(Status::WRONG_TYPE),
        }
    }

    // NFS4-7862-15.11.3-a, NFS4-7862-15.11.3-b, NFS4-7862-15.11.3-c
    pub(super) async fn seek(&mut self, args: ops::Seek) -> Answer<ops::SeekOk> {
        let file = self.file()?;
        self.check_has_data(&file).await?;
        let via = self.via(&file, args.state, Access::READ).await?;
        let what = match args.what {
            ops::Content::Data => Content::Data,
            ops::Content::Hole => Content::Hole,
        };
        let sought = file.file_system.seek(via, args.offset, what).await.map_err(failure)?;
        Ok(ops::SeekOk { end: sought.end, offset: sought.offset })
    }

    // NFS4-7862-15.10.3-a, NFS4-7862-15.10.3-b
    pub(super) async fn read_plus(&mut self, args: ops::ReadPlus, room: usize) -> Answer<ops::ReadPlusOk> {
        let file = self.file()?;
        self.check_has_data(&file).await?;
        let via = self.via(&file, args.state, Access::READ).await?;
        let count = usize::try_from(args.count).unwrap_or(usize::MAX).min(MAX_TRANSFER_BYTES);
        // The pieces take no more room than the whole range as data would, for which the client has room.
        // NFS4-7862-15.10.3-d
        let octets = room.saturating_sub(READ_PLUS_BYTES).min(PIECE_BYTES + padded(count));
        let budget = PieceBudget::new(count as u64, octets, PIECE_BYTES, MAX_PIECES);
        let left = file.size_at_once().map(|size| size.saturating_sub(args.offset));
        let wanted = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX)).min(budget.data());
        let buffer = self.buffer(wanted).await?;
        let read = match file.file_system.read_sparse(via, args.offset, budget, buffer).await {
            Ok(read) => read,
            Err(failed) => return Err(self.no_data(&file, failed).await),
        };
        // ULB-5.1.1-a: no part of the results is placed directly.
        Ok(ops::ReadPlusOk { end: read.end, pieces: List(told(read.pieces, read.buffer.freeze())) })
    }

    // NFS4-7862-15.1.3-a
    pub(super) async fn allocate(&mut self, args: ops::Allocate) -> Answer<()> {
        let file = self.file_to_change()?;
        Self::check_is_regular(&file).await?;
        let via = self.via(&file, args.state, Access::WRITE).await?;
        check_range(args.offset, args.length)?;
        file.file_system.allocate(via, args.offset, args.length).await.map(drop).map_err(failure)
    }

    // NFS4-7862-15.4.3-a
    pub(super) async fn deallocate(&mut self, args: ops::Deallocate) -> Answer<()> {
        let file = self.file_to_change()?;
        Self::check_is_regular(&file).await?;
        let via = self.via(&file, args.state, Access::WRITE).await?;
        check_range(args.offset, args.length)?;
        file.file_system.deallocate(via, args.offset, args.length).await.map(drop).map_err(failure)
    }

    /// Follows only advice to read ahead: other advice would change how all callers that have the file open read it. To
    /// ignore advice is not an error (RFC 7862 section 15.5.3).
    // NFS4-7862-15.5.3-a
    pub(super) async fn io_advise(&mut self, args: ops::IoAdvise) -> Answer<ops::IoAdviseOk> {
        let (file, client) = (self.file()?, self.client()?);
        self.check_has_data(&file).await?;
        end(args.offset, args.length)?;
        let state = self.state_of(args.state, false)?;
        if special(state)?.is_none() {
            client.held.check(state, Self::key(&file), Wanted::Any)?;
        }
        let mut taken = false;
        if args.hints.contains(WILL_NEED)
            && let Ok(via) = self.via(&file, state, Access::READ).await
        {
            taken = file.file_system.will_need(via, args.offset, args.length).await.unwrap_or(false);
        }
        Ok(ops::IoAdviseOk { hints: Bitmap::of_numbers([if taken { WILL_NEED } else { NORMAL }]) })
    }
}

/// Whether a range can be reserved or freed: it must have at least one byte.
fn check_range(offset: u64, length: u64) -> Result<(), Status> {
    end(offset, length)?;
    if length == 0 { Err(Status::INVAL) } else { Ok(()) }
}
