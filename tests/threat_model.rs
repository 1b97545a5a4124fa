//! The threat model says which tests hold its claims: this says that they are there.

use std::{collections::BTreeSet, fs, path::Path};

/// The parts of a line between backquotes that name a test: a file below `crates/`, or one of the rooms' own, and a
/// function.
fn named(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::"))
}

/// The claims of a page: rows whose first cell is a letter, a dash and a number, by that id.
fn claims(page: &str) -> Vec<(&str, &str)> {
    let id = |row: &str| {
        row.split_once('-').is_some_and(|(letter, number)| {
            letter.len() == 1 && letter.as_bytes()[0].is_ascii_uppercase() && number.parse::<u32>().is_ok()
        })
    };
    page.lines()
        .filter_map(|line| Some((line.strip_prefix("| ")?.split_once(" |")?.0, line)))
        .filter(|(first, _)| id(first))
        .collect()
}

/// Whether a source has a test of this name: a function with a test's attribute above it, a comment or other attributes
/// between.
fn has_test(source: &str, name: &str) -> bool {
    let declares = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ").and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let lines: Vec<_> = source.lines().collect();
    let above = |at: usize| lines[..at].iter().rev().map(|line| line.trim_start());
    let is_test = |line: &str| line.starts_with("#[") && line.contains("test");
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| declares(line))
        .any(|(at, _)| above(at).take_while(|line| line.starts_with("#[") || line.starts_with("//")).any(is_test))
}

#[test]
fn each_claim_of_the_threat_model_names_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/threat-model.md")).unwrap();
    let claims = claims(&page);
    assert!(claims.len() > 40, "only {} claims are found", claims.len());
    let ids: BTreeSet<_> = claims.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), claims.len(), "an id stands twice");
    let mut wrong = Vec::new();
    for (id, line) in claims {
        if named(line).next().is_none() {
            wrong.push(format!("{id} names no test"));
        }
        for (file, test) in named(line) {
            let path = if file.starts_with("tests/") { root.to_owned() } else { root.join("crates") };
            let source = fs::read_to_string(path.join(format!("{file}.rs"))).unwrap_or_default();
            if !has_test(&source, test) {
                wrong.push(format!("{id}: {file}.rs has no test {test}"));
            }
        }
    }
    assert_eq!(wrong, [] as [String; 0]);
}

#[test]
fn tests_are_told_from_other_functions() {
    let source = "#[tokio::test]\n// why\nasync fn one() {}\nfn two() {}\n/// proves: X\n#[test]\nfn three_and() {}\n";
    assert!(has_test(source, "one") && has_test(source, "three_and"));
    assert!(!has_test(source, "two") && !has_test(source, "three"));
    assert_eq!(claims("| A-1 | x |\n| id | A-2 |\n| AB-1 | y |").len(), 1);
}
