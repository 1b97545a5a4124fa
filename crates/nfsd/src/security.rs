//! Which flavours of credentials an export takes (RFC 8881 section 2.6, RFC 2623 section 2.3).
//!
//! If the export does not take a call's flavour, the server answers so that the client can find a flavour to use: with
//! `NFS4ERR_WRONGSEC` and SECINFO, or with AUTH_TOOWEAK and the list of MOUNT. An export that takes AUTH_SYS also takes
//! AUTH_NONE; callers with AUTH_NONE are anonymous.

use rpcrdma_nfs::v4::{
    Opaque,
    ops::{self, GssFlavour},
};
use rpcrdma_oncrpc::{AUTH_NONE, AUTH_SYS, Credential, gss};
use std::{fmt, str::FromStr};

/// Kerberos' object id, 1.2.840.113554.1.2.2, in DER without tag and length.
const KERBEROS: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

/// How the server knows its callers, and how calls and replies are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Security {
    /// The client says who calls.
    Sys,
    /// Kerberos proves who calls.
    Krb5,
    /// The same, and no other party can change calls and replies.
    Krb5i,
    /// The same, and no other party can read them.
    Krb5p,
}

impl Security {
    /// All, the weakest first.
    pub const ALL: [Self; 4] = [Self::Sys, Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// The name that administrators use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }

    /// Whether the flavour uses Kerberos.
    pub fn is_kerberos(self) -> bool {
        self != Self::Sys
    }

    /// Its number in MOUNT: for Kerberos a pseudoflavour (RFC 2623 section 4.4).
    // NFS3-2623-2.7-a
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Sys => AUTH_SYS,
            Self::Krb5 => 390_003,
            Self::Krb5i => 390_004,
            Self::Krb5p => 390_005,
        }
    }

    /// The flavour of a number in MOUNT. AUTH_NONE is listed if AUTH_SYS is taken, too.
    pub fn of_number(number: u32) -> Option<Self> {
        let number = if number == AUTH_NONE { AUTH_SYS } else { number };
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// The flavour of an entry of SECINFO, whatever the quality of protection.
    pub fn of_flavour(flavour: &ops::Flavour) -> Option<Self> {
        match flavour {
            ops::Flavour::None | ops::Flavour::Sys => Some(Self::Sys),
            ops::Flavour::Gss(info) if info.oid.as_slice() == KERBEROS => Some(match info.service {
                ops::GssService::None => Self::Krb5,
                ops::GssService::Integrity => Self::Krb5i,
                ops::GssService::Privacy => Self::Krb5p,
            }),
            _ => None,
        }
    }

    /// Its entry in SECINFO.
    fn told(self) -> ops::Flavour {
        let gss = |service| {
            let oid = Opaque(bytes::Bytes::from_static(&KERBEROS));
            ops::Flavour::Gss(GssFlavour { oid, quality: 0, service })
        };
        match self {
            Self::Sys => ops::Flavour::Sys,
            Self::Krb5 => gss(ops::GssService::None),
            Self::Krb5i => gss(ops::GssService::Integrity),
            Self::Krb5p => gss(ops::GssService::Privacy),
        }
    }

    /// The security of a call.
    fn of(credential: &Credential) -> Self {
        match credential {
            Credential::Gss(caller) => match caller.service {
                gss::GssService::Authentication => Self::Krb5,
                gss::GssService::Integrity => Self::Krb5i,
                gss::GssService::Privacy => Self::Krb5p,
            },
            _ => Self::Sys,
        }
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is not a flavour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flavours are sys, krb5, krb5i and krb5p")]
pub struct BadSecurity;

impl FromStr for Security {
    type Err = BadSecurity;

    fn from_str(text: &str) -> Result<Self, BadSecurity> {
        Self::ALL.into_iter().find(|one| one.name() == text).ok_or(BadSecurity)
    }
}

/// The flavours that an export takes, each once, best first: clients see them in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Securities(Vec<Security>);

impl Default for Securities {
    /// AUTH_SYS alone.
    fn default() -> Self {
        Self(vec![Security::Sys])
    }
}

impl Securities {
    /// These, in this order.
    pub fn new(all: impl IntoIterator<Item = Security>) -> Self {
        let mut each = Vec::new();
        for one in all {
            if !each.contains(&one) {
                each.push(one);
            }
        }
        Self(each)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Security> + '_ {
        self.0.iter().copied()
    }

    /// Whether these are exactly the flavours without Kerberos.
    pub(crate) fn is_usual(&self) -> bool {
        self.0 == [Security::Sys]
    }

    /// Whether the list has the flavour of this credential.
    pub(crate) fn take(&self, credential: &Credential) -> bool {
        self.0.contains(&Security::of(credential))
    }

    /// As MOUNT lists them.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.iter().map(Security::number).collect()
    }

    /// As SECINFO lists them.
    pub(crate) fn told(&self) -> Vec<ops::Flavour> {
        // AUTH_NONE last: all its callers are anonymous.
        let none = self.0.contains(&Security::Sys).then_some(ops::Flavour::None);
        self.iter().map(Security::told).chain(none).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_oncrpc::{SysCredential, gss::GssCaller};
    use std::sync::Arc;

    #[test]
    fn calls_are_taken_by_flavour_and_service() {
        let gss = |service| Credential::Gss(Arc::new(GssCaller::new("who@REALM", None, service)));
        let calls = [
            (Credential::None, Security::Sys),
            (Credential::Sys(Arc::new(SysCredential::default())), Security::Sys),
            (gss(gss::GssService::Authentication), Security::Krb5),
            (gss(gss::GssService::Integrity), Security::Krb5i),
            (gss(gss::GssService::Privacy), Security::Krb5p),
        ];
        for (credential, own) in calls {
            for one in Security::ALL {
                assert_eq!(Securities::new([one]).take(&credential), one == own, "{credential:?} {one}");
            }
        }
    }

    #[test]
    fn each_is_told_once_in_the_administrators_order() {
        let all = Securities::new(["krb5p", "krb5", "sys", "krb5p"].map(|word| word.parse().unwrap()));
        assert_eq!(all.numbers(), [390_005, 390_003, 1]);
        assert_eq!(all.told().len(), 4);
        assert_eq!(all.told()[2..], [ops::Flavour::Sys, ops::Flavour::None]);
        for one in Security::ALL {
            assert_eq!(Security::of_number(one.number()), Some(one));
            assert_eq!(Security::of_flavour(&one.told()), Some(one));
        }
        let numbers = [0, 6, 390_002, 390_006].map(Security::of_number);
        assert_eq!(numbers, [Some(Security::Sys), None, None, None]);
        assert!(!all.is_usual() && Securities::default().is_usual());
        assert_eq!("krb6".parse::<Security>(), Err(BadSecurity));
    }
}
