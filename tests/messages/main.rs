//! Every message that a user can meet is explained in the chapter "when it does not work", or is in the list of
//! messages that need no explanation. This test reads the messages from the sources, so it fails for a new message
//! until somebody decides.
//!
//! To put new messages on the list, after you have read them as a user who has no source: `RPCRDMA_ADD_MESSAGES=1 cargo
//! test -p rpcrdma-tests --test messages`.

mod chapter;
mod source;

use chapter::Pattern;
use std::{collections::BTreeSet, env, fs, path::Path};

const CHAPTER: &str = "docs/when-it-does-not-work.md";
const LIST: &str = "tests/messages/needs-no-explanation.txt";
/// Instead of failing, adds the messages that are in neither place to the list, and removes unneeded ones from it.
const ADD: &str = "RPCRDMA_ADD_MESSAGES";

/// Crates whose messages reach users. `sim` is for tests.
const CRATES: &[&str] = &[
    "capture",
    "cli",
    "engine",
    "fabric",
    "gss",
    "iwarp",
    "nfs",
    "nfs-client",
    "nfsd",
    "oncrpc",
    "rpcrdma",
    "transport",
    "verbs",
    "wire",
    "xdr",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn messages() -> BTreeSet<String> {
    let found: BTreeSet<_> =
        CRATES.iter().flat_map(|name| source::messages(&root().join("crates").join(name).join("src"))).collect();
    assert!(found.len() > 300, "only {} messages are found", found.len());
    found
}

/// proves: OPS-MESSAGES-a
#[test]
fn every_message_is_explained_or_needs_no_explanation() {
    let (messages, page, list) = (messages(), read(CHAPTER), read(LIST));
    let patterns = chapter::patterns(&page);
    let listed: BTreeSet<&str> = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let explained = |message: &str| patterns.iter().any(|pattern| pattern.explains(message));
    let mut neither: Vec<_> =
        messages.iter().filter(|message| !listed.contains(message.as_str()) && !explained(message)).collect();
    if env::var_os(ADD).is_some() {
        let stays = |line: &&str| messages.contains(*line) && !explained(line);
        let mut all: BTreeSet<&str> = listed.iter().copied().filter(stays).collect();
        all.extend(neither.drain(..).map(String::as_str));
        let head: String =
            list.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let lines: String = all.into_iter().map(|line| format!("{line}\n")).collect();
        fs::write(root().join(LIST), head + &lines).unwrap();
        return;
    }
    assert!(neither.is_empty(), "neither in {CHAPTER} nor in {LIST}:\n{neither:#?}");
    let gone: Vec<_> = listed.iter().filter(|line| !messages.contains(**line)).collect();
    assert!(gone.is_empty(), "{LIST} has what no source says any more:\n{gone:#?}");
    let twice: Vec<_> = listed.iter().filter(|line| explained(line)).collect();
    assert!(twice.is_empty(), "{LIST} has what {CHAPTER} explains:\n{twice:#?}");
}

/// Each message that the chapter explains still exists: in our programs or, in tables under "What others say", in other
/// programs.
#[test]
fn the_chapter_explains_what_is_said() {
    let messages = messages();
    let page = read(CHAPTER);
    let metrics = read("docs/metrics.md");
    let gone: Vec<_> = chapter::patterns(&page)
        .into_iter()
        .filter(|pattern| !messages.iter().any(|message| pattern.explains(message)) && !pattern.is_of_metrics(&metrics))
        .collect();
    assert!(gone.is_empty(), "{CHAPTER} explains what nobody says:\n{gone:#?}");
}

/// Every explanation is shown as a row of a table.
#[test]
fn every_row_of_the_chapter_stands_in_a_table() {
    let page = read(CHAPTER);
    let stray = chapter::stray_rows(&page);
    assert!(stray.is_empty(), "an empty line of {CHAPTER} ends a table before these rows:\n{stray:#?}");
}

#[test]
fn a_row_behind_an_empty_line_is_found() {
    let table = "| said | done |\n|---|---|\n| `a` | b |\n";
    assert_eq!(chapter::stray_rows(&format!("{table}| `c` | d |\n\ntext\n\n{table}")), []);
    assert_eq!(chapter::stray_rows(&format!("{table}\n| `c` | d |\n| `e` | f |\n")), [(5, "| `c` | d |")]);
    assert_eq!(chapter::stray_rows("| `c` | d |\n"), [(1, "| `c` | d |")]);
}

#[test]
fn what_is_bold_in_an_item_is_explained() {
    let page = "- **`a ... failed`**, **`it\n  is gone`**: see `b c`.\n\ntext **`d e`**\n\n| `f g` | `h i` |\n";
    let patterns = chapter::patterns(page);
    let explained = |message: &str| patterns.iter().any(|pattern| pattern.explains(message));
    assert!(explained("a thing failed") && explained("it is gone") && explained("f g"));
    assert!(!explained("b c") && !explained("d e") && !explained("h i"));
}

#[test]
fn a_pattern_explains_what_has_its_pieces_in_their_order() {
    let explains = |pattern: &str, message: &str| Pattern::new(pattern).explains(message);
    assert!(explains("cannot listen on ...", "cannot listen on {local}"));
    assert!(explains(
        "... accepts connections but says nothing",
        "{server} accepts connections but says nothing: it is stopped"
    ));
    assert!(!explains("cannot listen on ...", "cannot connect to {local}"));
    assert!(!explains("on ... cannot", "cannot listen on {local}"));
    assert!(!explains("...", "anything at all"));
}
