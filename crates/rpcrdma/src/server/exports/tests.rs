//! Exports together.

use super::*;
use std::os::unix::fs::symlink;

#[test]
fn exports_have_names_files_and_places_of_their_own() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    for name in ["a/in", "a/deep/er", "b", "c"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    symlink(at("a"), at("link")).unwrap();
    symlink(at("b"), at("a/to-b")).unwrap();
    let told = |exports: &[(&str, &str)]| {
        let option = |(directory, path): &(&str, &str)| Export::directory(*path, at(directory));
        check(&exports.iter().map(option).collect::<Vec<_>>()).map_err(|error| error.to_string())
    };
    let refused = |exports: &[(&str, &str)], part: &str| {
        let told = told(exports).expect_err(part);
        assert!(told.contains(part), "{exports:?}: {told}");
    };
    assert_eq!(told(&[("a", "/a"), ("b", "/b"), ("c", "/x/c")]), Ok(()));
    assert_eq!(told(&[("a", "/"), ("b", "/in"), ("c", "/deep/er")]), Ok(()), "there is a directory for each");
    refused(&[("a", "/"), ("b", "/")], "give one of them another name");
    for inner in ["a", "a/in", "link", "link/in"] {
        refused(&[("a", "/a"), (inner, "/b")], "its files would be served twice");
        refused(&[(inner, "/b"), ("a", "/a")], "its files would be served twice");
    }
    refused(&[("a", "/"), ("b", "/none")], "make the directory");
    refused(&[("b", "/deep/er/none"), ("a", "/")], "make the directory");
    refused(&[("a", "/"), ("c", "/to-b")], "make the directory");
    // The nearest export above counts.
    refused(&[("a", "/"), ("b", "/deep"), ("c", "/deep/er")], "within the export /deep");
    assert_eq!(told(&[("a", "/a"), ("b", "/a-b"), ("c", "/ab")]), Ok(()), "names, not letters");
}
