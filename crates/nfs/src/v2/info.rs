//! The procedure that asks about the file system as a whole (RFC 1094 section 2.2.18), and the procedures that do
//! nothing.

use super::{Answer, Handle, procedure, sizes};
use rpcrdma_oncrpc::ReplyShape;

xdr_struct! {
    /// NULL: asks whether the server answers.
    #[derive(Copy, Default)]
    pub struct Null {}

    /// ROOT: obsolete.
    #[derive(Copy, Default)]
    pub struct Root {}

    /// WRITECACHE: was never used.
    #[derive(Copy, Default)]
    pub struct WriteCache {}

    /// STATFS: asks how full the file system is.
    pub struct FileSystemStatus {
        /// Any file of it.
        pub root: Handle,
    }

    /// What STATFS returns.
    #[derive(Copy)]
    pub struct FileSystemStatusOk {
        /// The best READ and WRITE, in octets.
        pub transfer_bytes: u32,
        /// Octets of a block.
        pub block_bytes: u32,
        /// Blocks in all.
        pub blocks: u32,
        /// Blocks that are free.
        pub free: u32,
        /// Blocks that are free for ordinary users.
        pub available: u32,
    }
}

calls! {
    super::PROGRAM, super::VERSION, procedure::is_repeatable;
    Null, 0, (), ReplyShape::inline(0);
    Root, 3, (), ReplyShape::inline(0);
    WriteCache, 7, (), ReplyShape::inline(0);
    FileSystemStatus, 17, Answer<FileSystemStatusOk>, ReplyShape::inline(sizes::STATUS + 5 * sizes::WORD);
}
