//! Files that are not whole yet: their names, and what `--resume` accepts as the beginning of a file.
//!
//! A copy goes to a temporary name beside its target and is renamed when it is whole. With `--resume` that name can be
//! found again, and the file's access time says of which source it is a part: it is set to the source's modification
//! time, which neither writing nor renaming alters, and which a file does not get as its access time by chance. What
//! lies more than [`RESUME_SPAN`] bytes before the end of such a part was made durable before anything was written
//! beyond: the rest is copied again.

use rpcrdma_env::Random;
use rpcrdma_nfs::attr::Time;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How far before its end a part file may still have gaps: calls overtake each other, and a machine that crashes loses
/// what was not durable. The smaller it is, the less is copied twice, and the more often a copy waits for the disk:
/// this is what a slow disk writes in a tenth of a second. A shorter part file is useless.
pub(crate) const RESUME_SPAN: u64 = 8 << 20;
/// Bytes of a name, on nearly all file systems.
const NAME_BYTES: usize = 255;
/// Names tried for a temporary file before we assume an attack.
pub(crate) const NAMES_TRIED: u32 = 16;

/// A fresh name beside `name`: `.NAME.rpcrdma-XXXXXX`.
pub(crate) fn temporary_name(name: &[u8], random: &dyn Random) -> Vec<u8> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bits = random.next_u32();
    let suffix = [(); 6].map(|()| {
        let letter = LETTERS[(bits % 32) as usize];
        bits /= 32;
        letter
    });
    beside(name, &suffix)
}

/// The name beside `name` that `--resume` looks for: `.NAME.rpcrdma-part`.
pub(crate) fn part_name(name: &[u8]) -> Vec<u8> {
    const SUFFIX: &[u8] = b"part";
    if BEFORE.len() + name.len() + BETWEEN.len() + SUFFIX.len() <= NAME_BYTES {
        return beside(name, SUFFIX);
    }
    // Two long names may begin alike.
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    beside(name, format!("{:016x}-part", hasher.finish()).as_bytes())
}

const BEFORE: &[u8] = b".";
const BETWEEN: &[u8] = b".rpcrdma-";

fn beside(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    let room = NAME_BYTES - BEFORE.len() - BETWEEN.len() - suffix.len();
    let name = &name[..name.len().min(room)];
    [BEFORE, name, BETWEEN, suffix].concat()
}

/// Whether a time that was set on a copy is that of its source, as far as the copy's file system keeps it: some keep
/// whole seconds only.
pub(crate) fn same_time(copy: Time, source: Time) -> bool {
    copy.seconds == source.seconds && (copy.nanoseconds == source.nanoseconds || copy.nanoseconds == 0)
}

/// The position from which a part file of `len` bytes, marked with `mark`, is continued: `None` if it is not a part of
/// this source.
pub(crate) fn resume_at(len: u64, mark: Time, source_size: u64, source_modified: Time) -> Option<u64> {
    (same_time(mark, source_modified) && len <= source_size).then(|| len.saturating_sub(RESUME_SPAN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::SeededRandom;

    #[test]
    fn temporary_names_fit_and_differ() {
        let random = SeededRandom::new(1);
        for len in [1, 100, 230, 239, 240, 255] {
            let name = vec![b'n'; len];
            let (one, other) = (temporary_name(&name, &random), temporary_name(&name, &random));
            assert_ne!(one, other);
            for name in [one, other, part_name(&name)] {
                assert!(name.len() <= 255 && name.starts_with(b".n"), "{len}: {}", name.escape_ascii());
            }
        }
        assert_eq!(part_name(b"file"), b".file.rpcrdma-part");
        assert!(temporary_name(b"file", &random).starts_with(b".file.rpcrdma-"));
        let long = |last| [vec![b'n'; 254], vec![last]].concat();
        assert_ne!(part_name(&long(b'a')), part_name(&long(b'b')), "names that begin alike");
        assert_eq!(part_name(&long(b'a')), part_name(&long(b'a')));
    }

    #[test]
    fn a_part_goes_on_only_for_the_same_source() {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        let (source, size) = (time(7, 8), 3 * RESUME_SPAN);
        assert_eq!(resume_at(size, source, size, source), Some(2 * RESUME_SPAN));
        assert_eq!(resume_at(RESUME_SPAN + 1, source, size, source), Some(1));
        assert_eq!(resume_at(RESUME_SPAN, source, size, source), Some(0));
        assert_eq!(resume_at(size + 1, source, size, source), None, "longer than its source");
        assert_eq!(resume_at(size, time(7, 9), size, source), None, "the source has changed");
        assert_eq!(resume_at(size, time(8, 8), size, source), None);
        assert_eq!(resume_at(size, time(7, 0), size, source), Some(2 * RESUME_SPAN), "whole seconds");
    }
}
