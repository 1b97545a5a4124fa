//! The threat model says which tests prove its claims: this test checks that they exist.

use std::{collections::BTreeSet, fs, path::Path};

/// A claim: its id, and the tests that it names, each as a file below `crates/` or in `tests/`, and a function.
struct Claim {
    id: String,
    tests: Vec<(String, String)>,
}

/// The claims of a page: items of its lists that begin with an id in bold, such as `- **M-1.**`. The items within name
/// the tests, a file and its functions: ``  - `file.rs`: `one`, `another` ``.
fn claims(page: &str) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    let mut file = None;
    for line in page.lines() {
        if let Some(id) = claim_id(line) {
            claims.push(Claim { id: id.to_owned(), tests: Vec::new() });
            file = None;
            continue;
        }
        let names = match line.strip_prefix("  - ") {
            Some(item) => {
                let named = item.strip_prefix('`').and_then(|rest| rest.split_once("`:"));
                file = named.map(|(named, _)| named.to_owned());
                named.map_or("", |(_, names)| names)
            }
            None if line.starts_with("    ") => line,
            None => {
                file = None;
                continue;
            }
        };
        if let (Some(file), Some(claim)) = (&file, claims.last_mut()) {
            let functions = names.split('`').skip(1).step_by(2);
            claim.tests.extend(functions.map(|function| (file.clone(), function.to_owned())));
        }
    }
    claims
}

/// The id with which a claim begins: a letter, a dash and a number.
fn claim_id(line: &str) -> Option<&str> {
    let (id, _) = line.strip_prefix("- **")?.split_once(".**")?;
    let (letter, number) = id.split_once('-')?;
    let is_id = letter.len() == 1 && letter.as_bytes()[0].is_ascii_uppercase() && number.parse::<u32>().is_ok();
    is_id.then_some(id)
}

/// Whether a source has a test of this name: a function below a test attribute; comments and other attributes may stand
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
    assert!(claims.len() > 100, "only {} claims are found", claims.len());
    let ids: BTreeSet<_> = claims.iter().map(|claim| &claim.id).collect();
    assert_eq!(ids.len(), claims.len(), "an id stands twice");
    let mut wrong = Vec::new();
    for Claim { id, tests } in &claims {
        if tests.is_empty() {
            wrong.push(format!("{id} names no test"));
        }
        for (file, test) in tests {
            let path = if file.starts_with("tests/") { root.to_owned() } else { root.join("crates") };
            let source = fs::read_to_string(path.join(file)).unwrap_or_default();
            if !has_test(&source, test) {
                wrong.push(format!("{id}: {file} has no test {test}"));
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
}

#[test]
fn claims_and_their_tests_are_read() {
    let page =
        "- **A-1.** It\n  is `so`.\n  - `a/b.rs`: `one`,\n    `two`\n  - `c.rs`: `three`\n\n- **AB-1.** `x`\n- A-2\n";
    let claims = claims(page);
    assert!(claims.len() == 1 && claims[0].id == "A-1");
    let tests: Vec<_> = claims[0].tests.iter().map(|(file, test)| (file.as_str(), test.as_str())).collect();
    assert_eq!(tests, [("a/b.rs", "one"), ("a/b.rs", "two"), ("c.rs", "three")]);
}
