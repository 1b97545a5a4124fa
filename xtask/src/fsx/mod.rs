//! `xtask fsx FILE`: random reads, writes, appends, truncations and memory maps of one file, compared with a model in
//! memory.
//!
//! Everything follows from the seed, so a failure can be repeated. On a mismatch the command fails and prints the seed,
//! the number of the operation, the first wrong byte and the operations before.

use crate::numbers::Numbers;
use anyhow::{Context as _, bail};
use rustix::fs::{Advice, OFlags, fadvise};
use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::Write as _,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::PathBuf,
};

mod mapping;

/// How many operations before a failure are printed.
const REMEMBERED: usize = 40;

/// One operation in so many is as large as allowed; the others are at most a quarter of it.
const LARGE: u64 = 8;

/// What `xtask fsx` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file; the command creates it, or empties it if it exists
    file: PathBuf,
    /// Number of operations
    #[arg(long, default_value_t = 10_000)]
    ops: u64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Offset of the first byte that is used; the file has a hole before it
    #[arg(long, default_value_t = 0)]
    base: u64,
    /// Number of bytes that are used
    #[arg(long, default_value_t = 300_000)]
    length: u64,
    /// Bytes of the largest read or write
    #[arg(long, default_value_t = 70_000)]
    largest: u64,
    /// Do half of the reads and writes around the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
    /// Write back with fsync before each truncation. A Linux client whose server restarts between WRITE and COMMIT may
    /// send those WRITEs again together with the SETATTR of a truncation behind them, in no order
    #[arg(long)]
    settle: bool,
}

/// Exercises the file.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut exerciser = Exerciser::new(arguments)?;
    for number in 1..=arguments.ops {
        let outcome = exerciser.step(number);
        outcome.with_context(|| {
            let before: Vec<_> = exerciser.history.iter().map(String::as_str).collect();
            format!(
                "fsx: seed {}, operation {number} of {}; the last ones:\n{}\n",
                arguments.seed,
                arguments.ops,
                before.join("\n")
            )
        })?;
    }
    exerciser.forget()?;
    exerciser.compare(0, exerciser.model.len()).with_context(|| format!("fsx: seed {}, at the end", arguments.seed))?;
    println!("fsx: {} operations with seed {} ok", arguments.ops, arguments.seed);
    Ok(())
}

struct Exerciser<'a> {
    arguments: &'a Arguments,
    numbers: Numbers,
    file: File,
    append: File,
    direct: Option<File>,
    /// The file's bytes from the base on: the model is as long as the file, less the base.
    model: Vec<u8>,
    history: VecDeque<String>,
}

impl<'a> Exerciser<'a> {
    fn new(arguments: &'a Arguments) -> anyhow::Result<Self> {
        let at = || arguments.file.display().to_string();
        let file = File::create(&arguments.file).with_context(at)?;
        file.set_len(arguments.base).with_context(at)?;
        drop(file);
        let (file, append, direct) = open(arguments).with_context(at)?;
        let numbers = Numbers(arguments.seed);
        Ok(Self { arguments, numbers, file, append, direct, model: Vec::new(), history: VecDeque::new() })
    }

    fn note(&mut self, words: String) {
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        self.history.push_back(words);
    }

    /// One operation.
    fn step(&mut self, number: u64) -> anyhow::Result<()> {
        match self.numbers.below(100) {
            0..30 => self.write(number),
            30..58 => self.read(number),
            58..66 => self.append(number),
            66..76 => self.truncate(number),
            76..84 => self.map_write(number),
            84..92 => self.map_read(number),
            92..95 => {
                self.note(format!("{number} fsync"));
                Ok(self.file.sync_all()?)
            }
            95..98 => {
                self.note(format!("{number} forget what is cached"));
                self.forget()
            }
            _ => {
                self.note(format!("{number} close and open"));
                (self.file, self.append, self.direct) = open(self.arguments)?;
                let (found, wanted) = (self.file.metadata()?.len(), self.arguments.base + self.model.len() as u64);
                if found != wanted {
                    bail!("after opening the file is {found} bytes long instead of {wanted}");
                }
                Ok(())
            }
        }
    }

    /// A random offset below the limit, and a random length.
    fn range(&mut self, limit: u64) -> (usize, usize) {
        let most = if self.numbers.below(LARGE) == 0 { self.arguments.largest } else { self.arguments.largest / 4 };
        let offset = self.numbers.below(limit);
        let length = (1 + self.numbers.below(most.max(1))).min(self.arguments.length - offset);
        (offset as usize, length as usize)
    }

    /// Whether this operation goes around the page cache.
    fn around_cache(&mut self) -> bool {
        self.direct.is_some() && self.numbers.below(2) == 0
    }

    fn file(&self, direct: bool) -> &File {
        self.direct.as_ref().filter(|_| direct).unwrap_or(&self.file)
    }

    fn write(&mut self, number: u64) -> anyhow::Result<()> {
        let (offset, length) = self.range(self.arguments.length);
        let octets = self.numbers.octets(length);
        let direct = self.around_cache();
        self.note(format!("{number} write {length} at {offset}{}", if direct { " direct" } else { "" }));
        self.file(direct).write_all_at(&octets, self.arguments.base + offset as u64).context("write")?;
        self.put(offset, &octets);
        Ok(())
    }

    /// Writes into the model.
    fn put(&mut self, offset: usize, octets: &[u8]) {
        let end = offset + octets.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset..end].copy_from_slice(octets);
    }

    fn append(&mut self, number: u64) -> anyhow::Result<()> {
        let offset = self.model.len();
        let room = self.arguments.length.saturating_sub(offset as u64);
        let length = self.numbers.below(room.min(self.arguments.largest / 4)) as usize;
        let octets = self.numbers.octets(length);
        self.note(format!("{number} append {length} at {offset}"));
        self.append.write_all(&octets).context("append")?;
        self.put(offset, &octets);
        Ok(())
    }

    fn truncate(&mut self, number: u64) -> anyhow::Result<()> {
        let length = self.numbers.below(self.arguments.length) as usize;
        self.note(format!("{number} truncate from {} to {length}", self.model.len()));
        if self.arguments.settle {
            self.file.sync_all().context("fsync before truncate")?;
        }
        self.file.set_len(self.arguments.base + length as u64).context("truncate")?;
        self.model.resize(length, 0);
        Ok(())
    }

    fn read(&mut self, number: u64) -> anyhow::Result<()> {
        let (offset, length) = self.range(self.arguments.length);
        let direct = self.around_cache();
        self.note(format!("{number} read {length} at {offset}{}", if direct { " direct" } else { "" }));
        let found = read_fully(self.file(direct), self.arguments.base + offset as u64, length).context("read")?;
        self.check(offset, &found, length)
    }

    /// Reads through the page cache and compares.
    fn compare(&self, offset: usize, length: usize) -> anyhow::Result<()> {
        let found = read_fully(&self.file, self.arguments.base + offset as u64, length)?;
        self.check(offset, &found, length)
    }

    /// Compares what was read with the model; the file may end inside the range.
    fn check(&self, offset: usize, found: &[u8], length: usize) -> anyhow::Result<()> {
        let end = (offset + length).min(self.model.len());
        let wanted = self.model.get(offset..end).unwrap_or(&[]);
        if found.len() != wanted.len() {
            bail!(
                "{} bytes came from offset {offset} instead of {} (the file has {})",
                found.len(),
                wanted.len(),
                self.model.len()
            );
        }
        let wrong = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
        if let Some(at) = wrong {
            let count = found.iter().zip(wanted).filter(|(found, wanted)| found != wanted).count();
            bail!(
                "{count} bytes are wrong, the first at {} (base {}): {:#04x} instead of {:#04x}",
                offset + at,
                self.arguments.base,
                found[at],
                wanted[at]
            );
        }
        Ok(())
    }

    /// A range that lies in the file, and the mapping of its pages. `None` while the file is empty.
    fn map(&mut self) -> anyhow::Result<Option<(mapping::Mapping, usize, usize, usize)>> {
        if self.model.is_empty() {
            return Ok(None);
        }
        let (offset, length) = self.range(self.model.len() as u64);
        let length = length.min(self.model.len() - offset);
        let start = self.arguments.base + offset as u64;
        let into = start % mapping::PAGE;
        let mapping = mapping::Mapping::new(&self.file, start - into, into as usize + length).context("mmap")?;
        Ok(Some((mapping, into as usize, offset, length)))
    }

    fn map_write(&mut self, number: u64) -> anyhow::Result<()> {
        let Some((mut mapping, into, offset, length)) = self.map()? else { return self.write(number) };
        self.note(format!("{number} map and write {length} at {offset}"));
        let octets = self.numbers.octets(length);
        mapping.write(into, &octets);
        // Linux does not write mapped pages back before a direct read that follows another direct operation: a program
        // that mixes both must do it itself.
        if self.direct.is_some() || self.numbers.below(2) == 0 {
            mapping.sync().context("msync")?;
        }
        self.put(offset, &octets);
        Ok(())
    }

    fn map_read(&mut self, number: u64) -> anyhow::Result<()> {
        let Some((mapping, into, offset, length)) = self.map()? else { return self.read(number) };
        self.note(format!("{number} map and read {length} at {offset}"));
        let mut found = vec![0; length];
        mapping.read(into, &mut found);
        self.check(offset, &found, length)
    }

    /// Empties the page cache, so that the next reads come from the server.
    fn forget(&self) -> anyhow::Result<()> {
        self.file.sync_all()?;
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }
}

/// Opens the file for reading and writing, for appending, and, if the options ask for it, around the page cache.
fn open(arguments: &Arguments) -> std::io::Result<(File, File, Option<File>)> {
    let mut usual = OpenOptions::new();
    usual.read(true).write(true);
    let direct = match arguments.direct {
        true => Some(usual.clone().custom_flags(OFlags::DIRECT.bits().cast_signed()).open(&arguments.file)?),
        false => None,
    };
    Ok((usual.open(&arguments.file)?, OpenOptions::new().append(true).open(&arguments.file)?, direct))
}

/// Reads as many bytes as the file has, up to the length.
fn read_fully(file: &File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut octets = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut octets[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    octets.truncate(filled);
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Exerciser, run};
    use std::os::unix::fs::FileExt as _;

    fn arguments(name: &str, base: u64) -> Arguments {
        let file = std::env::temp_dir().join(format!("rpcrdma-fsx-{name}-{}", std::process::id()));
        Arguments { file, ops: 3000, seed: 7, base, length: 50_000, largest: 9000, direct: false, settle: false }
    }

    #[test]
    fn a_good_file_system_passes() {
        for base in [0, (4 << 30) - 10_000] {
            let arguments = arguments("good", base);
            run(&arguments).unwrap();
            std::fs::remove_file(&arguments.file).unwrap();
        }
    }

    #[test]
    fn one_wrong_octet_is_seen() {
        let arguments = arguments("bad", 0);
        let mut exerciser = Exerciser::new(&arguments).unwrap();
        for number in 1..200 {
            exerciser.step(number).unwrap();
        }
        exerciser.put(0, b"x");
        exerciser.file.write_all_at(b"y", 0).unwrap();
        let error = exerciser.compare(0, exerciser.model.len()).unwrap_err();
        assert!(error.to_string().contains("0x79 instead of 0x78"), "{error}");
        std::fs::remove_file(&arguments.file).unwrap();
    }
}
