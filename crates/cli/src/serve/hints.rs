//! What is printed once every port is open.

use super::ports::{Ports, Spoken};
use crate::{args::ServeArgs, names, transports::Carrier};
use serde_json::json;
use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt,
};

/// One line that begins `ready`, then how to mount and how to list. Nobody reading is no reason to stop serving.
pub(super) fn ready(args: &ServeArgs, ports: &Ports) {
    let text = if args.json { ready_json(args, ports) } else { ready_text(args, ports) };
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn list(addresses: impl Iterator<Item = SocketAddr>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
}

fn ready_text(args: &ServeArgs, ports: &Ports) -> String {
    let directory = names::escaped(args.dir.as_os_str().as_bytes());
    let mut text = format!("ready: {directory} over NFS/RDMA on {}", list(ports.of(Spoken::Rdma)));
    text += &format!(", MOUNT on {}", list(ports.of(Spoken::Mount)));
    if ports.of(Spoken::Nfs).next().is_some() {
        text += &format!(", NFS/TCP on {}", list(ports.of(Spoken::Nfs)));
    }
    text.push('\n');
    let (Some(rdma), Some(mount)) = (ports.of(Spoken::Rdma).next(), ports.of(Spoken::Mount).next()) else {
        return text;
    };
    if args.verbosity.quiet {
        return text;
    }
    let host = host(rdma.ip());
    text += &format!(
        "mount from Linux: mount -t nfs -o vers=3,proto=rdma,port={},mountport={},mountproto=tcp,nolock {host}:/ /mnt\n",
        rdma.port(),
        mount.port()
    );
    let fabric = match args.fabric {
        Carrier::Iwarp => "",
        Carrier::Verbs => "fabric=verbs&",
    };
    text +=
        &format!("list with this:   rpcrdma ls 'nfs://{host}:{}/?{fabric}mountport={}'\n", rdma.port(), mount.port());
    text
}

fn ready_json(args: &ServeArgs, ports: &Ports) -> String {
    let all = |spoken| ports.of(spoken).map(|address| address.to_string()).collect::<Vec<_>>();
    let mut ready = serde_json::Map::new();
    names::insert_json(&mut ready, "directory", args.dir.as_os_str().as_bytes());
    ready.insert("rdma".into(), all(Spoken::Rdma).into());
    ready.insert("mountd".into(), all(Spoken::Mount).into());
    ready.insert("tcp".into(), all(Spoken::Nfs).into());
    format!("{}\n", json!({ "ready": ready }))
}

/// How a client writes the address.
fn host(address: IpAddr) -> String {
    match address {
        address if address.is_unspecified() => "SERVER".into(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
