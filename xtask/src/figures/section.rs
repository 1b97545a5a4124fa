//! Writes a part of a document, between two marks that name the part.

use anyhow::{Context as _, bail};

/// Lines of prose have at most so many columns.
const COLUMNS: usize = 100;

/// The text with the part of this name replaced, its prose wrapped.
///
/// # Errors
/// If the marks are not there exactly once and in their order.
pub(crate) fn replace(text: &str, name: &str, body: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->"));
    if text.matches(&begin).count() != 1 || text.matches(&end).count() != 1 {
        bail!("the marks of the part {name:?} are to stand there once each");
    }
    let (before, rest) = text.split_once(&begin).context("no begin")?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("the part {name:?} ends before it begins"))?;
    let lines: Vec<_> = body.trim_end().lines().map(wrapped).collect();
    Ok(format!("{before}{begin}{}\n{end}{after}", lines.join("\n")))
}

/// A line of prose as lines of at most so many columns. Tables and pictures stay as they are.
fn wrapped(line: &str) -> String {
    if line.starts_with(['|', '!']) { line.to_owned() } else { wrapped_behind(line, "") }
}

/// Prose as lines of at most so many columns, each but the first behind an indent: an item of a list has two spaces.
pub(crate) fn wrapped_behind(line: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("there is one from the beginning");
        if last.trim_start().is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{indent}{word}"));
        } else {
            *last += &format!(" {word}");
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "A\n<!-- begin: x -->\nold\n<!-- end: x -->\nB\n";

    #[test]
    fn what_stands_between_the_marks_is_replaced_and_nothing_else() {
        let new = replace(TEXT, "x", "new\n\n").unwrap();
        assert_eq!(new, "A\n<!-- begin: x -->\nnew\n<!-- end: x -->\nB\n");
        assert_eq!(replace(&new, "x", "old").unwrap(), TEXT);
    }

    #[test]
    fn prose_is_wrapped_and_tables_are_not() {
        let prose = "word ".repeat(60);
        let text = replace(TEXT, "x", &format!("{prose}\n\n| {prose} |\n\n![{prose}](x)")).unwrap();
        let long: Vec<_> = text.lines().filter(|line| line.chars().count() > COLUMNS).collect();
        assert_eq!(long, [format!("| {prose} |"), format!("![{prose}](x)")]);
        assert_eq!(text.matches("word").count(), 180);
        assert_eq!(text.lines().nth(2).unwrap().len(), 20 * 5 - 1);
    }

    #[test]
    fn marks_that_are_missing_doubled_or_turned_round_are_refused() {
        assert!(replace(TEXT, "y", "").is_err());
        assert!(replace(&TEXT.repeat(2), "x", "").is_err());
        assert!(replace("<!-- end: x -->\n<!-- begin: x -->\n", "x", "").is_err());
    }
}
