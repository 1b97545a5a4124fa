//! OPEN that makes a file (RFC 8881 section 18.16.3).

use super::{
    compound::Compound,
    open::Target,
    settable::WantedOfNew,
    tell::{change_info, failure},
};
use crate::{CreateHow, Made, New, opened::Opened};
use rpcrdma_nfs::{
    attr::NewAttributes,
    v4::{Attribute, Bitmap, FileAttributes, Name, Status, ops},
};

/// Attributes that may keep the verifier of an exclusive creation: the client sets these next.
const VERIFIER_ATTRIBUTES: Bitmap = Bitmap::of(&[Attribute::TimeAccess, Attribute::TimeModify]);

/// Attributes that an exclusive creation cannot set (`suppattr_exclcreat` has the others).
const NOT_EXCLUSIVELY: Bitmap = Bitmap::of(&[Attribute::TimeAccessSet, Attribute::TimeModifySet]);

impl Compound {
    /// Makes a file, or finds the existing one.
    pub(super) async fn create_for_open(
        &self,
        directory: &Opened,
        name: Name,
        how: ops::CreateHow,
    ) -> Result<Target, Status> {
        if directory.read_only {
            return Err(Status::ROFS);
        }
        self.check_name(directory, &name)?;
        match how {
            ops::CreateHow::Unchecked(wire) => self.create_unchecked(directory, name, &wire).await,
            ops::CreateHow::Guarded(wire) => {
                let new = self.new_attributes(directory, &wire).await?.of_new(directory, false)?;
                let made = self.make_file(directory, name, CreateHow::Guarded(new.attributes)).await?;
                Ok(self.finish_new(directory, made, new, None).await)
            }
            ops::CreateHow::Exclusive(verifier) => {
                let how = CreateHow::Exclusive(verifier.0, NewAttributes::default());
                let made = self.make_file(directory, name, how).await?;
                Ok(target(directory, made, VERIFIER_ATTRIBUTES, None))
            }
            ops::CreateHow::Exclusive41(create) => {
                // NFS4-8881-18.16-c
                if !create.attributes.set.and(&NOT_EXCLUSIVELY).is_empty() {
                    return Err(Status::INVAL);
                }
                let mut new = self.new_attributes(directory, &create.attributes).await?.of_new(directory, false)?;
                new.set = new.set.or(&VERIFIER_ATTRIBUTES);
                let how = CreateHow::Exclusive(create.verifier.0, new.attributes);
                let made = self.make_file(directory, name, how).await?;
                if !made.is_new {
                    // The same call has made it before; the server does not undo later changes.
                    return Ok(target(directory, made, VERIFIER_ATTRIBUTES, None));
                }
                Ok(self.finish_new(directory, made, new, None).await)
            }
        }
    }

    /// The size is set when the file is open and no open denies that; for an existing file only a size of 0 is set.
    async fn create_unchecked(&self, directory: &Opened, name: Name, wire: &FileAttributes) -> Result<Target, Status> {
        let new = self.new_attributes(directory, wire).await?.of_new(directory, false)?;
        let asked_size = new.attributes.size;
        let how = CreateHow::Unchecked(NewAttributes { size: None, ..new.attributes });
        let made = match self.make_file(directory, name.clone(), how).await {
            // The existing file is not a regular one: opening it returns the right status.
            Err(Status::EXIST) => {
                let file = self.find(directory, name).await?;
                return Ok(Target {
                    file,
                    directory: self.unchanged(directory).await?,
                    set: Bitmap::EMPTY,
                    size: None,
                    is_owners: false,
                });
            }
            made => made?,
        };
        if made.is_new {
            let size = asked_size.filter(|size| *size > 0);
            return Ok(self.finish_new(directory, made, new, size).await);
        }
        // NFS4-8881-18.16-b
        let size = asked_size.filter(|size| *size == 0);
        let set = if size.is_some() { Bitmap::of(&[Attribute::Size]) } else { Bitmap::EMPTY };
        Ok(target(directory, made, set, size))
    }

    /// Gives a file that this call has made its access control lists.
    async fn finish_new(&self, directory: &Opened, made: Made, new: WantedOfNew, size: Option<u64>) -> Target {
        let mut target = target(directory, made, new.set, size);
        self.set_first_acls(&target.file, new.acls, &mut target.set).await;
        target
    }

    async fn make_file(&self, directory: &Opened, name: Name, how: CreateHow) -> Result<Made, Status> {
        let made = directory.file_system.make(directory.caller.clone(), directory.file, name.0, New::File(how)).await;
        made.map_err(failure)
    }
}

fn target(directory: &Opened, made: Made, set: Bitmap, size: Option<u64>) -> Target {
    let file = Opened { file: made.file, ..directory.clone() };
    Target { file, directory: change_info(&made.directory), set, size, is_owners: made.is_new }
}
