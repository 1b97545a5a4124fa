//! `cargo xtask requirements`: which test proves which rule of the specifications, and which rules nothing proves.
//!
//! The command reads four things: the catalogues of rules (`spec/requirements.toml`, `spec/requirements-extra.toml`),
//! the lines `/// proves: ID, ID` above the tests of the workspace, the comments of the crates that name a rule
//! (`places.rs`), and `spec/exceptions.toml`, which says why a rule without a test has none. Every rule must be proven
//! or excepted; otherwise the command fails, and so does the test below. So CI fails if a proof disappears.

mod catalogue;
mod places;
mod report;
mod scan;
mod sources;

use anyhow::Context as _;
use std::{path::Path, process::ExitCode};

/// What to print.
#[derive(clap::Args)]
#[command(max_term_width = 100)]
pub(crate) struct Arguments {
    /// Print as JSON the counts for each document and level, the missing rules, and the rules that no place in the code
    /// names
    #[arg(long, conflicts_with_all = ["id", "summary", "without_place"])]
    json: bool,
    /// Print only the shares for each document and level, and the missing rules
    #[arg(long)]
    summary: bool,
    /// Print one rule: its text, the places in the code that name it, and its tests or the reason why it has none; the
    /// beginning of an id prints several rules
    #[arg(long, value_name = "ID", conflicts_with = "summary")]
    id: Option<String>,
    /// Print the rules that no place in the code names, without those that have an exception
    #[arg(long, conflicts_with_all = ["id", "summary"])]
    without_place: bool,
}

/// Prints what the arguments ask for. Fails when a rule is neither proven nor excepted, or a file of the catalogue or a
/// line of a test is wrong.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let report = read(root)?;
    if let Some(id) = &arguments.id {
        print!("{}", report.about(id)?);
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.without_place {
        print!("{}", report.without_place());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report.value())?);
    } else {
        if !arguments.summary {
            println!("{}", report.list());
        }
        print!("{}", report.table());
    }
    Ok(if report.missing().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a repository's catalogues, tests and exceptions, and compares them.
fn read(root: &Path) -> anyhow::Result<report::Report> {
    let rules = catalogue::rules(&root.join("spec"))?;
    let exceptions = catalogue::exceptions(root)?;
    let mut tags: Vec<&str> = rules.iter().map(catalogue::Rule::document).collect();
    tags.dedup();
    let (mut proofs, mut places) = (Vec::new(), Vec::new());
    for source in sources::sources(root)? {
        proofs.extend(scan::in_source(&source)?);
        // The report's own tests use ids that do not exist.
        if !source.file.starts_with("xtask/src/requirements/") {
            places.extend(places::in_source(&source, &tags));
        }
    }
    report::Report::new(rules, exceptions, proofs, places)
}

/// The ids of a repository's rules.
#[cfg(test)]
pub(crate) fn ids(root: &Path) -> anyhow::Result<std::collections::BTreeSet<String>> {
    Ok(catalogue::rules(&root.join("spec"))?.into_iter().map(|rule| rule.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_repository() -> report::Report {
        read(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap()
    }

    #[test]
    fn every_rule_has_a_test_or_a_reason_why_not() {
        let report = of_this_repository();
        assert!(report.missing().is_empty(), "neither proven nor excepted:\n{}", report.table());
    }

    /// The report really finds the documents, rules and tests, so an empty report cannot pass for a good one.
    #[test]
    fn the_report_is_about_the_documents_that_are_implemented() {
        let value = of_this_repository().value();
        for document in ["V1", "V2", "IE", "ULB", "MPA", "DDP", "RDMAP", "CM", "BIDI", "RPC", "NFS3"] {
            let total: u64 = value["documents"][document]
                .as_object()
                .unwrap_or_else(|| panic!("{document} is not there"))
                .values()
                .map(|counts| counts["total"].as_u64().unwrap())
                .sum();
            assert!(total > 0, "{document} is empty");
        }
        let must = &value["documents"]["V2"]["MUST"];
        assert!(must["proven"].as_u64() > must["excepted"].as_u64(), "{must}");
    }
}
