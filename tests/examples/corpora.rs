//! Moves corpora between `fuzz/corpora/`, where each target has a file of hexadecimal lines, and `fuzz/corpus/`, where
//! libFuzzer wants a file for each input.
//!
//! `unpack` writes seeds and kept inputs as files; `pack` keeps small enough files, the smallest first, up to a limit.

use rpcrdma_tests::fuzz::{MAX_KEPT_BYTES, TARGETS, inputs, seeds};
use std::{fs, io, path::Path};

/// The most bytes of inputs that are kept for each target.
const KEPT_OCTETS: usize = 16 << 10;

fn main() -> io::Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    match std::env::args().nth(1).as_deref() {
        Some("unpack") => TARGETS.iter().try_for_each(|target| unpack(&fuzz, target.name)),
        Some("pack") => TARGETS.iter().try_for_each(|target| pack(&fuzz, target.name)),
        _ => Err(io::Error::other("say pack or unpack")),
    }
}

fn unpack(fuzz: &Path, name: &str) -> io::Result<()> {
    let folder = fuzz.join("corpus").join(name);
    fs::create_dir_all(&folder)?;
    let kept = fs::read_to_string(fuzz.join(format!("corpora/{name}.hex"))).unwrap_or_default();
    for (at, input) in seeds(name).into_iter().chain(inputs(&kept)).enumerate() {
        fs::write(folder.join(format!("kept-{at}")), input)?;
    }
    Ok(())
}

fn pack(fuzz: &Path, name: &str) -> io::Result<()> {
    let mut all = Vec::new();
    for entry in fs::read_dir(fuzz.join("corpus").join(name))? {
        all.push(fs::read(entry?.path())?);
    }
    let of_seeds = seeds(name);
    all.retain(|input| !input.is_empty() && input.len() <= MAX_KEPT_BYTES && !of_seeds.contains(input));
    all.sort_by_key(|input| (input.len(), input.clone()));
    all.dedup();
    let path = fuzz.join(format!("corpora/{name}.hex"));
    let before = fs::read_to_string(&path).unwrap_or_default();
    // Inputs that made a target fail stay: they stand at the beginning, behind a remark.
    let mut text: String = before.split_once("\n\n").map(|(found, _)| format!("{found}\n\n")).unwrap_or_default();
    let mut room = KEPT_OCTETS;
    for input in all.iter().take_while(|input| room.checked_sub(input.len()).map(|left| room = left).is_some()) {
        text.extend(input.iter().map(|octet| format!("{octet:02x}")));
        text.push('\n');
    }
    fs::write(path, text)
}
