//! What is printed once every port is open.

use super::{args::ServeArgs, exports::ExportOption};
use crate::names;
use rpcrdma::{
    Carrier,
    server::{Export, Options, Running, Spoken},
};
use rpcrdma_nfsd::Security;
use serde_json::json;
use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt,
};

/// Where Linux looks for NFS version 4 over TCP if it is told no port.
const USUAL_PORT: u16 = 2_049;

/// A server that is ready, and what was asked of it.
pub(super) struct Ready<'a> {
    pub(super) args: &'a ServeArgs,
    pub(super) options: &'a Options,
    pub(super) exports: &'a [ExportOption],
    pub(super) running: &'a Running,
    /// Where the numbers for Prometheus are.
    pub(super) metrics: Option<SocketAddr>,
}

impl Ready<'_> {
    /// The addresses at which a protocol is spoken.
    fn of(&self, spoken: Spoken) -> impl Iterator<Item = SocketAddr> {
        self.running.addresses(spoken).into_iter()
    }
}

/// One line that begins `ready`, then how to mount and how to list. If nobody reads them, the server serves all the
/// same.
pub(super) fn ready(ready: &Ready<'_>) {
    let text = if ready.args.json { ready_json(ready) } else { ready_text(ready) };
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn ready_text(ready: &Ready<'_>) -> String {
    let Ready { args, exports, .. } = *ready;
    let directories: Vec<_> = exports.iter().map(shown).collect();
    let all = [
        (Spoken::Rdma, "NFS/RDMA"),
        (Spoken::Mount, "MOUNT"),
        (Spoken::Nfs, "NFS/TCP"),
        (Spoken::Lockd, "NLM"),
        (Spoken::Statd, "NSM"),
        (Spoken::Portmapper, "portmapper"),
    ];
    let on = all
        .into_iter()
        .filter_map(|(spoken, name)| {
            let addresses: Vec<_> = ready.of(spoken).map(|address| address.to_string()).collect();
            (!addresses.is_empty()).then(|| format!("{name} on {}", addresses.join(", ")))
        })
        .chain(ready.metrics.map(|address| format!("metrics on {address}")));
    let on: Vec<_> = on.collect();
    let mut text = format!("ready: {} over {}\n", directories.join(", "), on.join(", "));
    if args.verbosity.quiet {
        return text;
    }
    if let Some(command) = mount_command(ready) {
        text += &format!("mount from Linux: {command}\n");
    }
    if let Some(url) = url(ready) {
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
fn best(ready: &Ready<'_>) -> Option<(SocketAddr, bool)> {
    let rdma = ready.of(Spoken::Rdma).next().map(|address| (address, true));
    rdma.or_else(|| ready.of(Spoken::Nfs).next().map(|address| (address, false)))
}

/// The shortest command with which Linux mounts: a client that is told no version begins with the latest that it has,
/// and needs to know no other port for version 4. Above the exports of version 4 is a tree that leads to all of them.
fn mount_command(ready: &Ready<'_>) -> Option<String> {
    let Ready { args, options, exports, .. } = *ready;
    let (address, is_rdma) = best(ready)?;
    let (host, port) = (host(address.ip()), address.port());
    let secured = exports.first().and_then(|export| needed(options, export)).map(|one| format!("sec={one}"));
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
    let mount = ready.of(Spoken::Mount).next()?.port();
    let (proto, path) = (if is_rdma { "rdma" } else { "tcp" }, names::escaped(&exports.first()?.path));
    // Clients find NLM and NSM by a portmapper alone.
    let is_found = args.rpcbind.is_some() && ready.of(Spoken::Lockd).any(|address| !address.ip().is_loopback());
    let nolock = if is_found { "" } else { ",nolock" };
    let secured = secured.map_or_else(String::new, |secured| format!("{secured},"));
    let options = format!("{secured}vers=3,proto={proto},port={port},mountport={mount},mountproto=tcp{nolock}");
    Some(format!("mount -t nfs -o {options} {host}:{path} /mnt"))
}

/// The flavour that a client must name, if the export takes only Kerberos.
fn needed(options: &Options, export: &ExportOption) -> Option<Security> {
    let securities = options.security_of(&Export::from(export));
    securities.iter().next().filter(|_| securities.iter().all(Security::is_kerberos))
}

/// A URL for the commands of this program, which speak version 2 where they are told to.
fn url(ready: &Ready<'_>) -> Option<String> {
    let Ready { args, options, exports, .. } = *ready;
    let (first, (address, is_rdma)) = (exports.first()?, best(ready)?);
    let (mut host, port) = (host(address.ip()), address.port());
    let mut said = Vec::new();
    match (is_rdma, args.fabric) {
        (false, _) => said.push("transport=tcp".to_owned()),
        (true, Carrier::Iwarp) => {}
        (true, Carrier::Verbs) => said.push("fabric=verbs".to_owned()),
    }
    if !args.nfs.has_3() && !args.nfs.has_4() {
        said.push("version=2".to_owned());
    }
    // Versions 2 and 3 need MOUNT.
    said.extend(ready.of(Spoken::Mount).next().map(|mount| format!("mountport={}", mount.port())));
    if let Some(needed) = needed(options, first) {
        if args.nfs.has_3() && !args.nfs.has_4() {
            // With Kerberos, a client does not fall back to version 3 by itself.
            said.push("version=3".to_owned());
        }
        // OPS-SEC-i
        said.push(format!("sec={needed}"));
        let principal = options.principal();
        let named =
            principal.as_deref().and_then(|name| name.split_once('/')).and_then(|(_, name)| name.split('@').next());
        match named {
            Some(name) if address.ip().is_unspecified() => host = name.to_owned(),
            // The realm knows a name, and the address may have none, or another.
            _ => said.extend(principal.map(|principal| format!("principal={}", escaped(principal.as_bytes())))),
        }
    }
    let said = if said.is_empty() { String::new() } else { format!("?{}", said.join("&")) };
    Some(format!("nfs://{host}:{port}{}{said}", escaped(&first.path)))
}

/// Bytes of a URL, with %XX for those that mean something else there.
fn escaped(octets: &[u8]) -> String {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"/-._~@".contains(&octet);
    let escaped = |octet: &u8| match plain(*octet) {
        true => char::from(*octet).to_string(),
        false => format!("%{octet:02X}"),
    };
    octets.iter().map(escaped).collect()
}

fn ready_json(ready: &Ready<'_>) -> String {
    let Ready { args, options, exports, .. } = *ready;
    let all = |spoken| ready.of(spoken).map(|address| address.to_string()).collect::<Vec<_>>();
    let mut told = serde_json::Map::new();
    if let Some(first) = exports.first() {
        names::insert_json(&mut told, "directory", first.directory.as_os_str().as_bytes());
    }
    let export = |export: &ExportOption| {
        let mut told = serde_json::Map::new();
        names::insert_json(&mut told, "directory", export.directory.as_os_str().as_bytes());
        names::insert_json(&mut told, "path", &export.path);
        told.insert("read_only".into(), (args.read_only || export.read_only).into());
        let securities = options.security_of(&Export::from(export));
        told.insert("sec".into(), securities.iter().map(Security::name).collect::<Vec<_>>().into());
        told.insert("clients".into(), export.clients.iter().map(ToString::to_string).collect::<Vec<_>>().into());
        serde_json::Value::from(told)
    };
    told.insert("exports".into(), exports.iter().map(export).collect());
    told.insert("rdma".into(), all(Spoken::Rdma).into());
    told.insert("mountd".into(), all(Spoken::Mount).into());
    told.insert("tcp".into(), all(Spoken::Nfs).into());
    told.insert("lockd".into(), all(Spoken::Lockd).into());
    told.insert("statd".into(), all(Spoken::Statd).into());
    told.insert("portmapper".into(), all(Spoken::Portmapper).into());
    told.insert("metrics".into(), ready.metrics.iter().map(ToString::to_string).collect::<Vec<_>>().into());
    told.insert("nfs".into(), args.nfs.names().collect::<Vec<_>>().into());
    told.insert("mount".into(), mount_command(ready).into());
    format!("{}\n", json!({ "ready": told }))
}

/// How a client writes the address.
fn host(address: IpAddr) -> String {
    match address {
        address if address.is_unspecified() => "SERVER".into(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
