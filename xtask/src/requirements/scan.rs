//! The proofs: lines `/// proves: ID, ID` of the workspace's sources, each directly above the attribute of a test
//! (several such lines may stand in a row). Such a line anywhere else is an error, because no test would prove its
//! rules; so is such a line above an ignored test.

use super::sources::Source;
use anyhow::{Context as _, bail, ensure};

/// Attributes that make a function a test.
const TESTS: [&str; 2] = ["#[test]", "#[tokio::test"];

/// A test with the rules that it proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// The file, from the repository's root.
    pub(super) file: String,
    /// The line of the test's function, counted from 1.
    pub(super) line: usize,
    /// The test's function.
    pub(super) name: String,
    /// The rules, in the order of the line.
    pub(super) ids: Vec<String>,
}

/// The most rules that one test may prove: a reader must be able to see that the test proves each of them.
const MAX_IDS: usize = 12;

/// The proofs of one file.
pub(super) fn in_source(source: &Source) -> anyhow::Result<Vec<Proof>> {
    let Source { file, text } = source;
    let mut proofs = Vec::new();
    let mut lines = (1..).zip(text.lines().map(str::trim)).peekable();
    while let Some((at, line)) = lines.next() {
        let Some(said) = said(line) else { continue };
        let mut ids = listed(said).with_context(|| format!("{file}:{at}"))?;
        while let Some((at, more)) = lines.next_if(|(_, line)| self::said(line).is_some()) {
            ids.extend(listed(self::said(more).unwrap_or_default()).with_context(|| format!("{file}:{at}"))?);
        }
        let attribute = lines.peek().map_or("", |(_, line)| *line);
        ensure!(
            TESTS.iter().any(|test| attribute.starts_with(test)),
            "{file}:{at}: what is proven stands directly above a test's attribute, not above {attribute:?}"
        );
        let Some((line, name)) = function(file, &mut lines)? else {
            bail!("{file}:{at}: no function follows");
        };
        ensure!(
            ids.len() <= MAX_IDS,
            "{file}:{line}: {name} proves {} rules, and a test proves at most {MAX_IDS}: cut it up",
            ids.len()
        );
        proofs.push(Proof { file: file.clone(), line, name, ids });
    }
    Ok(proofs)
}

/// The text behind the mark, if the line has one. A slightly different spelling of the mark counts too, and is an error
/// later if it is not above a test: so no line is silently ignored.
fn said(line: &str) -> Option<&str> {
    line.trim_start_matches(['/', '!']).trim_start().strip_prefix("proves:").filter(|_| line.starts_with("//"))
}

/// The ids of a line.
fn listed(said: &str) -> anyhow::Result<Vec<String>> {
    let ids: Vec<_> = said.split(',').map(|id| id.trim().to_owned()).collect();
    for id in &ids {
        let plain = id.chars().all(|letter| letter.is_ascii_alphanumeric() || "-.".contains(letter));
        ensure!(plain && id.contains('-'), "{id:?} is no id");
    }
    Ok(ids)
}

/// The function to which the attributes at the beginning of `lines` belong: its line and name.
fn function<'a>(
    file: &str,
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
) -> anyhow::Result<Option<(usize, String)>> {
    for (at, line) in lines {
        ensure!(!line.starts_with("#[ignore"), "{file}:{at}: a test that is ignored proves nothing");
        let words = line.strip_prefix("pub ").unwrap_or(line);
        let words = words.strip_prefix("async ").unwrap_or(words);
        if let Some(rest) = words.strip_prefix("fn ") {
            let name = rest.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next().unwrap_or(rest);
            return Ok(Some((at, name.to_owned())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_text(text: &str) -> anyhow::Result<Vec<Proof>> {
        in_source(&Source { file: "a.rs".to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_test_says_what_it_proves() {
        let text = [
            "/// Said at length.",
            "/// proves: V1-1-a, V2-4.3.2-b",
            "/// proves: IE-3-c",
            "#[tokio::test(start_paused = true)]",
            "#[cfg(unix)]",
            "async fn it_holds() {}",
            "",
            "    /// proves: V1-2-b",
            "    #[test]",
            "    fn so_does_this(input in any::<u8>()) {}",
        ]
        .join("\n");
        let proof = |line, name: &str, ids: &[&str]| Proof {
            file: "a.rs".to_owned(),
            line,
            name: name.to_owned(),
            ids: ids.iter().map(|&id| id.to_owned()).collect(),
        };
        assert_eq!(
            in_text(&text).unwrap(),
            [proof(6, "it_holds", &["V1-1-a", "V2-4.3.2-b", "IE-3-c"]), proof(10, "so_does_this", &["V1-2-b"])]
        );
    }

    #[test]
    fn what_proves_nothing_is_an_error() {
        for (text, complaint) in [
            ("/// proves: V1-1-a\nfn helper() {}\n", "a.rs:1: what is proven"),
            ("/// proves: V1-1-a\n/// Words between.\n#[test]\nfn test() {}\n", "a.rs:1: what is proven"),
            ("\n/// proves: V1-1-a\n\n#[test]\nfn test() {}\n", "a.rs:2: what is proven"),
            ("// proves: V1-1-a\nfn helper() {}\n", "a.rs:1: what is proven"),
            ("//! proves: V1-1-a\n", "a.rs:1: what is proven"),
            ("/// proves: V1-1-a\n", "a.rs:1: what is proven"),
            ("/// proves: V1-1-a\n#[test]\n#[ignore]\nfn test() {}\n", "a.rs:3: a test that is ignored"),
            ("/// proves: V1-1-a\n#[test]\n", "a.rs:1: no function"),
            ("/// proves: V1-1-a V1-1-b\n#[test]\nfn test() {}\n", "a.rs:1"),
            ("/// proves:\n#[test]\nfn test() {}\n", "a.rs:1"),
        ] {
            let error = format!("{:#}", in_text(text).unwrap_err());
            assert!(error.starts_with(complaint), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_test_proves_a_dozen_rules_at_most() {
        let proving =
            |count: usize| format!("/// proves: {}\n#[test]\nfn test() {{}}\n", vec!["V1-1-a"; count].join(", "));
        assert_eq!(in_text(&proving(MAX_IDS)).unwrap()[0].ids.len(), MAX_IDS);
        let error = in_text(&proving(MAX_IDS + 1)).unwrap_err().to_string();
        assert!(error.starts_with("a.rs:3: test proves 13 rules"), "{error}");
    }
}
