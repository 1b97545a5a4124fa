//! The NFSACL service, version 3: POSIX access control lists beside NFS version 3, on its connections (ULB-4.2-a).
//!
//! Linux's server is the reference, as nothing else defines the program: a mode appears as a list of four entries, with
//! a mask that has the group's rights. On a file system without lists, modes appear in the same way, and a client
//! cannot set a list that says more than a mode (NOTSUPP). Handles, callers, exports, delegations and warnings are the
//! same as in version 3.
//!
//! SETACL sets the lists whose entries it brings; the other list stays. An access list without entries means the list
//! of the mode; a default list without entries means none.
//!
//! Version 2 belongs to NFS version 2, whose clients do not ask for lists: it is not served, and the reply to its calls
//! is PROG_MISMATCH with version 3.

#[cfg(test)]
mod tests;

use crate::{
    claims::Kind,
    nfs3::{About, Execution, answer, execute, execute_listing, failure, refused, status},
    opened::Opened,
    server::Server,
};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::{
    Call,
    attr::{Acls, PosixAcl},
    nfsacl::{self, GetAcl, GetAclOk, List, Lists, SetAcl, mask, procedure},
    v3::{self, Answer, Attributes, Failure, Handle, Name, Status},
};
use rpcrdma_oncrpc::{self as oncrpc, CallContext, Service};
use rpcrdma_xdr::Decoder;
use std::sync::Arc;

/// The service. Cloning shares the server.
pub(crate) struct NfsAcl {
    pub(crate) server: Arc<Server>,
}

impl Service for NfsAcl {
    fn program(&self) -> u32 {
        nfsacl::PROGRAM
    }

    fn version(&self) -> u32 {
        nfsacl::VERSION_3
    }

    fn is_idempotent(&self, number: u32) -> bool {
        number != procedure::SETACL
    }

    fn call(&self, context: CallContext, number: u32, args: Decoder) -> BoxFuture<'static, oncrpc::Answer> {
        let it = Execution { server: self.server.clone(), context };
        match number {
            procedure::NULL => execute(args, it, "NULL", |_, v3::Null {}| async {}),
            procedure::GETACL => execute_listing(args, it, "GETACL", largest, Execution::get_acl),
            procedure::SETACL => execute(args, it, "SETACL", Execution::set_acl),
            _ => Box::pin(std::future::ready(oncrpc::Answer::ProcUnavail)),
        }
    }
}

/// The bytes of the largest answer.
fn largest(args: &GetAcl) -> u32 {
    u32::try_from(args.reply_shape().max_len).unwrap_or(u32::MAX)
}

impl About for GetAcl {
    fn file(&self) -> Option<&Handle> {
        Some(&self.file)
    }

    fn name(&self) -> Option<&Name> {
        None
    }
}

impl About for SetAcl {
    fn file(&self) -> Option<&Handle> {
        Some(&self.file)
    }

    fn name(&self) -> Option<&Name> {
        None
    }
}

type Info = Option<Attributes>;

/// Whether all of these bits belong to the mask.
fn is_mask(bits: u32) -> bool {
    bits & !mask::ALL == 0
}

impl Execution {
    async fn get_acl(self, args: GetAcl) -> Answer<GetAclOk, Info> {
        answer(self.try_get_acl(args).await)
    }

    // NFSACL-LINUX-d
    async fn try_get_acl(&self, args: GetAcl) -> Result<GetAclOk, Failure<Info>> {
        let opened = self.open(&args.file).map_err(refused)?;
        let attributes = opened.attributes().await.map_err(|fault| refused(status(fault)))?;
        let told = Attributes::from(attributes);
        let failed = |status| Failure { status, info: Some(told.clone()) };
        if !is_mask(args.mask) {
            return Err(failed(Status::INVAL));
        }
        let acls = opened.file_system.acl(opened.caller.clone(), opened.file).await;
        let acls = acls.map_err(|fault| failed(status(fault)))?;
        let owners = (told.uid, told.gid);
        let lists = told_lists(&acls, owners, args.mask).ok_or_else(|| failed(Status::FBIG))?;
        Ok(GetAclOk { attributes: Some(told), lists })
    }

    async fn set_acl(self, args: SetAcl) -> Answer<Info, Info> {
        answer(self.try_set_acl(args).await)
    }

    // NFSACL-LINUX-d
    async fn try_set_acl(&self, args: SetAcl) -> Result<Info, Failure<Info>> {
        // NFS3-ACL-a
        let opened = self.open_to_change(&args.file).map_err(refused)?;
        let (access, default) = (args.lists.access(), args.lists.default());
        if !is_mask(args.lists.mask()) || access.is_none() && default.is_none() {
            return Err(self.told_with(Status::INVAL, &opened).await);
        }
        let (access, default) = match (wanted(access), wanted(default)) {
            (Ok(access), Ok(default)) => (access, default),
            _ => return Err(self.told_with(Status::INVAL, &opened).await),
        };
        let _using = self.using(&opened, Kind::Write).await.map_err(refused)?;
        let acls = match (access, default) {
            (Wanted::List(access), Wanted::List(default)) => Acls { access, default: Some(default) },
            (Wanted::List(access), Wanted::None) => Acls { access, default: None },
            // One of the lists stays as it is.
            (access, default) => {
                let now = match opened.file_system.acl(opened.caller.clone(), opened.file).await {
                    Ok(now) => now,
                    Err(fault) => return Err(self.told_with(status(fault), &opened).await),
                };
                Acls {
                    access: match access {
                        Wanted::List(access) => access,
                        Wanted::None => PosixAcl::of_mode(now.access.mode()),
                        Wanted::Same => now.access,
                    },
                    default: match default {
                        Wanted::List(default) => Some(default),
                        Wanted::None => None,
                        Wanted::Same => now.default,
                    },
                }
            }
        };
        let set = opened.file_system.set_acl(opened.caller, opened.file, acls).await;
        set.map(|change| change.after.map(Into::into)).map_err(failure)
    }

    /// A failure with the file's attributes, if they are available.
    async fn told_with(&self, status: Status, opened: &Opened) -> Failure<Info> {
        Failure { status, info: opened.attributes().await.ok().map(Into::into) }
    }
}

/// What a call wants with one of the lists.
enum Wanted {
    List(PosixAcl),
    /// Remove it.
    None,
    /// Leave it as it is.
    Same,
}

/// What a list in a call's arguments asks for.
///
/// # Errors
/// If its entries are not a list.
fn wanted(list: Option<&List>) -> Result<Wanted, ()> {
    match list {
        None => Ok(Wanted::Same),
        Some(list) if list.entries().is_empty() => Ok(Wanted::None),
        Some(list) => list.posix().map(Wanted::List).ok_or(()),
    }
}

/// The lists for the reply. `None` if one that the client asks for is too long.
fn told_lists(acls: &Acls, owners: (u32, u32), bits: u32) -> Option<Lists> {
    let wants = |of: u32| bits & of != 0;
    let mut access = List::default();
    if wants(mask::ACCESS | mask::ACCESS_COUNT) {
        access = List::of(&acls.access, owners)?;
    }
    let mut default = List::default();
    if let Some(acl) = acls.default.as_ref().filter(|_| wants(mask::DEFAULT | mask::DEFAULT_COUNT)) {
        // NFSACL-LINUX-a
        default = List::of_default(acl, owners)?;
    }
    Some(Lists::new(bits, access, default))
}
