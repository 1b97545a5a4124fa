//! Not yet.

use super::compound::Compound;
use rpcrdma_nfs::v4::{
    Status,
    ops::{self, Answer},
};

/// What an open keeps.
#[derive(Debug)]
pub(crate) struct Pinned;

impl Compound {
    pub(super) async fn open(&mut self, _: ops::Open) -> Answer<ops::OpenOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) fn open_downgrade(&mut self, _: ops::OpenDowngrade) -> Answer<ops::OpenDowngradeOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) fn close(&mut self, _: ops::Close) -> Answer<ops::CloseOk> {
        Err(Status::NOTSUPP.into())
    }
}
