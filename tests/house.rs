//! The rules of the house: which crate may use which, and where `unsafe` may stand. Reads the metadata of the
//! workspace.

#[path = "house/book.rs"]
mod book;
#[path = "house/publishing.rs"]
mod publishing;
#[path = "house/rings.rs"]
mod rings;

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What each crate may use of the others (normal dependencies). ARCHITECTURE.md says why.
const MAY_USE: &[(&str, &[&str])] = &[
    ("env", &[]),
    ("xdr", &["env"]),
    ("fabric", &["env"]),
    ("wire", &["xdr"]),
    ("oncrpc", &["xdr", "env"]),
    ("gss", &["oncrpc"]),
    ("sim", &["fabric", "env"]),
    ("iwarp", &["fabric", "env"]),
    ("verbs", &["fabric", "env"]),
    ("engine", &["wire", "xdr", "env"]),
    ("transport", &["engine", "fabric", "oncrpc", "xdr", "env"]),
    ("nfs", &["xdr", "oncrpc"]),
    ("nfsd", &["nfs", "oncrpc", "xdr", "env"]),
    ("nfs-client", &["nfs", "oncrpc", "xdr", "env"]),
    ("capture", &["iwarp", "wire", "nfs", "oncrpc", "xdr", "env"]),
    ("rpcrdma", &["gss", "iwarp", "verbs", "transport", "nfsd", "nfs-client", "nfs", "fabric", "oncrpc", "xdr", "env"]),
    (
        "cli",
        &[
            "rpcrdma",
            "capture",
            "gss",
            "nfsd",
            "nfs-client",
            "nfs",
            "transport",
            "engine",
            "iwarp",
            "verbs",
            "fabric",
            "oncrpc",
            "wire",
            "xdr",
            "env",
        ],
    ),
];

/// The crates that may contain `unsafe`: nfsd in one file; gss and verbs everywhere, for calls of C libraries, and in
/// verbs for memory lent to devices. Elsewhere the workspace's lints forbid it.
const MAY_BE_UNSAFE: &[&str] = &["gss", "nfsd", "verbs"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// For each crate in crates/, by folder: the folders of the workspace crates that it normally depends on.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let folder = |path: &str| {
        let path = Path::new(path);
        let path = if path.ends_with("Cargo.toml") { path.parent().unwrap() } else { path };
        path.strip_prefix(root().join("crates")).ok().map(|folder| folder.to_str().unwrap().to_owned())
    };
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let Some(name) = folder(package["manifest_path"].as_str().unwrap()) else { continue };
        let uses = package["dependencies"].as_array().unwrap().iter();
        let uses =
            uses.filter(|dependency| dependency["kind"].is_null()).filter_map(|d| d["path"].as_str().and_then(folder));
        found.insert(name, uses.collect());
    }
    found
}

#[test]
fn no_arrow_runs_the_wrong_way() {
    let dependencies = dependencies();
    assert!(dependencies.len() >= 5, "found only {dependencies:?}");
    for (name, uses) in &dependencies {
        let Some((_, allowed)) = MAY_USE.iter().find(|(folder, _)| folder == name) else {
            panic!("crates/{name} has no place in the house: add it to ARCHITECTURE.md and to this table");
        };
        for used in uses {
            assert!(allowed.contains(&used.as_str()), "crates/{name} may not use crates/{used}");
        }
    }
}

#[test]
fn unsafe_is_forbidden_where_the_plan_forbids_it() {
    for name in dependencies().keys() {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let forbidden = manifest.contains("[lints]\nworkspace = true");
        assert!(forbidden || MAY_BE_UNSAFE.contains(&name.as_str()), "crates/{name} does not inherit the lints");
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""));
}

/// `xtask` judges the built programs from outside: it uses none of the crates, and may contain `unsafe` in one file,
/// which maps files into memory.
#[test]
fn xtask_stands_outside() {
    let manifest = fs::read_to_string(root().join("xtask/Cargo.toml")).unwrap();
    let known = manifest.lines().filter(|line| line.starts_with("rpcrdma") || line.contains("../crates"));
    assert_eq!(known.collect::<Vec<_>>(), [] as [&str; 0], "xtask may use no crate of the project");
    assert!(manifest.contains("unsafe_code = \"deny\""));
    let mut files = Vec::new();
    sources(&root().join("xtask/src"), &mut files);
    let unsafe_files: Vec<_> =
        files.iter().filter(|file| fs::read_to_string(file).unwrap().contains("allow(unsafe_code")).collect();
    assert_eq!(unsafe_files, [&root().join("xtask/src/fsx/mapping.rs")]);
}

/// The most columns of a comment line: the same as for code. `rustfmt` does not wrap comments.
const COMMENT_COLUMNS: usize = 120;

/// Whether a line is a comment and too long. A row of a table may be longer, because it cannot be wrapped.
fn is_too_long(line: &str) -> bool {
    let line = line.trim_end();
    let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
    let text = comment.trim_start_matches(['/', '!']).trim_start();
    !text.starts_with('|') && line.chars().count() > COMMENT_COLUMNS
}

#[test]
fn lines_of_comment_have_no_more_columns_than_code() {
    let mut files = Vec::new();
    ["crates", "fuzz", "tests", "xtask"].iter().for_each(|folder| sources(&root().join(folder), &mut files));
    assert!(files.len() > 500, "{}", files.len());
    let mut long = Vec::new();
    for file in files {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| is_too_long(line));
        long.extend(lines.map(|(number, _)| format!("{name}:{}", number + 1)));
    }
    assert!(long.is_empty(), "more than {COMMENT_COLUMNS} columns:\n{}", long.join("\n"));
    assert!(is_too_long(&format!("    /// {}", "x".repeat(COMMENT_COLUMNS))));
    assert!(!is_too_long(&format!("// | {}", "x".repeat(COMMENT_COLUMNS))));
}

/// All Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The most columns of a line of prose on a page.
const PROSE_COLUMNS: usize = 100;
/// The most columns of a row of a table with its links, so that the rendered row fits a screen.
const ROW_COLUMNS: usize = 200;

/// The lines of a page that are too long. Code stays as a reader has to type it; a line of one word cannot be wrapped.
fn too_long_on_a_page(page: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut long = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let most = if line.starts_with('|') { ROW_COLUMNS } else { PROSE_COLUMNS };
        let can_be_wrapped = line.trim_start().trim_start_matches("- ").contains(' ') && !line.starts_with("![");
        if !in_code && line.chars().count() > most && can_be_wrapped {
            long.push(line);
        }
    }
    long
}

#[test]
fn pages_are_wrapped_and_their_tables_fit_a_screen() {
    let mut pages: Vec<_> = book::front_pages().map(|page| root().join(page)).collect();
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("README.md"));
    pages.extend(crates.filter(|page| page.exists()));
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    let mut long = Vec::new();
    for path in &pages {
        let page = fs::read_to_string(path).unwrap();
        long.extend(too_long_on_a_page(&page).into_iter().map(|line| format!("{}: {line}", path.display())));
    }
    assert!(pages.len() > 30, "only {} pages are found", pages.len());
    assert!(long.is_empty(), "lines that are too long:\n{}", long.join("\n"));
}

#[test]
fn a_line_that_is_too_long_is_found() {
    let long = "word ".repeat(21);
    assert_eq!(too_long_on_a_page(&long).len(), 1);
    assert!(too_long_on_a_page(&format!("```\n{long}\n```\n| {long} |\n- {}\n", "x".repeat(150))).is_empty());
    assert_eq!(too_long_on_a_page(&format!("| {long}{long} |")).len(), 1);
}
