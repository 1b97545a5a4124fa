//! The credentials with which the server may call a client: the client names them in CREATE_SESSION and BACKCHANNEL_CTL
//! (`callback_sec_parms4`, RFC 8881 sections 18.33 and 18.36).

use rpcrdma_nfs::v4::{
    List, Status,
    ops::{CallbackSecurity, GssHandles, GssService as Covered, sequence_status as flags},
};
use rpcrdma_oncrpc::{
    ClientFlavour, NoAuth, SysAuth,
    gss::{AcceptGss, BackAuth, BackHandles, GssService},
};
use std::{sync::Arc, time::Duration};

/// The most contexts that a session keeps. The oldest go first: a client that names more has renewed them.
const MAX_CONTEXTS: usize = 4;

/// A credential for calls to a client.
#[derive(Clone)]
enum Caller {
    /// With AUTH_NONE or AUTH_SYS.
    Plain(Arc<dyn ClientFlavour>),
    /// In one of the client's contexts, which may end.
    Gss(BackAuth),
}

/// The credentials for calls to a client, in the client's order of preference.
#[derive(Clone, Default)]
pub(crate) struct Callers(Vec<Caller>);

/// The contexts that one principal may name.
#[derive(Clone, Copy)]
pub(crate) struct Contexts<'a> {
    /// All contexts, if the server has RPCSEC_GSS.
    pub(crate) all: Option<&'a AcceptGss>,
    /// The caller that names them, if it is proven.
    pub(crate) principal: Option<&'a str>,
}

impl Contexts<'_> {
    /// NFS4-8881-18.36-o
    fn get(&self, handles: &GssHandles) -> Option<BackAuth> {
        let service = match handles.service {
            Covered::None => GssService::Authentication,
            Covered::Integrity => GssService::Integrity,
            Covered::Privacy => GssService::Privacy,
        };
        // Copied: the handle is part of a whole message, which would stay in memory.
        let own = |octets: &bytes::Bytes| bytes::Bytes::copy_from_slice(octets);
        let (from_server, from_client) = (own(&handles.from_server.0), own(&handles.from_client.0));
        self.all?.back(self.principal?, &BackHandles { service, from_server, from_client })
    }
}

impl Callers {
    /// The credentials that a client names.
    ///
    /// # Errors
    /// NOENT if a context does not exist, or does not belong to the principal that names it.
    pub(crate) fn read<const MAX: usize>(
        security: &List<CallbackSecurity, MAX>,
        contexts: Contexts<'_>,
    ) -> Result<Self, Status> {
        let way = |way: &CallbackSecurity| match way {
            CallbackSecurity::None => Ok(Caller::Plain(Arc::new(NoAuth))),
            // Encoded here, once: the credential is part of a whole message, which would stay in memory.
            CallbackSecurity::Sys(credential) => Ok(Caller::Plain(Arc::new(SysAuth::new((**credential).clone())))),
            // NFS4-8881-18.33-b
            CallbackSecurity::Gss(handles) => contexts.get(handles).map(Caller::Gss).ok_or(Status::NOENT),
        };
        security.0.iter().map(way).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them is a context, which may end.
    pub(crate) fn has_contexts(&self) -> bool {
        self.0.iter().any(|caller| matches!(caller, Caller::Gss(_)))
    }

    /// The first credential that can be used now.
    fn first(&self) -> Option<&Caller> {
        self.0.iter().find(|caller| match caller {
            Caller::Plain(_) => true,
            Caller::Gss(auth) => auth.lasts(Duration::ZERO),
        })
    }

    /// The credential with which the server calls the client now, if there is one.
    // NFS4-8881-18.36-n
    // OPS-SEC-n
    pub(crate) fn usable(&self) -> Option<Arc<dyn ClientFlavour>> {
        match self.first()? {
            Caller::Plain(flavour) => Some(flavour.clone()),
            Caller::Gss(auth) => Some(Arc::new(auth.clone())),
        }
    }

    /// The same, if it is a context.
    pub(crate) fn context(&self) -> Option<Arc<dyn ClientFlavour>> {
        match self.first()? {
            Caller::Plain(_) => None,
            Caller::Gss(auth) => Some(Arc::new(auth.clone())),
        }
    }

    /// BACKCHANNEL_CTL: adds contexts, and replaces each other kind that the client names. Kinds that it does not name
    /// stay.
    /// NFS4-8881-18.33-a.
    pub(crate) fn add(&mut self, named: Self) {
        if named.is_empty() {
            return;
        }
        let is_named = |old: &BackAuth| named.0.iter().any(|caller| matches!(caller, Caller::Gss(new) if new.is(old)));
        let stays = |caller: &Caller| matches!(caller, Caller::Gss(old) if old.lasts(Duration::ZERO) && !is_named(old));
        let kept: Vec<_> = self.0.drain(..).filter(stays).collect();
        let mut contexts = 0;
        self.0 = named.0.into_iter().chain(kept).collect();
        self.0.retain(|caller| {
            contexts += usize::from(matches!(caller, Caller::Gss(_)));
            matches!(caller, Caller::Plain(_)) || contexts <= MAX_CONTEXTS
        });
    }

    /// The flags of SEQUENCE about the contexts, if the client has named some: that all have ended, or will end within
    /// a lease.
    /// NFS4-8881-18.46-h.
    pub(crate) fn flags(&self, lease: Duration) -> u32 {
        let mut contexts = self.0.iter().filter_map(|caller| match caller {
            Caller::Gss(auth) => Some(auth),
            Caller::Plain(_) => None,
        });
        let Some(first) = contexts.next() else { return 0 };
        let all: Vec<_> = std::iter::once(first).chain(contexts).collect();
        if all.iter().any(|auth| auth.lasts(lease)) {
            0
        } else if all.iter().any(|auth| auth.lasts(Duration::ZERO)) {
            flags::CB_GSS_CONTEXTS_EXPIRING
        } else {
            flags::CB_GSS_CONTEXTS_EXPIRED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::v4::Opaque;

    const NOWHERE: Contexts<'_> = Contexts { all: None, principal: Some("alice@REALM") };

    fn gss() -> CallbackSecurity {
        let handle = || Opaque(bytes::Bytes::from_static(b"handle"));
        CallbackSecurity::Gss(Box::new(GssHandles {
            service: Covered::None,
            from_server: handle(),
            from_client: handle(),
        }))
    }

    fn sys(uid: u32) -> CallbackSecurity {
        let credential = rpcrdma_oncrpc::SysCredential { uid, gid: 19, ..Default::default() };
        CallbackSecurity::Sys(Box::new(credential))
    }

    fn callers(ways: Vec<CallbackSecurity>) -> Result<Callers, Status> {
        Callers::read(&List::<_, 16>(ways), NOWHERE)
    }

    fn caller(callers: &Callers) -> Option<Option<(u32, u32)>> {
        callers.usable().map(|flavour| flavour.caller())
    }

    /// proves: NFS4-8881-18.36-o
    #[test]
    fn the_first_way_to_call_counts_and_contexts_have_to_be_there() {
        assert_eq!(caller(&callers(vec![sys(17), CallbackSecurity::None]).unwrap()), Some(Some((17, 19))));
        assert_eq!(caller(&callers(vec![CallbackSecurity::None, sys(17)]).unwrap()), Some(None));
        assert_eq!(caller(&callers(vec![]).unwrap()), None);
        for ways in [vec![gss()], vec![gss(), sys(17)], vec![CallbackSecurity::None, gss()]] {
            assert_eq!(callers(ways).err(), Some(Status::NOENT));
        }
    }

    #[test]
    fn what_is_named_later_takes_the_place_of_what_was_unless_it_is_nothing() {
        let mut all = callers(vec![sys(17)]).unwrap();
        all.add(callers(vec![]).unwrap());
        assert_eq!(caller(&all), Some(Some((17, 19))));
        all.add(callers(vec![sys(29)]).unwrap());
        assert_eq!((caller(&all), all.0.len(), all.flags(Duration::ZERO)), (Some(Some((29, 19))), 1, 0));
    }
}
