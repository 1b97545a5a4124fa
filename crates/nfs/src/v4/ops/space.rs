//! Holes, space and advice: ALLOCATE, DEALLOCATE, IO_ADVISE, READ_PLUS, SEEK, WRITE_SAME (RFC 7862 sections 15.1, 15.4,
//! 15.5, 15.10, 15.11, 15.12).

use super::{Stability, WriteResponse};
use crate::v4::{Bitmap, List, MAX_TRANSFER_BYTES, Opaque, StateId};

/// The most pieces of one READ_PLUS answer: holes and data of 1 KiB each in a megabyte.
pub const MAX_PIECES: usize = 1024;

/// The most octets of a pattern that WRITE_SAME repeats.
pub const MAX_PATTERN_BYTES: usize = 64 << 10;

xdr_enum! {
    /// What a range of a file holds (`data_content4`).
    pub enum Content: "content of a file" {
        /// Data.
        Data = 0,
        /// Nothing: it reads as zeroes.
        Hole = 1,
    }
}

xdr_struct! {
    /// ALLOCATE: reserves space for a range of the current file.
    #[derive(Copy)]
    pub struct Allocate {
        /// The open of the file.
        pub state: StateId,
        /// Where the range begins.
        pub offset: u64,
        /// Its length in octets.
        pub length: u64,
    }

    /// DEALLOCATE: makes a range of the current file a hole.
    #[derive(Copy)]
    pub struct Deallocate {
        /// The open of the file.
        pub state: StateId,
        /// Where the range begins.
        pub offset: u64,
        /// Its length in octets.
        pub length: u64,
    }

    /// IO_ADVISE: says how a range of the current file will be used.
    #[derive(Copy)]
    pub struct IoAdvise {
        /// The open of the file.
        pub state: StateId,
        /// Where the range begins.
        pub offset: u64,
        /// Its length in octets; 0 means up to the end.
        pub length: u64,
        /// Numbers of hints (`IO_ADVISE_type4`), 0 to 10.
        pub hints: Bitmap,
    }

    /// What IO_ADVISE returns.
    #[derive(Copy)]
    pub struct IoAdviseOk {
        /// The hints that the server follows.
        pub hints: Bitmap,
    }

    /// READ_PLUS: asks for octets of the current file, with holes marked as such. Nothing of it may be placed directly
    /// (ULB-5.1.1-a).
    #[derive(Copy)]
    pub struct ReadPlus {
        /// The open, lock or delegation that permits it.
        pub state: StateId,
        /// Where to begin.
        pub offset: u64,
        /// How many octets at most.
        pub count: u32,
    }

    /// What READ_PLUS returns.
    // ULB-5.1.1-c
    pub struct ReadPlusOk {
        /// Whether the end of the file was reached.
        pub end: bool,
        /// Data and holes.
        pub pieces: List<Piece, MAX_PIECES>,
    }

    /// Data in a READ_PLUS answer (`data4`).
    pub struct DataPiece {
        /// Where it begins.
        pub offset: u64,
        /// The octets.
        pub data: Opaque<MAX_TRANSFER_BYTES>,
    }

    /// A hole in a READ_PLUS answer (`data_info4`).
    #[derive(Copy)]
    pub struct HolePiece {
        /// Where it begins.
        pub offset: u64,
        /// Its length in octets.
        pub length: u64,
    }

    /// SEEK: asks for the next data or hole of the current file.
    #[derive(Copy)]
    pub struct Seek {
        /// The open of the file.
        pub state: StateId,
        /// Where to begin.
        pub offset: u64,
        /// What to look for.
        pub what: Content,
    }

    /// What SEEK returns.
    #[derive(Copy)]
    pub struct SeekOk {
        /// Whether the end of the file was reached.
        pub end: bool,
        /// Where the data or hole begins.
        pub offset: u64,
    }

    /// WRITE_SAME: writes a pattern again and again to the current file.
    pub struct WriteSame {
        /// The open of the file.
        pub state: StateId,
        /// How durable it must be when the reply comes.
        pub stability: Stability,
        /// Where the blocks begin.
        pub offset: u64,
        /// Octets of a block.
        pub block_size: u64,
        /// How many blocks.
        pub block_count: u64,
        /// Where in a block its number stands.
        pub number_offset: u64,
        /// The first number.
        pub number: u32,
        /// Where in a block the pattern stands.
        pub pattern_offset: u64,
        /// The pattern.
        pub pattern: Opaque<MAX_PATTERN_BYTES>,
    }

    /// What WRITE_SAME returns.
    pub struct WriteSameOk {
        /// How much was written, or the name of a write that goes on.
        pub response: WriteResponse,
    }
}

xdr_union! {
    /// A piece of a READ_PLUS answer (`read_plus_content`).
    pub enum Piece: "content of a file" {
        /// Data.
        Data(data: DataPiece) = 0,
        /// A hole.
        Hole(hole: HolePiece) = 1,
    } else {
        /// Something of a later minor version.
        Other
    }
}
