//! NFS and MOUNT over record-marked TCP, on a pair of pipes: the bytes of a connection reach a file system in memory.
//! Calls can have a right header and the handle of the root, so that libFuzzer's changes reach the code behind them.

use super::mint::Mint;
use rpcrdma_env::{Env, Heap, SeededRandom, TokioClock};
use rpcrdma_nfs::{mount, v3};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, SECRET_BYTES, Squash};
use rpcrdma_oncrpc::{Handler, tcp};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime::Runtime,
};

/// Bytes of the file system.
const STORAGE_OCTETS: u64 = 1 << 20;
/// How many bytes a pipe holds.
const PIPE_OCTETS: usize = 64 << 10;
/// How long a connection may take to end after its last byte.
const PATIENCE: Duration = Duration::from_secs(20);
/// A record's only fragment.
const LAST_FRAGMENT: u32 = 0x8000_0000;
/// Bytes of an accepted reply's header, with the record mark.
const REPLY_HEADER_BYTES: usize = 28;

pub(super) fn calls(input: &[u8]) {
    answers(input);
}

/// The answers of the connection.
fn answers(input: &[u8]) -> Vec<u8> {
    let runtime = runtime();
    let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) };
    let storage = Arc::new(MemoryFs::new(STORAGE_OCTETS, &env));
    let everybody = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", storage).with_identities(everybody);
    let nfsd = Nfsd::new(vec![export], [7; SECRET_BYTES], &env).expect("one export");
    let mut mint = Mint::new(input);
    let handler = if mint.u8().is_multiple_of(8) { nfsd.mount() } else { nfsd.nfs() };
    let mount = call(1, mount::PROGRAM, mount::procedure::MOUNT, &[0, 0, 0, 1, b'/', 0, 0, 0]);
    let told = runtime.block_on(exchange(&nfsd.mount(), &env, &mount));
    let (status, root) = told[REPLY_HEADER_BYTES..].split_first_chunk().expect("the root is told");
    assert_eq!(u32::from_be_bytes(*status), 0, "the export is there");
    let octets = script(&mut mint, &root[..root.len().min(4 + v3::MAX_HANDLE_BYTES)]);
    runtime.block_on(exchange(&handler, &env, &octets))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// A call as root, in a record.
fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let credential = [1, 20, 0, 0, 0, 0, 0, 0, 0];
    let words = [xid, 0, 2, program, 3, procedure].into_iter().chain(credential);
    let mut message: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    message.extend(arguments);
    [&(LAST_FRAGMENT | message.len() as u32).to_be_bytes(), &message[..]].concat()
}

/// The bytes of the connection: calls whose arguments begin with the root's handle (behind its length), calls without
/// it, and arbitrary bytes.
fn script(mint: &mut Mint<'_>, root: &[u8]) -> Vec<u8> {
    // Cuts off what follows the handle in the answer.
    let handle = root.split_first_chunk().map(|(len, rest)| (u32::from_be_bytes(*len) as usize, rest));
    let handle = handle.map_or(root, |(len, _)| &root[..root.len().min(4 + len.next_multiple_of(4))]);
    let (mut out, mut xid) = (Vec::new(), 1);
    while !mint.is_empty() {
        xid += 1;
        let (kind, procedure) = (mint.u8(), u32::from(mint.u8() % 24));
        let len = usize::from(mint.u16() % 1500);
        let arguments = mint.take(len);
        match kind % 8 {
            0 => out.extend(arguments),
            1 | 2 => out.extend(call(xid, v3::PROGRAM, procedure, arguments)),
            3 => out.extend(call(xid, mount::PROGRAM, procedure, arguments)),
            // The same call again, which the server answers from its reply cache.
            4 => out.extend(call(xid - 1, v3::PROGRAM, procedure, &[handle, arguments].concat())),
            _ => out.extend(call(xid, v3::PROGRAM, procedure, &[handle, arguments].concat())),
        }
    }
    out
}

/// Sends bytes, ends its direction, and returns everything that comes back.
async fn exchange(handler: &Arc<dyn Handler>, env: &Env, octets: &[u8]) -> Vec<u8> {
    let (here, there) = duplex(PIPE_OCTETS);
    let address = SocketAddr::from(([192, 0, 2, 1], 700));
    let endpoint = tcp::Endpoint { peer: address, local: address, id: 1, allocator: Arc::new(Heap) };
    let options = tcp::ServerOptions::default();
    let (_handle, driver) = tcp::serve(there, endpoint, handler.clone(), env.clock.clone(), options);
    let (mut read, mut write) = tokio::io::split(here);
    let mut answers = Vec::new();
    let speak = async {
        // The server may have closed already.
        let _ = write.write_all(octets).await;
        let _ = write.shutdown().await;
    };
    let listen = async { read.read_to_end(&mut answers).await };
    let all = async { tokio::join!(driver, speak, listen) };
    let _ended = tokio::time::timeout(PATIENCE, all).await.expect("the connection ends");
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the server refused all calls, the target would find nothing: its seeds must be served.
    #[test]
    fn calls_with_the_roots_handle_are_served() {
        let (mut served, mut refused) = (0, 0);
        for seed in crate::fuzz::seeds("records") {
            let answers = answers(&seed);
            match answers.get(REPLY_HEADER_BYTES..).and_then(|results| results.first_chunk()) {
                Some([0, 0, 0, 0]) => served += 1,
                _ => refused += 1,
            }
        }
        assert!(served > refused, "{served} served, {refused} refused");
    }
}
