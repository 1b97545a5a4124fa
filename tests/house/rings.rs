//! No ring of modules: a crate's modules can be read one after the other, each after those that it uses.
//!
//! Looks at the modules that stand in a crate's root, each with all that is below it, and at the paths by which they
//! name each other: `crate::x` and `super::x`, also in macros. A name that the root only passes on counts as a use of
//! the module that it comes from. What the root itself defines belongs to no module, so no module may use it. Test code
//! does not count.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::Path,
};

/// Crates that still have rings, in modules or through their root. None may be added; one whose rings are cut is taken
/// off.
const WITH_RINGS: &[&str] =
    &["capture", "env", "gss", "iwarp", "nfs-client", "nfsd", "sim", "transport", "wire", "xdr"];

/// Modules of a crate that only the last one may use, which they do not know either.
const APART: &[(&str, [&str; 2], &str)] = &[("engine", ["v1", "v2"], "endpoint")];

/// The file of a crate in which its modules stand, as a user of what it defines.
const ROOT: &str = "(root)";

/// The sources of a crate, by the path of their module: none for the root.
type Sources = Vec<(Vec<String>, String)>;

/// Which modules each module uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Reads a crate's sources.
fn sources_of(source: &Path) -> Sources {
    let mut files = Vec::new();
    super::sources(source, &mut files);
    let is_test = |name: &str| name == "tests" || name.ends_with("_tests");
    let modules = files.into_iter().filter_map(|file| {
        let inside = file.strip_prefix(source).unwrap().with_extension("");
        let mut path: Vec<_> = inside.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        if path.last().is_some_and(|name| name == "mod") || path == ["lib"] || path == ["main"] {
            path.pop();
        }
        let has_tests = path.iter().any(|name| is_test(name));
        (!has_tests).then(|| (path, fs::read_to_string(&file).unwrap()))
    });
    modules.collect()
}

/// What the scan of a module finds.
struct Scan<'a> {
    modules: &'a BTreeSet<String>,
    /// What the root passes on, and from which module or crate.
    passed_on: &'a BTreeMap<String, String>,
    used: BTreeSet<String>,
}

impl Scan<'_> {
    /// Everything that the code of the module at this path uses.
    fn code(&mut self, code: TokenStream, at: &[String]) {
        let trees: Vec<_> = code.into_iter().collect();
        let mut rest = &trees[..];
        while let [first, others @ ..] = rest {
            rest = others;
            match (first, others) {
                (TokenTree::Punct(mark), [TokenTree::Group(attribute), after @ ..])
                    if mark.as_char() == '#' && is_test(attribute) =>
                {
                    rest = after_item(after);
                }
                (TokenTree::Ident(word), [TokenTree::Ident(name), TokenTree::Group(body), after @ ..])
                    if word == "mod" =>
                {
                    self.code(body.stream(), &[at, &[name.to_string()]].concat());
                    rest = after;
                }
                (TokenTree::Ident(word), _) if word == "crate" => self.path(others, 0),
                (TokenTree::Ident(word), _) if word == "super" => {
                    let mut above = at.len().saturating_sub(1);
                    while let Some([TokenTree::Ident(next), after @ ..]) = after_colons(rest)
                        && next == "super"
                    {
                        above = above.saturating_sub(1);
                        rest = after;
                    }
                    self.path(rest, above);
                }
                (TokenTree::Group(group), _) => self.code(group.stream(), at),
                _ => {}
            }
        }
    }

    /// A path that goes on from a module at this depth: only from the root it leads to another module.
    fn path(&mut self, rest: &[TokenTree], depth: usize) {
        match after_colons(rest) {
            Some([TokenTree::Ident(name), ..]) if depth == 0 => self.name(&name.to_string()),
            Some([TokenTree::Group(group), ..]) if depth == 0 => self.names(group),
            _ => {}
        }
    }

    /// The names at the beginning of each path of `{a::b, c}`.
    fn names(&mut self, group: &Group) {
        let mut is_first = true;
        for tree in group.stream() {
            match &tree {
                TokenTree::Ident(name) if is_first => self.name(&name.to_string()),
                _ => {}
            }
            is_first = matches!(&tree, TokenTree::Punct(mark) if mark.as_char() == ',');
        }
    }

    fn name(&mut self, name: &str) {
        let module = self.passed_on.get(name).map_or(name, |from| from);
        match (self.modules.contains(module), self.passed_on.contains_key(name)) {
            (true, _) => _ = self.used.insert(module.to_owned()),
            // Of another crate.
            (false, true) => {}
            (false, false) => _ = self.used.insert(ROOT.to_owned()),
        }
    }
}

/// Whether an attribute says that its item is for tests only.
fn is_test(attribute: &Group) -> bool {
    attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// What follows `::`, if that stands here.
fn after_colons(rest: &[TokenTree]) -> Option<&[TokenTree]> {
    match rest {
        [TokenTree::Punct(one), TokenTree::Punct(two), after @ ..] if one.as_char() == ':' && two.as_char() == ':' => {
            Some(after)
        }
        _ => None,
    }
}

/// What follows an item: its end is a semicolon or its body.
fn after_item(rest: &[TokenTree]) -> &[TokenTree] {
    let is_end = |tree: &TokenTree| match tree {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    rest.iter().position(is_end).map_or(&[], |end| &rest[end + 1..])
}

/// The names that `use` statements of the root bring, and the first word of the path of each.
fn passed_on(root: TokenStream) -> BTreeMap<String, String> {
    let trees: Vec<_> = root.into_iter().collect();
    let mut found = BTreeMap::new();
    for (at, tree) in trees.iter().enumerate() {
        if !matches!(tree, TokenTree::Ident(word) if word == "use") {
            continue;
        }
        let end = trees[at..].iter().position(|tree| matches!(tree, TokenTree::Punct(mark) if mark.as_char() == ';'));
        let statement = &trees[at + 1..at + end.unwrap()];
        let mut words = statement.iter().filter_map(|tree| match tree {
            TokenTree::Ident(word) => Some(word.to_string()),
            _ => None,
        });
        if let Some(from) = words.find(|word| word != "self" && word != "crate") {
            leaves(statement.iter().cloned().collect(), &from, &mut found);
        }
    }
    found
}

fn leaves(statement: TokenStream, from: &str, found: &mut BTreeMap<String, String>) {
    let trees: Vec<_> = statement.into_iter().collect();
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Ident(name) if after_colons(&trees[at + 1..]).is_none() => {
                found.insert(name.to_string(), from.to_owned());
            }
            TokenTree::Group(group) => leaves(group.stream(), from, found),
            _ => {}
        }
    }
}

fn arrows(sources: &Sources) -> Arrows {
    let modules: BTreeSet<_> = sources.iter().filter_map(|(path, _)| path.first().cloned()).collect();
    let parsed = |text: &str| text.parse::<TokenStream>().unwrap();
    let root = sources.iter().filter(|(path, _)| path.is_empty());
    let passed_on = root.flat_map(|(_, text)| passed_on(parsed(text))).collect();
    let mut arrows = Arrows::new();
    for (path, text) in sources {
        let Some(module) = path.first() else {
            arrows.insert(ROOT.to_owned(), modules.clone());
            continue;
        };
        let mut scan = Scan { modules: &modules, passed_on: &passed_on, used: BTreeSet::new() };
        scan.code(parsed(text), path);
        scan.used.remove(module);
        arrows.entry(module.clone()).or_default().append(&mut scan.used);
    }
    arrows
}

/// A shortest ring through each module that is on one, each ring once: `a -> b -> a`.
fn rings(arrows: &Arrows) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut known: BTreeSet<&String> = BTreeSet::new();
    for begin in arrows.keys().filter(|module| *module != ROOT) {
        let mut ways = VecDeque::from([vec![begin]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            for next in arrows.get(way[way.len() - 1]).into_iter().flatten() {
                if next == begin && !way.iter().all(|module| known.contains(module)) {
                    let names: Vec<_> = way.iter().chain([&begin]).map(|name| name.as_str()).collect();
                    found.insert(names.join(" -> "));
                    known.extend(&way);
                } else if seen.insert(next) {
                    ways.push_back([&way[..], &[next]].concat());
                }
            }
        }
    }
    found
}

#[test]
fn no_modules_use_each_other_in_a_ring() {
    let mut uses = 0;
    for name in super::dependencies().keys().filter(|name| !WITH_RINGS.contains(&name.as_str())) {
        let arrows = arrows(&sources_of(&super::root().join("crates").join(name).join("src")));
        uses += arrows.iter().filter(|(module, _)| *module != ROOT).map(|(_, used)| used.len()).sum::<usize>();
        let rings = rings(&arrows).into_iter().collect::<Vec<_>>().join("\n");
        assert!(rings.is_empty(), "crates/{name}: modules use each other in a ring:\n{rings}");
    }
    assert!(uses > 200, "only {uses} arrows are found");
    for name in WITH_RINGS {
        let arrows = arrows(&sources_of(&super::root().join("crates").join(name).join("src")));
        assert!(!rings(&arrows).is_empty(), "crates/{name} has no ring any more: take it off the list");
    }
}

#[test]
fn modules_stand_apart_that_are_to_replace_each_other() {
    for (name, rooms, above) in APART {
        let arrows = arrows(&sources_of(&super::root().join("crates").join(name).join("src")));
        assert!(rooms.iter().all(|room| arrows[*above].contains(*room)), "crates/{name}: {above} uses both");
        let others = arrows.iter().filter(|(module, _)| *module != ROOT && *module != above);
        for (from, used) in others {
            let room = rooms.iter().find(|room| from != *room && used.contains(**room));
            assert_eq!(room, None, "crates/{name}: {from} uses a room that only {above} may use");
        }
    }
}

/// The rings of a crate whose files have these texts.
fn rings_of(files: &[(&str, &str)]) -> Vec<String> {
    let path = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let sources = files.iter().map(|(name, text)| (path(name), (*text).to_owned())).collect();
    rings(&arrows(&sources)).into_iter().collect()
}

#[test]
fn a_ring_is_found_however_its_modules_name_each_other() {
    let root = ("", "mod a; mod b; mod c; pub use b::{inner::B, Other}; use std::fmt;");
    let c = ("c", "use crate::a::A;");
    for b in [
        "use crate::{fmt, c::{self, C}};",
        "use super::c::C;",
        "fn f() { println!(\"{}\", [crate::c::C]) }",
        "mod inner { use super::super::c; }",
        "macro_rules! m { () => { $crate::c::C } }",
    ] {
        for passes_on in ["b::{inner::B, Other}", "self::b::B", "crate::b::inner::B"] {
            let root = ("", &*format!("mod a; mod b; mod c; pub use {passes_on}; use std::fmt;"));
            assert_eq!(rings_of(&[root, ("a", "use crate::B;"), ("b", b), c]), ["a -> b -> c -> a"], "{b}");
        }
        assert_eq!(rings_of(&[root, ("a", ""), ("b", b), c]), [] as [&str; 0], "{b}");
    }
    let below =
        [root, ("a", ""), ("b", ""), ("b/d", "use super::E; use super::super::c::C;"), ("c", "use crate::b::B;")];
    assert_eq!(rings_of(&below), ["b -> c -> b"]);
}

#[test]
fn what_the_root_defines_and_what_only_tests_use_is_told_apart() {
    let root = ("", "mod a; mod b; fn helper() {}");
    assert_eq!(rings_of(&[root, ("a", "use crate::helper;"), ("b", "")]), ["a -> (root) -> a"]);
    let b = "/// See [`A`](crate::a::A).\n#[cfg(test)] mod tests { use crate::a::A; } #[cfg(test)] use crate::a; // crate::a";
    assert_eq!(rings_of(&[root, ("a", "use crate::b;"), ("b", b)]), [] as [&str; 0]);
}
