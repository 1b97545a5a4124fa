//! The principals whose keys a keytab has, without the keys: for errors that an administrator reads.
//!
//! The layout is MIT's, version 2: after two bytes come entries, each a length and that many bytes, of which the first
//! name the principal; all numbers are big-endian. A negative length marks a hole.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The most bytes that are read of a keytab. It has a hundred bytes for each key.
const MAX_BYTES: u64 = 1 << 20;
/// The first bytes of a keytab whose layout is known.
const VERSION_2: [u8; 2] = [5, 2];

/// The principals in a keytab, each once, in their order: `nfs/host@REALM`.
///
/// # Errors
/// If the file cannot be read, or is no keytab.
pub fn principals(keytab: &Path) -> io::Result<Vec<String>> {
    let mut bytes = Vec::new();
    File::open(keytab)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let entries = bytes.strip_prefix(&VERSION_2).ok_or(io::ErrorKind::InvalidData)?;
    let mut found = Vec::new();
    let mut reader = Reader(entries);
    while let Some(entry) = reader.entry() {
        if let Some(name) = entry.and_then(principal)
            && !found.contains(&name)
        {
            found.push(name);
        }
    }
    Ok(found)
}

fn principal(entry: &[u8]) -> Option<String> {
    let mut reader = Reader(entry);
    let components = reader.number()?;
    let realm = reader.text()?;
    let names: Vec<String> = (0..components).map(|_| reader.text()).collect::<Option<_>>()?;
    Some(format!("{}@{realm}", names.join("/")))
}

/// The bytes that are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.number()?;
        String::from_utf8(self.take(len.into())?.to_vec()).ok()
    }

    /// The next entry; `Some(None)` for a hole, and `None` at the end.
    fn entry(&mut self) -> Option<Option<&'a [u8]>> {
        let len = i32::from_be_bytes(self.take(4)?.try_into().ok()?);
        let bytes = self.take(usize::try_from(len.unsigned_abs()).ok()?)?;
        Some((len > 0).then_some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Vec<u8> {
        [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
    }

    fn entry(names: &[&str]) -> Vec<u8> {
        let mut bytes = (names.len() as u16).to_be_bytes().to_vec();
        bytes.extend(counted("REALM"));
        names.iter().for_each(|name| bytes.extend(counted(name)));
        bytes.extend([0; 40]);
        [&(bytes.len() as i32).to_be_bytes()[..], &bytes].concat()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), bytes)?;
        principals(file.path())
    }

    #[test]
    fn principals_are_told_once_and_holes_are_passed_over() {
        let hole = [&(-7_i32).to_be_bytes()[..], &[1; 7]].concat();
        let service = entry(&["nfs", "server.example"]);
        let all = [&VERSION_2[..], &service, &hole, &entry(&["alice"]), &service].concat();
        assert_eq!(read(&all).unwrap(), ["nfs/server.example@REALM", "alice@REALM"]);
        for len in 2..all.len() {
            assert!(read(&all[..len]).unwrap().len() <= 2, "cut");
        }
        assert_eq!(read(&[5, 1]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(principals(Path::new("/none")).is_err());
    }

    #[test]
    fn lengths_that_are_wrong_are_no_principals() {
        for entry in [&[0xff; 20][..], &[0, 0, 0, 2, 0xff, 0xff], &[0x80, 0, 0, 0], &[0x7f, 0xff, 0xff, 0xff, 0]] {
            assert_eq!(read(&[&VERSION_2[..], entry].concat()).unwrap(), Vec::<String>::new());
        }
    }
}
