//! Not yet.

use super::compound::Compound;
use crate::server::Opened;
use rpcrdma_nfs::{
    attr,
    v4::{
        Attribute, Bitmap, FileAttributes, Principal, SetTime, Status,
        ops::{self, Answer},
    },
};

impl Compound {
    pub(super) fn new_attributes(
        &self,
        _: &Opened,
        wire: &FileAttributes,
    ) -> Result<(attr::NewAttributes, Bitmap), Status> {
        let supported = Bitmap::of(&[
            Attribute::Size,
            Attribute::Mode,
            Attribute::Owner,
            Attribute::Group,
            Attribute::TimeAccessSet,
            Attribute::TimeModifySet,
            Attribute::ModeUmask,
        ]);
        let asked = wire.to_set(&supported).map_err(|fault| fault.status())?;
        let number = |name: Option<Principal>| match name.map(|name| name.number()) {
            Some(None) => Err(Status::BADOWNER),
            other => Ok(other.flatten()),
        };
        let time = |time: Option<SetTime>| match time {
            None => attr::SetTime::Keep,
            Some(SetTime::Server) => attr::SetTime::Server,
            Some(SetTime::Client(time)) => attr::SetTime::Client(time.into()),
        };
        let masked = asked.mode_umask.map(|both| both.mode & !both.umask);
        let new = attr::NewAttributes {
            mode: asked.mode.or(masked),
            uid: number(asked.owner)?,
            gid: number(asked.group)?,
            size: asked.size,
            accessed: time(asked.accessed),
            modified: time(asked.modified),
        };
        Ok((new, wire.set))
    }

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
