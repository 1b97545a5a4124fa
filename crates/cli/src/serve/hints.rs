//! What is printed once every port is open.

use super::{
    exports::ExportOption,
    kerberos,
    ports::{Ports, Spoken},
};
use crate::{args::ServeArgs, names, transports::Carrier};
use rpcrdma_nfsd::Security;
use serde_json::json;
use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt,
};

/// Where Linux looks for NFS version 4 over TCP if it is told no port.
const USUAL_PORT: u16 = 2_049;

/// One line that begins `ready`, then how to mount and how to list. Nobody reading is no reason to stop serving.
pub(super) fn ready(args: &ServeArgs, exports: &[ExportOption], ports: &Ports) {
    let text = if args.json { ready_json(args, exports, ports) } else { ready_text(args, exports, ports) };
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn ready_text(args: &ServeArgs, exports: &[ExportOption], ports: &Ports) -> String {
    let directories: Vec<_> = exports.iter().map(shown).collect();
    let all = [
        (Spoken::Rdma, "NFS/RDMA"),
        (Spoken::Mount, "MOUNT"),
        (Spoken::Nfs, "NFS/TCP"),
        (Spoken::Lockd, "NLM"),
        (Spoken::Statd, "NSM"),
        (Spoken::Portmapper, "portmapper"),
    ];
    let on: Vec<_> = all
        .into_iter()
        .filter_map(|(spoken, name)| {
            let addresses: Vec<_> = ports.of(spoken).map(|address| address.to_string()).collect();
            (!addresses.is_empty()).then(|| format!("{name} on {}", addresses.join(", ")))
        })
        .collect();
    let mut text = format!("ready: {} over {}\n", directories.join(", "), on.join(", "));
    if args.verbosity.quiet {
        return text;
    }
    if let Some(command) = mount_command(args, exports, ports) {
        text += &format!("mount from Linux: {command}\n");
    }
    if let Some(url) = url(args, exports, ports) {
        text += &format!("list with this:   rpcrdma ls '{url}'\n");
    }
    text
}

/// A directory, and where clients see it if that is not the root.
fn shown(export: &ExportOption) -> String {
    let directory = names::escaped(export.directory.as_os_str().as_bytes());
    let seen = if export.path == b"/" { String::new() } else { format!(" as {}", names::escaped(&export.path)) };
    format!("{directory}{seen}{}", if export.read_only { " (read-only)" } else { "" })
}

/// The port that a client is told to use, and whether it speaks RDMA.
fn best(ports: &Ports) -> Option<(SocketAddr, bool)> {
    let rdma = ports.of(Spoken::Rdma).next().map(|address| (address, true));
    rdma.or_else(|| ports.of(Spoken::Nfs).next().map(|address| (address, false)))
}

/// The shortest command with which Linux mounts: a client that is told no version begins with the latest that it has,
/// and needs to know no other port for version 4. Above the exports of version 4 is a tree that leads to all of them.
fn mount_command(args: &ServeArgs, exports: &[ExportOption], ports: &Ports) -> Option<String> {
    let (address, is_rdma) = best(ports)?;
    let (host, port) = (host(address.ip()), address.port());
    let secured = exports.first().and_then(|export| needed(args, export)).map(|one| format!("sec={one}"));
    if args.nfs.has_4() {
        let carried = match (is_rdma, port) {
            (true, port) => vec![format!("proto=rdma,port={port}")],
            (false, USUAL_PORT) => vec![],
            (false, port) => vec![format!("port={port}")],
        };
        let options: Vec<_> = secured.into_iter().chain(carried).collect();
        let options = if options.is_empty() { String::new() } else { format!("-o {} ", options.join(",")) };
        return Some(format!("mount -t nfs {options}{host}:/ /mnt"));
    }
    // Linux's mount program of today refuses version 2.
    if !args.nfs.has_3() {
        return None;
    }
    let mount = ports.of(Spoken::Mount).next()?.port();
    let (proto, path) = (if is_rdma { "rdma" } else { "tcp" }, names::escaped(&exports.first()?.path));
    // Clients find NLM and NSM by a portmapper alone.
    let is_found = args.rpcbind.is_some() && ports.of(Spoken::Lockd).any(|address| !address.ip().is_loopback());
    let nolock = if is_found { "" } else { ",nolock" };
    let secured = secured.map_or_else(String::new, |secured| format!("{secured},"));
    let options = format!("{secured}vers=3,proto={proto},port={port},mountport={mount},mountproto=tcp{nolock}");
    Some(format!("mount -t nfs -o {options} {host}:{path} /mnt"))
}

/// What a client has to say to be served by Kerberos, where the export takes nothing else.
fn needed(args: &ServeArgs, export: &ExportOption) -> Option<Security> {
    let securities = kerberos::securities(args, export);
    securities.iter().next().filter(|_| securities.iter().all(Security::is_kerberos))
}

/// A URL for the commands of this program, which speak version 2 where they are told to.
fn url(args: &ServeArgs, exports: &[ExportOption], ports: &Ports) -> Option<String> {
    let (first, (address, is_rdma)) = (exports.first()?, best(ports)?);
    let (mut host, port) = (host(address.ip()), address.port());
    let mut options = Vec::new();
    match (is_rdma, args.fabric) {
        (false, _) => options.push("transport=tcp".to_owned()),
        (true, Carrier::Iwarp) => {}
        (true, Carrier::Verbs) => options.push("fabric=verbs".to_owned()),
    }
    if !args.nfs.has_3() && !args.nfs.has_4() {
        options.push("version=2".to_owned());
    }
    // Versions 2 and 3 need it.
    options.extend(ports.of(Spoken::Mount).next().map(|mount| format!("mountport={}", mount.port())));
    if let Some(needed) = needed(args, first) {
        if args.nfs.has_3() && !args.nfs.has_4() {
            // With Kerberos nothing goes down to it by itself.
            options.push("version=3".to_owned());
        }
        options.push(format!("sec={needed}"));
        let principal = kerberos::principal(args);
        let named =
            principal.as_deref().and_then(|name| name.split_once('/')).and_then(|(_, name)| name.split('@').next());
        match named {
            Some(name) if address.ip().is_unspecified() => host = name.to_owned(),
            // The realm knows a name, and the address may have none, or another.
            _ => options.extend(principal.map(|principal| format!("principal={}", escaped(principal.as_bytes())))),
        }
    }
    let options = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
    Some(format!("nfs://{host}:{port}{}{options}", escaped(&first.path)))
}

/// Octets of a URL, with %XX for those that mean something else there.
fn escaped(octets: &[u8]) -> String {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"/-._~@".contains(&octet);
    let escaped = |octet: &u8| match plain(*octet) {
        true => char::from(*octet).to_string(),
        false => format!("%{octet:02X}"),
    };
    octets.iter().map(escaped).collect()
}

fn ready_json(args: &ServeArgs, exports: &[ExportOption], ports: &Ports) -> String {
    let all = |spoken| ports.of(spoken).map(|address| address.to_string()).collect::<Vec<_>>();
    let mut ready = serde_json::Map::new();
    if let Some(first) = exports.first() {
        names::insert_json(&mut ready, "directory", first.directory.as_os_str().as_bytes());
    }
    let export = |export: &ExportOption| {
        let mut told = serde_json::Map::new();
        names::insert_json(&mut told, "directory", export.directory.as_os_str().as_bytes());
        names::insert_json(&mut told, "path", &export.path);
        told.insert("read_only".into(), (args.read_only || export.read_only).into());
        let securities = kerberos::securities(args, export);
        told.insert("sec".into(), securities.iter().map(Security::name).collect::<Vec<_>>().into());
        told.insert("clients".into(), export.clients.iter().map(ToString::to_string).collect::<Vec<_>>().into());
        serde_json::Value::from(told)
    };
    ready.insert("exports".into(), exports.iter().map(export).collect());
    ready.insert("rdma".into(), all(Spoken::Rdma).into());
    ready.insert("mountd".into(), all(Spoken::Mount).into());
    ready.insert("tcp".into(), all(Spoken::Nfs).into());
    ready.insert("lockd".into(), all(Spoken::Lockd).into());
    ready.insert("statd".into(), all(Spoken::Statd).into());
    ready.insert("portmapper".into(), all(Spoken::Portmapper).into());
    ready.insert("nfs".into(), args.nfs.names().collect::<Vec<_>>().into());
    ready.insert("mount".into(), mount_command(args, exports, ports).into());
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
