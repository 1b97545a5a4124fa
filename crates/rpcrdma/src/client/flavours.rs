//! What to write into a URL instead, if a server takes other flavours of credentials than the URL names.
//!
//! MOUNT returns the flavours of an export with its root. The client asks a server of version 4 after the server has
//! refused a file: there begins an export that takes other flavours.

use super::NfsUrl;
use super::Result;
use crate::error::bail;
use rpcrdma_nfs::{
    names::escaped,
    v4::{Name, Status},
};
use rpcrdma_nfs_client::{Error, v4::Nfs4};
use rpcrdma_nfsd::Security;
use rpcrdma_oncrpc::{AuthStat, CallError, Rejection};

/// The most names of a path that are asked about.
const MAX_NAMES: usize = 64;

/// Succeeds if MOUNT has named the URL's flavour, or has named none.
///
/// # Errors
/// The parameter to write in the URL instead.
pub(super) fn check_mounted(url: &NfsUrl, numbers: &[u32]) -> Result<()> {
    let taken: Vec<_> = numbers.iter().copied().filter_map(Security::of_number).collect();
    match instead(url, &taken) {
        // OPS-SEC-d
        Some(text) if !numbers.is_empty() => bail!("{text}"),
        _ => Ok(()),
    }
}

/// What to write instead, if an error says that the file at `path` does not take the URL's flavour.
pub(super) async fn explain(url: &NfsUrl, error: &Error, nfs: Option<&Nfs4>, path: &[u8]) -> Option<String> {
    let is_wrong = error.status() == Some(Status::WRONGSEC.into());
    match nfs {
        Some(nfs) if is_wrong => of_way(url, nfs, path).await.or_else(|| Some(other(url))),
        None if is_wrong => Some(other(url)),
        _ => refused(url, error),
    }
}

/// The server's answer about the first file on the way that does not take the URL's flavour.
async fn of_way(url: &NfsUrl, nfs: &Nfs4, path: &[u8]) -> Option<String> {
    let names = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<Name> = names.map(Name::from).collect();
    // Minor version 0 cannot be asked about the root itself.
    for len in 0..=names.len().min(MAX_NAMES) {
        let Ok(told) = nfs.flavours(&names[..len]).await else { continue };
        let taken: Vec<_> = told.iter().filter_map(Security::of_flavour).collect();
        if let Some(text) = instead(url, &taken) {
            return Some(text);
        }
    }
    None
}

/// The same if the server does not say which flavours it takes.
fn other(url: &NfsUrl) -> String {
    let (host, own) = (escaped(url.host.as_bytes()), url.security);
    format!("{host} does not take {own} there: another may do (sec=sys, krb5, krb5i or krb5p in the URL)")
}

/// The same for servers that refuse credentials, and do not say which ones they take.
fn refused(url: &NfsUrl, error: &Error) -> Option<String> {
    let Error::Call { source: CallError::Rejected(Rejection::Auth(stat)), .. } = error else { return None };
    match *stat {
        AuthStat::TOO_WEAK => Some(other(url)),
        AuthStat::BAD_CREDENTIAL | AuthStat::REJECTED_CREDENTIAL if url.security.is_kerberos() => {
            let (host, own) = (escaped(url.host.as_bytes()), url.security);
            Some(format!("{host} knows no Kerberos, which sec={own} in the URL asks for: sec=sys may do"))
        }
        _ => None,
    }
}

/// What to write instead, if the URL's flavour is not among those that are taken.
fn instead(url: &NfsUrl, taken: &[Security]) -> Option<String> {
    let own = url.security;
    if taken.contains(&own) {
        return None;
    }
    let host = escaped(url.host.as_bytes());
    let Some(first) = taken.first() else {
        return Some(format!("{host} takes none of sys, krb5, krb5i and krb5p there"));
    };
    let mut all: Vec<_> = taken.iter().map(|one| one.name()).collect();
    all.dedup();
    let ticket = if first.is_kerberos() && !own.is_kerberos() { " (`kinit` gets the ticket for it)" } else { "" };
    Some(format!("{host} takes {} there, and not {own}: write sec={first} in the URL{ticket}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(url: &str, numbers: &[u32]) -> String {
        check_mounted(&url.parse().unwrap(), numbers).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_the_server_takes_is_told_if_it_is_something_else() {
        let (sys, privacy) = ("nfs://host/", "nfs://host/?sec=krb5p");
        assert_eq!(told(sys, &[]), "", "a server that tells nothing");
        assert_eq!((told(sys, &[390_003, 1]), told(sys, &[0])), (String::new(), String::new()));
        assert_eq!(told(privacy, &[390_003, 390_005]), "");
        assert_eq!(
            told(sys, &[390_004, 390_005]),
            "host takes krb5i, krb5p there, and not sys: write sec=krb5i in the URL (`kinit` gets the ticket for it)"
        );
        assert_eq!(told(privacy, &[0, 1]), "host takes sys there, and not krb5p: write sec=sys in the URL");
        assert_eq!(told(sys, &[390_006, 6]), "host takes none of sys, krb5, krb5i and krb5p there");
    }

    #[test]
    fn refused_credentials_name_the_option_of_the_url() {
        let text = |url: &str, stat| {
            let source = CallError::Rejected(Rejection::Auth(stat));
            refused(&url.parse().unwrap(), &Error::Call { procedure: "GETATTR", source })
        };
        assert!(text("nfs://host/", AuthStat::TOO_WEAK).unwrap().contains("sec=sys, krb5"));
        assert!(text("nfs://host/?sec=krb5", AuthStat::REJECTED_CREDENTIAL).unwrap().contains("knows no Kerberos"));
        assert_eq!(text("nfs://host/", AuthStat::REJECTED_CREDENTIAL), None);
        assert_eq!(text("nfs://host/?sec=krb5", AuthStat::FAILED), None);
    }
}
