//! Attributes for callers ([`rpcrdma_nfs::attr`]), from and to the wire.

use super::{
    Error, Inner,
    reply::{Reply, done},
};
use rpcrdma_nfs::{
    attr,
    v4::{self, Attribute, Bitmap, FileAttributes, ModeUmask, Op, Principal, SetTime, Value},
};

/// The owner of a file if the server does not send a number.
pub(super) const NOBODY: u32 = 65_534;
/// Bits of a mode that can be set.
const MODE_BITS: u32 = 0o7777;

/// The values of those requested attributes that the server has sent.
pub(super) fn values(told: &FileAttributes, asked: Bitmap) -> Result<Vec<Value>, Error> {
    if !told.set.is_within(&asked) {
        return Err(Error::nonsense(Op::GetAttr, "gave attributes that were not asked for"));
    }
    told.values().map_err(|_| Error::nonsense(Op::GetAttr, "gave attributes that cannot be read"))
}

/// Those of the requested attributes that the server has sent.
pub(super) fn told(told: &FileAttributes, asked: Bitmap) -> Result<attr::Attributes, Error> {
    v4::attributes_of(&values(told, asked)?, NOBODY)
        .ok_or_else(|| Error::nonsense(Op::GetAttr, "does not say which type the file has"))
}

/// The results of the GETATTR that asks for all attributes.
pub(super) fn next(reply: &mut Reply) -> Result<attr::Attributes, Error> {
    told(&done!(reply, GetAttr)?.attributes, super::compound::ATTRIBUTES)
}

fn set_time(time: attr::SetTime) -> Option<SetTime> {
    match time {
        attr::SetTime::Keep => None,
        attr::SetTime::Server => Some(SetTime::Server),
        attr::SetTime::Client(time) => Some(SetTime::Client(time.into())),
    }
}

impl Inner {
    /// The attributes to set on an existing file.
    pub(super) fn changed(&self, new: &attr::NewAttributes) -> FileAttributes {
        self.encoded(new, false)
    }

    /// The attributes of a new file. If the server can apply the umask itself, it does: then an inherited list replaces
    /// the umask.
    pub(super) fn fresh(&self, new: &attr::NewAttributes) -> FileAttributes {
        self.encoded(new, true)
    }

    fn encoded(&self, new: &attr::NewAttributes, is_fresh: bool) -> FileAttributes {
        let mut set = v4::NewAttributes::default();
        set.size = new.size;
        set.owner = new.uid.map(Principal::of_number);
        set.group = new.gid.map(Principal::of_number);
        set.accessed = set_time(new.accessed);
        set.modified = set_time(new.modified);
        let umask = if is_fresh { new.umask & 0o777 } else { 0 };
        if let Some(mode) = new.mode.map(|mode| mode & MODE_BITS) {
            let supported = self.server().supported;
            match umask != 0 && self.minor >= 2 && supported.contains(Attribute::ModeUmask) {
                true => set.mode_umask = Some(ModeUmask { mode, umask }),
                false => set.mode = Some(mode & !umask),
            }
        }
        set.encoded()
    }
}
