//! NFS URLs, as libnfs writes them: `nfs://HOST[:PORT]/PATH?NAME=VALUE&...`.

use super::several::MAX_CONNECTIONS;
use crate::Carrier;
use rpcrdma_nfsd::Security;
use rpcrdma_transport::Versions;
use std::{fmt, net::Ipv6Addr, str::FromStr};

/// The port of NFS over RDMA (RFC 8166 section 9).
pub const RDMA_PORT: u16 = 20049;
/// The port of NFS over TCP.
pub const TCP_PORT: u16 = 2049;

/// What carries NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RPC over RDMA.
    Rdma,
    /// RPC over TCP.
    Tcp,
}

/// The version of NFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NfsVersion {
    /// The highest that client and server both speak.
    #[default]
    Auto,
    /// Version 2: never unless it is asked for.
    V2,
    /// Version 3.
    V3,
    /// Version 4.0.
    V4_0,
    /// Version 4.1.
    V4_1,
    /// Version 4.2.
    V4_2,
}

impl NfsVersion {
    const ALL: [NfsVersion; 6] =
        [NfsVersion::Auto, NfsVersion::V2, NfsVersion::V3, NfsVersion::V4_0, NfsVersion::V4_1, NfsVersion::V4_2];

    fn name(self) -> &'static str {
        match self {
            NfsVersion::Auto => "auto",
            NfsVersion::V2 => "2",
            NfsVersion::V3 => "3",
            NfsVersion::V4_0 => "4.0",
            NfsVersion::V4_1 => "4.1",
            NfsVersion::V4_2 => "4.2",
        }
    }
}

impl fmt::Display for NfsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The service for which the client asks Kerberos for a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// NFS of this host, by the name that the realm knows it by.
    OfHost(String),
    /// `nfs/host` or `nfs/host@REALM`.
    Principal(String),
}

/// Where something is, and how it is reached: what an `nfs://` URL says.
///
/// It is `nfs://HOST[:PORT]/PATH[?NAME=VALUE[&NAME=VALUE]...]`, with `%XX` for any byte. The port is 20049 for RDMA and
/// 2049 for TCP if it is not there. An IPv6 address stands in brackets, a link-local one with its interface:
/// `[fe80::1%25eth0]`. The client tries all addresses of a name.
///
/// | name | values | without it |
/// |---|---|---|
/// | `version` | NFS `2`, `3`, `4.0`, `4.1`, `4.2` or `auto` | `auto`: the server's highest, from 3 (Kerberos: 4.0) |
/// | `transport` | `rdma`, `tcp` | `rdma` |
/// | `fabric` | what carries RDMA: `iwarp` (software), `verbs` (a device) | `iwarp` |
/// | `device` | with `fabric=verbs`: the device's name | the device that leads to the server |
/// | `rpcrdma` | RPC-over-RDMA `1`, `2` or `auto` | `auto`: 2 if the server has it |
/// | `sec` | `sys`, `krb5`, `krb5i`, `krb5p` | `sys` |
/// | `principal` | with Kerberos: the server's, such as `nfs/NAME` | `nfs/HOST` |
/// | `nconnect` | connections over which calls are spread, 1 to 16 | 1 |
/// | `mountport` | the TCP port of MOUNT, for versions 2 and 3 | asks rpcbind, else 20048 |
/// | `nfsport` | the same as `:PORT` | |
/// | `uid`, `gid` | with `sec=sys`: the user and group that call | those of the process |
///
/// ```
/// let url: rpcrdma::client::NfsUrl = "nfs://server/export/file?version=4.2&transport=tcp".parse()?;
/// assert_eq!((url.nfs_port(), &url.path[..]), (2049, &b"/export/file"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsUrl {
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// The network interface over which a link-local address of IPv6 is reached, by name or number.
    pub zone: Option<String>,
    /// The port in the URL, if there is one.
    pub port: Option<u16>,
    /// The path, decoded: any bytes, beginning with `/`.
    pub path: Vec<u8>,
    /// The version of NFS.
    pub version: NfsVersion,
    /// What carries the calls.
    pub transport: Transport,
    /// What carries RDMA.
    pub fabric: Carrier,
    /// The device that carries it, if one is named.
    pub device: Option<String>,
    /// The port of MOUNT, if the URL names one.
    pub mount_port: Option<u16>,
    /// The versions of RPC-over-RDMA.
    pub rpcrdma: Versions,
    /// How many connections calls are spread over.
    pub connections: u8,
    /// How the client proves to the server who calls.
    pub security: Security,
    /// With Kerberos: the server's principal, if it is not that of the host's name.
    pub principal: Option<String>,
    /// The user in whose name AUTH_SYS calls; without it, the user of this process.
    pub uid: Option<u32>,
    /// The same for the group.
    pub gid: Option<u32>,
}

/// Why a text is not an NFS URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl(String);

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}

fn bad<T>(what: impl Into<String>) -> Result<T, BadUrl> {
    Err(BadUrl(what.into()))
}

impl NfsUrl {
    /// Where NFS is served.
    pub fn nfs_port(&self) -> u16 {
        self.port.unwrap_or(match self.transport {
            Transport::Rdma => RDMA_PORT,
            Transport::Tcp => TCP_PORT,
        })
    }

    /// The service with which contexts of Kerberos are made.
    pub(super) fn service(&self) -> Service {
        match &self.principal {
            Some(principal) => Service::Principal(principal.clone()),
            None => Service::OfHost(self.host.clone()),
        }
    }

    /// The last name of the path, if it has one.
    pub fn last_name(&self) -> Option<&[u8]> {
        self.path.split(|&octet| octet == b'/').rfind(|name| !name.is_empty() && *name != b".")
    }
}

impl FromStr for NfsUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let Some(rest) = text.strip_prefix("nfs://") else {
            return bad("a URL begins with nfs://, as in nfs://server/path");
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.find('/') {
            Some(at) => place.split_at(at),
            None => (place, "/"),
        };
        let Authority { host, zone, port } = parse_authority(authority)?;
        let mut url = NfsUrl {
            host,
            zone,
            port,
            path: decode_percent(path)?,
            version: NfsVersion::default(),
            transport: Transport::Rdma,
            fabric: Carrier::default(),
            device: None,
            mount_port: None,
            rpcrdma: Versions::Auto,
            connections: 1,
            security: Security::Sys,
            principal: None,
            uid: None,
            gid: None,
        };
        let mut said: Vec<&str> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if said.contains(&name) {
                return bad(format!("{name}= is there twice"));
            }
            said.push(name);
            match name {
                "version" => match NfsVersion::ALL.into_iter().find(|version| version.name() == value) {
                    Some(version) => url.version = version,
                    None => return bad(format!("version={value}: it is 2, 3, 4.0, 4.1, 4.2 or auto")),
                },
                "transport" => {
                    url.transport = match value {
                        "rdma" => Transport::Rdma,
                        "tcp" => Transport::Tcp,
                        _ => return bad(format!("transport={value}: it is rdma or tcp")),
                    }
                }
                "fabric" => match value {
                    "iwarp" => url.fabric = Carrier::Iwarp,
                    "verbs" => url.fabric = Carrier::Verbs,
                    _ => return bad(format!("fabric={value}: it is iwarp or verbs")),
                },
                "device" if value.is_empty() => return bad("device=: its name is missing, as in device=mlx5_0"),
                "device" => url.device = Some(value.to_owned()),
                "mountport" => url.mount_port = Some(parse_port(value)?),
                "rpcrdma" => url.rpcrdma = parse_versions(value).map_err(BadUrl)?,
                "nconnect" => match value.parse() {
                    Ok(connections @ 1..=MAX_CONNECTIONS) => url.connections = connections,
                    _ => return bad(format!("nconnect={value}: it is a number from 1 to {MAX_CONNECTIONS}")),
                },
                "nfsport" => match (url.port, parse_port(value)?) {
                    (Some(port), other) if port != other => {
                        return bad(format!("nfsport={other} contradicts the port {port} after the host"));
                    }
                    (_, port) => url.port = Some(port),
                },
                "sec" => match value.parse() {
                    Ok(security) => url.security = security,
                    Err(_) => return bad(format!("sec={value}: it is sys, krb5, krb5i or krb5p")),
                },
                "principal" => url.principal = Some(parse_principal(value)?),
                "uid" => url.uid = Some(parse_number(name, value)?),
                "gid" => url.gid = Some(parse_number(name, value)?),
                _ => {
                    return bad(format!(
                        "{name} is not an option of a URL: the options are version, transport, fabric, device, \
                         rpcrdma, nconnect, sec, principal, mountport, nfsport, uid, gid"
                    ));
                }
            }
        }
        if url.device.is_some() && url.fabric != Carrier::Verbs {
            return bad("device= names an RDMA device: say fabric=verbs");
        }
        if url.transport == Transport::Tcp
            && let Some(name) = said.iter().find(|name| matches!(**name, "fabric" | "device" | "rpcrdma"))
        {
            return bad(format!("{name}= works with transport=rdma only, and the URL has transport=tcp"));
        }
        url.check_caller(&said)?;
        Ok(url)
    }
}

impl NfsUrl {
    /// Checks that the parts of the URL that name the caller or the server fit the flavour.
    fn check_caller(&self, said: &[&str]) -> Result<(), BadUrl> {
        if !self.security.is_kerberos() {
            return match self.principal {
                Some(_) => bad("principal= works with Kerberos only: say sec=krb5, krb5i or krb5p"),
                None => Ok(()),
            };
        }
        match said.iter().find(|name| matches!(**name, "uid" | "gid")) {
            Some(name) => bad(format!("{name}= works with sec=sys only: with Kerberos the ticket says who calls")),
            None => Ok(()),
        }
    }
}

/// The principal of a service: its kind, its host, and perhaps its realm.
fn parse_principal(text: &str) -> Result<String, BadUrl> {
    let decoded = String::from_utf8(decode_percent(text)?).ok();
    let is_service = |text: &String| match text.split('@').next().and_then(|name| name.split_once('/')) {
        Some((kind, host)) => !kind.is_empty() && !host.is_empty() && !text.ends_with('@'),
        None => false,
    };
    decoded.filter(is_service).map_or_else(
        || bad(format!("principal={text}: it is the server's, as in nfs/server.example or nfs/server.example@REALM")),
        Ok,
    )
}

/// The versions of RPC-over-RDMA that may be used, as in a URL or in an option of `serve`.
pub fn parse_versions(text: &str) -> Result<Versions, String> {
    match text {
        "1" => Ok(Versions::One),
        "2" => Ok(Versions::Two),
        "auto" => Ok(Versions::Auto),
        _ => Err(format!("rpcrdma={text}: it is 1, 2 or auto")),
    }
}

/// The part between `nfs://` and the path.
struct Authority {
    host: String,
    zone: Option<String>,
    port: Option<u16>,
}

/// An address of IPv6 and its zone: `fe80::1%25eth0` (RFC 6874), or `fe80::1%eth0` as other tools write it.
fn parse_ipv6(text: &str) -> Result<(String, Option<String>), BadUrl> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (text, None),
    };
    let Ok(parsed) = address.parse::<Ipv6Addr>() else {
        return bad(format!("[{text}] is not an IPv6 address; a name stands without brackets"));
    };
    let link_local = parsed.is_unicast_link_local();
    let zone = match zone.map(decode_percent).transpose()?.map(String::from_utf8) {
        None if link_local => {
            return bad(format!("{address} is link-local: say over which interface, as in [{address}%25eth0]"));
        }
        None => None,
        Some(_) if !link_local => return bad(format!("{address} is not link-local, and has no interface")),
        Some(Ok(zone)) if !zone.is_empty() => Some(zone),
        Some(_) => return bad(format!("after % comes an interface, as in [{address}%25eth0]")),
    };
    Ok((address.to_owned(), zone))
}

fn parse_authority(authority: &str) -> Result<Authority, BadUrl> {
    let mut zone = None;
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        match rest.split_once(']') {
            Some((inside, after)) => {
                let (host, its_zone) = parse_ipv6(inside)?;
                zone = its_zone;
                match after.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if after.is_empty() => (host, None),
                    None => return bad("after ] comes :PORT or /"),
                }
            }
            None => return bad("an IPv6 address stands in brackets, as in nfs://[::1]/path"),
        }
    } else {
        match authority.split_once(':') {
            Some((_, after)) if after.contains(':') => {
                return bad("an IPv6 address stands in brackets, as in nfs://[::1]/path");
            }
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (authority.to_owned(), None),
        }
    };
    if host.is_empty() {
        return bad("the server's name is missing, as in nfs://server/path");
    }
    Ok(Authority { host, zone, port: port.map(parse_port).transpose()? })
}

fn parse_port(text: &str) -> Result<u16, BadUrl> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => bad(format!("{text:?} is not a port; a port is a number from 1 to 65535")),
    }
}

fn parse_number(name: &str, text: &str) -> Result<u32, BadUrl> {
    text.parse().or_else(|_| bad(format!("{name}={text}: it is a number")))
}

fn decode_percent(text: &str) -> Result<Vec<u8>, BadUrl> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            octets.push(first);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|&octet| char::from(octet).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return bad("after % come two hexadecimal digits; a % itself is %25");
        };
        octets.push((high * 16 + low) as u8);
        rest = &after[2..];
    }
    if octets.contains(&0) {
        return bad("a URL cannot contain the byte 0");
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> NfsUrl {
        text.parse().unwrap()
    }

    /// proves: V1-5-b, V1-5-a, V2-9-a, ULB-3.3-b, ULB-9-a, V1-9-c
    #[test]
    fn ports_follow_the_transport() {
        assert_eq!(url("nfs://host/").nfs_port(), 20049);
        assert_eq!(url("nfs://host/?transport=tcp").nfs_port(), 2049);
        assert_eq!(url("nfs://host:7/?transport=tcp").nfs_port(), 7);
        assert_eq!(url("nfs://host").path, b"/");
    }

    #[test]
    fn version_2_is_spoken_where_it_is_there_unless_the_url_says_otherwise() {
        assert_eq!(url("nfs://host/").rpcrdma, Versions::Auto);
        for (text, versions) in [("1", Versions::One), ("2", Versions::Two), ("auto", Versions::Auto)] {
            assert_eq!(url(&format!("nfs://host/?rpcrdma={text}")).rpcrdma, versions);
        }
    }

    #[test]
    fn the_version_of_nfs_is_read() {
        assert_eq!(url("nfs://host/").version, NfsVersion::Auto);
        for version in NfsVersion::ALL {
            assert_eq!(url(&format!("nfs://host/?version={version}")).version, version);
        }
    }

    #[test]
    fn every_part_is_read() {
        let url = url(
            "nfs://[2001:db8::1]:1234/a%2fb/%ff?version=3&transport=rdma&device=mlx5_0&fabric=verbs&mountport=5&uid=7&gid=8&nconnect=16",
        );
        assert_eq!((url.fabric, url.device.as_deref()), (Carrier::Verbs, Some("mlx5_0")));
        assert_eq!((url.host.as_str(), &url.zone), ("2001:db8::1", &None));
        assert_eq!((url.port, url.connections), (Some(1234), 16));
        assert_eq!(url.path, b"/a/b/\xff");
        assert_eq!((url.mount_port, url.uid, url.gid), (Some(5), Some(7), Some(8)));
        assert_eq!(url.last_name(), Some(&b"\xff"[..]));
    }

    #[test]
    fn the_service_is_the_hosts_unless_it_is_named() {
        let host = |text: &str| Service::OfHost(text.into());
        assert_eq!((url("nfs://host/").security, url("nfs://host/").service()), (Security::Sys, host("host")));
        for security in Security::ALL {
            assert_eq!(url(&format!("nfs://host/?sec={security}")).security, security);
        }
        let named = url("nfs://192.0.2.1/?sec=krb5&principal=nfs/host%40REALM");
        assert_eq!(named.service(), Service::Principal("nfs/host@REALM".into()));
        assert_eq!(url("nfs://192.0.2.1/?sec=krb5").service(), host("192.0.2.1"));
    }

    #[test]
    fn a_link_local_address_has_an_interface() {
        for text in ["nfs://[fe80::1%25eth0]:7/", "nfs://[fe80::1%eth0]:7/", "nfs://[fe80::1%25eth%30]:7/"] {
            let url = url(text);
            assert_eq!(
                (url.host.as_str(), url.zone.as_deref(), url.port),
                ("fe80::1", Some("eth0"), Some(7)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("http://host/", "nfs://"),
            ("nfs:///path", "name is missing"),
            ("nfs://::1/path", "brackets"),
            ("nfs://[::1/path", "brackets"),
            ("nfs://host:0/", "port"),
            ("nfs://host:65536/", "port"),
            ("nfs://host/%4", "two hexadecimal digits"),
            ("nfs://host/%zz", "two hexadecimal digits"),
            ("nfs://host/%00", "byte 0"),
            ("nfs://host/?version=4", "3, 4.0, 4.1, 4.2 or auto"),
            ("nfs://host/?transport=udp", "rdma or tcp"),
            ("nfs://host/?rpcrdma=3", "1, 2 or auto"),
            ("nfs://host/?sec=krb6", "sys, krb5, krb5i or krb5p"),
            ("nfs://host/?sec=krb5&principal=server", "nfs/server.example"),
            ("nfs://host/?sec=krb5&principal=nfs/", "nfs/server.example"),
            ("nfs://host/?sec=krb5&principal=nfs/a@", "nfs/server.example"),
            ("nfs://host/?principal=nfs/server", "works with Kerberos only"),
            ("nfs://host/?sec=krb5i&uid=7", "uid= works with sec=sys only"),
            ("nfs://host/?gid=7&sec=krb5i", "gid= works with sec=sys only"),
            ("nfs://host/?device=mlx5_0", "say fabric=verbs"),
            ("nfs://host/?fabric=iwarp&device=mlx5_0", "say fabric=verbs"),
            ("nfs://host/?fabric=verbs&device=", "name is missing"),
            ("nfs://host/?colour=red", "colour is not an option of a URL"),
            ("nfs://host/?uid=1&uid=2", "twice"),
            ("nfs://host/?uid=-1", "it is a number"),
            ("nfs://host/?nconnect=0", "from 1 to 16"),
            ("nfs://host/?nconnect=17", "from 1 to 16"),
            ("nfs://host:1/?nfsport=2", "contradicts"),
            ("nfs://host/?transport=tcp&rpcrdma=2", "works with transport=rdma only"),
            ("nfs://host/?fabric=iwarp&transport=tcp", "works with transport=rdma only"),
            ("nfs://[host]/", "is not an IPv6 address"),
            ("nfs://[fe80::1]/", "say over which interface"),
            ("nfs://[fe80::1%]/", "comes an interface"),
            ("nfs://[fe80::1%25]/", "comes an interface"),
            ("nfs://[::1%25eth0]/", "is not link-local"),
        ] {
            let error = text.parse::<NfsUrl>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_path_without_names_has_no_last_name() {
        assert_eq!(url("nfs://host/./").last_name(), None);
        assert_eq!(url("nfs://host/a/b/").last_name(), Some(&b"b"[..]));
    }
}
