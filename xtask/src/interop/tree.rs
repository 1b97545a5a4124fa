//! Trees of files on this machine: made from a seed, and compared.

use super::context::Context;
use crate::numbers::Numbers;
use anyhow::Context as _;
use std::{
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

/// Sizes around every limit that matters: zero, XDR's padding, inline thresholds of 1,024 and 4,096 bytes less their
/// headers, pages, and the largest READ and WRITE.
pub(super) const SIZES: &[usize] = &[
    0, 1, 2, 3, 4, 5, 63, 511, 900, 1023, 1024, 1025, 3000, 3900, 3950, 3999, 4000, 4001, 4095, 4096, 4097, 8191, 8192,
    8193, 65_535, 65_536, 65_537, 131_071, 262_145, 1_048_575, 1_048_576, 1_048_577, 3_145_733,
];

/// A tree of files of all [`SIZES`], folders, links, holes and odd names.
pub(super) fn make(folder: &Path, seed: u64) -> anyhow::Result<()> {
    let mut numbers = Numbers(seed);
    fs::create_dir_all(folder)?;
    for (count, size) in SIZES.iter().enumerate() {
        let place = folder.join(format!("level-{}", count % 4)).join(format!("below-{}", count % 3));
        fs::create_dir_all(&place)?;
        let file = place.join(format!("size-{size}"));
        fs::write(&file, numbers.octets(*size))?;
        fs::set_permissions(&file, fs::Permissions::from_mode([0o644, 0o600, 0o755, 0o444][count % 4]))?;
    }
    fs::create_dir_all(folder.join("empty"))?;
    fs::write(folder.join("n".repeat(255)), "a name of 255 bytes")?;
    fs::write(folder.join("Größe, 大きさ \u{1}\n'\"*?[%20"), "odd bytes")?;
    let mut deep = folder.join("deep");
    for level in 0..40 {
        deep.push(format!("a-folder-of-the-level-{level}"));
    }
    fs::create_dir_all(&deep)?;
    fs::write(deep.join("bottom"), numbers.octets(5000))?;
    symlink("level-0/below-0", folder.join("link-to-folder"))?;
    symlink("nowhere/at all", folder.join("link-to-nothing"))?;
    symlink("x".repeat(1000), folder.join("long-link"))?;
    let mut holes = fs::File::create(folder.join("holes"))?;
    holes.seek(SeekFrom::Start(2_000_003))?;
    holes.write_all(&numbers.octets(70_001))?;
    holes.set_len(9_000_001)?;
    for number in 0..300 {
        let many = folder.join("many");
        fs::create_dir_all(&many)?;
        fs::write(many.join(format!("{number:04}")), format!("file {number}\n"))?;
    }
    Ok(())
}

/// A smaller tree: so many files in one folder, with a link and a hole. The first files have all [`SIZES`] up to 64 KiB
/// and three megabytes.
pub(super) fn make_small(folder: &Path, files: usize, seed: u64) -> anyhow::Result<()> {
    let mut numbers = Numbers(seed);
    fs::create_dir_all(folder.join("below"))?;
    let sizes: Vec<_> = SIZES.iter().filter(|size| **size <= 65_537).collect();
    for number in 0..files {
        let size = if number == 7 { 3_145_733 } else { *sizes[number % sizes.len()] };
        fs::write(folder.join(format!("file-{number}")), numbers.octets(size))?;
    }
    symlink("file-7", folder.join("link"))?;
    let holes = fs::File::create(folder.join("below/holes"))?;
    holes.set_len(500_001)?;
    Ok(())
}

/// Fails if two trees differ in names, contents, links or modes.
pub(super) fn same(context: &Context, name: &str, left: &Path, right: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("diff");
    command.args(["-r", "--no-dereference"]).arg(left).arg(right);
    let look = context.run(name, command)?;
    if !look.ok {
        return Err(context.failed(format!("{} and {} differ", left.display(), right.display()), &look.out));
    }
    same_listed(context, name, "%p %y %m %l\\n", left, right)
}

/// Fails if two trees differ in a time of last change.
pub(super) fn same_times(context: &Context, name: &str, left: &Path, right: &Path) -> anyhow::Result<()> {
    same_listed(context, name, "%p %T@\\n", left, right)
}

/// Fails if `find` lists two trees differently, in this format.
fn same_listed(context: &Context, name: &str, format: &str, left: &Path, right: &Path) -> anyhow::Result<()> {
    let list = |side: &str, folder: &Path| -> anyhow::Result<Vec<String>> {
        let mut command = Command::new("find");
        command.current_dir(folder).args([".", "-mindepth", "1", "-printf", format]);
        let found = context.run(&format!("{name}-{side}"), command)?.expect_success()?;
        let mut lines: Vec<_> = found.stdout.lines().map(str::to_owned).collect();
        lines.sort();
        Ok(lines)
    };
    let (left_lines, right_lines) = (list("left", left)?, list("right", right)?);
    let other = left_lines.iter().zip(&right_lines).find(|(left, right)| left != right);
    if let Some((left_line, right_line)) = other {
        anyhow::bail!("{} has {left_line:?} where {} has {right_line:?}", left.display(), right.display());
    }
    (left_lines.len() == right_lines.len()).then_some(()).context("one tree has more entries than the other")
}
