//! Which program, in which versions, is where: for rpcbind of this machine, and for a portmapper of our own.

use super::{
    nfs_versions::NfsVersions,
    ports::{Port, Ports, Spoken},
};
use rpcrdma_nfs::{mount, nfsacl, v2, v3, v4};
use rpcrdma_oncrpc::{
    Netid,
    portmap::{self, Entry},
    rpcbind::RPCBIND_PROGRAM,
};

/// NLM's program, and the versions that are for NFS version 3: with offsets of 32 bits, with share reservations, of 64
/// bits.
const NLM_PROGRAM: u32 = 100_021;
const NLM_VERSIONS: [u32; 3] = [1, 3, 4];
/// NSM's program and its version.
const NSM_PROGRAM: u32 = 100_024;
const NSM_VERSION: u32 = 1;

/// All programs that are served at these ports.
pub(super) fn entries(ports: &Ports, nfs: NfsVersions) -> Vec<Entry> {
    ports.0.iter().flat_map(|port| at(port, nfs)).collect()
}

/// The programs that are served at a port.
// ULB-4.1-a
fn at(port: &Port, nfs: NfsVersions) -> Vec<Entry> {
    let address = port.address;
    let netid = match (port.spoken, &port.datagrams) {
        (Spoken::Rdma, _) => Netid::rdma(&address),
        (_, Some(_)) => Netid::udp(&address),
        (_, None) => Netid::tcp(&address),
    };
    let all = |program, versions: &[u32]| versions.iter().map(|version| (program, *version)).collect();
    let served: Vec<(u32, u32)> = match port.spoken {
        Spoken::Rdma | Spoken::Nfs => {
            // Access control lists of version 3 are at the same port (ULB-4.2-a).
            let of_3 = [(v3::PROGRAM, v3::VERSION), (nfsacl::PROGRAM, nfsacl::VERSION_3)];
            let of_3 = of_3.into_iter().filter(|_| nfs.has_3());
            let of_2 = nfs.has_2().then_some((v2::PROGRAM, v2::VERSION));
            of_2.into_iter().chain(of_3).chain(nfs.has_4().then_some((v4::PROGRAM, v4::VERSION))).collect()
        }
        Spoken::Mount if nfs.has_2() => all(mount::PROGRAM, &[mount::VERSION_3, mount::VERSION_1, mount::VERSION_2]),
        Spoken::Mount => all(mount::PROGRAM, &[mount::VERSION_3, mount::VERSION_1]),
        Spoken::Portmapper => all(RPCBIND_PROGRAM, &portmap::VERSIONS),
        Spoken::Lockd => all(NLM_PROGRAM, &NLM_VERSIONS),
        Spoken::Statd => all(NSM_PROGRAM, &[NSM_VERSION]),
    };
    served.into_iter().map(|(program, version)| Entry { program, version, netid, address }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn everything_that_is_spoken_has_its_entries() {
        let port = |spoken, address: &str, datagrams: bool| Port {
            spoken,
            address: address.parse().unwrap(),
            listener: None,
            datagrams: datagrams.then(|| UdpSocket::bind("127.0.0.1:0").unwrap()),
        };
        let ports = Ports(vec![
            port(Spoken::Rdma, "[::1]:20049", false),
            port(Spoken::Portmapper, "127.0.0.1:111", false),
            port(Spoken::Portmapper, "127.0.0.1:111", true),
            port(Spoken::Lockd, "192.0.2.1:4045", false),
            port(Spoken::Statd, "192.0.2.1:662", false),
            port(Spoken::Statd, "[::]:662", true),
        ]);
        let told: Vec<_> = entries(&ports, "4.2".parse().unwrap()).iter().map(ToString::to_string).collect();
        let expected = [
            "program 100003 version 4 over rdma6",
            "program 100000 version 2 over tcp",
            "program 100000 version 3 over tcp",
            "program 100000 version 4 over tcp",
            "program 100000 version 2 over udp",
            "program 100000 version 3 over udp",
            "program 100000 version 4 over udp",
            "program 100021 version 1 over tcp",
            "program 100021 version 3 over tcp",
            "program 100021 version 4 over tcp",
            "program 100024 version 1 over tcp",
            "program 100024 version 1 over udp6",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn lists_of_version_3_are_at_its_ports() {
        let address = "127.0.0.1:2049".parse().unwrap();
        let ports = Ports(vec![Port { spoken: Spoken::Nfs, address, listener: None, datagrams: None }]);
        let told =
            |nfs: &str| -> Vec<_> { entries(&ports, nfs.parse().unwrap()).iter().map(ToString::to_string).collect() };
        assert_eq!(told("3"), ["program 100003 version 3 over tcp", "program 100227 version 3 over tcp"]);
        assert_eq!(told("4.2"), ["program 100003 version 4 over tcp"]);
        assert_eq!(told("4.2,2"), ["program 100003 version 2 over tcp", "program 100003 version 4 over tcp"]);
    }
}
