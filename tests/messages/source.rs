//! The messages in a crate's sources: texts of errors, of contexts of errors, of warnings and other lines of the log.
//!
//! A text in the place of a message counts if it has at least two words; single words are names (`MOUNT`) before
//! another message. Any other text counts if it has at least [`SENTENCE`] words, except texts that only programmers
//! read.

use proc_macro2::{TokenStream, TokenTree};
use std::{fs, path::Path};
use syn::{
    Attribute, Expr, ExprCall, ExprMethodCall, ImplItemFn, ItemFn, ItemImpl, ItemMod, LitStr, Macro, ReturnType, Type,
    visit::{self, Visit},
};

/// Macros whose first literal is a message.
const FIRST: &[&str] = &["bail", "anyhow", "eprintln"];
/// Macros whose last literal is a message.
const LAST: &[&str] = &["ensure", "error", "warn", "info"];
/// Methods and functions whose arguments are messages.
const SAID: &[&str] =
    &["context", "with_context", "tell", "note", "report", "warn", "warning", "warning_line", "Usage"];

/// Macros and methods whose texts are for programmers, or that have no texts.
const UNSAID: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "panic",
    "unreachable",
    "debug",
    "trace",
    "expect",
    "expect_err",
];
/// A text with at least so many words is a sentence that a user may read.
const SENTENCE: usize = 5;

/// All messages below a folder.
pub(crate) fn messages(folder: &Path) -> Vec<String> {
    let mut found = Found::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if path.is_file() && name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let source = fs::read_to_string(&path).unwrap();
                let file = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found.visit_file(&file);
            }
        }
    }
    found.messages
}

#[derive(Default)]
struct Found {
    messages: Vec<String>,
    /// Whether all texts here are messages, as in the arguments of `with_context`.
    said: bool,
}

impl Found {
    fn add(&mut self, text: &str) {
        self.add_of(text, 2);
    }

    fn add_of(&mut self, text: &str, least: usize) {
        let text = text.trim().replace('\n', " ");
        let words = text.split(|letter: char| !letter.is_alphabetic()).filter(|word| word.len() > 1).count();
        // Texts for a compiler or a page begin with `#`; messages do not.
        if words >= least && text.contains(' ') && !text.starts_with('#') {
            self.messages.push(text);
        }
    }

    fn inside(&mut self, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.said, true);
        visit(self);
        self.said = before;
    }
}

/// The string literals of a macro, without those in brackets.
fn literals(tokens: &TokenStream) -> Vec<String> {
    let literal = |tree| match tree {
        TokenTree::Literal(literal) => syn::parse_str::<LitStr>(&literal.to_string()).ok().map(|text| text.value()),
        _ => None,
    };
    tokens.clone().into_iter().filter_map(literal).collect()
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

/// Whether a function returns a fixed text.
fn returns_text(output: &ReturnType) -> bool {
    let ReturnType::Type(_, returned) = output else { return false };
    match &**returned {
        Type::Reference(reference) => {
            let is_static = reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
            is_static && matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("str"))
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if is_test(&function.attrs) {
            return;
        }
        match returns_text(&function.sig.output) {
            true => self.inside(|found| visit::visit_item_fn(found, function)),
            false => visit::visit_item_fn(self, function),
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        match returns_text(&function.sig.output) {
            true => self.inside(|found| visit::visit_impl_item_fn(found, function)),
            false => visit::visit_impl_item_fn(self, function),
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let trait_name = block.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        match trait_name {
            Some(name) if name.ident == "Display" => self.inside(|found| visit::visit_item_impl(found, block)),
            _ => visit::visit_item_impl(self, block),
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("error")
            && let syn::Meta::List(list) = &attribute.meta
            && let Some(text) = literals(&list.tokens).first()
        {
            self.add(text);
        }
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let name = called.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let all = literals(&called.tokens);
        let text = match name.as_str() {
            name if FIRST.contains(&name) => all.first(),
            name if LAST.contains(&name) => all.last(),
            name if UNSAID.contains(&name) => return,
            _ if self.said => all.first(),
            _ => None,
        };
        match text {
            Some(text) => self.add(text),
            None => all.iter().for_each(|text| self.add_of(text, SENTENCE)),
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.visit_expr(&call.receiver);
        let method = call.method.to_string();
        if UNSAID.contains(&method.as_str()) {
            return;
        }
        let said = SAID.contains(&method.as_str());
        for argument in &call.args {
            match said {
                true => self.inside(|found| found.visit_expr(argument)),
                false => self.visit_expr(argument),
            }
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let said = match &*call.func {
            Expr::Path(path) => {
                path.path.segments.last().is_some_and(|name| SAID.contains(&name.ident.to_string().as_str()))
            }
            _ => false,
        };
        match said {
            true => self.inside(|found| visit::visit_expr_call(found, call)),
            false => visit::visit_expr_call(self, call),
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        match self.said {
            true => self.add(&literal.value()),
            false => self.add_of(&literal.value(), SENTENCE),
        }
    }
}
