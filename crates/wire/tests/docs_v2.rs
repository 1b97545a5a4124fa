//! docs/version2.md says how we interpret every contradiction of the draft.

use std::collections::BTreeSet;

fn repository(file: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn every_ambiguity_of_the_draft_has_its_reading() {
    let catalogue = repository("spec/requirements.toml");
    let ids = |level: &str| -> BTreeSet<&str> {
        let entries = catalogue.split("[[requirement]]").filter(|entry| entry.contains(level));
        let ids = entries.filter_map(|entry| entry.split_once("id = \"")?.1.split_once('"')).map(|(id, _)| id);
        ids.filter(|id| id.starts_with("V2-")).collect()
    };
    let ambiguities = ids("level = \"AMBIGUITY\"");
    assert!(ambiguities.len() > 50);
    let page = repository("docs/version2.md");
    let told: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once(".**"))
        .flat_map(|(ids, _)| ids.split(", "))
        .filter(|id| id.starts_with("V2-"))
        .collect();
    let untold: Vec<_> = ambiguities.difference(&told).collect();
    assert!(untold.is_empty(), "not read: {untold:?}");
    // The page also says how we interpret gaps of the draft.
    let unknown: Vec<_> = told.difference(&ids("level = ")).copied().collect();
    assert!(unknown.is_empty(), "in no catalogue: {unknown:?}");
}
