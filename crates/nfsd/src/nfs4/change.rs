//! Not yet.

use super::compound::Compound;
use rpcrdma_nfs::v4::{
    Status,
    ops::{self, Answer},
};

impl Compound {
    pub(super) async fn create(&mut self, _: ops::Create) -> Answer<ops::CreateOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn remove(&mut self, _: ops::Remove) -> Answer<ops::RemoveOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn rename(&mut self, _: ops::Rename) -> Answer<ops::RenameOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn link(&mut self, _: ops::Link) -> Answer<ops::LinkOk> {
        Err(Status::NOTSUPP.into())
    }
}
