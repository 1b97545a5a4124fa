//! A file that maps principals to users of this machine. It goes before the rules of the library.
//!
//! A line has a principal and a user, separated by spaces or tabs; `#` begins a comment. The user is a name that this
//! machine knows, with all its groups; or numbers, `UID:GID`, which it need not know; or `-` for no user.
//!
//! ```text
//! alice@EXAMPLE.COM            alice
//! nfs/node7@EXAMPLE.COM        2001:200
//! admin@PARTNER.EXAMPLE        -
//! ```

use crate::Accounts;
use rpcrdma_oncrpc::gss::{GssUser, Known, Names};
use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

/// The most that is read of the file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The user that stands for a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Named(String),
    Numbers { uid: u32, gid: u32 },
    Nobody,
}

/// Maps principals to users by a file, and those that the file does not have by the rules of the library.
#[derive(Clone, Debug, Default)]
pub struct PrincipalMap(HashMap<String, Target>);

/// Why a file cannot be used as a map of principals.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// It is too large.
    #[error("the file is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// A line is malformed.
    #[error("line {number}: {what}")]
    Line {
        /// The line's number, from 1.
        number: usize,
        /// What is wrong.
        what: &'static str,
    },
}

impl PrincipalMap {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is too large, or has a malformed line.
    pub fn read(path: &Path) -> Result<Self, MapError> {
        let mut text = String::new();
        if File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
            return Err(MapError::TooLarge);
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, MapError> {
        let mut map = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |what| Err(MapError::Line { number, what });
            let said = line.split('#').next().unwrap_or_default();
            let mut words = said.split_whitespace();
            let (principal, user) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(principal), Some(user), None) => (principal, user),
                _ => return wrong("write a principal and a user, as in alice@REALM alice"),
            };
            if !principal.split_once('@').is_some_and(|(name, realm)| !name.is_empty() && !realm.is_empty()) {
                return wrong("a principal ends with its realm, as in alice@REALM");
            }
            let Some(target) = target(user) else { return wrong("a user is a name, UID:GID or -") };
            if map.insert(principal.to_owned(), target).is_some() {
                return wrong("the principal also stands in a line above");
            }
        }
        Ok(Self(map))
    }
}

fn target(user: &str) -> Option<Target> {
    if user == "-" {
        return Some(Target::Nobody);
    }
    if !user.starts_with(|first: char| first.is_ascii_digit()) {
        return Some(Target::Named(user.to_owned()));
    }
    let (uid, gid) = user.split_once(':')?;
    Some(Target::Numbers { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
}

impl Names for PrincipalMap {
    fn known(&self, principal: &str, _: Option<&str>) -> Known {
        match self.0.get(principal) {
            None | Some(Target::Named(_)) => Known::Later,
            Some(&Target::Numbers { uid, gid }) => Known::Now(Some(GssUser { uid, gid, groups: Arc::default() })),
            // OPS-SEC-j
            Some(Target::Nobody) => Known::Now(None),
        }
    }

    fn user(&self, principal: &str, local: Option<&str>) -> io::Result<Option<GssUser>> {
        match (self.known(principal, local), self.0.get(principal)) {
            (Known::Now(user), _) => Ok(user),
            (Known::Later, Some(Target::Named(name))) => Accounts.user(principal, Some(name)),
            (Known::Later, _) => Accounts.user(principal, local),
        }
    }
}

impl fmt::Display for PrincipalMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} principals", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: OPS-SEC-j
    #[test]
    fn the_file_goes_before_the_rules_of_the_library() {
        let map = PrincipalMap::parse(
            "# who is who\nalice@REALM\tdaemon # she is\n\n nfs/node@REALM 2001:200\nbob@REALM 7:8\neve@REALM -\n",
        )
        .unwrap();
        let numbers = |principal: &str, local| map.user(principal, local).unwrap().map(|user| (user.uid, user.gid));
        assert_eq!(numbers("alice@REALM", Some("root")), numbers("other@REALM", Some("daemon")));
        assert_eq!(numbers("nfs/node@REALM", Some("root")), Some((2001, 200)));
        assert_eq!(numbers("bob@REALM", None), Some((7, 8)));
        assert_eq!(numbers("eve@REALM", Some("root")), None);
        assert_eq!(numbers("alice@OTHER", None), None);
        assert!(numbers("root@REALM", Some("root")).is_some());
        // Users whose numbers stand in the file need no look-up.
        let known = |principal: &str| map.known(principal, Some("root"));
        assert!(matches!(known("nfs/node@REALM"), Known::Now(Some(GssUser { uid: 2001, gid: 200, .. }))));
        assert_eq!(known("eve@REALM"), Known::Now(None));
        assert_eq!([known("alice@REALM"), known("root@REALM")], [Known::Later, Known::Later]);
    }

    #[test]
    fn lines_that_say_nothing_are_named() {
        for (text, line) in [
            ("alice@REALM", 1),
            ("\nalice@REALM a b", 2),
            ("alice alice", 1),
            ("@REALM alice", 1),
            ("a@R 1", 1),
            ("a@R 1:2:3", 1),
            ("a@R 4294967296", 1),
            ("a@R x\n#\na@R y", 3),
        ] {
            match PrincipalMap::parse(text) {
                Err(MapError::Line { number, .. }) => assert_eq!(number, line, "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
        assert!(PrincipalMap::read(Path::new("/none")).is_err());
    }
}
