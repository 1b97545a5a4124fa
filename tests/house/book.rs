//! The book: every page of `docs/` is a chapter, once, and every link of a page leads somewhere.

use super::root;
use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

const SUMMARY: &str = "docs/SUMMARY.md";

/// All pages below a folder of the repository, by their names from its root.
fn pages(folder: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root()).unwrap().to_owned();
        if path.is_dir() {
            found.extend(pages(name.to_str().unwrap()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(name);
        }
    }
    found
}

/// The pages at the root of the repository.
pub(crate) fn front_pages() -> impl Iterator<Item = PathBuf> {
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"].into_iter().map(PathBuf::from)
}

fn text(page: &Path) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The lines of a page outside code blocks.
fn prose(page: &Path) -> Vec<String> {
    let mut in_example = false;
    let text = text(page);
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_example ^= fence;
        !in_example && !fence
    });
    lines.map(str::to_owned).collect()
}

/// The targets of a page's links within the repository. A link's words may be broken over lines.
fn links(page: &Path) -> Vec<String> {
    let prose = prose(page).join("\n");
    let in_place = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = prose.lines().filter(|line| line.starts_with('[')).filter_map(|line| Some(line.split_once("]: ")?.1));
    let targets = in_place.chain(named);
    let inside = |target: &&str| !target.contains("://") && !target.starts_with("mailto:") && !target.contains(' ');
    targets.filter(inside).map(str::to_owned).collect()
}

/// The names by which a page's headings are linked to.
fn anchors(page: &Path) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    let anchor = |line: String| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    headings.map(anchor).collect()
}

/// Where a link of a page leads: the page or file, and the heading if it names one.
fn target(page: &Path, link: &str) -> (PathBuf, Option<String>) {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor.to_owned())));
    if file.is_empty() {
        return (page.to_owned(), anchor);
    }
    let mut path = PathBuf::new();
    for part in page.parent().unwrap().join(file).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{}: {link} leads out of the repository", page.display()),
            part => path.push(part),
        }
    }
    (path, anchor)
}

#[test]
fn every_page_is_a_chapter_once() {
    let chapters: Vec<PathBuf> = links(Path::new(SUMMARY)).iter().map(|link| Path::new("docs").join(link)).collect();
    let listed: BTreeSet<PathBuf> = chapters.iter().cloned().collect();
    assert_eq!(listed.len(), chapters.len(), "a page stands twice in {SUMMARY}");
    let mut there = pages("docs");
    there.remove(Path::new(SUMMARY));
    assert_eq!(listed, there, "{SUMMARY} lists every page of docs/, and no other");
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages("docs").into_iter().chain(front_pages()) {
        for link in links(&page) {
            let (path, anchor) = target(&page, &link);
            let exists = root().join(&path).exists();
            // The book contains no files of the repository outside `docs/`.
            let in_book = !page.starts_with("docs") || path.starts_with("docs");
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            let heading = anchor.filter(|_| exists && is_page);
            if !exists || !in_book || heading.is_some_and(|heading| !anchors(&path).contains(&heading)) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere, or out of the book:\n{}", broken.join("\n"));
}

/// The functions above understand links, files and headings.
#[test]
fn links_are_told_apart() {
    let page = Path::new("docs/serving.md");
    assert_eq!(target(page, "#kerberos"), (page.to_owned(), Some("kerberos".to_owned())));
    assert_eq!(target(page, "decisions/0002-env.md"), (PathBuf::from("docs/decisions/0002-env.md"), None));
    assert_eq!(target(page, "../README.md#install"), (PathBuf::from("README.md"), Some("install".to_owned())));
    assert!(anchors(Path::new(SUMMARY)).contains("for-protocol-people"));
    assert!(links(Path::new("docs/README.md")).contains(&"serving.md".to_owned()));
}
