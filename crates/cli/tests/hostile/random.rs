//! Valid exchanges of both versions with some bytes changed, cut, doubled or swapped: whatever happens on the
//! connection, it ends, the server survives, and others notice nothing. The calls are of NFS versions 2 and 3, and of
//! all versions of MOUNT.
//!
//! The seed is printed. `RPCRDMA_HOSTILE_RUNS` says how many exchanges, `RPCRDMA_HOSTILE_SEED` which.

use crate::{
    headers2,
    peer::{Heard, Peer, dial, rest},
    rpc::{self, Header, MOUNT, NFS, Xdr, call},
    stage::Stage,
    wire::{CRC, ENHANCED, PRIVATE_DATA, enhanced, request, seal},
};
use std::{io::Write, net::Shutdown};

/// The default number of exchanges of each kind: a second or two.
const RUNS: u64 = 1000;
const SEED: u64 = 0x0008_1660_8267_8797;

/// The name in LOOKUPs: a changed number turns LOOKUP into REMOVE, and no test needs this file.
const LOOKED_UP: &[u8] = b"out";

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes bytes as wires, bugs and people do.
    fn mutate(&mut self, octets: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            if octets.is_empty() {
                return;
            }
            let at = self.below(octets.len());
            match self.below(8) {
                0 | 1 => octets[at] ^= 1 << self.below(8),
                2 => octets[at] = [0, 1, 0x7F, 0x80, 0xFF][self.below(5)],
                3 => octets[at] = self.next() as u8,
                4 => octets.truncate(at),
                5 => {
                    let end = (at + 1 + self.below(16)).min(octets.len());
                    let again = octets[at..end].to_vec();
                    octets.splice(at..at, again);
                }
                // A word that is probably a length, a count or a position.
                _ => {
                    let at = at & !3;
                    if let Some(word) = octets.get_mut(at..at + 4) {
                        let value =
                            [0, 1, 4, 0x7FFF_FFFF, 0x8000_0000, u32::MAX, 4097, self.next() as u32][self.below(8)];
                        word.copy_from_slice(&value.to_be_bytes());
                    }
                }
            }
        }
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Handles of the exported directory and of a file in it, as a version of NFS has them.
struct Handles {
    root: Vec<u8>,
    file: Vec<u8>,
}

/// Calls that a decent client of version 3 makes, read-only or harmless.
fn calls_3(handles: &Handles) -> Vec<Vec<u8>> {
    let Handles { root, file } = handles;
    let args = |procedure: u32, args: Xdr| [call(5, NFS, 3, procedure).0, args.0].concat();
    let handle = |handle: &[u8]| Xdr::default().opaque(handle);
    vec![
        rpc::null(5),
        args(1, handle(root)),
        args(3, handle(root).opaque(LOOKED_UP)),
        args(4, handle(file).u32(0x3F)),
        args(2, handle(file).words(&[1, 0o666, 0, 0, 0, 0, 0, 0])),
        args(8, handle(root).opaque(b"made").words(&[0, 0, 0, 0, 0, 0, 0])),
        args(19, handle(root)),
        args(17, handle(root).u64(0).u64(0).u32(4096).u32(8192)),
        args(6, handle(file).u64(0).u32(3000)),
    ]
}

/// The same for version 2: each procedure with arguments.
fn calls_2(handles: &Handles) -> Vec<Vec<u8>> {
    /// Attributes that are not set.
    const KEPT: [u32; 7] = [u32::MAX; 7];
    let Handles { root, file } = handles;
    let args = |procedure: u32, args: Xdr| [call(5, NFS, 2, procedure).0, args.0].concat();
    let fixed = |handle: &[u8]| Xdr::default().raw(handle);
    let named = |name: &[u8]| fixed(root).opaque(name);
    vec![
        args(0, Xdr::default()),
        args(1, fixed(file)),
        args(2, fixed(file).u32(0o666).words(&KEPT)),
        args(4, named(LOOKED_UP)),
        args(5, fixed(root)),
        args(6, fixed(file).words(&[0, 3000, 0])),
        args(8, fixed(file).words(&[0, 0, 0]).opaque(&[0; 64])),
        args(9, named(b"made").u32(0o666).words(&KEPT)),
        args(10, named(b"made")),
        args(11, named(b"made").raw(root).opaque(b"moved")),
        args(12, Xdr::default().raw(file).raw(root).opaque(b"linked")),
        args(13, named(b"pointed").opaque(b"nowhere").u32(0o777).words(&KEPT)),
        args(14, named(b"directory").u32(0o777).words(&KEPT)),
        args(15, named(b"directory")),
        args(16, fixed(root).words(&[0, 4096])),
        args(17, fixed(root)),
    ]
}

/// The calls inline, and some of them with chunks.
fn messages(calls: &[Vec<u8>], [third, second]: [&Handles; 2]) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = calls.iter().map(|stream| rpc::inline(stream)).collect();
    let args = |version: u32, procedure: u32, args: Xdr| [call(5, NFS, version, procedure).0, args.0].concat();
    let (root, file) = (Xdr::default().opaque(&third.root), Xdr::default().opaque(&third.file));
    let (root_2, file_2) = (Xdr::default().raw(&second.root), Xdr::default().raw(&second.file));
    let writes = [rpc::write_call(5, &third.file, 64).0, args(2, 8, file_2.clone().words(&[0, 0, 0, 64]))];
    for write in writes {
        let lists = Header { reads: vec![(write.len() as u32, (7, 64, 0))], ..Header::default() };
        messages.push(lists.message(5, &write));
    }
    for read in [args(3, 6, file.u64(0).u32(3000)), args(2, 6, file_2.words(&[0, 3000, 0]))] {
        let (writes, reply) = (vec![vec![(7, 2000, 0), (8, 2000, 64)]], Some(vec![(9, 600, 0)]));
        messages.push(Header { writes, reply, ..Header::default() }.message(5, &read));
    }
    let listings = [args(3, 17, root.u64(0).u64(0).u32(4096).u32(8192)), args(2, 16, root_2.words(&[0, 4096]))];
    for readdir in listings {
        let lists = Header { reply: Some(vec![(9, 9000, 0)]), ..Header::default() };
        messages.push(lists.message(5, &readdir));
        let lists = Header { reads: vec![(0, (7, readdir.len() as u32, 0))], long: true, ..Header::default() };
        messages.push(lists.message(5, &[]));
    }
    messages
}

/// Reads everything until the connection ends, and answers Reads with random bytes.
fn play_out(peer: &mut Peer, dice: &mut Dice) {
    for answered in 0.. {
        match peer.hear() {
            Heard::Closed => return,
            Heard::ReadRequest(asked) if answered < 4 => {
                let octets: Vec<u8> = (0..asked.size).map(|_| dice.next() as u8).collect();
                peer.respond(&asked, &octets);
            }
            _ => {}
        }
    }
}

#[test]
fn mutated_exchanges_end_and_leave_the_server_whole() {
    let (runs, seed) = (from_environment("RPCRDMA_HOSTILE_RUNS", RUNS), from_environment("RPCRDMA_HOSTILE_SEED", SEED));
    println!("RPCRDMA_HOSTILE_SEED={seed} RPCRDMA_HOSTILE_RUNS={runs}");
    let mut stage = Stage::new(&["--tcp", "127.0.0.1:0", "--nfs", "2,3,4.0,4.1,4.2"]);
    let mut dice = Dice(seed);
    let third = Handles { root: stage.root(), file: stage.handle(b"written") };
    let second = Handles { root: stage.root_2(), file: stage.handle_2(b"written") };
    let calls = [calls_3(&third), calls_2(&second)].concat();
    // Messages of each version of RPC-over-RDMA.
    let of_version = [messages(&calls, [&third, &second]), headers2::decent(&third.root, &third.file)];
    let (rdma, mount, tcp) = (stage.server.rdma.clone(), stage.server.mount.clone(), stage.server.tcp.clone().unwrap());
    for run in 0..runs {
        // A message, changed under a right CRC; then an unchanged one.
        let mut peer = Peer::connect(&rdma);
        let version = dice.below(of_version.len());
        let messages = &of_version[version];
        // Mostly both agree on version 2 first, so that the server has posted all its receives.
        if version == 1 && dice.below(4) > 0 {
            peer.send(&headers2::properties(headers2::TPMORE, &[]));
            let _ = peer.hear();
        }
        let mut message = messages[dice.below(messages.len())].clone();
        dice.mutate(&mut message);
        message.truncate(4096);
        peer.send(&message);
        peer.send(&messages[dice.below(messages.len())]);
        let mut frames = Vec::new();
        for _ in 0..dice.below(3) {
            let mut frame = peer.next_send(&messages[dice.below(messages.len())]);
            dice.mutate(&mut frame);
            if dice.below(2) == 0 {
                seal(&mut frame);
            }
            frames.extend(frame);
        }
        peer.raw(&frames);
        // The server gets nothing more, whatever it waits for.
        if dice.below(2) == 0 {
            let _ = peer.stream.shutdown(Shutdown::Write);
            play_out(&mut peer, &mut dice);
        }

        let mut setup = request(CRC | ENHANCED, 2, &enhanced(16, 16, &PRIVATE_DATA));
        dice.mutate(&mut setup);
        let mut stream = dial(&rdma);
        let _ = stream.write_all(&setup);
        let _ = stream.shutdown(Shutdown::Write);
        rest(&mut stream);

        let (address, mut record) = if run % 2 == 0 {
            let (version, procedure) = (1 + dice.below(3) as u32, 1 + dice.below(5) as u32);
            (&mount, call(5, MOUNT, version, procedure).opaque(b"/").0)
        } else {
            (&tcp, calls[dice.below(calls.len())].clone())
        };
        let head = 0x8000_0000 | record.len() as u32;
        record.splice(..0, head.to_be_bytes());
        dice.mutate(&mut record);
        let mut stream = dial(address);
        let _ = stream.write_all(&record);
        let _ = stream.shutdown(Shutdown::Write);
        rest(&mut stream);

        if run % 16 == 0 {
            stage.the_open_connection_works();
        }
    }
    stage.finish();
}
