//! `cargo xtask figures`: how fast the built command is on this machine, as tables and pictures in docs/.
//!
//! Everything is measured by `rpcrdma bench` against `rpcrdma serve`, as a user would, in several rounds, each with its
//! baseline. All numbers are kept in docs/figures/figures.json, from which tables and pictures can be made again.

mod data;
mod machine;
mod measure;
mod plan;
mod plot;
mod section;
mod table;

use anyhow::Context as _;
use data::Figures;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The document with the tables, its part that is written here, and where the pictures lie as seen from it.
const DOCUMENT: &str = "docs/performance.md";
const PART: &str = "figures";
const PICTURES: &str = "figures";
/// All numbers, beside the pictures.
const NUMBERS: &str = "figures.json";

/// Rounds, and seconds for each measurement.
const ROUNDS: usize = 3;
const SECONDS: f64 = 1.0;
const QUICK: (usize, f64) = (1, 0.1);

/// Measure and draw how fast the command is
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A short run that changes no document: to see whether everything works; results are in target/figures
    #[arg(long)]
    quick: bool,
    /// Measure nothing; make tables and pictures from docs/figures/figures.json again
    #[arg(long, conflicts_with = "quick")]
    redraw: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let kept = root.join("docs").join(PICTURES);
    if arguments.redraw {
        let numbers = kept.join(NUMBERS);
        let text = fs::read_to_string(&numbers).with_context(|| numbers.display().to_string())?;
        return publish(root, &kept, &serde_json::from_str(&text)?);
    }
    let program = measure::build(root)?;
    let target = root.join("target");
    let scratch = Scratch::new(&target)?;
    let (rounds, seconds) = if arguments.quick { QUICK } else { (ROUNDS, SECONDS) };
    let figures = measure::measure(&program, &scratch.0, rounds, seconds)?;
    if arguments.quick {
        write(&target.join(PICTURES), &figures)?;
        println!("{}", table::section(&figures, PICTURES));
        return Ok(());
    }
    publish(root, &kept, &figures)
}

/// Writes numbers and pictures, and the document's part.
fn publish(root: &Path, folder: &Path, figures: &Figures) -> anyhow::Result<()> {
    write(folder, figures)?;
    let document = root.join(DOCUMENT);
    let text = fs::read_to_string(&document).with_context(|| DOCUMENT.to_owned())?;
    let text = section::replace(&text, PART, &table::section(figures, PICTURES)).context(DOCUMENT)?;
    fs::write(&document, text)?;
    println!("{DOCUMENT} and docs/{PICTURES}/ are written");
    Ok(())
}

/// Writes numbers and pictures.
fn write(folder: &Path, figures: &Figures) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(NUMBERS), serde_json::to_string_pretty(figures)? + "\n")?;
    for ((file, _), svg) in plot::PICTURES.iter().zip(plot::pictures(figures)?) {
        fs::write(folder.join(file), svg)?;
    }
    Ok(())
}

/// A directory that goes when it is dropped: some 256 MiB, on the file system of the repository.
struct Scratch(PathBuf);

impl Scratch {
    fn new(target: &Path) -> anyhow::Result<Self> {
        let path = target.join(format!("figures-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_its_part() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = fs::read_to_string(root.join(DOCUMENT)).unwrap();
        assert!(section::replace(&text, PART, "new").unwrap().contains("new"));
    }

    #[test]
    fn numbers_and_pictures_are_written() {
        let folder = std::env::temp_dir().join(format!("rpcrdma-figures-{}", std::process::id()));
        let figures = table::tests::figures();
        write(&folder, &figures).unwrap();
        let text = fs::read_to_string(folder.join(NUMBERS)).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
        for (file, _) in plot::PICTURES {
            assert!(fs::read_to_string(folder.join(file)).unwrap().contains("</svg>"));
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
