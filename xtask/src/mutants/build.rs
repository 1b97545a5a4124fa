//! The test programs of the copy, built by cargo in a target folder of their own.

use anyhow::{Context as _, bail};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// How many bytes of cargo's and rustc's last output are shown if a build fails.
const SHOWN_OCTETS: usize = 3000;

/// A test program: a crate's unit tests, or one of its `tests/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) package: String,
    /// None for the unit tests, which come first.
    pub(super) test: Option<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.test.as_deref().unwrap_or("(unit tests)"))
    }
}

/// A test program that is built.
pub(super) struct Program {
    pub(super) target: Target,
    pub(super) executable: PathBuf,
    /// The folder of its package, in which it expects to run.
    pub(super) folder: PathBuf,
}

/// What cargo said of code that does not compile.
#[derive(Debug)]
pub(super) struct NotBuilt(pub(super) String);

/// Builds the workspace in a folder.
pub(super) struct Builder {
    cargo: OsString,
    tree: PathBuf,
    target: PathBuf,
    packages: BTreeMap<String, Package>,
}

/// The test programs of a package.
struct Package {
    targets: Vec<Target>,
    /// Its unit tests are those of its program, since it has no library.
    is_program: bool,
}

impl Package {
    /// Reads what `cargo metadata` says of a package.
    fn of(name: &str, package: &Value) -> Package {
        let targets = || package["targets"].as_array().into_iter().flatten();
        let is_program = !targets().any(|target| is_of_kind(target, "lib"));
        let counts = |target: &&Value| is_program || !is_of_kind(target, "bin");
        let mut targets: Vec<Target> =
            targets().filter(counts).filter_map(|target| test_program(name, target)).collect();
        targets.sort();
        Package { targets, is_program }
    }
}

impl Builder {
    /// Reads which test programs the packages of a workspace have.
    pub(super) fn new(tree: &Path, target: &Path) -> anyhow::Result<Builder> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let (tree, target) = (tree.to_owned(), target.to_owned());
        let mut builder = Builder { cargo, tree, target, packages: BTreeMap::new() };
        let output = builder.cargo(&["metadata", "--no-deps", "--format-version", "1"])?;
        if !output.status.success() {
            bail!("cargo metadata: {}", end(&output.stderr));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout).context("what cargo metadata said")?;
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let name = package["name"].as_str().unwrap_or_default();
            builder.packages.insert(name.to_owned(), Package::of(name, package));
        }
        Ok(builder)
    }

    /// The test programs of a package, with its unit tests first.
    pub(super) fn targets(&self, package: &str) -> anyhow::Result<&[Target]> {
        Ok(&self.package(package)?.targets)
    }

    fn package(&self, name: &str) -> anyhow::Result<&Package> {
        self.packages.get(name).with_context(|| format!("there is no package {name}"))
    }

    /// Builds test programs of one package.
    ///
    /// # Errors
    /// The inner one if the code does not compile.
    pub(super) fn build(&self, package: &str, targets: &[Target]) -> anyhow::Result<Result<Vec<Program>, NotBuilt>> {
        let unit_tests = if self.package(package)?.is_program { "--bins" } else { "--lib" };
        let mut arguments = vec!["test", "--no-run", "--message-format=json-render-diagnostics", "--package", package];
        for target in targets {
            match &target.test {
                None => arguments.push(unit_tests),
                Some(name) => arguments.extend(["--test", name]),
            }
        }
        let output = self.cargo(&arguments)?;
        if !output.status.success() {
            return Ok(Err(NotBuilt(end(&output.stderr))));
        }
        let mut programs: Vec<Program> =
            String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| program(package, line)).collect();
        programs.retain(|program| targets.contains(&program.target));
        programs.sort_by(|a, b| a.target.cmp(&b.target));
        if programs.len() != targets.len() {
            bail!("cargo built {} of {} test programs of {package}", programs.len(), targets.len());
        }
        Ok(Ok(programs))
    }

    fn cargo(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        Command::new(&self.cargo)
            .args(arguments)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .output()
            .context("cannot start cargo")
    }
}

/// Whether cargo says of a target that it is a `lib`, a `bin` or a `test`.
fn is_of_kind(target: &Value, wanted: &str) -> bool {
    target["kind"].as_array().into_iter().flatten().any(|kind| kind == wanted)
}

/// A package's target of `cargo metadata`, if it is a test program.
fn test_program(package: &str, target: &Value) -> Option<Target> {
    let test = if is_of_kind(target, "test") {
        Some(target["name"].as_str()?.to_owned())
    } else if (is_of_kind(target, "lib") || is_of_kind(target, "bin")) && target["test"] == true {
        None
    } else {
        return None;
    };
    Some(Target { package: package.to_owned(), test })
}

/// A line of what cargo says while it builds, if it is about a test program.
fn program(package: &str, line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    if message["profile"]["test"] != true {
        return None;
    }
    // cargo does not say of an artifact whether its unit tests run by default: they do, or cargo would not have built
    // it.
    let mut target = message["target"].clone();
    target["test"] = true.into();
    Some(Program { target: test_program(package, &target)?, executable, folder })
}

/// The end of a program's output.
fn end(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let from = said.len().saturating_sub(SHOWN_OCTETS);
    let from = (from..=said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
    said[from..].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn test_programs_are_told_from_what_cargo_says() {
        let line = json!({
            "reason": "compiler-artifact", "executable": "/t/rules-1", "manifest_path": "/w/crates/e/Cargo.toml",
            "profile": { "test": true }, "target": { "kind": ["test"], "name": "rules", "test": true },
        });
        let program = program("e", &line.to_string()).unwrap();
        assert_eq!(program.target, Target { package: "e".to_owned(), test: Some("rules".to_owned()) });
        assert_eq!(program.folder, Path::new("/w/crates/e"));
        let unit = test_program("e", &json!({ "kind": ["lib"], "name": "e", "test": true })).unwrap();
        assert!(unit.test.is_none() && unit < program.target);
        assert_eq!(test_program("e", &json!({ "kind": ["example"], "name": "e", "test": false })), None);
        assert!(super::program("e", "not JSON").is_none());
    }

    #[test]
    fn unit_tests_are_those_of_the_library_or_else_of_the_program() {
        let target = |kind: &str| json!({ "kind": [kind], "name": kind, "test": true });
        for (kinds, is_program) in [(&["lib", "bin", "test"][..], false), (&["test", "bin"], true)] {
            let targets: Vec<_> = kinds.iter().copied().map(target).collect();
            let package = Package::of("e", &json!({ "name": "e", "targets": targets }));
            let tests: Vec<_> = package.targets.iter().map(|target| target.test.as_deref()).collect();
            assert_eq!((tests, package.is_program), (vec![None, Some("test")], is_program), "{kinds:?}");
        }
    }

    #[test]
    fn of_what_a_compiler_says_the_end_is_shown() {
        let said = format!("{}error: x\n", "\u{e9}".repeat(SHOWN_OCTETS));
        let shown = end(said.as_bytes());
        assert!(shown.len() <= SHOWN_OCTETS && shown.ends_with("error: x"));
    }
}
