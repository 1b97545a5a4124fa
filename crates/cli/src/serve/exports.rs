//! What is exported: `--export PATH[,pseudo=/NAME][,ro][,clients=CIDR][,sec=FLAVOURS]`, and the directory that stands
//! alone, which is `/`.

use rpcrdma_nfs::mount::MAX_PATH_BYTES;
use rpcrdma_nfsd::{Cidr, Securities, Security};
use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

/// The longest name that file systems have, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A directory as clients may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportOption {
    /// The directory of this machine.
    pub(super) directory: PathBuf,
    /// Where clients see it: absolute, with no empty name in it.
    pub(super) path: Vec<u8>,
    /// Clients cannot change anything through it.
    pub(super) read_only: bool,
    /// The networks whose clients may use it; all if it is empty.
    pub(super) clients: Vec<Cidr>,
    /// The flavours that it takes, if it names its own.
    pub(super) securities: Option<Securities>,
}

/// What is wrong with an option or with several of them, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadExport(String);

impl fmt::Display for BadExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadExport {}

fn bad<T>(why: impl Into<String>) -> Result<T, BadExport> {
    Err(BadExport(why.into()))
}

fn shown(octets: &[u8]) -> String {
    format!("\"{}\"", octets.escape_ascii())
}

impl ExportOption {
    /// The directory that clients see as `/`.
    pub(super) fn root(directory: PathBuf) -> Self {
        Self { directory, path: b"/".to_vec(), read_only: false, clients: Vec::new(), securities: None }
    }

    /// Reads an option.
    ///
    /// # Errors
    /// If the text is no such option.
    pub(super) fn parse(text: &OsStr) -> Result<Self, BadExport> {
        let mut parts = text.as_bytes().split(|octet| *octet == b',');
        let directory = parts.next().unwrap_or_default();
        if directory.is_empty() {
            return bad("no directory stands before the first comma: write \
                 PATH[,pseudo=/NAME][,ro][,clients=CIDR][,sec=FLAVOURS]");
        }
        let (mut pseudo, mut read_only, mut clients, mut securities) = (None, false, Vec::new(), None);
        for part in parts {
            let (name, value) = match part.iter().position(|octet| *octet == b'=') {
                Some(at) => (&part[..at], Some(&part[at + 1..])),
                None => (part, None),
            };
            match (name, value) {
                (b"ro", None) => read_only = true,
                (b"pseudo", Some(path)) if pseudo.is_none() => pseudo = Some(path),
                (b"pseudo", Some(_)) => return bad("pseudo= stands there twice: an export has one name"),
                (b"clients", Some(range)) => clients.push(network(range)?),
                (b"sec", Some(words)) if securities.is_none() => securities = Some(flavours(words)?),
                (b"sec", Some(_)) => return bad("sec= stands there twice: write sec=krb5p:krb5i for both"),
                _ => {
                    return bad(format!(
                        "{} is not an option of an export: the options are ro, pseudo=/NAME, clients=CIDR and \
                         sec=FLAVOURS (for a directory with a comma in its path, name a symbolic link without one)",
                        shown(part)
                    ));
                }
            }
        }
        let path = match pseudo {
            Some(path) => normal(path).map_err(|why| BadExport(format!("pseudo={}: {why}", path.escape_ascii())))?,
            None => normal(directory).map_err(|why| {
                BadExport(format!(
                    "{} cannot be the name by which clients see it: {why}; say another, such as pseudo=/data",
                    shown(directory)
                ))
            })?,
        };
        Ok(Self { directory: OsString::from_vec(directory.to_vec()).into(), path, read_only, clients, securities })
    }
}

/// Flavours, with colons between them as in other servers' lists of exports.
fn flavours(text: &[u8]) -> Result<Securities, BadExport> {
    let parse = |word: &[u8]| std::str::from_utf8(word).ok().and_then(|word| word.parse::<Security>().ok());
    let all: Option<Vec<_>> = text.split(|octet| *octet == b':').map(parse).collect();
    all.map(Securities::new).ok_or_else(|| {
        BadExport(format!(
            "sec={}: flavours are sys, krb5, krb5i and krb5p, as in sec=krb5p:krb5i",
            text.escape_ascii()
        ))
    })
}

fn network(text: &[u8]) -> Result<Cidr, BadExport> {
    let range = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    range.ok_or_else(|| {
        BadExport(format!("clients={}: write an address or ADDRESS/PREFIX, such as 192.0.2.0/24", text.escape_ascii()))
    })
}

/// A path without empty names.
fn normal(path: &[u8]) -> Result<Vec<u8>, String> {
    if path.first() != Some(&b'/') {
        return Err("the path that clients see must begin with a slash".into());
    }
    let mut normal = Vec::new();
    for name in path.split(|octet| *octet == b'/').filter(|name| !name.is_empty()) {
        if matches!(name, b"." | b"..") {
            return Err(format!("{} is not a name", shown(name)));
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(format!("a name in it is longer than {MAX_NAME_BYTES} bytes"));
        }
        normal.push(b'/');
        normal.extend_from_slice(name);
    }
    if normal.len() > MAX_PATH_BYTES {
        return Err(format!("it is longer than {MAX_PATH_BYTES} bytes"));
    }
    Ok(if normal.is_empty() { b"/".to_vec() } else { normal })
}

#[cfg(test)]
mod tests;
