//! The addresses on which the server listens: those that the options name, and defaults for the rest.
//!
//! If the port of a default is taken, for example by the kernel's server, the server goes on without it. If the port of
//! an address that the options name is taken, the server does not start. NFS over TCP has a default only if the options
//! name no listener of NFS at all.

use super::{Options, kerberos};
use std::net::{Ipv4Addr, SocketAddr};

/// The port of NFS over RDMA: ULB-5.3-a.
// V2-9-a, V1-5-b, ULB-9-a, ULB-3.3-b
const RDMA_PORT: u16 = 20_049;
/// The port of NFS over TCP: ULB-5.3-b.
pub(super) const NFS_PORT: u16 = 2_049;
/// The port that mountd mostly has.
const MOUNT_PORT: u16 = 20_048;
/// The port of NLM and NSM: any. Clients ask a portmapper for them.
const ANY_PORT: u16 = 0;

/// The addresses of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) all: Vec<SocketAddr>,
    /// These are the defaults: the options name none.
    pub(super) are_default: bool,
}

impl Addresses {
    fn named(all: &[SocketAddr]) -> Self {
        Self { all: all.to_vec(), are_default: false }
    }

    /// The named addresses; if there are none, this port on loopback, for programs of this machine.
    fn or_loopback(named: &[SocketAddr], port: u16) -> Self {
        match named {
            [] => Self { all: vec![(Ipv4Addr::LOCALHOST, port).into()], are_default: true },
            named => Self::named(named),
        }
    }
}

impl Addresses {
    /// This port, on the addresses of the other listeners; on loopback if there are none.
    fn beside(others: &[SocketAddr], port: u16) -> Self {
        let mut all: Vec<SocketAddr> = Vec::new();
        for address in others.iter().map(|other| SocketAddr::new(other.ip(), port)) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        Self { are_default: true, ..Self::or_loopback(&all, port) }
    }
}

/// The addresses of all services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listeners {
    pub(super) rdma: Addresses,
    /// None without version 3: version 4 needs no MOUNT.
    pub(super) mount: Addresses,
    pub(super) nfs: Addresses,
    /// None without version 3, or without its locks.
    pub(super) lockd: Addresses,
    /// The same.
    pub(super) statd: Addresses,
}

impl Listeners {
    pub(super) fn of(options: &Options) -> Self {
        let names_nfs = !options.listen.is_empty() || !options.tcp.is_empty();
        let of_locks = |named: &[SocketAddr]| match options.has_locks() {
            true => Addresses::or_loopback(named, ANY_PORT),
            false => Addresses::named(&[]),
        };
        Self {
            rdma: Addresses::or_loopback(&options.listen, RDMA_PORT),
            mount: match options.nfs.has_mount() {
                true => Addresses::or_loopback(&options.mountd, MOUNT_PORT),
                false => Addresses::named(&[]),
            },
            nfs: match options.nfs.has_4() && !names_nfs {
                // V1-8.2.2.1-a, V2-11.2.2.1-a
                _ if options.tcp.is_empty() && !kerberos::wanted(options).is_empty() => {
                    Addresses::beside(&options.listen, NFS_PORT)
                }
                true => Addresses::or_loopback(&[], NFS_PORT),
                false => Addresses::named(&options.tcp),
            },
            lockd: of_locks(&options.lockd),
            statd: of_locks(&options.statd),
        }
    }

    /// Whether all of them are loopback addresses, which no other machine reaches.
    pub(super) fn only_loopback(&self) -> bool {
        let Self { rdma, mount, nfs, lockd, statd } = self;
        let mut all = [rdma, mount, nfs, lockd, statd].into_iter().flat_map(|addresses| &addresses.all);
        all.all(|address| address.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Export, NfsVersions};
    use rpcrdma_nfsd::Security;

    fn shown<const N: usize>(addresses: [Addresses; N]) -> [String; N] {
        addresses.map(|Addresses { all, are_default }| {
            let all: Vec<_> = all.iter().map(SocketAddr::to_string).collect();
            format!("{}{}", all.join(" "), if are_default { " by default" } else { "" })
        })
    }

    fn listeners(change: impl FnOnce(&mut Options)) -> Listeners {
        let mut options = Options { exports: vec![Export::directory("/", "/nowhere")], ..Options::default() };
        change(&mut options);
        Listeners::of(&options)
    }

    fn told(change: impl FnOnce(&mut Options)) -> [String; 3] {
        let Listeners { rdma, mount, nfs, .. } = listeners(change);
        shown([rdma, mount, nfs])
    }

    fn at<const N: usize>(addresses: [&str; N]) -> Vec<SocketAddr> {
        addresses.map(|address| address.parse().unwrap()).into()
    }

    fn versions(text: &str) -> NfsVersions {
        text.parse().unwrap()
    }

    #[test]
    fn locks_are_served_with_version_3_unless_they_are_switched_off() {
        let told = |change: fn(&mut Options)| {
            let Listeners { lockd, statd, .. } = listeners(change);
            shown([lockd, statd])
        };
        let usual = "127.0.0.1:0 by default";
        assert_eq!(told(|_| {}), [usual; 2]);
        let of_version_3 = told(|options| {
            (options.nfs, options.statd) = (versions("3"), at(["192.0.2.1:662"]));
        });
        assert_eq!(of_version_3, [usual, "192.0.2.1:662"]);
        assert_eq!(told(|options| options.nfs = versions("4.2")), [""; 2]);
        assert_eq!(told(|options| options.locks = false), [""; 2]);
    }

    /// proves: ULB-5.3-a, ULB-5.3-b
    #[test]
    fn the_ports_of_version_4_are_the_default() {
        let (rdma, mount) = ("127.0.0.1:20049 by default", "127.0.0.1:20048 by default");
        assert_eq!(told(|_| {}), [rdma, mount, "127.0.0.1:2049 by default"]);
        assert_eq!(told(|options| options.nfs = versions("4.2")), [rdma, "", "127.0.0.1:2049 by default"]);
        let of_version_3 = told(|options| options.nfs = versions("3"));
        assert_eq!(of_version_3, [rdma, mount, ""], "version 3 over TCP is asked for");
    }

    /// proves: V1-8.2.2.1-a, V2-11.2.2.1-a
    #[test]
    fn with_kerberos_nfs_is_at_its_usual_port_of_tcp_wherever_it_is_over_rdma() {
        let nfs = |change: &dyn Fn(&mut Options)| told(change)[2].clone();
        let krb5 = |options: &mut Options| options.sec = vec![Security::Krb5];
        assert_eq!(nfs(&krb5), "127.0.0.1:2049 by default");
        let of_version_3 = |options: &mut Options| {
            krb5(options);
            options.nfs = versions("3");
        };
        assert_eq!(nfs(&of_version_3), "127.0.0.1:2049 by default");
        let listen =
            |options: &mut Options| options.listen = at(["192.0.2.1:1", "192.0.2.2:1", "192.0.2.1:2", "[::1]:1"]);
        assert_eq!(nfs(&listen), "");
        let secured = |options: &mut Options| {
            listen(options);
            options.exports.push(Export::directory("/srv", "/srv").security([Security::Krb5p]));
        };
        assert_eq!(nfs(&secured), "192.0.2.1:2049 192.0.2.2:2049 [::1]:2049 by default");
        let named = |options: &mut Options| {
            secured(options);
            options.tcp = at(["192.0.2.9:7"]);
        };
        assert_eq!(nfs(&named), "192.0.2.9:7", "as it is named");
    }

    #[test]
    fn what_is_named_takes_the_place_of_the_default() {
        let mount = "127.0.0.1:20048 by default";
        assert_eq!(told(|options| options.listen = at(["[::1]:0"])), ["[::1]:0", mount, ""]);
        let over_tcp = told(|options| options.tcp = at(["[::]:2049"]));
        assert_eq!(over_tcp, ["127.0.0.1:20049 by default", mount, "[::]:2049"]);
        let both = told(|options| {
            options.listen = at(["192.0.2.1:1", "192.0.2.2:1"]);
            options.mountd = at(["192.0.2.1:2"]);
        });
        assert_eq!(both, ["192.0.2.1:1 192.0.2.2:1", "192.0.2.1:2", ""]);
    }
}
