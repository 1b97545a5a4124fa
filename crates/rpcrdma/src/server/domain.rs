//! `serve --domain DOMAIN`: users and groups by name in NFS version 4, as this machine's databases (NSS) have them.
//!
//! Without the option the domain is the realm of the server's key in lower case, which is what the domains of most
//! realms are. Linux's idmapd takes the domain of the host's name; a server's own is often not set, or not the one of
//! its clients.

use super::{Options, Result, kerberos, threads::Threads};
use crate::error::Context;
use rpcrdma_env::Env;
use rpcrdma_gss::Accounts;
use rpcrdma_nfsd::{Accounts as HostAccounts, Domain, Kind, OwnerNames};
use std::{io, sync::Arc};

/// How many threads look up names: two for names and two for numbers, as each may wait for a directory of users on
/// another host.
const THREADS: usize = 4;

/// Users and groups as the machine's databases have them.
struct OfMachine;

impl HostAccounts for OfMachine {
    fn name(&self, kind: Kind, id: u32) -> io::Result<Option<String>> {
        match kind {
            Kind::User => Accounts.user_name(id),
            Kind::Group => Accounts.group_name(id),
        }
    }

    fn id(&self, kind: Kind, name: &str) -> io::Result<Option<u32>> {
        match kind {
            Kind::User => Accounts.uid_of(name),
            Kind::Group => Accounts.gid_of(name),
        }
    }
}

/// The domain of a server whose Kerberos key belongs to this principal, `nfs/HOST@REALM`.
fn of_realm(principal: &str) -> Option<Domain> {
    let (_, realm) = principal.rsplit_once('@')?;
    realm.to_ascii_lowercase().parse().ok()
}

/// What maps users and groups to names for version 4; `None` if no domain is known.
pub(super) fn names(options: &Options, env: &Env) -> Result<Option<Arc<OwnerNames>>> {
    if !options.nfs.has_4() {
        return Ok(None);
    }
    let by_realm = || match kerberos::wanted(options).is_empty() {
        true => None,
        false => of_realm(&kerberos::principal(options)?),
    };
    let Some(domain) = options.domain.clone().or_else(by_realm) else { return Ok(None) };
    tracing::info!("users and groups of this machine are names of the domain {domain} in NFS version 4");
    let threads = Threads::start("rpcrdma-names", THREADS).context("cannot start threads for --domain")?;
    Ok(Some(OwnerNames::new(domain, Arc::new(OfMachine), Arc::new(threads), env.clock.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_the_realm_in_lower_case() {
        let of = |principal: &str| of_realm(principal).map(|domain| domain.to_string());
        assert_eq!(of("nfs/server.test.example@TEST.Example").as_deref(), Some("test.example"));
        assert_eq!(of("nfs/server@A REALM"), None, "no domain");
        assert_eq!(of("nfs/server"), None);
    }
}
