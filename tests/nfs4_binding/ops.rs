//! Operations and their results, word by word as RFC 5662 and RFC 7863 number and order them.

use super::wire::{opaque, words};

pub const READ: u32 = 25;
pub const WRITE: u32 = 38;
pub const READ_PLUS: u32 = 68;

pub const ISDIR: u32 = 21;
pub const DELAY: u32 = 10008;
pub const BADXDR: u32 = 10036;
pub const OP_ILLEGAL: u32 = 10044;
pub const ILLEGAL: u32 = 10044;
pub const RETRY_UNCACHED_REP: u32 = 10068;

/// The anonymous stateid, which needs no OPEN.
const STATEID: [u8; 16] = [0; 16];

pub fn put_root_fh() -> Vec<u8> {
    words(&[24])
}

pub fn put_fh(handle: &[u8]) -> Vec<u8> {
    [words(&[22]), opaque(handle)].concat()
}

pub fn get_fh() -> Vec<u8> {
    words(&[10])
}

pub fn lookup(name: &str) -> Vec<u8> {
    [words(&[15]), opaque(name.as_bytes())].concat()
}

pub fn read(offset: u32, count: u32) -> Vec<u8> {
    [&words(&[READ]), &STATEID[..], &words(&[0, offset, count])].concat()
}

pub fn read_link() -> Vec<u8> {
    words(&[27])
}

pub fn read_plus(count: u32) -> Vec<u8> {
    [&words(&[READ_PLUS]), &STATEID[..], &words(&[0, 0, count])].concat()
}

/// WRITE up to the length of its data; the data follow inline or in a chunk. Stable, so that its results are the same
/// everywhere.
pub fn write(offset: u32, len: u32) -> Vec<u8> {
    [&words(&[WRITE]), &STATEID[..], &words(&[0, offset, 2, len])].concat()
}

/// WRITE with its data inline.
pub fn write_inline(offset: u32, data: &[u8]) -> Vec<u8> {
    [&write(offset, data.len() as u32)[..], &opaque(data)[4..]].concat()
}

/// CREATE of a symbolic link up to the length of its text.
pub fn create_link(len: u32) -> Vec<u8> {
    words(&[6, 5, len])
}

/// The rest of CREATE behind the text: the link's name, and no attributes.
pub fn create_link_end(name: &str) -> Vec<u8> {
    [opaque(name.as_bytes()), words(&[0, 0])].concat()
}

/// The results of an operation that has none, or that failed.
pub fn result(op: u32, status: u32) -> Vec<u8> {
    words(&[op, status])
}

/// READ's results up to the data's length.
pub fn read_ok(is_end: bool, len: u32) -> Vec<u8> {
    words(&[READ, 0, u32::from(is_end), len])
}

/// READ's results with the data inline.
pub fn read_ok_inline(is_end: bool, data: &[u8]) -> Vec<u8> {
    [words(&[READ, 0, u32::from(is_end)]), opaque(data)].concat()
}

/// READ_PLUS's results for a file without holes, from its beginning: one piece of data, inline.
pub fn read_plus_ok(is_end: bool, data: &[u8]) -> Vec<u8> {
    [words(&[READ_PLUS, 0, u32::from(is_end), 1, 0, 0, 0]), opaque(data)].concat()
}

/// READLINK's results up to the text's length.
pub fn read_link_ok(len: u32) -> Vec<u8> {
    words(&[27, 0, len])
}

/// READLINK's results with the text inline.
pub fn read_link_ok_inline(text: &[u8]) -> Vec<u8> {
    [words(&[27, 0]), opaque(text)].concat()
}

/// WRITE's results: all data was written, as stably as the call asked.
pub fn write_ok(count: u32, verifier: &[u8]) -> Vec<u8> {
    [&words(&[WRITE, 0, count, 2]), verifier].concat()
}

/// PUTFH and LOOKUP.
pub fn to(handle: &[u8], name: &str) -> [Vec<u8>; 2] {
    [put_fh(handle), lookup(name)]
}

/// The results of these two.
pub fn at_it() -> [Vec<u8>; 2] {
    [result(22, 0), result(15, 0)]
}
