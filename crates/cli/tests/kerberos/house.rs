//! A server for the client commands: its address, its users, and its URLs.

use crate::{common::Server, start};
use rpcrdma_gss::realm::Realm;
use std::{fs, os::unix::fs::chown, path::PathBuf};

/// The local users to which alice and bob are mapped. Every machine has them.
pub(crate) const LOCAL: [(&str, &str); 2] = [("alice", "daemon"), ("bob", "games")];

/// Transports and versions of NFS.
pub(crate) const WAYS: [&str; 8] = [
    "transport=tcp&version=3",
    "transport=tcp&version=4.0",
    "transport=tcp&version=4.1",
    "transport=tcp&version=4.2",
    "rpcrdma=1&version=3",
    "rpcrdma=2&version=3",
    "rpcrdma=1&version=4.1",
    "rpcrdma=2&version=4.2",
];

pub(crate) const SECURED: [&str; 3] = ["krb5", "krb5i", "krb5p"];

/// Maps the realm's principals to users of this machine in the realm's settings, and gets alice a ticket.
pub(crate) fn with_users(realm: &Realm) {
    let settings = realm.folder().join("krb5.conf");
    let text = fs::read_to_string(&settings).unwrap();
    let names: String = LOCAL.iter().map(|(principal, user)| format!("   {principal} = {user}\n")).collect();
    let (before, after) = text.split_once("  kdc =").unwrap();
    fs::write(&settings, format!("{before}  auth_to_local_names = {{\n{names}  }}\n  kdc ={after}")).unwrap();
    realm.kinit("alice", "10m").unwrap();
}

/// The number of a user of this machine.
pub(crate) fn uid(user: &str) -> u32 {
    let known = fs::read_to_string("/etc/passwd").unwrap();
    let line = known.lines().find(|line| line.starts_with(&format!("{user}:"))).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

/// A server, and the directory that it serves.
pub(crate) struct House {
    pub(crate) server: Server,
    pub(crate) served: PathBuf,
}

impl House {
    /// Serves a directory that alice owns.
    pub(crate) fn new(realm: &Realm, host: &str, sec: &str, more: &[&str]) -> Self {
        let server = start(realm, host, sec, more);
        let served = realm.folder().join("served");
        let (alice, group) = (uid("daemon"), 1);
        chown(&served, Some(alice), Some(group)).unwrap();
        Self { server, served }
    }

    /// A URL; `way` names transport and version.
    pub(crate) fn url(&self, way: &str, sec: &str, path: &str) -> String {
        let to = if way.contains("tcp") { self.server.tcp.clone().unwrap() } else { self.server.rdma.clone() };
        let (_, port) = self.server.mount.rsplit_once(':').unwrap();
        let mount = if way.contains("version=3") { format!("&mountport={port}") } else { String::new() };
        format!("nfs://{to}/{path}?{way}{mount}&sec={sec}&principal=nfs/localhost")
    }
}
