//! What the server of this measurement serves: a program of its own, and NFS of a file system in memory.
//!
//! | procedure | arguments | results |
//! |---|---|---|
//! | 1 | bytes wanted, opaque | bytes of that opaque, opaque of as many as wanted |
//! | 2 | none | processor time in nanoseconds, then the numbers of [`Counts`] |

use super::{Counter, Counts, SIZES};
use anyhow::{Context, Result};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_nfs::{attr::NewAttributes, mount, v3};
use rpcrdma_nfsd::{
    Caller, CreateHow, Export, FileSystem, MemoryFs, New, Nfsd, Queue, SECRET_BYTES, StateDirectory, Version4,
};
use rpcrdma_oncrpc::{Answer, CallContext, Handler, Outcome, Router, Service};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Stream, StreamPart};
use std::{net::SocketAddr, path::PathBuf, sync::Arc};

/// The program's number, from the range that is free for everybody (RFC 5531 section 8.3), and its only version.
pub(super) const PROGRAM: u32 = 0x2000_0004;
pub(super) const VERSION: u32 = 1;
pub(super) const ECHO: u32 = 1;
pub(super) const COUNTS: u32 = 2;

/// What is exported: a directory with many files, and one with few.
pub(super) const DIRECTORIES: [&str; 2] = ["/large", "/small"];
/// Files in each: more than the largest listing can hold, and what a small directory may have.
const FILES: [u32; 2] = [1000, 3];
/// The bytes that a file system with only empty files may take.
const FILE_SYSTEM_BYTES: u64 = 1 << 20;

/// What is exported besides: a directory with one file that is read and written, its name, and its bytes.
pub(super) const DATA_DIRECTORY: &str = "/data";
pub(super) const DATA: &str = "data";
pub(super) const DATA_BYTES: u32 = 1 << 20;

/// Where the server listens.
pub(super) struct Addresses {
    /// For calls that are timed.
    pub(super) plain: SocketAddr,
    /// For calls that are counted.
    pub(super) traced: SocketAddr,
}

impl Addresses {
    /// Reads the addresses as the server writes them: two on a line.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (plain, traced) = line.trim().split_once(' ')?;
        Some(Self { plain: plain.parse().ok()?, traced: traced.parse().ok()? })
    }
}

/// The results of [`COUNTS`].
pub(super) struct ServerState {
    cpu_ns: u64,
    pub(super) counts: Counts,
}

impl ServerState {
    pub(super) const OCTETS: usize = 8 + 8 * Counts::NUMBERS;

    pub(super) fn cpu_s(&self) -> f64 {
        self.cpu_ns as f64 / 1e9
    }
}

impl Encode for ServerState {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u64(self.cpu_ns);
        for number in self.counts.numbers() {
            encoder.u64(number);
        }
    }
}

impl Decode for ServerState {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let cpu_ns = decoder.u64()?;
        let mut numbers = [0; Counts::NUMBERS];
        for number in &mut numbers {
            *number = decoder.u64()?;
        }
        Ok(Self { cpu_ns, counts: Counts::from_numbers(numbers) })
    }
}

/// The program.
struct Echo {
    octets: Bytes,
    counter: Arc<Counter>,
}

impl Echo {
    fn echo(&self, mut args: Decoder) -> Result<Answer, DecodeError> {
        let wanted = args.count(self.octets.len())?;
        let came = args.opaque(self.octets.len())?;
        args.finish()?;
        let mut results = Encoder::new();
        results.u32(u32::try_from(came.len()).unwrap_or(u32::MAX));
        results.opaque_shared(self.octets.slice(..wanted));
        Ok(Answer::Results(results.finish()))
    }

    fn state(&self) -> Answer {
        let cpu_ns = (super::own_seconds() * 1e9) as u64;
        let mut results = Encoder::new();
        ServerState { cpu_ns, counts: self.counter.counts() }.encode(&mut results);
        Answer::Results(results.finish())
    }
}

impl Service for Echo {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, _: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let answer = match procedure {
            ECHO => self.echo(args).unwrap_or_else(Answer::from),
            COUNTS => self.state(),
            _ => Answer::ProcUnavail,
        };
        Box::pin(std::future::ready(answer))
    }
}

/// All programs on one port.
pub(super) struct Programs {
    own: Router,
    nfs: Arc<dyn Handler>,
    mount: Arc<dyn Handler>,
    /// Where NFS version 4 keeps what a restart must not lose.
    state: PathBuf,
}

impl Drop for Programs {
    fn drop(&mut self) {
        // If this fails, a secret and an empty journal stay, in a directory for such things.
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

impl Programs {
    /// Makes the file systems, and the programs that serve them. Upkeep becomes a task.
    pub(super) async fn new(env: &Env, counter: Arc<Counter>) -> Result<Self> {
        let mut exports = Vec::new();
        for (path, files) in DIRECTORIES.into_iter().zip(FILES) {
            exports.push(Export::new(path, Arc::new(file_system(files, env).await?)));
        }
        exports.push(Export::new(DATA_DIRECTORY, Arc::new(data(env).await?)));
        let name = format!("rpcrdma-bench-{}-{:016x}", std::process::id(), env.random.next_u64());
        let path = std::env::temp_dir().join(name);
        let state = StateDirectory::open(path.clone(), &*env.random).context("making a directory for version 4")?;
        let nfsd = Nfsd::new(exports, [0; SECRET_BYTES], env)?;
        let nfsd = nfsd.with_version_4(Version4::new(&state, Queue::in_place()), true, env)?;
        tokio::spawn(nfsd.upkeep());
        let longest = SIZES.iter().copied().max().unwrap_or(0) as usize;
        let echo = Echo { octets: Bytes::from(vec![2; longest]), counter };
        Ok(Self {
            own: Router::new(env).with_service(Arc::new(echo)),
            nfs: nfsd.nfs(),
            mount: nfsd.mount(),
            state: path,
        })
    }
}

impl Handler for Programs {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        // XID, direction, RPC version, program.
        let program = match message.parts().next() {
            Some(StreamPart::Run(run)) => run.get(12..).and_then(|rest| rest.first_chunk().copied()),
            _ => None,
        };
        match program.map(u32::from_be_bytes) {
            Some(v3::PROGRAM) => self.nfs.handle(context, message),
            Some(mount::PROGRAM) => self.mount.handle(context, message),
            _ => self.own.handle(context, message),
        }
    }
}

/// A file system whose root holds this many empty files.
async fn file_system(files: u32, env: &Env) -> Result<MemoryFs> {
    let file_system = MemoryFs::new(FILE_SYSTEM_BYTES, env);
    for number in 0..files {
        let how = CreateHow::Guarded(NewAttributes { mode: Some(0o644), ..NewAttributes::default() });
        let name = Bytes::from(format!("a file of usual name {number:04}"));
        let made = file_system.make(Caller::root(), file_system.root(), name, New::File(how)).await;
        made.map_err(|failure| failure.fault).context("filling a directory")?;
    }
    Ok(file_system)
}

/// A file system whose root holds a file that everybody may read and write.
async fn data(env: &Env) -> Result<MemoryFs> {
    let file_system = MemoryFs::new(FILE_SYSTEM_BYTES + u64::from(DATA_BYTES), env);
    let how = CreateHow::Guarded(NewAttributes {
        mode: Some(0o666),
        size: Some(DATA_BYTES.into()),
        ..NewAttributes::default()
    });
    let made = file_system.make(Caller::root(), file_system.root(), Bytes::from(DATA), New::File(how)).await;
    made.map_err(|failure| failure.fault).context("making a file")?;
    Ok(file_system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_numbers_are_read_as_they_were_written() {
        let numbers = std::array::from_fn(|at| at as u64 + 1);
        let mut encoder = Encoder::new();
        ServerState { cpu_ns: 1_500_000_000, counts: Counts::from_numbers(numbers) }.encode(&mut encoder);
        let octets = encoder.finish().to_bytes();
        assert_eq!(octets.len(), ServerState::OCTETS);
        let read = ServerState::decode(&mut Decoder::new(Stream::from(octets))).unwrap();
        assert_eq!((read.cpu_s(), read.counts.numbers()), (1.5, numbers));
    }

    #[test]
    fn addresses_stand_on_a_line() {
        let read = Addresses::parse("127.0.0.1:1 127.0.0.1:2\n").unwrap();
        assert_eq!((read.plain.port(), read.traced.port()), (1, 2));
        assert!(Addresses::parse("127.0.0.1:1").is_none() && Addresses::parse("").is_none());
    }
}
