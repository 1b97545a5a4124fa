//! The rules of the specifications, and the exceptions: rules that need no test. A file with any mistake is refused as
//! a whole.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use std::{collections::BTreeSet, fmt, fs, path::Path};

/// How binding a rule is, as the head of `spec/requirements.toml` explains it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Level {
    Must,
    Should,
    May,
    Fact,
    Ambiguity,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Must => "MUST",
            Level::Should => "SHOULD",
            Level::May => "MAY",
            Level::Fact => "FACT",
            Level::Ambiguity => "AMBIGUITY",
        })
    }
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) level: Level,
    /// Who has to keep it.
    pub(super) role: String,
    pub(super) text: String,
}

impl Rule {
    /// The tag of its document: the part of the id before the first hyphen.
    pub(super) fn document(&self) -> &str {
        self.id.split('-').next().unwrap_or(&self.id)
    }

    /// The usual name of the document, and the section: `RFC 8166, section 4.5.1`.
    pub(super) fn source(&self) -> String {
        let parts: Vec<&str> = self.id.split('-').collect();
        let [tag, middle @ .., _] = parts.as_slice() else { return self.id.clone() };
        let by_tag = match *tag {
            "V1" => "RFC 8166",
            "V2" => "draft-ietf-nfsv4-rpcrdma-version-two-01",
            "IE" => "draft-ietf-nfsv4-rfc5666-implementation-experience-02",
            "ULB" => "draft-ietf-nfsv4-nfs-ulb-v2-07",
            "OPS" | "FABRIC" => "a rule of this project",
            tag => tag,
        };
        let number = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
        let is_rfc = |part: &str| part.len() == 4 && part.chars().all(|digit| digit.is_ascii_digit());
        match middle {
            [rfc, section] if is_rfc(rfc) && (number(section) || *section == "A") => {
                format!("RFC {rfc}, section {section}")
            }
            [rfc, ..] if is_rfc(rfc) => format!("RFC {rfc}"),
            [section] if number(section) || matches!(*tag, "V1" | "V2") => format!("{by_tag}, section {section}"),
            _ => by_tag.to_owned(),
        }
    }
}

/// Why a rule has no test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exception {
    pub(super) id: String,
    /// A reason with which the author of the rule would agree.
    pub(super) reason: String,
    /// The file or folder of the repository where the reason can be seen.
    #[serde(rename = "where")]
    pub(super) place: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    requirement: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
}

/// The catalogues of a folder, in the order of the files.
pub(super) fn rules(folder: &Path) -> anyhow::Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for file in ["requirements.toml", "requirements-extra.toml"] {
        rules.extend(read::<Rules>(&folder.join(file))?.requirement);
    }
    let mut ids = BTreeSet::new();
    for rule in &rules {
        ensure!(ids.insert(&rule.id), "{} stands twice in the catalogues", rule.id);
    }
    Ok(rules)
}

/// The exceptions of a repository.
pub(super) fn exceptions(root: &Path) -> anyhow::Result<Vec<Exception>> {
    let exceptions = read::<Exceptions>(&root.join("spec/exceptions.toml"))?.exception;
    for exception in &exceptions {
        ensure!(!exception.reason.trim().is_empty(), "the exception of {} gives no reason", exception.id);
        ensure!(
            !exception.place.is_empty() && root.join(&exception.place).exists(),
            "the exception of {} is to be seen in {:?}, which is not there",
            exception.id,
            exception.place
        );
    }
    Ok(exceptions)
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("in {}", path.display()))
}
