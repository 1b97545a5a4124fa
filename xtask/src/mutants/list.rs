//! The list of faults, `mutants.toml`, and the place of each in the source. A list with any mistake is refused as a
//! whole.

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use std::{collections::BTreeSet, fs, path::Path};

/// The file of the repository that holds the list.
pub(super) const FILE: &str = "mutants.toml";

/// A crate that gets faults, and the packages above it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layer {
    /// The folder under `crates/`.
    #[serde(rename = "crate")]
    pub(super) folder: String,
    /// The name of the package.
    pub(super) package: String,
    /// The packages whose tests run after its own, in this order.
    pub(super) above: Vec<String>,
}

/// One deliberate fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub(super) name: String,
    /// The crate's folder under `crates/`.
    #[serde(rename = "crate")]
    pub(super) folder: String,
    /// The file, from the crate's folder.
    file: String,
    /// The text that is replaced; it stands in the file exactly once.
    find: String,
    /// The text that stands there instead.
    put: String,
    /// What goes wrong for users or peers, in plain words.
    pub(super) breaks: String,
    /// The rules of `spec/` that are broken, where there are some.
    #[serde(default)]
    pub(super) rules: Vec<String>,
    /// The test program, of the crate or of a package above, that runs first; the crate's unit tests if none is named.
    pub(super) first: Option<String>,
}

impl Fault {
    /// The file, from the root of the repository.
    pub(super) fn path(&self) -> String {
        format!("crates/{}/{}", self.folder, self.file)
    }

    /// A file's text with the fault in it, and the line of the fault.
    ///
    /// # Errors
    /// If the text to be replaced does not stand there exactly once.
    pub(super) fn applied(&self, text: &str) -> anyhow::Result<(String, usize)> {
        let mut places = text.match_indices(&self.find).map(|(at, _)| at);
        let Some(at) = places.next() else {
            bail!("{}: what it replaces is not in {} any more", self.name, self.path());
        };
        ensure!(places.next().is_none(), "{}: what it replaces stands more than once in {}", self.name, self.path());
        let (before, rest) = text.split_at(at);
        let after = &rest[self.find.len()..];
        Ok((format!("{before}{}{after}", self.put), 1 + before.matches('\n').count()))
    }

    /// The line where the fault is put, in a tree.
    pub(super) fn line(&self, root: &Path) -> anyhow::Result<usize> {
        let path = root.join(self.path());
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(self.applied(&text)?.1)
    }
}

/// The whole list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    #[serde(rename = "layer")]
    layers: Vec<Layer>,
    #[serde(rename = "fault")]
    pub(super) faults: Vec<Fault>,
}

impl List {
    /// Reads the list of a repository.
    pub(super) fn read(root: &Path) -> anyhow::Result<List> {
        let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("reading {FILE}"))?;
        List::parse(&text).with_context(|| format!("in {FILE}"))
    }

    fn parse(text: &str) -> anyhow::Result<List> {
        let list: List = toml::from_str(text)?;
        let mut names = BTreeSet::new();
        for fault in &list.faults {
            let name = &fault.name;
            ensure!(names.insert(name), "{name} stands twice in the list");
            ensure!(!fault.find.trim().is_empty(), "{name} replaces nothing");
            ensure!(fault.find != fault.put, "{name} changes nothing");
            ensure!(!fault.breaks.trim().is_empty(), "{name} does not say what it breaks");
            list.layer(fault)?;
        }
        Ok(list)
    }

    /// The crate of a fault.
    pub(super) fn layer(&self, fault: &Fault) -> anyhow::Result<&Layer> {
        let layer = self.layers.iter().find(|layer| layer.folder == fault.folder);
        layer.with_context(|| {
            format!("{} is in {:?}, of which the list does not say who is above", fault.name, fault.folder)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(faults: &[(&str, &str, &str)]) -> String {
        let mut text = "[[layer]]\ncrate = \"engine\"\npackage = \"e\"\nabove = []\n".to_owned();
        for (name, find, put) in faults {
            text += &format!(
                "[[fault]]\nname = \"{name}\"\ncrate = \"engine\"\nfile = \"a.rs\"\nfind = \"{find}\"\nput = \"{put}\"\nbreaks = \"it\"\n"
            );
        }
        text
    }

    fn refused(faults: &[(&str, &str, &str)]) -> String {
        List::parse(&list(faults)).expect_err("let through").to_string()
    }

    #[test]
    fn a_list_that_cannot_be_meant_is_refused() {
        assert!(refused(&[("a", "x", "y"), ("a", "x", "y")]).contains("twice"));
        assert!(refused(&[("a", " ", "y")]).contains("replaces nothing"));
        assert!(refused(&[("a", "x", "x")]).contains("changes nothing"));
        let elsewhere = list(&[("a", "x", "y")]).replacen("crate = \"engine\"", "crate = \"wire\"", 1);
        assert!(List::parse(&elsewhere).is_err());
    }

    #[test]
    fn a_place_is_found_once_or_not_at_all() {
        let list = List::parse(&list(&[("a", "x > y", "x")])).unwrap();
        let fault = &list.faults[0];
        assert_eq!(fault.applied("one\nif x > y {\n").unwrap(), ("one\nif x {\n".to_owned(), 2));
        assert_eq!(fault.applied("one\ntwo\nx > y").unwrap().1, 3);
        assert!(fault.applied("x < y").unwrap_err().to_string().contains("not in crates/engine/a.rs any more"));
        assert!(fault.applied("x > y; x > y").unwrap_err().to_string().contains("more than once"));
    }
}
