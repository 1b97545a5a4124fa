//! The results for the faults, for people and for programs.

use super::{
    judge::{Judged, Verdict},
    watch::End,
};
use serde_json::{Value, json};
use std::{fmt::Write as _, time::Duration};

/// How many tests of a hanging program are named; it may have many.
const NAMED_TESTS: usize = 3;

/// What noticed a fault, or that nothing did.
pub(super) fn outcome(judged: &Judged<'_>) -> String {
    match &judged.verdict {
        Verdict::Caught(catch) => {
            let package = &catch.target.package;
            let program = catch.target.test.as_ref().map(|test| format!(" {test}")).unwrap_or_default();
            match &catch.end {
                End::Failed { test } => format!("{package}{program}: {test}"),
                End::Died { how } => format!("{package}{program}: died, {how}"),
                End::Hung { limit, tests } => {
                    let seconds = limit.as_secs();
                    format!("{package}{program}: not done in {seconds} s: {}", named(tests))
                }
                End::Passed => format!("{package}{program}: passed"),
            }
        }
        Verdict::Survived => "SURVIVED: no test notices it".to_owned(),
        Verdict::Wrong(why) => format!("WRONG: {why}"),
    }
}

fn named(tests: &[String]) -> String {
    let mut text = tests.iter().take(NAMED_TESTS).map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some(more) = tests.len().checked_sub(NAMED_TESTS).filter(|&more| more > 0) {
        let _ = write!(text, " and {more} more");
    }
    text
}

/// How many were caught, survived, and were wrong.
fn counts(judged: &[Judged<'_>]) -> (usize, usize, usize) {
    let count = |is: fn(&Verdict) -> bool| judged.iter().filter(|judged| is(&judged.verdict)).count();
    (
        count(|verdict| matches!(verdict, Verdict::Caught(_))),
        count(|verdict| matches!(verdict, Verdict::Survived)),
        count(|verdict| matches!(verdict, Verdict::Wrong(_))),
    )
}

/// Whether every fault was caught.
pub(super) fn all_caught(judged: &[Judged<'_>]) -> bool {
    counts(judged).0 == judged.len()
}

/// The table for `docs/mutants.md`, and a line with the totals.
pub(super) fn table(judged: &[Judged<'_>], took: Duration) -> String {
    let mut out = "| fault | caught by | seconds |\n|---|---|---:|\n".to_owned();
    for one in judged {
        let by = outcome(one);
        let by = by.lines().next().unwrap_or_default();
        let by = if matches!(one.verdict, Verdict::Caught(_)) { format!("`{by}`") } else { by.to_owned() };
        let _ = writeln!(out, "| {} | {by} | {} |", one.fault.name, one.took.as_secs_f64().round());
    }
    let (caught, survived, wrong) = counts(judged);
    let seconds = took.as_secs();
    let _ =
        write!(out, "\n{} faults in {seconds} s: {caught} caught, {survived} survived, {wrong} wrong.", judged.len());
    out
}

/// The same as JSON, for programs.
pub(super) fn value(judged: &[Judged<'_>], seed: Option<u64>, took: Duration) -> Value {
    let faults = judged.iter().map(|one| {
        let mut value = json!({
            "name": one.fault.name, "crate": one.fault.folder, "file": one.fault.path(),
            "breaks": one.fault.breaks, "rules": one.fault.rules, "seconds": one.took.as_secs_f64(),
        });
        match &one.verdict {
            Verdict::Caught(catch) => {
                value["outcome"] = "caught".into();
                let (how, tests) = match &catch.end {
                    End::Failed { test } => ("failed", vec![test.clone()]),
                    End::Hung { tests, .. } => ("hung", tests.clone()),
                    End::Died { .. } | End::Passed => ("died", Vec::new()),
                };
                value["by"] =
                    json!({ "package": catch.target.package, "program": catch.target.test, "how": how, "tests": tests });
            }
            Verdict::Survived => value["outcome"] = "survived".into(),
            Verdict::Wrong(why) => {
                value["outcome"] = "wrong".into();
                value["why"] = why.as_str().into();
            }
        }
        value
    });
    let (caught, survived, wrong) = counts(judged);
    json!({
        "seed": seed, "seconds": took.as_secs_f64(), "caught": caught, "survived": survived, "wrong": wrong,
        "faults": faults.collect::<Vec<_>>(),
    })
}
