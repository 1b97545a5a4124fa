//! Which program, in which versions, is where: for rpcbind of this machine, and for a portmapper of our own.

use super::{
    nfs_versions::NfsVersions,
    ports::{Port, Ports, Spoken},
};
use rpcrdma_nfs::{mount, v3, v4};
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

/// All that is spoken at these ports.
pub(super) fn entries(ports: &Ports, nfs: NfsVersions) -> Vec<Entry> {
    ports.0.iter().flat_map(|port| at(port, nfs)).collect()
}

/// What is spoken at a port.
fn at(port: &Port, nfs: NfsVersions) -> Vec<Entry> {
    let address = port.address;
    let netid = match (port.spoken, &port.datagrams) {
        (Spoken::Rdma, _) => Netid::rdma(&address),
        (_, Some(_)) => Netid::udp(&address),
        (_, None) => Netid::tcp(&address),
    };
    let of_nfs = [(nfs.has_3(), v3::VERSION), (nfs.has_4(), v4::VERSION)];
    let (program, versions) = match port.spoken {
        Spoken::Rdma | Spoken::Nfs => {
            let served = of_nfs.into_iter().filter(|(is_served, _)| *is_served);
            (v3::PROGRAM, served.map(|(_, version)| version).collect())
        }
        Spoken::Mount => (mount::PROGRAM, vec![mount::VERSION_3, mount::VERSION_1]),
        Spoken::Portmapper => (RPCBIND_PROGRAM, portmap::VERSIONS.to_vec()),
        Spoken::Lockd => (NLM_PROGRAM, NLM_VERSIONS.to_vec()),
        Spoken::Statd => (NSM_PROGRAM, vec![NSM_VERSION]),
    };
    versions.into_iter().map(|version| Entry { program, version, netid, address }).collect()
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
}
