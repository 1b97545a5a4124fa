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
    if args.nfs.has_3() {
        text += &format!(", MOUNT on {}", list(ports.of(Spoken::Mount)));
    }
    if ports.of(Spoken::Nfs).next().is_some() {
        text += &format!(", NFS/TCP on {}", list(ports.of(Spoken::Nfs)));
    }
    text.push('\n');
    if args.verbosity.quiet {
        return text;
    }
    if let Some(command) = mount_command(args, ports) {
        text += &format!("mount from Linux: {command}\n");
    }
    // The commands of this program speak version 3.
    let (Some(rdma), Some(mount)) = (ports.of(Spoken::Rdma).next(), ports.of(Spoken::Mount).next()) else {
        return text;
    };
    let host = host(rdma.ip());
    let fabric = match args.fabric {
        Carrier::Iwarp => "",
        Carrier::Verbs => "fabric=verbs&",
    };
    text +=
        &format!("list with this:   rpcrdma ls 'nfs://{host}:{}/?{fabric}mountport={}'\n", rdma.port(), mount.port());
    text
}

/// The shortest command with which Linux mounts: a client that is told no version begins with the latest that it has, and
/// needs to know no other port for version 4.
fn mount_command(args: &ServeArgs, ports: &Ports) -> Option<String> {
    let rdma = ports.of(Spoken::Rdma).next()?;
    let (host, port) = (host(rdma.ip()), rdma.port());
    if args.nfs.has_4() {
        return Some(format!("mount -t nfs -o proto=rdma,port={port} {host}:/ /mnt"));
    }
    let mount = ports.of(Spoken::Mount).next()?.port();
    Some(format!("mount -t nfs -o vers=3,proto=rdma,port={port},mountport={mount},mountproto=tcp,nolock {host}:/ /mnt"))
}

fn ready_json(args: &ServeArgs, ports: &Ports) -> String {
    let all = |spoken| ports.of(spoken).map(|address| address.to_string()).collect::<Vec<_>>();
    let mut ready = serde_json::Map::new();
    names::insert_json(&mut ready, "directory", args.dir.as_os_str().as_bytes());
    ready.insert("rdma".into(), all(Spoken::Rdma).into());
    ready.insert("mountd".into(), all(Spoken::Mount).into());
    ready.insert("tcp".into(), all(Spoken::Nfs).into());
    ready.insert("nfs".into(), args.nfs.names().collect::<Vec<_>>().into());
    ready.insert("mount".into(), mount_command(args, ports).into());
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
