//! The places: comments in the code of the crates that name a rule, such as `// V2-4.2.1.1-h: a forced grant is a
//! loan`.
//!
//! An id contains its document, its section and its letter, so it needs no further words; it may stand in any comment,
//! alone or in a sentence. Every id in the sources, tests included, must be in the catalogue: an id with a typing error
//! would lead nowhere, which is worse than no place.

use super::sources::Source;

/// A comment that names rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file, from the repository's root.
    pub(super) file: String,
    /// The line of the comment, counted from 1.
    pub(super) line: usize,
    /// The first line of code that follows the comment, or the code on the same line.
    pub(super) code: String,
    /// The rules, in the order of the comment.
    pub(super) ids: Vec<String>,
    /// Whether it is in a test: the code there does not carry out the rule.
    pub(super) in_test: bool,
}

/// The most columns of code that a place shows.
const CODE_COLUMNS: usize = 80;

/// The places of one file. `tags` are the documents' tags: every id begins with one.
pub(super) fn in_source(source: &Source, tags: &[&str]) -> Vec<Place> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let mut in_test = source.is_test();
    let mut places = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        in_test |= *line == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.starts_with("mod tests {"));
        let Some(comment) = comment(line) else { continue };
        let ids = ids(comment, tags);
        if !ids.is_empty() {
            let code = if line.starts_with("//") { below(&lines[at..]) } else { line };
            let code = code.chars().take(CODE_COLUMNS).collect();
            places.push(Place { file: source.file.clone(), line: at + 1, code, ids, in_test });
        }
    }
    places
}

/// The text of a line's comment, without lines that say what a test proves.
fn comment(line: &str) -> Option<&str> {
    let at = if line.starts_with("//") { 0 } else { line.find(" // ")? };
    let comment = line[at..].trim_start_matches([' ', '/', '!']);
    (!comment.starts_with("proves:")).then_some(comment)
}

/// The first line of code in `lines`, to which a comment there belongs.
fn below<'a>(lines: &[&'a str]) -> &'a str {
    if lines[0].starts_with("//!") {
        return "the whole file";
    }
    let about = |line: &&&str| !line.is_empty() && !line.starts_with("//") && !line.starts_with("#[");
    lines.iter().find(about).copied().unwrap_or_default()
}

/// The words of a comment that are ids: a tag, a section and a letter.
fn ids(comment: &str, tags: &[&str]) -> Vec<String> {
    let words = comment.split(|letter: char| !(letter.is_ascii_alphanumeric() || "-.".contains(letter)));
    let words = words.map(|word| word.trim_matches(['-', '.']));
    words.filter(|word| is_id(word, tags)).map(str::to_owned).collect()
}

fn is_id(word: &str, tags: &[&str]) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let [tag, section, .., letter] = parts.as_slice() else { return false };
    tags.contains(tag)
        && section.starts_with(|first: char| first.is_ascii_uppercase() || first.is_ascii_digit())
        && (1..=2).contains(&letter.len())
        && letter.starts_with(|first: char| first.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: [&str; 14] = [
        "//! Holds V1-1-a.",
        "// V1-2.1-b, V2-3-c: said of both.",
        "#[derive(Debug)]",
        "struct Both;",
        "/// See (RPC-5531-9-a). No id: V1-over-a, V3-1-a, V1-1-abc, V1.",
        "fn one() {",
        "    let two = \"V1-9-a\"; // V1-4-d",
        "}",
        "/// proves: V1-5-a",
        "#[cfg(test)]",
        "mod tests {",
        "    // V1-6-a",
        "    fn three() {}",
        "}",
    ];

    fn found(file: &str) -> Vec<(usize, String, String, bool)> {
        let source = Source { file: file.to_owned(), text: TEXT.join("\n") };
        let places = in_source(&source, &["V1", "V2", "RPC"]).into_iter();
        places.map(|place| (place.line, place.ids.join(" "), place.code, place.in_test)).collect()
    }

    #[test]
    fn comments_name_rules() {
        let place = |line, ids: &str, code: &str, in_test| (line, ids.to_owned(), code.to_owned(), in_test);
        assert_eq!(
            found("crates/a/src/b.rs"),
            [
                place(1, "V1-1-a", "the whole file", false),
                place(2, "V1-2.1-b V2-3-c", "struct Both;", false),
                place(5, "RPC-5531-9-a", "fn one() {", false),
                place(7, "V1-4-d", "let two = \"V1-9-a\"; // V1-4-d", false),
                place(12, "V1-6-a", "fn three() {}", true),
            ]
        );
    }

    #[test]
    fn a_test_carries_no_rule() {
        for file in [
            "crates/a/tests/b.rs",
            "crates/a/src/b/tests.rs",
            "crates/a/src/b/tests/c.rs",
            "tests/c.rs",
            "xtask/src/d.rs",
        ] {
            assert!(found(file).iter().all(|(.., in_test)| *in_test), "{file}");
        }
    }
}
