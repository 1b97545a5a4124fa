//! Compares rules, tests and exceptions, for people and for programs.

use super::{
    catalogue::{Exception, Level, Rule},
    places::Place,
    scan::Proof,
};
use anyhow::ensure;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// All rules with their tests, places and exceptions.
pub(super) struct Report {
    /// In the order of the catalogues.
    rules: Vec<Rule>,
    /// The tests, by the id that they prove.
    proofs: BTreeMap<String, Vec<Proof>>,
    /// The places in code, by the id that they name.
    places: BTreeMap<String, Vec<Place>>,
    exceptions: BTreeMap<String, Exception>,
}

/// How many rules there are, and how many of them are proven, excepted and so on.
#[derive(Clone, Copy, Default)]
struct Counts {
    total: usize,
    proven: usize,
    excepted: usize,
    /// Rules that a place in code names.
    placed: usize,
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
    /// Fails when a test, a place or an exception names a rule that is in no catalogue, or when a rule is excepted
    /// twice, or although it is proven.
    pub(super) fn new(
        rules: Vec<Rule>,
        listed: Vec<Exception>,
        tests: Vec<Proof>,
        named: Vec<Place>,
    ) -> anyhow::Result<Report> {
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
        let mut places: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        for place in named {
            let Place { file, line, ids, in_test, .. } = &place;
            for id in ids {
                ensure!(known.contains(id.as_str()), "{file}:{line}: {id} is named, which is in no catalogue");
                if !in_test {
                    places.entry(id.clone()).or_default().push(place.clone());
                }
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
        Ok(Report { rules, proofs, places, exceptions })
    }

    /// The rules that are neither proven nor excepted.
    pub(super) fn missing(&self) -> Vec<&str> {
        let without = |rule: &&Rule| !self.proofs.contains_key(&rule.id) && !self.exceptions.contains_key(&rule.id);
        self.rules.iter().filter(without).map(|rule| rule.id.as_str()).collect()
    }

    /// The rules that no place in code names, without those that have no test either.
    fn unplaced(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| !self.places.contains_key(&rule.id) && !self.exceptions.contains_key(&rule.id))
    }

    /// These rules, one on each line, and their number.
    pub(super) fn without_place(&self) -> String {
        let mut out = String::new();
        for rule in self.unplaced() {
            let _ = writeln!(out, "{} {} ({}) {}", rule.id, rule.level, rule.role, rule.text);
        }
        let kept = self.rules.len() - self.exceptions.len();
        let _ = writeln!(out, "\n{} of {kept} rules have no place in code that names them.", self.unplaced().count());
        out
    }

    /// The counts by document, in the order of the catalogues, then by level.
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
            counts.placed += usize::from(self.places.contains_key(&rule.id));
        }
        documents
    }

    /// The shares and the missing rules, for programs.
    pub(super) fn value(&self) -> Value {
        let mut documents = serde_json::Map::new();
        for (document, levels) in self.counts() {
            let levels = levels.into_iter().map(|(level, counts)| {
                let Counts { total, proven, excepted, placed } = counts;
                let value = json!({ "total": total, "proven": proven, "excepted": excepted, "placed": placed });
                (level.to_string(), value)
            });
            documents.insert(document.to_owned(), Value::Object(levels.collect()));
        }
        let unplaced: Vec<&str> = self.unplaced().map(|rule| rule.id.as_str()).collect();
        json!({ "documents": documents, "missing": self.missing(), "without_place": unplaced })
    }

    /// The shares and the missing rules, for people.
    pub(super) fn table(&self) -> String {
        let mut out = format!(
            "{:8}  {:9}  {:>5}  {:>6}  {:>8}  {:>7}  {:>6}  {:>7}\n",
            "document", "level", "total", "proven", "excepted", "missing", "share", "in code"
        );
        for (document, levels) in self.counts() {
            for (level, counts) in levels {
                let Counts { total, proven, excepted, placed } = counts;
                let _ = writeln!(
                    out,
                    "{document:8}  {level:9}  {total:5}  {proven:6}  {excepted:8}  {:7}  {:5.1}%  {placed:7}",
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
        let unplaced = self.unplaced().count();
        let _ = writeln!(out, "Without a place in code that names them: {unplaced} (--without-place lists them).");
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

    /// The rules whose ids begin with `id`, with their texts, places and tests; only one rule if its id is exactly
    /// `id`.
    ///
    /// # Errors
    /// If there is no such rule.
    pub(super) fn about(&self, id: &str) -> anyhow::Result<String> {
        let exact: Vec<_> = self.rules.iter().filter(|rule| rule.id == id).collect();
        let found =
            if exact.is_empty() { self.rules.iter().filter(|rule| rule.id.starts_with(id)).collect() } else { exact };
        ensure!(!found.is_empty(), "no rule's id begins with {id}");
        let mut out = String::new();
        for rule in found {
            let _ = writeln!(out, "{} {} ({}): {}\n    {}", rule.id, rule.level, rule.role, rule.source(), rule.text);
            out += &self.in_code(rule);
            out += &self.standing(rule);
        }
        Ok(out)
    }

    /// The places of a rule, a line each.
    fn in_code(&self, rule: &Rule) -> String {
        let mut out = String::new();
        for Place { file, line, code, .. } in self.places.get(&rule.id).into_iter().flatten() {
            let _ = writeln!(out, "  in code at {file}:{line}: {code}");
        }
        if out.is_empty() && !self.exceptions.contains_key(&rule.id) {
            out += "  no place in code names it\n";
        }
        out
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
mod tests;
