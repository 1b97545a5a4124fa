//! GETATTR, SETATTR, VERIFY and NVERIFY (RFC 8881 sections 18.7, 18.15, 18.30, 18.31).

use super::{
    compound::Compound,
    settable::{Wanted, set_acls, supported},
    tell::{failure, status},
};
use crate::{
    Fault, Via,
    claims::{Access, Kind},
    opened::Opened,
};
use rpcrdma_nfs::{
    attr::{Attributes, NewAttributes},
    v4::{
        Attribute, Bitmap, FileAttributes, MAX_ACES, StateId, Status,
        ops::{self, Answer},
    },
};

/// Attributes that clients can read, but not compare (RFC 8881 sections 18.15.3 and 18.31.3).
const NOT_COMPARED: Bitmap = Bitmap::of(&[Attribute::ReadAttributesError]);

/// Bytes of the longest access control list: entries of four words each, with numbers for names. If names would make a
/// list longer than this, the server sends it with numbers.
pub(super) const LONGEST_ACL_BYTES: usize = MAX_ACES * (4 * 4 + 12);

impl Compound {
    // NFS4-8881-18.7-a
    pub(super) async fn get_attributes(&mut self, args: ops::GetAttr) -> Answer<ops::GetAttrOk> {
        let file = self.file()?;
        let asked = self.asked(&file, args.asked).await?;
        let most = match asked.set.contains(Attribute::Acl) {
            // A list can be long, and a short call can ask for many: it counts as memory, like data, before it is read.
            true => Some(self.buffer(LONGEST_ACL_BYTES).await?),
            false => None,
        };
        let attributes = file.attributes().await.map_err(status)?;
        let attributes = self.seen(&file, asked.set, attributes).await?;
        let attributes = self.told(&asked, &file, &attributes).await?;
        self.counted = most.map(|most| self.fitted(most, attributes.octets.len()));
        Ok(ops::GetAttrOk { attributes })
    }

    // NFS4-8881-18.30-a
    pub(super) async fn set_attributes(&mut self, args: ops::SetAttr) -> Answer<ops::SetAttrOk, ops::SetAttrFailure> {
        let file = self.file_to_change()?;
        // RFC 8275 section 5: this attribute is for new files.
        if args.attributes.set.contains(Attribute::ModeUmask) && self.minor >= 2 {
            return Err(Status::INVAL.into());
        }
        let Wanted { attributes: new, acl, set } = self.new_attributes(&file, &args.attributes).await?;
        let acls = match &acl {
            Some(acl) => Some(self.acls_for(&file, acl).await?),
            None => None,
        };
        let is_acl_alone = new == NewAttributes::default();
        if is_acl_alone && acls.is_none() {
            file.attributes().await.map_err(status)?;
            return Ok(ops::SetAttrOk { set });
        }
        let _using = self.using(&file, Kind::Write).await?;
        if !is_acl_alone {
            self.set_others(&file, args.state, new).await?;
        }
        if let Some(acls) = acls {
            // RFC 8881 section 6.4.1.3: the list after the mode.
            let without = set.without(&Bitmap::of(&[Attribute::Acl]));
            set_acls(&file, acls).await.map_err(|status| ops::SetAttrFailure { status, set: without })?;
        }
        Ok(ops::SetAttrOk { set })
    }

    /// Sets all attributes but the access control list.
    async fn set_others(&self, file: &Opened, state: StateId, new: NewAttributes) -> Result<(), Status> {
        let via = match new.size {
            // The same rules as for a WRITE (RFC 8881 section 18.30.3).
            // NFS4-8881-18.30-b
            Some(_) => self.via(file, state, Access::WRITE).await?,
            None => Via::caller(file.caller.clone(), file.file),
        };
        file.file_system.set_attributes(via, new, None).await.map(drop).map_err(|failed| match failed.fault {
            // RFC 7530 section 16.32.5
            Fault::IsDirectory if self.minor == 0 => Status::ISDIR,
            // Only regular files have a size that clients can set, and SETATTR has no other status for that.
            Fault::IsDirectory | Fault::IsSymlink => Status::WRONG_TYPE,
            _ => failure(failed),
        })
    }

    pub(super) async fn verify(&mut self, args: ops::Verify) -> Answer {
        if self.is_same(args.attributes).await? { Ok(()) } else { Err(Status::NOT_SAME) }
    }

    pub(super) async fn not_verify(&mut self, args: ops::Verify) -> Answer {
        if self.is_same(args.attributes).await? { Err(Status::SAME) } else { Ok(()) }
    }

    /// A file's attributes as clients see them, including what the holder of a write delegation reports.
    async fn seen(&self, file: &Opened, asked: Bitmap, attributes: Attributes) -> Result<Attributes, Status> {
        match self.shared.claims.writer(Self::key(file), self.user()) {
            None => Ok(attributes),
            Some(_) => Box::pin(self.as_its_holder_says(file, asked, attributes)).await,
        }
    }

    /// Whether the current file's attributes are equal to these, byte by byte.
    async fn is_same(&self, given: FileAttributes) -> Result<bool, Status> {
        let file = self.file()?;
        if !given.set.is_within(&supported(self.minor)) {
            return Err(Status::ATTRNOTSUPP);
        }
        if !given.set.and(&NOT_COMPARED).is_empty() {
            return Err(Status::INVAL);
        }
        let asked = self.asked(&file, given.set).await?;
        given.values().map_err(|_| Status::BADXDR)?;
        let attributes = file.attributes().await.map_err(status)?;
        let attributes = self.seen(&file, asked.set, attributes).await?;
        let told = self.told(&asked, &file, &attributes).await?;
        // The file lacks one of these attributes.
        if told.set != given.set {
            return Err(Status::ATTRNOTSUPP);
        }
        // NFS4-8881-18.31-a
        Ok(told == given)
    }
}

#[cfg(test)]
pub(super) mod tests;
