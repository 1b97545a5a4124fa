//! Not yet.

use super::compound::Compound;
use rpcrdma_nfs::v4::{
    Status,
    ops::{self, Answer},
};

impl Compound {
    pub(super) async fn get_attributes(&mut self, _: ops::GetAttr) -> Answer<ops::GetAttrOk> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn set_attributes(&mut self, _: ops::SetAttr) -> Answer<ops::SetAttrOk, ops::SetAttrFailure> {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn verify(&mut self, _: ops::Verify) -> Answer {
        Err(Status::NOTSUPP.into())
    }

    pub(super) async fn not_verify(&mut self, _: ops::Verify) -> Answer {
        Err(Status::NOTSUPP.into())
    }
}
