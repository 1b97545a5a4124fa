//! What several commands have in common of their options, and how their values are read.

use crate::capture::CaptureArgs;
use clap::Args;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Verbosity {
    /// Log more: with -v each connection, with -vv every message (RUST_LOG in the environment overrides -v and -q)
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Log errors only, and print no hints after the ready line
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// What the client commands have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Do not ask for iWARP's CRC; a connection works without it only if the server does not ask for it either
    #[arg(long)]
    pub(crate) no_crc: bool,
    /// Print results and errors as JSON; cat and lock print only errors and warnings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How copies replace existing files.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Placing {
    /// Write into an existing file itself. Without this option, the command writes a temporary file beside it, and
    /// renames that file when it is complete. --inplace keeps the owner and the other names of the file; mode and times
    /// become those of the source. A copy that fails leaves the file half written
    #[arg(long)]
    pub(crate) inplace: bool,
    /// Continue a copy that was cut off; if this copy is cut off, keep its part files of more than 8 MiB. The command
    /// passes over files whose size and modification time equal those of their source. It continues a part file if the
    /// source still has the same modification time and is not shorter. It does not compare contents. Do not run two
    /// such copies to the same name at the same time
    #[arg(long, conflicts_with = "inplace")]
    pub(crate) resume: bool,
}

/// What `get` and `put` have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct CopyArgs {
    /// Copy directories and everything in them
    #[arg(short)]
    pub(crate) recursive: bool,
    /// Also keep extended attributes (user.*) and access control lists, if both sides have them; the command names each
    /// file whose attributes it could not keep. If POSIX cannot express a list, the copy keeps one that may allow less
    /// and never allows more
    #[arg(long)]
    pub(crate) xattrs: bool,
    #[command(flatten)]
    pub(crate) placing: Placing,
    /// Show no progress, no summary, and no messages about a server that does not answer; errors are still shown
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// A number of bytes, with a suffix K, M, G or T for powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    // A sign is not a digit, though the standard library accepts a plus.
    let number: Option<u64> = digits.parse().ok().filter(|_| !digits.starts_with('+'));
    let number = number.ok_or_else(|| format!("{text:?} is not a size; write it as 512M or 2G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is out of range"))
}

/// The same for a size that is not zero, and fits into memory.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let size = usize::try_from(parse_bytes(text)?).ok().filter(|&size| size > 0);
    size.ok_or_else(|| format!("{text:?} is out of range"))
}

/// Seconds, with fractions.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_files_may_be_zero_and_large() {
        assert_eq!(parse_bytes("0"), Ok(0));
        assert_eq!(parse_bytes("5G"), Ok(5 << 30));
        assert_eq!(parse_bytes("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["", "G", "-1", "+1", "0x10", "18446744073709551616", "16777216T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("3k"), Ok(3 << 10));
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        for wrong in ["", "M", "0", "-1", "1X", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
