//! Not yet.

use super::compound::Compound;
use rpcrdma_nfs::v4::{
    Status,
    ops::{self, Answer},
};

impl Compound {
    pub(super) async fn lock(&mut self, _: ops::Lock) -> Answer<ops::LockOk, ops::LockFailure> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn test_lock(&mut self, _: ops::LockT) -> Answer<(), ops::LockFailure> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn unlock(&mut self, _: ops::LockU) -> Answer<ops::LockUOk> {
        Err(Status::NOTSUPP.into())
    }
}
