//! The bodies of the fuzz targets: each takes any bytes, and panics if something does not hold.
//!
//! `fuzz/` gives them the inputs of libFuzzer; `tests/corpus.rs` gives them, in the ordinary tests, the inputs that
//! were kept, and [`seeds()`]. Inputs are borrowed. A failed check is a panic; there are no other errors.

mod capture;
mod engine;
mod iwarp;
mod mint;
mod nfs;
mod nfs2;
mod nfs4;
mod nfs4_state;
mod nlm;
mod nsm;
mod portmap;
mod records;
mod rpc;
mod seeds;
mod server;
mod wire;

pub use seeds::seeds;

/// The largest input that is kept, in bytes. Larger ones find little more, and slow replays down.
pub const MAX_KEPT_BYTES: usize = 4096;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also the name of its program and of its file in `fuzz/corpora/`.
    pub name: &'static str,
    /// Takes one input. Panics if something does not hold.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "header_v1", run: wire::header_v1 },
    Target { name: "header_v2", run: wire::header_v2 },
    Target { name: "private_data", run: wire::private_data },
    Target { name: "rpc", run: rpc::messages },
    Target { name: "portmap", run: portmap::datagrams },
    Target { name: "nsm", run: nsm::types },
    Target { name: "nfs", run: nfs::types },
    Target { name: "nfs2", run: nfs2::types },
    Target { name: "nfs4", run: nfs4::compounds },
    Target { name: "nfs4_state", run: nfs4_state::sessions },
    Target { name: "nlm", run: nlm::types },
    Target { name: "iwarp_headers", run: iwarp::headers },
    Target { name: "iwarp", run: iwarp::endpoint },
    Target { name: "engine_v1", run: engine::version_1 },
    Target { name: "engine_v2", run: engine::version_2 },
    Target { name: "capture_file", run: capture::file },
    Target { name: "capture_streams", run: capture::streams },
    Target { name: "records", run: records::calls },
    Target { name: "server", run: server::live },
];

/// Runs the target of this name.
///
/// # Panics
/// If there is no such target, or if something does not hold.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("the name of a target");
    (target.run)(input);
}

/// The inputs of a file in `fuzz/corpora/`: each a line of hexadecimal digits. Empty lines and lines that begin with
/// `#` do not count.
///
/// # Panics
/// If a line is anything else.
pub fn inputs(text: &str) -> Vec<Vec<u8>> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(octets).collect()
}

/// Bytes of hexadecimal digits.
fn octets(hex: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).expect("a hexadecimal digit") as u8;
    assert!(hex.len().is_multiple_of(2), "half a byte");
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
