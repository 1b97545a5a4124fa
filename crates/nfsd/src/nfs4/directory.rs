//! Not yet.

use super::compound::Compound;
use rpcrdma_nfs::v4::{
    Status,
    ops::{self, Answer},
};

impl Compound {
    pub(super) async fn read_directory(&mut self, _: ops::ReadDir, _: usize) -> Answer<ops::ReadDirOk> {
        Err(Status::NOTSUPP.into())
    }
}
