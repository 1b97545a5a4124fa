//! The part of a document that is written by a program: between two marks that name it.

use anyhow::{Context as _, bail};

/// The text with the part of this name replaced.
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
    Ok(format!("{before}{begin}{}\n{end}{after}", body.trim_end()))
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
    fn marks_that_are_missing_doubled_or_turned_round_are_refused() {
        assert!(replace(TEXT, "y", "").is_err());
        assert!(replace(&TEXT.repeat(2), "x", "").is_err());
        assert!(replace("<!-- end: x -->\n<!-- begin: x -->\n", "x", "").is_err());
    }
}
