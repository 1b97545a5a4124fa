//! `serve --sec krb5,...`: Kerberos, by the machine's library and a keytab.
//!
//! If Kerberos is set up so that clients could not use it, the server does not start. For each context the library
//! reads the keytab again, and the file of tokens that it has seen. It does so on threads of its own, as the server's
//! user, so that nothing else waits for it. Users are looked up on other threads, as their directory may be on another
//! host.

use super::{Export, Options, Result, seldom::Seldom, threads::Threads};
use crate::error::Context;
use metrics::counter;
use rpcrdma_env::Env;
use rpcrdma_gss::{Gss, Kerberos, PrincipalMap};
use rpcrdma_nfsd::{Securities, Security};
use rpcrdma_oncrpc::gss::{AcceptGss, GssObserver, Refused, TOKENS_AT_ONCE, USERS_AT_ONCE, Workshop};
use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Instant};

/// The service whose keys the server uses: clients ask for tickets for `nfs@HOST`.
const SERVICE: &str = "nfs";
/// Where a machine has its keys.
const MACHINES_KEYTAB: &str = "/etc/krb5.keytab";

/// The flavours that an export takes.
pub(super) fn securities(options: &Options, export: &Export) -> Securities {
    let own = export.securities.clone();
    own.unwrap_or_else(|| Securities::new(options.sec.iter().copied()))
}

/// The flavours of Kerberos that some export takes.
pub(super) fn wanted(options: &Options) -> Vec<Security> {
    let of_export = |export| securities(options, export).iter().collect::<Vec<_>>();
    let all = options.exports.iter().flat_map(of_export);
    Securities::new(all.filter(|one| one.is_kerberos())).iter().collect()
}

/// The same, as the command line has them.
pub(super) fn words(wanted: &[Security]) -> String {
    wanted.iter().map(|one| one.name()).collect::<Vec<_>>().join(",")
}

/// The principal for which clients ask for tickets, from the keytab; `None` if the keytab does not say.
pub(super) fn principal(options: &Options) -> Option<String> {
    let named = || std::env::var("KRB5_KTNAME").ok();
    let keytab = options.keytab.clone().or_else(|| named().map(|name| name.trim_start_matches("FILE:").into()));
    let all = rpcrdma_gss::principals(&keytab.unwrap_or_else(|| MACHINES_KEYTAB.into())).ok()?;
    all.into_iter().find(|principal| principal.split_once('/').is_some_and(|(kind, _)| kind == SERVICE))
}

/// The flavour that understands Kerberos, if an export takes it.
pub(super) fn start(options: &Options, env: &Env) -> Result<Option<Arc<AcceptGss>>> {
    let wanted = wanted(options);
    if wanted.is_empty() {
        return Ok(None);
    }
    let sec = || format!("--sec {}", words(&wanted));
    let gss = Gss::load().with_context(sec)?;
    let keytab = options.keytab.as_deref();
    if let Some(path) = keytab {
        // The library would only say that it has no key.
        let opened = std::fs::File::open(path);
        // OPS-SEC-h
        let is_denied = opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        let opened = opened.with_context(|| format!("--keytab {}", path.display()));
        match is_denied {
            true => opened.with_context(|| {
                let uid = rustix::process::geteuid().as_raw();
                format!("the keytab cannot be read by uid {uid}, as which the server runs: give it to that user")
            })?,
            false => opened?,
        };
    }
    let named = || match keytab {
        Some(path) => format!("--keytab {}", path.display()),
        None => "this machine's keytab (--keytab names another)".into(),
    };
    let kerberos = Kerberos::for_service(gss, SERVICE, keytab)
        .with_context(|| format!("{} has no key of nfs/HOST@REALM that can be read", named()))
        .with_context(sec)?;
    let threads = |name, count| Threads::start(name, count).context("cannot start threads for Kerberos");
    let workshop = Workshop {
        tokens: Arc::new(threads("rpcrdma-tokens", TOKENS_AT_ONCE)?),
        users: Arc::new(threads("rpcrdma-users", USERS_AT_ONCE)?),
    };
    tracing::info!("the server accepts Kerberos ({}), with {}", words(&wanted), named());
    let names = match &options.principals {
        Some(file) => {
            let map = PrincipalMap::read(file).with_context(|| format!("--principals {}", file.display()))?;
            tracing::info!("--principals {}: {map}", file.display());
            map
        }
        None => PrincipalMap::default(),
    };
    let flavour = AcceptGss::new(env, Arc::new(kerberos), Arc::new(names), workshop);
    Ok(Some(Arc::new(flavour.with_observer(Arc::new(Told::default())))))
}

/// Counts what happens, and logs some of it for the administrator.
#[derive(Default)]
struct Told {
    tokens: Seldom,
    busy: Seldom,
    forged: Seldom,
}

impl GssObserver for Told {
    fn made(&self, peer: SocketAddr, principal: &str) {
        counter!("rpcrdma_gss_contexts_made_total").increment(1);
        tracing::debug!(%peer, principal, "a context of Kerberos is made");
    }

    fn refused(&self, peer: SocketAddr, why: Refused<'_>) {
        let reason = why.word();
        counter!("rpcrdma_gss_refused_total", "reason" => reason).increment(1);
        match why {
            Refused::Token(failure) => match self.tokens.tell(Instant::now()) {
                Some(untold) => tracing::warn!(%peer, %failure, untold, "a context of Kerberos is refused"),
                None => tracing::debug!(%peer, %failure, "a context of Kerberos is refused"),
            },
            Refused::Busy => match self.busy.tell(Instant::now()) {
                Some(untold) => tracing::warn!(
                    %peer,
                    untold,
                    "too many contexts of Kerberos wait to be made: this one is refused, as its client has the most"
                ),
                None => tracing::debug!(%peer, "a context of Kerberos is refused, as too many wait"),
            },
            Refused::Header | Refused::Arguments => match self.forged.tell(Instant::now()) {
                Some(untold) => {
                    tracing::warn!(%peer, reason, untold, "a call is not what its client has signed: it is refused");
                }
                None => tracing::debug!(%peer, reason, "a call is not what its client has signed"),
            },
            _ => tracing::debug!(%peer, reason, "a call by RPCSEC_GSS is refused"),
        }
    }

    fn dropped(&self, peer: SocketAddr) {
        counter!("rpcrdma_gss_calls_dropped_total").increment(1);
        tracing::debug!(%peer, "a call by RPCSEC_GSS is dropped: its number was seen, or is too old");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Security::{Krb5, Krb5i, Krb5p, Sys};

    /// A server that takes `sec`, and exports that take what they say themselves.
    fn options(sec: &[Security], exports: &[Option<&[Security]>]) -> Options {
        let export = |own: &Option<&[Security]>| {
            let export = Export::directory("/srv", "/srv");
            own.map_or(export.clone(), |own| export.security(own.iter().copied()))
        };
        Options { sec: sec.to_vec(), exports: exports.iter().map(export).collect(), ..Options::default() }
    }

    #[test]
    fn kerberos_is_wanted_where_an_export_takes_it() {
        let told = |sec: &[Security], exports: &[Option<&[Security]>]| words(&wanted(&options(sec, exports)));
        assert_eq!(told(&[Sys], &[None]), "");
        assert_eq!(told(&[Krb5p, Sys, Krb5, Krb5p], &[None]), "krb5p,krb5");
        assert_eq!(told(&[Sys], &[None, Some(&[Krb5i, Sys])]), "krb5i");
        assert_eq!(told(&[Krb5], &[None, Some(&[Sys])]), "krb5");
        let both = options(&[Krb5, Sys], &[None, Some(&[Krb5p])]);
        let of = |at: usize| securities(&both, &both.exports[at]).iter().map(Security::name).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec!["krb5", "sys"], vec!["krb5p"]));
    }
}
