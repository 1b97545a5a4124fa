//! The caller: with AUTH_SYS the user who runs the command, or the user whom the URL names; with `sec=krb5` and its
//! like the principal of the user's tickets, as `kinit` has left them.
//!
//! A command has one context with each service, which all its sessions with it share. Contexts are made on threads of
//! their own, because that asks the KDC: nothing else waits for it, and a command that ends does not.

use super::Result;
use super::{NfsUrl, ending::Ending, url::Service};
use crate::error::Context;
use rpcrdma_env::Env;
use rpcrdma_gss::{Gss, Tickets};
use rpcrdma_nfs_client::v4::Callbacks;
use rpcrdma_nfsd::Security;
use rpcrdma_oncrpc::{
    ClientFlavour, SysAuth, SysCredential,
    gss::{GssAuth, GssService, Work},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// The identity with which a URL's calls are made.
#[derive(Clone)]
pub enum Identity {
    /// The client states it, without proof.
    Sys(Arc<SysAuth>),
    /// A ticket proves it.
    Kerberos(GssAuth),
}

impl Identity {
    /// Makes credentials.
    pub fn flavour(&self) -> Arc<dyn ClientFlavour> {
        match self {
            Self::Sys(auth) => auth.clone(),
            Self::Kerberos(auth) => Arc::new(auth.clone()),
        }
    }

    /// The program that answers calls of a server which this identity calls.
    pub(super) fn callbacks(&self, env: &Env) -> Callbacks {
        match self {
            Self::Sys(_) => Callbacks::new(),
            Self::Kerberos(auth) => Callbacks::in_contexts_of(auth.clone(), env),
        }
    }
}

/// The service of a context, and how its calls are protected.
#[derive(PartialEq)]
struct Key {
    service: Service,
    security: Security,
}

/// The identities of a command.
pub(super) struct Identities {
    env: Env,
    ending: Ending,
    made: Mutex<Vec<(Key, GssAuth)>>,
}

impl Identities {
    pub(super) fn new(env: Env, ending: Ending) -> Self {
        Self { env, ending, made: Mutex::default() }
    }

    /// The identity for a URL.
    ///
    /// # Errors
    /// If the URL asks for Kerberos, and the library of Kerberos is not installed.
    pub(super) fn of(&self, url: &NfsUrl) -> Result<Identity> {
        let service = match url.security {
            Security::Sys => return Ok(Identity::Sys(Arc::new(sys(url)))),
            // OPS-SEC-a, OPS-SEC-c
            Security::Krb5 => GssService::Authentication,
            Security::Krb5i => GssService::Integrity,
            // OPS-SEC-a
            Security::Krb5p => GssService::Privacy,
        };
        let key = Key { service: url.service(), security: url.security };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, auth)) = made.iter().find(|(other, _)| *other == key) {
            return Ok(Identity::Kerberos(auth.clone()));
        }
        let gss = Gss::load().with_context(|| format!("sec={}", url.security))?;
        let tickets = match &key.service {
            Service::OfHost(host) => Tickets::of_user(gss, host),
            Service::Principal(principal) => Tickets::of_user_for(gss, principal),
        };
        let auth = GssAuth::new(&self.env, Arc::new(tickets), Arc::new(Threads), service);
        self.ending.of_context(&auth);
        made.push((key, auth.clone()));
        Ok(Identity::Kerberos(auth))
    }
}

/// The caller by AUTH_SYS. The client calls MOUNT by it in any case, because servers of MOUNT expect it.
pub(super) fn sys(url: &NfsUrl) -> SysAuth {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let machine = rustix::system::uname().nodename().to_bytes().to_vec();
    SysAuth::new(SysCredential {
        stamp: std::process::id(),
        machine: machine.into(),
        uid: url.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: url.gid.unwrap_or_else(|| rustix::process::getegid().as_raw()),
        groups: match (url.uid, url.gid) {
            (None, None) => groups.into_iter().map(|group| group.as_raw()).collect(),
            _ => Vec::new(),
        },
    })
}

/// A thread for each step: a context has two, and a command few contexts.
struct Threads;

impl Work for Threads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        // If no thread can be started, the job is dropped, and the call that waits for it fails.
        if let Err(error) = thread::Builder::new().name("rpcrdma-tokens".into()).spawn(job) {
            tracing::debug!(%error, "cannot start a thread for a context of Kerberos");
        }
    }
}
