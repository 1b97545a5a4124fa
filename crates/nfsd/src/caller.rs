//! The caller, as the file system sees it, and the addresses that may call.

use crate::Origin;
use ipnet::IpNet;
use rpcrdma_oncrpc::Credential;
use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

/// The user and group "nobody", by Linux's convention.
pub const ANONYMOUS_ID: u32 = 65_534;
/// Linux's system calls take this number as "no change": a thread that acts for such a caller would keep the server's
/// own identity.
// NFS3-ID-b
const NO_ID: u32 = u32::MAX;

/// A user with groups, and where the call came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Where the call came from. It gives no right and takes none.
    pub origin: Origin,
}

impl Caller {
    /// A user without supplementary groups, on this host itself.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Arc::default(), origin: Origin::LOCAL }
    }

    /// The superuser.
    pub fn root() -> Self {
        Self::new(0, 0)
    }

    /// The same with supplementary groups.
    #[must_use]
    pub fn with_groups(self, groups: impl Into<Arc<[u32]>>) -> Self {
        Self { groups: groups.into(), ..self }
    }

    /// The same, calling from somewhere.
    #[must_use]
    pub fn from_origin(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// Whether both have the same rights, wherever they call from.
    pub fn is_same_user(&self, other: &Self) -> bool {
        (self.uid, self.gid) == (other.uid, other.gid) && self.groups == other.groups
    }

    /// Whether the caller is in the group.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Which identities the anonymous one replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// The superuser's.
    #[default]
    Root,
    /// None.
    None,
    /// Everybody's.
    All,
}

/// How credentials become callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identities {
    /// Which identities are replaced.
    pub squash: Squash,
    /// The anonymous user.
    pub anonymous_uid: u32,
    /// The anonymous group.
    pub anonymous_gid: u32,
}

impl Default for Identities {
    /// The superuser becomes 65534.
    fn default() -> Self {
        Self { squash: Squash::Root, anonymous_uid: ANONYMOUS_ID, anonymous_gid: ANONYMOUS_ID }
    }
}

impl Identities {
    /// The caller of a credential. The anonymous user replaces a missing user, numbers that are no user or group, and
    /// principals that are no user of this machine.
    pub fn caller(&self, credential: &Credential) -> Caller {
        let (uid, gid, groups) = match credential {
            _ if self.squash == Squash::All => return self.anonymous(),
            Credential::Sys(sys) => (sys.uid, sys.gid, &sys.groups[..]),
            // OPS-SEC-b
            Credential::Gss(caller) => match &caller.user {
                Some(user) => (user.uid, user.gid, &user.groups[..]),
                None => return self.anonymous(),
            },
            _ => return self.anonymous(),
        };
        let squash_root = self.squash == Squash::Root;
        // NFS3-ID-a
        if uid == NO_ID || squash_root && uid == 0 {
            return self.anonymous();
        }
        let group = |gid: u32| match gid {
            NO_ID => self.anonymous_gid,
            0 if squash_root => self.anonymous_gid,
            other => other,
        };
        let groups = match groups.is_empty() {
            // All such callers share one empty list.
            true => Arc::default(),
            false => groups.iter().copied().map(group).collect(),
        };
        Caller { uid, gid: group(gid), groups, origin: Origin::LOCAL }
    }

    fn anonymous(&self) -> Caller {
        Caller::new(self.anonymous_uid, self.anonymous_gid)
    }
}

/// A range of addresses, written as `ADDRESS/PREFIX` or as one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr(IpNet);

/// A text that is not a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or ADDRESS/PREFIX, such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct BadCidr;

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        // IpNet's own parser is no use: it takes 010.0.0.0/8 for 10.0.0.0/8, and other programs read 010 as an octal
        // number.
        let Some((address, prefix)) = text.split_once('/') else {
            return text.parse::<IpAddr>().map(|address| Self(address.into())).map_err(|_| BadCidr);
        };
        let address: IpAddr = address.parse().map_err(|_| BadCidr)?;
        let prefix = Some(prefix).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit())).ok_or(BadCidr)?;
        let prefix = prefix.parse().map_err(|_| BadCidr)?;
        IpNet::new(address, prefix).map(Self).map_err(|_| BadCidr)
    }
}

impl Cidr {
    // NFS3-ACL-b
    /// Whether the range holds an address. An IPv4 address that came in over IPv6 counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = match (self.0, address.to_canonical()) {
            // A range of IPv6 can contain IPv4 addresses, in their IPv4-mapped form.
            (IpNet::V6(_), IpAddr::V4(address)) => address.to_ipv6_mapped().into(),
            (_, address) => address,
        };
        self.0.contains(&address)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rpcrdma_oncrpc::{
        SysCredential,
        gss::{GssCaller, GssService, GssUser},
    };

    fn sys(uid: u32, gid: u32, groups: &[u32]) -> Credential {
        Credential::Sys(Arc::new(SysCredential { uid, gid, groups: groups.to_vec(), ..SysCredential::default() }))
    }

    /// proves: NFS3-ID-a
    #[test]
    fn the_superuser_is_squashed_unless_told_otherwise() {
        let identities = Identities::default();
        let nobody = Caller::new(65_534, 65_534);
        assert_eq!(identities.caller(&sys(0, 0, &[5])), nobody);
        assert_eq!(identities.caller(&Credential::None), nobody);
        let user = identities.caller(&sys(7, 0, &[0, 9]));
        assert_eq!((user.uid, user.gid, &user.groups[..]), (7, 65_534, &[65_534, 9][..]));
        let trusting = Identities { squash: Squash::None, ..identities };
        assert_eq!(trusting.caller(&sys(0, 0, &[])), Caller::root());
        assert_eq!(trusting.caller(&Credential::None), nobody);
        let all = Identities { squash: Squash::All, ..identities };
        assert_eq!(all.caller(&sys(7, 7, &[7])), nobody);
    }

    /// A principal acts as the local user that it maps to, whatever that user's number; a principal without one has no
    /// rights.
    ///
    /// proves: NFS3-ID-a
    #[test]
    fn principals_are_squashed_as_users_are() {
        let gss = |user| Credential::Gss(Arc::new(GssCaller::new("who@REALM", user, GssService::Privacy)));
        let user = |uid, gid, groups: Vec<u32>| Some(GssUser { uid, gid, groups: groups.into() });
        let identities = Identities::default();
        let nobody = Caller::new(65_534, 65_534);
        assert_eq!(identities.caller(&gss(None)), nobody);
        assert_eq!(identities.caller(&gss(user(0, 0, vec![]))), nobody, "a machine, which is root");
        assert_eq!(identities.caller(&gss(user(u32::MAX, 5, vec![]))), nobody);
        let groups: Vec<u32> = (1..41).collect();
        let called = identities.caller(&gss(user(7, 8, groups.clone())));
        assert_eq!((called.uid, called.gid, &called.groups[..]), (7, 8, &groups[..]), "more than AUTH_SYS can name");
        let trusting = Identities { squash: Squash::None, ..identities };
        assert_eq!(trusting.caller(&gss(user(0, 0, vec![]))), Caller::root());
        assert_eq!(trusting.caller(&gss(None)), nobody);
        let all = Identities { squash: Squash::All, ..identities };
        assert_eq!(all.caller(&gss(user(7, 8, vec![9]))), nobody);
    }

    /// proves: NFS3-ID-b
    #[test]
    fn the_number_that_means_no_change_never_becomes_an_identity() {
        for squash in [Squash::Root, Squash::None] {
            let identities = Identities { squash, ..Identities::default() };
            assert_eq!(identities.caller(&sys(u32::MAX, 5, &[])).uid, 65_534);
            let caller = identities.caller(&sys(5, u32::MAX, &[u32::MAX]));
            assert_eq!((caller.gid, caller.groups[0]), (65_534, 65_534));
        }
    }

    #[test]
    fn ranges_hold_what_they_say() {
        let holds = |range: &str, address: &str| range.parse::<Cidr>().unwrap().contains(address.parse().unwrap());
        assert!(holds("192.0.2.0/24", "192.0.2.255"));
        assert!(!holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("0.0.0.0/0", "255.1.2.3"));
        assert!(holds("192.0.2.1", "192.0.2.1") && !holds("192.0.2.1", "192.0.2.0"));
        assert!(holds("192.0.2.0/24", "::ffff:192.0.2.9"), "an IPv4 client of an IPv6 socket");
        assert!(holds("2001:db8::/32", "2001:db8:ffff::1") && !holds("2001:db8::/32", "2001:db9::"));
        assert!(holds("::/0", "::1") && holds("::/0", "1.2.3.4") && !holds("::1", "::2"));
        assert!(!holds("0.0.0.0/0", "::1"));
        for bad in
            ["", "192.0.2.0/33", "::/129", "192.0.2.0/", "192.0.2.0/+8", "host/8", "192.0.2.0/8/8", "010.0.0.0/8"]
        {
            assert_eq!(bad.parse::<Cidr>(), Err(BadCidr), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_range_holds_its_own_address(address in any::<IpAddr>(), prefix in 0u8..=128) {
            let width = if address.is_ipv4() { 32 } else { 128 };
            let range: Cidr = format!("{address}/{}", prefix.min(width)).parse().unwrap();
            // An IPv6 range of mapped addresses holds only mapped addresses.
            prop_assert!(range.contains(address) || address != address.to_canonical());
        }
    }
}
