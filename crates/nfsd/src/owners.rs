//! Users and groups by name, as NFS version 4 has them: `name@domain` (RFC 8881 section 5.9).
//!
//! All users and groups of a host belong to one domain. A client may write the domain in upper or lower case; names of
//! another domain mean nothing here. No other caller waits while the server asks the host ([`Lookups`]).
//!
//! The server checks a name before it asks the host, so that the host gets no name with another meaning, such as a
//! number or a path.

use crate::lookups::{Found, Lookups};
use rpcrdma_env::Clock;
use rpcrdma_nfs::v4::{MAX_PRINCIPAL_BYTES, Principal};
use rpcrdma_oncrpc::{ClientNetwork, gss::Work};
use std::{fmt, io, str::FromStr, sync::Arc};

/// The longest domain, in bytes, as for names of hosts (RFC 1035 section 2.3.4). The rest of [`MAX_PRINCIPAL_BYTES`]
/// is for the name.
pub const MAX_DOMAIN_BYTES: usize = 127;

/// Whether a name or a number belongs to a user or to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// What a host knows of its users and groups. May wait, also for other hosts.
pub trait Accounts: Send + Sync {
    /// The name of a user or group; `None` if it has none.
    ///
    /// # Errors
    /// If the host does not answer: the server sends the number, and asks the host again the next time.
    fn name(&self, kind: Kind, id: u32) -> io::Result<Option<String>>;

    /// The number of a user or group; `None` if none has that name.
    ///
    /// # Errors
    /// If the host does not answer: the client must try again, and the server asks the host again.
    fn id(&self, kind: Kind, name: &str) -> io::Result<Option<u32>>;
}

/// The domain of a host's users and groups, such as `example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain(Arc<str>);

/// A text that is not a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a domain has letters, digits, hyphens, underscores and dots, and no more than {MAX_DOMAIN_BYTES} of them")]
pub struct BadDomain;

impl FromStr for Domain {
    type Err = BadDomain;

    fn from_str(text: &str) -> Result<Self, BadDomain> {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_domain = (1..=MAX_DOMAIN_BYTES).contains(&text.len()) && text.chars().all(is_fit);
        if is_domain { Ok(Self(text.into())) } else { Err(BadDomain) }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text can be the name of a user or group in `name@domain`. It must not be a number, nor contain `@` or a
/// character that separates fields in databases of users or names in paths.
fn is_name(text: &str) -> bool {
    let is_fit = |c: char| !c.is_control() && !matches!(c, '@' | ':' | '/');
    let is_number = text.bytes().all(|c| c.is_ascii_digit());
    !is_number && text.len() <= MAX_PRINCIPAL_BYTES && text.chars().all(is_fit)
}

/// The host did not answer. [`Lookups`] has logged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Untold;

/// Numbers by name.
type Numbers = Lookups<(Kind, Arc<str>), Option<u32>>;

/// Users and groups by name.
pub struct OwnerNames {
    domain: Domain,
    names: Arc<Lookups<(Kind, u32), Option<Principal>>>,
    /// In its own table: a client that asks for invalid names displaces no name of a file's owner.
    numbers: Arc<Numbers>,
}

impl OwnerNames {
    /// Asks `accounts` on the threads of `work`.
    pub fn new(domain: Domain, accounts: Arc<dyn Accounts>, work: Arc<dyn Work>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (ours, by_name) = (domain.clone(), accounts.clone());
        let name = move |(kind, id): &(Kind, u32)| Ok(accounts.name(*kind, *id)?.and_then(|name| ours.told(&name)));
        let number = move |(kind, name): &(Kind, Arc<str>)| Ok(by_name.id(*kind, name)?.filter(|id| *id != u32::MAX));
        Arc::new(Self {
            domain,
            names: Lookups::new(name, work.clone(), clock.clone()),
            numbers: Lookups::new(number, work, clock),
        })
    }

    /// The domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// How many names and numbers are known, and for how many there are calls that wait.
    pub fn sizes(&self) -> (usize, usize) {
        let (names, numbers) = (self.names.sizes(), self.numbers.sizes());
        (names.0 + numbers.0, names.1 + numbers.1)
    }

    /// A user or group as this client gets it: the name, or the number if it has no name.
    pub(crate) async fn told(&self, kind: Kind, id: u32, client: ClientNetwork) -> Principal {
        let name = match self.names.find((kind, id), client) {
            Found::Known(name) => name,
            Found::Later(name) => name.await.ok().flatten(),
        };
        name.unwrap_or_else(|| Principal::of_number(id))
    }

    /// The number of a user or group that this client has named; `None` if it is not a name of this domain.
    ///
    /// # Errors
    /// If the host does not answer now: the name may exist.
    pub(crate) async fn id(&self, kind: Kind, who: &Principal, client: ClientNetwork) -> Result<Option<u32>, Untold> {
        let Some(name) = self.domain.name_of(who) else { return Ok(None) };
        match self.numbers.find((kind, name.into()), client) {
            Found::Known(id) => Ok(id),
            Found::Later(id) => id.await.map_err(|_| Untold),
        }
    }
}

impl Domain {
    /// `name@domain`; `None` if the text cannot be such a name.
    fn told(&self, name: &str) -> Option<Principal> {
        let len = name.len() + 1 + self.0.len();
        (is_name(name) && len <= MAX_PRINCIPAL_BYTES).then(|| format!("{name}@{self}").as_str().into())
    }

    /// The name in `name@domain` of this domain; `None` for anything else.
    fn name_of<'a>(&self, who: &'a Principal) -> Option<&'a str> {
        let (name, domain) = std::str::from_utf8(who.as_slice()).ok()?.split_once('@')?;
        // NFS4-8881-5.9-d
        (is_name(name) && domain.eq_ignore_ascii_case(&self.0)).then_some(name)
    }
}

impl fmt::Debug for OwnerNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnerNames").field(&self.domain).field(&self.sizes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> Domain {
        "Example.com".parse().unwrap()
    }

    /// proves: NFS4-8881-5.9-c
    #[test]
    fn names_are_of_one_domain_in_any_case() {
        let of = |text: &str| domain().name_of(&text.into()).map(str::to_owned);
        for domain in ["Example.com", "example.com", "EXAMPLE.COM"] {
            assert_eq!(of(&format!("Anna@{domain}")).as_deref(), Some("Anna"), "a name's case counts");
        }
        for other in ["anna", "anna@", "anna@example", "anna@example.com.", "anna@example.org", "anna@a.example.com"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(domain().told("anna"), Some("anna@Example.com".into()));
        assert_eq!(of("domain users@example.com").as_deref(), Some("domain users"));
    }

    /// proves: NFS4-8881-5.9-d
    #[test]
    fn what_could_be_something_else_is_no_name() {
        let longest = "n".repeat(MAX_PRINCIPAL_BYTES - "@Example.com".len());
        assert!(domain().told(&longest).is_some_and(|told| domain().name_of(&told) == Some(&longest)));
        assert_eq!(domain().told(&format!("{longest}n")), None, "no client reads it");
        for name in ["", "1000", "0", "a@b", "a/b", "../a", "/etc/passwd", "a\0", "\0", "a:b", "a\nb", "@", "a@b@"] {
            assert_eq!(domain().name_of(&format!("{name}@example.com").as_str().into()), None, "{name:?}");
            assert_eq!(domain().told(name), None, "{name:?}");
        }
        let not_text = Principal(b"\xff\xfe@example.com"[..].to_vec().into());
        assert_eq!(domain().name_of(&not_text), None);
    }

    #[test]
    fn domains_are_as_hosts_have_them() {
        let longest = "d".repeat(MAX_DOMAIN_BYTES);
        for good in ["localdomain", "test.example", "a_b-c.d", &longest] {
            assert_eq!(good.parse::<Domain>().unwrap().to_string(), good);
        }
        for bad in ["", "a b", "a@b", "a/b", "ex\u{e4}mple", "a\0", &format!("{longest}d")] {
            assert_eq!(bad.parse::<Domain>(), Err(BadDomain), "{bad:?}");
        }
    }
}
