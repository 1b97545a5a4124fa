//! Where to listen: what the command line names, and the defaults for what it does not.
//!
//! A default is taken where it can be had: another server may have the port, such as the kernel's. What was named has
//! to be had. NFS over TCP has a default only if no listener of NFS is named: who names one says where NFS is to be
//! reached.

use super::{given::has_locks, kerberos};
use crate::args::ServeArgs;
use std::net::{Ipv4Addr, SocketAddr};

/// The port of NFS over RDMA: ULB-5.3-a.
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
    /// Nobody has named them.
    pub(super) are_default: bool,
}

impl Addresses {
    fn named(all: &[SocketAddr]) -> Self {
        Self { all: all.to_vec(), are_default: false }
    }

    /// What is named, else this port for programs of this machine.
    fn or_loopback(named: &[SocketAddr], port: u16) -> Self {
        match named {
            [] => Self { all: vec![(Ipv4Addr::LOCALHOST, port).into()], are_default: true },
            named => Self::named(named),
        }
    }
}

impl Addresses {
    /// This port, wherever others are; for programs of this machine if none are named.
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
    pub(super) fn of(args: &ServeArgs) -> Self {
        let names_nfs = !args.listen.is_empty() || !args.tcp.is_empty();
        let of_locks = |named: &[SocketAddr]| match has_locks(args) {
            true => Addresses::or_loopback(named, ANY_PORT),
            false => Addresses::named(&[]),
        };
        Self {
            rdma: Addresses::or_loopback(&args.listen, RDMA_PORT),
            mount: match args.nfs.has_mount() {
                true => Addresses::or_loopback(&args.mountd, MOUNT_PORT),
                false => Addresses::named(&[]),
            },
            nfs: match args.nfs.has_4() && !names_nfs {
                // V1-8.2.2.1-a, V2-11.2.2.1-a
                _ if args.tcp.is_empty() && !kerberos::wanted(args).is_empty() => {
                    Addresses::beside(&args.listen, NFS_PORT)
                }
                true => Addresses::or_loopback(&[], NFS_PORT),
                false => Addresses::named(&args.tcp),
            },
            lockd: of_locks(&args.lockd),
            statd: of_locks(&args.statd),
        }
    }

    /// Whether nobody on another machine can reach any of them.
    pub(super) fn only_loopback(&self) -> bool {
        let Self { rdma, mount, nfs, lockd, statd } = self;
        let mut all = [rdma, mount, nfs, lockd, statd].into_iter().flat_map(|addresses| &addresses.all);
        all.all(|address| address.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::given::tests::args, *};

    fn shown<const N: usize>(addresses: [Addresses; N]) -> [String; N] {
        addresses.map(|Addresses { all, are_default }| {
            let all: Vec<_> = all.iter().map(SocketAddr::to_string).collect();
            format!("{}{}", all.join(" "), if are_default { " by default" } else { "" })
        })
    }

    fn told(more: &[&str]) -> [String; 3] {
        let Listeners { rdma, mount, nfs, .. } = Listeners::of(&args(more));
        shown([rdma, mount, nfs])
    }

    #[test]
    fn locks_are_served_with_version_3_unless_they_are_switched_off() {
        let told = |more: &[&str]| {
            let Listeners { lockd, statd, .. } = Listeners::of(&args(more));
            shown([lockd, statd])
        };
        let usual = "127.0.0.1:0 by default";
        assert_eq!(told(&[]), [usual; 2]);
        assert_eq!(told(&["--nfs", "3", "--statd", "192.0.2.1:662"]), [usual, "192.0.2.1:662"]);
        assert_eq!(told(&["--nfs", "4.2"]), [""; 2]);
        assert_eq!(told(&["--locks", "off"]), [""; 2]);
    }

    /// proves: ULB-5.3-a, ULB-5.3-b
    #[test]
    fn the_ports_of_version_4_are_the_default() {
        let (rdma, mount) = ("127.0.0.1:20049 by default", "127.0.0.1:20048 by default");
        assert_eq!(told(&[]), [rdma, mount, "127.0.0.1:2049 by default"]);
        assert_eq!(told(&["--nfs", "4.2"]), [rdma, "", "127.0.0.1:2049 by default"]);
        assert_eq!(told(&["--nfs", "3"]), [rdma, mount, ""], "version 3 over TCP is asked for");
    }

    /// proves: V1-8.2.2.1-a, V2-11.2.2.1-a
    #[test]
    fn with_kerberos_nfs_is_at_its_usual_port_of_tcp_wherever_it_is_over_rdma() {
        let nfs = |more: &[&str]| told(more)[2].clone();
        assert_eq!(nfs(&["--sec", "krb5"]), "127.0.0.1:2049 by default");
        assert_eq!(nfs(&["--sec", "krb5", "--nfs", "3"]), "127.0.0.1:2049 by default");
        let listen = ["--listen", "192.0.2.1:1", "--listen", "192.0.2.1:2", "--listen", "[::1]:1"];
        assert_eq!(nfs(&listen), "");
        let secured = [&listen[..], &["--export", "/srv,sec=krb5p"]].concat();
        assert_eq!(nfs(&secured), "192.0.2.1:2049 [::1]:2049 by default");
        assert_eq!(nfs(&[&secured[..], &["--tcp", "192.0.2.9:7"]].concat()), "192.0.2.9:7", "as it is named");
    }

    #[test]
    fn what_is_named_takes_the_place_of_the_default() {
        let mount = "127.0.0.1:20048 by default";
        assert_eq!(told(&["--listen", "[::1]:0"]), ["[::1]:0", mount, ""]);
        assert_eq!(told(&["--tcp", "[::]:2049"]), ["127.0.0.1:20049 by default", mount, "[::]:2049"]);
        let both = ["--listen", "192.0.2.1:1", "--listen", "192.0.2.2:1", "--mountd", "192.0.2.1:2"];
        assert_eq!(told(&both), ["192.0.2.1:1 192.0.2.2:1", "192.0.2.1:2", ""]);
    }
}
