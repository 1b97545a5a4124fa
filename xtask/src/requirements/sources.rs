//! The source files of a repository, in which we look for proofs and places.

use anyhow::Context as _;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folders of the source files.
const FOLDERS: [&str; 3] = ["crates", "tests", "xtask/src"];

/// One file.
pub(super) struct Source {
    /// Its name, from the repository's root.
    pub(super) file: String,
    pub(super) text: String,
}

impl Source {
    /// Whether the whole file is for tests, or judges from outside.
    pub(super) fn is_test(&self) -> bool {
        let mut parts = self.file.split('/');
        let is_for_tests =
            |part: &str| matches!(part, "tests" | "testing" | "testing.rs") || part.ends_with("tests.rs");
        parts.next() != Some("crates") || parts.nth(1) != Some("src") || parts.any(is_for_tests)
    }
}

/// All source files of a repository, in the order of their names.
pub(super) fn sources(root: &Path) -> anyhow::Result<Vec<Source>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        below(&root.join(folder), &mut files)?;
    }
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Source { file: path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned(), text })
    };
    files.into_iter().map(read).collect()
}

/// All Rust files below a folder.
fn below(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            below(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}
