//! Rules, tests and exceptions held against each other, for people and for programs.

use super::{
    catalogue::{Exception, Level, Rule},
    scan::Proof,
};
use anyhow::ensure;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// What is known of every rule.
pub(super) struct Report {
    /// In the order of the catalogues.
    rules: Vec<Rule>,
    /// The tests, by the id that they prove.
    proofs: BTreeMap<String, Vec<Proof>>,
    exceptions: BTreeMap<String, Exception>,
}

/// How many rules there are, and what became of them.
#[derive(Clone, Copy, Default)]
struct Counts {
    total: usize,
    proven: usize,
    excepted: usize,
}

impl Counts {
    fn missing(self) -> usize {
        self.total.saturating_sub(self.proven).saturating_sub(self.excepted)
    }

    /// The share that is proven, in per cent.
    fn share(self) -> f64 {
        100.0 * self.proven as f64 / self.total as f64
    }
}

impl Report {
    /// Fails when a test or an exception names a rule that is in no catalogue, or when a rule is excepted twice, or
    /// although it is proven.
    pub(super) fn new(rules: Vec<Rule>, listed: Vec<Exception>, tests: Vec<Proof>) -> anyhow::Result<Report> {
        let known: BTreeSet<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        let mut proofs: BTreeMap<String, Vec<Proof>> = BTreeMap::new();
        for test in tests {
            for id in &test.ids {
                ensure!(
                    known.contains(id.as_str()),
                    "{}:{}: {} proves {id}, which is in no catalogue",
                    test.file,
                    test.line,
                    test.name
                );
                proofs.entry(id.clone()).or_default().push(test.clone());
            }
        }
        let mut exceptions = BTreeMap::new();
        for exception in listed {
            let id = exception.id.clone();
            ensure!(known.contains(id.as_str()), "the exception of {id} is about a rule that is in no catalogue");
            if let Some([test, ..]) = proofs.get(&id).map(Vec::as_slice) {
                anyhow::bail!("{id} needs no exception: {}:{}: {} proves it", test.file, test.line, test.name);
            }
            ensure!(exceptions.insert(id.clone(), exception).is_none(), "{id} is excepted twice");
        }
        Ok(Report { rules, proofs, exceptions })
    }

    /// The rules that are neither proven nor excepted.
    pub(super) fn missing(&self) -> Vec<&str> {
        let without = |rule: &&Rule| !self.proofs.contains_key(&rule.id) && !self.exceptions.contains_key(&rule.id);
        self.rules.iter().filter(without).map(|rule| rule.id.as_str()).collect()
    }

    /// By document in the order of the catalogues, then by level.
    fn counts(&self) -> Vec<(&str, BTreeMap<Level, Counts>)> {
        let mut documents: Vec<(&str, BTreeMap<Level, Counts>)> = Vec::new();
        for rule in &self.rules {
            let at = documents.iter().position(|(document, _)| *document == rule.document()).unwrap_or_else(|| {
                documents.push((rule.document(), BTreeMap::new()));
                documents.len() - 1
            });
            let counts = documents[at].1.entry(rule.level).or_default();
            counts.total += 1;
            counts.proven += usize::from(self.proofs.contains_key(&rule.id));
            counts.excepted += usize::from(self.exceptions.contains_key(&rule.id));
        }
        documents
    }

    /// The shares and what is missing, for programs.
    pub(super) fn value(&self) -> Value {
        let mut documents = serde_json::Map::new();
        for (document, levels) in self.counts() {
            let levels = levels.into_iter().map(|(level, counts)| {
                let Counts { total, proven, excepted } = counts;
                (level.to_string(), json!({ "total": total, "proven": proven, "excepted": excepted }))
            });
            documents.insert(document.to_owned(), Value::Object(levels.collect()));
        }
        json!({ "documents": documents, "missing": self.missing() })
    }

    /// The shares and what is missing, for people.
    pub(super) fn table(&self) -> String {
        let mut out = format!(
            "{:8}  {:9}  {:>5}  {:>6}  {:>8}  {:>7}  {:>6}\n",
            "document", "level", "total", "proven", "excepted", "missing", "share"
        );
        for (document, levels) in self.counts() {
            for (level, counts) in levels {
                let Counts { total, proven, excepted } = counts;
                let _ = writeln!(
                    out,
                    "{document:8}  {level:9}  {total:5}  {proven:6}  {excepted:8}  {:7}  {:5.1}%",
                    counts.missing(),
                    counts.share()
                );
            }
        }
        let missing = self.missing();
        if missing.is_empty() {
            out += "\nEvery rule is proven, or its exception gives a reason.\n";
        } else {
            let _ = writeln!(out, "\nNeither proven nor excepted: {}", missing.join(", "));
        }
        out
    }

    /// Every rule with its tests, or with the reason why it has none.
    pub(super) fn list(&self) -> String {
        let mut out = String::new();
        for rule in &self.rules {
            let _ = writeln!(out, "{} {}", rule.id, rule.level);
            out += &self.standing(rule);
        }
        out
    }

    /// What the rules say whose ids begin with `id`, with their tests; only the rule of that id if there is one.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn about(&self, id: &str) -> anyhow::Result<String> {
        let exact: Vec<_> = self.rules.iter().filter(|rule| rule.id == id).collect();
        let found =
            if exact.is_empty() { self.rules.iter().filter(|rule| rule.id.starts_with(id)).collect() } else { exact };
        ensure!(!found.is_empty(), "no rule's id begins with {id}");
        let mut out = String::new();
        for rule in found {
            let _ = writeln!(out, "{} {} ({})\n    {}", rule.id, rule.level, rule.role, rule.text);
            out += &self.standing(rule);
        }
        Ok(out)
    }

    /// The tests of a rule or its exception, a line each.
    fn standing(&self, rule: &Rule) -> String {
        let mut out = String::new();
        for test in self.proofs.get(&rule.id).into_iter().flatten() {
            let _ = writeln!(out, "  proven by {}:{} {}", test.file, test.line, test.name);
        }
        if let Some(exception) = self.exceptions.get(&rule.id) {
            let _ = writeln!(out, "  excepted: {} (see {})", exception.reason, exception.place);
        } else if out.is_empty() {
            out += "  MISSING\n";
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str, level: Level) -> Rule {
        Rule { id: id.to_owned(), level, role: "both".to_owned(), text: "Said.".to_owned() }
    }

    fn exception(id: &str) -> Exception {
        Exception { id: id.to_owned(), reason: "not built".to_owned(), place: "README.md".to_owned() }
    }

    fn proof(ids: &[&str]) -> Proof {
        let ids = ids.iter().map(|&id| id.to_owned()).collect();
        Proof { file: "a.rs".to_owned(), line: 7, name: "holds".to_owned(), ids }
    }

    fn rules() -> Vec<Rule> {
        vec![
            rule("V1-1-a", Level::Must),
            rule("V1-1-b", Level::Must),
            rule("V1-1-c", Level::Fact),
            rule("V2-1-a", Level::Must),
        ]
    }

    fn refused(exceptions: &[&str], tests: &[&[&str]]) -> String {
        let exceptions = exceptions.iter().map(|id| exception(id)).collect();
        let tests = tests.iter().map(|ids| proof(ids)).collect();
        match Report::new(rules(), exceptions, tests) {
            Ok(_) => panic!("let through"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn counts_and_what_is_missing() {
        let report = Report::new(rules(), vec![exception("V1-1-c")], vec![proof(&["V1-1-a", "V2-1-a"])]).unwrap();
        assert_eq!(
            report.value(),
            json!({
                "documents": {
                    "V1": {
                        "MUST": { "total": 2, "proven": 1, "excepted": 0 },
                        "FACT": { "total": 1, "proven": 0, "excepted": 1 },
                    },
                    "V2": { "MUST": { "total": 1, "proven": 1, "excepted": 0 } },
                },
                "missing": ["V1-1-b"],
            })
        );
        assert!(report.table().contains("Neither proven nor excepted: V1-1-b\n"), "{}", report.table());
    }

    #[test]
    fn one_rule_and_its_tests() {
        let report = Report::new(rules(), vec![exception("V1-1-c")], vec![proof(&["V1-1-a"])]).unwrap();
        assert_eq!(report.about("V1-1-a").unwrap(), "V1-1-a MUST (both)\n    Said.\n  proven by a.rs:7 holds\n");
        let all = report.about("V1").unwrap();
        assert!(all.contains("  MISSING\n") && all.contains("  excepted: not built (see README.md)\n"), "{all}");
        assert!(report.about("V3").is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(refused(&[], &[&["V9-1-a"]]).starts_with("a.rs:7: holds proves V9-1-a"));
        assert!(refused(&["V9-1-a"], &[]).contains("in no catalogue"));
        assert!(refused(&["V1-1-a"], &[&["V1-1-a"]]).contains("needs no exception"));
        assert!(refused(&["V1-1-a", "V1-1-a"], &[]).contains("twice"));
    }
}
