//! What each package says about itself, so that the crates can be published: the crates of `crates/` say all that a
//! registry shows, and nothing else can be published by accident.

use super::root;
use serde_json::Value;
use std::{fs, path::Path, process::Command};

/// All packages of the workspace: those of `crates/`, and the others.
fn packages() -> (Vec<Value>, Vec<Value>) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter().cloned();
    let (crates, others): (Vec<_>, Vec<_>) = packages.partition(is_crate);
    assert!(crates.len() > 10 && others.len() > 3, "{} crates and {} other packages", crates.len(), others.len());
    (crates, others)
}

fn folder(package: &Value) -> &Path {
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap()
}

/// Whether a package is in `crates/`.
fn is_crate(package: &Value) -> bool {
    folder(package).starts_with(root().join("crates"))
}

fn words<'a>(package: &'a Value, key: &str) -> Vec<&'a str> {
    package[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn every_crate_says_what_a_registry_shows() {
    for package in packages().0 {
        let name = package["name"].as_str().unwrap();
        assert!(package["publish"].is_null(), "{name} can be published");
        let description = package["description"].as_str().unwrap_or_default();
        assert!((20..=160).contains(&description.len()), "{name}: {description}");
        let (keywords, categories) = (words(&package, "keywords"), words(&package, "categories"));
        assert!((1..=5).contains(&keywords.len()), "{name}: keywords {keywords:?}");
        assert!(keywords.iter().all(|word| word.len() <= 20), "{name}: keywords {keywords:?}");
        assert!((1..=5).contains(&categories.len()), "{name}: categories {categories:?}");
        assert!(package["license"].as_str().is_some_and(|license| license.contains("MIT OR Apache-2.0")), "{name}");
        assert_eq!(package["metadata"]["docs"]["rs"]["all-features"], true, "{name}: docs.rs builds all features");
        assert_eq!(package["readme"], "README.md", "{name}");
        let readme = fs::read_to_string(folder(&package).join("README.md")).unwrap();
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: its readme begins with its name");
        for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let (ours, whole) = (folder(&package).join(license), root().join(license));
            assert_eq!(fs::read(ours).ok(), fs::read(whole).ok(), "{name}: {license}");
        }
    }
}

#[test]
fn front_pages_name_every_feature() {
    for package in packages().0 {
        let front = fs::read_to_string(folder(&package).join("src/lib.rs")).unwrap_or_default();
        let readme = fs::read_to_string(folder(&package).join("README.md")).unwrap();
        let features = package["features"].as_object().unwrap().keys();
        for feature in features.filter(|feature| *feature != "default") {
            let name = format!("`{feature}`");
            assert!(front.contains(&name) && readme.contains(&name), "{}: feature {name}", package["name"]);
        }
    }
}

#[test]
fn what_is_not_a_crate_cannot_be_published() {
    for package in packages().1 {
        assert_eq!(package["publish"], Value::Array(Vec::new()), "{}: publish = false", package["name"]);
    }
    let fuzz = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    assert!(fuzz.contains("\npublish = false\n"));
}
