//! A copy of the repository's files, into which faults are put. The tree itself is only read.
//!
//! The copy is what stands in the tree, committed or not, without what git ignores. Only files with different content
//! are written, so that copying alone makes cargo build nothing again. The next run repairs what an interrupted run has
//! left.

use super::list::Fault;
use anyhow::{Context as _, ensure};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The copy.
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Makes the folder equal to the tree, without what git ignores.
    pub(super) fn sync(from: &Path, to: &Path) -> anyhow::Result<Tree> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(from)
            .output()
            .context("starting git")?;
        ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim());
        let names = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
        let names: BTreeSet<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        mirror(from, to, &names)?;
        Ok(Tree { root: to.to_owned() })
    }

    /// Where the copy is.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Puts a fault in; it stays there as long as the returned value lives.
    pub(super) fn put(&self, fault: &Fault) -> anyhow::Result<Standing> {
        let path = self.root.join(fault.path());
        let original = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let (text, _) = fault.applied(&original)?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(Standing { path, original })
    }
}

/// A fault that stands in the copy. Dropping the value takes it out.
pub(super) struct Standing {
    path: PathBuf,
    original: String,
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.original) {
            // The next run repairs the file.
            eprintln!("cannot take the fault out of {}: {error}", self.path.display());
        }
    }
}

/// Copies files that differ, and removes files that are not named. A named file that no longer exists is removed, too.
fn mirror(from: &Path, to: &Path, names: &BTreeSet<&str>) -> anyhow::Result<()> {
    for name in names {
        let Ok(content) = fs::read(from.join(name)) else { continue };
        let path = to.join(name);
        if fs::read(&path).is_ok_and(|there| there == content) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        let mode = fs::metadata(from.join(name))?.permissions();
        fs::set_permissions(&path, mode)?;
    }
    remove_others(from, to, to, names)
}

fn remove_others(from: &Path, to: &Path, folder: &Path, names: &BTreeSet<&str>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(from, to, &path, names)?;
            continue;
        }
        let name = path.strip_prefix(to)?.to_str().unwrap_or_default();
        if !names.contains(name) || !from.join(name).exists() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rpcrdma-mutants-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("in")).unwrap();
        folder
    }

    #[test]
    fn a_copy_is_made_equal_and_what_is_equal_is_left_alone() {
        let (from, to) = (folder("from"), folder("to"));
        fs::write(from.join("in/a"), "new").unwrap();
        fs::write(from.join("b"), "same").unwrap();
        fs::write(from.join("ignored"), "no").unwrap();
        for (name, text) in [("in/a", "old"), ("b", "same"), ("gone", "x"), ("in/other", "x")] {
            fs::write(to.join(name), text).unwrap();
        }
        let before = fs::metadata(to.join("b")).unwrap().modified().unwrap();
        mirror(&from, &to, &BTreeSet::from(["in/a", "b", "gone"])).unwrap();
        assert_eq!(fs::read_to_string(to.join("in/a")).unwrap(), "new");
        assert_eq!(fs::metadata(to.join("b")).unwrap().modified().unwrap(), before);
        for name in ["gone", "in/other", "ignored"] {
            assert!(!to.join(name).exists(), "{name}");
        }
        fs::remove_dir_all(from).unwrap();
        fs::remove_dir_all(to).unwrap();
    }
}
