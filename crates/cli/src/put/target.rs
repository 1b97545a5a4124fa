//! Where `put` writes a file: a temporary file beside the target, the part that an earlier copy has left, or the
//! target.

use super::{
    Copier,
    source::{Facts, Local},
    upload::Upload,
};
use crate::{
    copy::close_after,
    links::Unfinished,
    names::escaped,
    partial::{NAMES_TRIED, part_name, resume_at, same_time, temporary_name},
};
use anyhow::{Context, Result, bail, ensure};
use rpcrdma_nfs::attr::{Attributes, FileType, NewAttributes, SetTime, Who};
use rpcrdma_nfs_client::{Access, Cause, CreateHow, Error, Handle, Name, Node};

/// What the target's name stands for.
pub(super) struct Existing {
    pub(super) node: Node,
    pub(super) attributes: Attributes,
}

impl Copier<'_> {
    /// The existing file with the target's name.
    ///
    /// # Errors
    /// If it is of a kind that is not written to.
    pub(super) async fn existing(&self, directory: &Handle, name: &Name) -> Result<Option<Existing>> {
        let found = match self.session.files.lookup(directory, name).await {
            Err(error) if error.is_absent() => return Ok(None),
            found => found?,
        };
        match found.attributes.file_type {
            FileType::Regular => Ok(Some(Existing { node: Node::from(&found), attributes: found.attributes })),
            FileType::Symlink => bail!("is a symbolic link on the server; nothing is written through it"),
            other => bail!("is a {} on the server", crate::names::file_type(other)),
        }
    }

    /// Makes the file that is written, or finds it. `resumable` are the facts of a source that can have parts.
    pub(super) async fn open(
        &self,
        local: &Local,
        directory: &Handle,
        name: &Name,
        existing: Option<Existing>,
        resumable: Option<&Facts>,
    ) -> Result<Upload> {
        let Some(existing) = existing else {
            let made = match (self.placing.inplace, resumable.filter(|_| self.placing.resume)) {
                (true, _) => return self.make(directory, name, name.clone(), true).await,
                (false, Some(facts)) => self.part(directory, name, facts).await,
                (false, None) => self.temporary(directory, name).await,
            };
            return match made {
                // The name of a temporary file may be too long where the target's is not.
                Err(error) if cause(&error) == Some(Cause::NameTooLong) => {
                    let made = self.make(directory, name, name.clone(), true).await?;
                    self.note_in_place(local, NO_ROOM_FOR_NAME);
                    Ok(made)
                }
                made => made,
            };
        };
        let reason = match self.beside(directory, name, &existing, resumable).await? {
            Ok(upload) => return Ok(upload),
            Err(reason) => reason,
        };
        if let Some(reason) = reason {
            self.note_in_place(local, reason);
        }
        let file = self.session.files.open(existing.node, Access::Write).await?;
        let old_size = existing.attributes.size;
        Ok(Upload { file, beside: None, unfinished: None, kept: false, old_size, offset: 0, mode: 0o600 })
    }

    fn note_in_place(&self, local: &Local, reason: &str) {
        self.note(&local.path, &format!("is written in place on the server: {reason}"));
    }

    /// A file beside an existing one, or why there is none.
    async fn beside(
        &self,
        directory: &Handle,
        name: &Name,
        existing: &Existing,
        resumable: Option<&Facts>,
    ) -> Result<Result<Upload, Option<&'static str>>> {
        if self.placing.inplace {
            return Ok(Err(None));
        }
        if existing.attributes.links > 1 {
            return Ok(Err(Some("it has several names")));
        }
        let is_own = || self.own.borrow().as_ref().map(|own| *own == existing.attributes.owner());
        let made = match is_own() {
            Some(false) => return Ok(Err(Some("it belongs to another user"))),
            Some(_) if self.placing.resume && resumable.is_some() => Ok(None),
            _ => self.temporary(directory, name).await.map(Some),
        };
        let made = match made {
            // A user who may not make a file there may still be allowed to write to this one.
            Err(error) => return why_in_place(error).map(|reason| Err(Some(reason))),
            Ok(made) => made,
        };
        let is_own = is_own() == Some(true);
        match (made, resumable.filter(|_| self.placing.resume)) {
            (Some(upload), None) if is_own => Ok(Ok(upload)),
            (made, facts) => {
                if let Some(upload) = made {
                    self.discard(upload).await?;
                }
                match facts {
                    Some(facts) if is_own => match self.part(directory, name, facts).await {
                        // No temporary file was made here: this is the first try in this directory.
                        Err(error) => why_in_place(error).map(|reason| Err(Some(reason))),
                        part => part.map(Ok),
                    },
                    _ => Ok(Err(Some("it belongs to another user"))),
                }
            }
        }
    }

    /// Makes a file under a fresh name beside the target.
    async fn temporary(&self, directory: &Handle, target: &Name) -> Result<Upload> {
        for _ in 0..NAMES_TRIED {
            let name = Name::from(temporary_name(target.as_slice(), &*self.random).as_slice());
            match self.make(directory, target, name, false).await {
                Err(error) if cause(&error) == Some(Cause::Exists) => {}
                made => return made.context("cannot make a temporary file beside it"),
            }
        }
        bail!("cannot find a free name for a temporary file beside it")
    }

    /// Makes a file that is removed if it does not become whole. `unsure`: its name is not fresh.
    async fn make(&self, directory: &Handle, target: &Name, name: Name, unsure: bool) -> Result<Upload> {
        let mut unfinished = Unfinished { directory: directory.clone(), name: name.clone(), unsure };
        // Noted before it exists: an interruption must not come between.
        self.unfinished.borrow_mut().push(unfinished.clone());
        // Nobody else opens it before it is whole.
        let attributes = NewAttributes { mode: Some(0o600), ..Default::default() };
        let made = match self.session.files.create(directory, &name, CreateHow::Guarded(attributes)).await {
            Ok(made) => made,
            Err(error) => {
                // A file that the server did not make is not ours to remove; of one that it may have made, we know
                // nothing.
                if error.has_made_nothing() {
                    self.settle(Some(&unfinished));
                } else if error.is_after_creation() {
                    self.surely_ours(&mut unfinished);
                }
                return Err(error.into());
            }
        };
        self.surely_ours(&mut unfinished);
        let file = made.file;
        if self.own.borrow().is_none() {
            let owner = match made.attributes {
                Some(attributes) => attributes.owner(),
                None => file.getattr().await?.owner(),
            };
            self.own.replace(Some(owner));
        }
        let beside = (name != *target).then_some(name);
        Ok(Upload { file, beside, unfinished: Some(unfinished), kept: false, old_size: 0, offset: 0, mode: 0o600 })
    }

    /// Now it is known that we made it.
    fn surely_ours(&self, unfinished: &mut Unfinished) {
        self.settle(Some(unfinished));
        unfinished.unsure = false;
        self.unfinished.borrow_mut().push(unfinished.clone());
    }

    /// The part that an earlier copy has left, or a new one.
    async fn part(&self, directory: &Handle, target: &Name, facts: &Facts) -> Result<Upload> {
        let nfs = &self.session.files;
        let name = Name::from(part_name(target.as_slice()).as_slice());
        let shown = escaped(name.as_slice());
        // Looked for before it is made: an interrupted CREATE is cleaned up, and must not take an earlier part with it.
        let made = match nfs.lookup(directory, &name).await {
            Err(error) if error.is_absent() => Some(self.make(directory, target, name.clone(), true).await),
            Err(error) => return Err(error).context("cannot look for the part of an earlier copy"),
            Ok(_) => None,
        };
        let is_there = match &made {
            None => true,
            Some(made) => made.as_ref().is_err_and(|error| cause(error) == Some(Cause::Exists)),
        };
        let mut upload = match made {
            _ if is_there => {
                // Shows who the caller is, and whether the whole file will be able to leave its temporary name.
                let probe = self.temporary(directory, target).await?;
                self.discard(probe).await?;
                let in_the_way = || {
                    format!("{shown} is in the way on the server: it is not a regular file of yours with a single name")
                };
                let part = self.existing(directory, &name).await.with_context(in_the_way)?.with_context(in_the_way)?;
                let own = self.own.borrow().as_ref().is_some_and(|own| part.is_alone_of(own));
                ensure!(own, in_the_way());
                let (len, mark) = (part.attributes.size, part.attributes.accessed);
                match resume_at(len, mark, facts.size, facts.modified) {
                    Some(offset) => {
                        let file = nfs.open(part.node, Access::Write).await?;
                        let beside = Some(name);
                        Upload { file, beside, unfinished: None, kept: true, old_size: 0, offset, mode: 0o600 }
                    }
                    // It is not written over: WRITEs of the earlier copy may still be on their way to that file.
                    None => {
                        nfs.remove(directory, &name).await?;
                        self.make(directory, target, name, true).await.context("cannot make a file beside it")?
                    }
                }
            }
            Some(made) => made.context("cannot make a file beside it")?,
            None => bail!("{shown} does not exist and could not be made"),
        };
        let (size, accessed) = (Some(upload.offset), SetTime::Client(facts.modified));
        let marked = NewAttributes { mode: Some(0o600), size, accessed, ..Default::default() };
        if let Err(error) = upload.file.setattr(marked).await {
            return close_after(upload.file, Err(error.into())).await;
        }
        upload.kept = true;
        Ok(upload)
    }
}

impl Existing {
    /// Whether it is an empty file of this user's with no other name.
    pub(super) fn is_empty_file_of(&self, user: Option<&Who>) -> bool {
        self.attributes.size == 0 && user.is_some_and(|user| self.is_alone_of(user))
    }

    /// Whether it belongs to this user, and has only this name: then another file may take its place.
    pub(super) fn is_alone_of(&self, user: &Who) -> bool {
        self.attributes.links == 1 && self.attributes.owner() == *user
    }

    /// Whether it is the source itself, which is served to us by this machine: writing into it would cut it off.
    pub(super) fn is_source(&self, source: &Facts) -> bool {
        let same = self.attributes.file_id == source.id.1 && self.attributes.size == source.size;
        same && same_time(self.attributes.modified, source.modified)
            && same_time(self.attributes.changed, source.changed)
    }

    /// Whether it has the size and the time of the source.
    pub(super) fn is_copy(&self, source: &Facts) -> bool {
        self.attributes.size == source.size && same_time(self.attributes.modified, source.modified)
    }
}

fn cause(error: &anyhow::Error) -> Option<Cause> {
    crate::failure::cause(error).and_then(Error::cause)
}

const NO_ROOM_FOR_NAME: &str = "the longer name of a temporary file would be too long";

/// Why no file could be made beside the target, if the target itself may still be writable.
fn why_in_place(error: anyhow::Error) -> Result<&'static str> {
    match cause(&error) {
        Some(Cause::Denied | Cause::NotOwner) => Ok("its directory cannot be written to"),
        Some(Cause::NameTooLong) => Ok(NO_ROOM_FOR_NAME),
        _ => Err(error),
    }
}
