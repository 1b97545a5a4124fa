//! The inputs with which each target begins: the vectors of `spec/rpcrdma-headers.jsonl`, and messages made here.

use super::{capture, iwarp, nfs, nfs2, nlm, octets};
use rpcrdma_env::{Random as _, SeededRandom};
use rpcrdma_iwarp::protocol::mpa::{Enhanced, Frame, Head, Kind};
use rpcrdma_wire::PrivateData;
use serde_json::Value;

const VECTORS: &str = include_str!("../../../spec/rpcrdma-headers.jsonl");

/// The inputs that a target begins with.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let sends = || calls().into_iter().chain(vectors(1)).chain(vectors(2)).collect::<Vec<_>>();
    match target {
        "header_v1" => vectors(1),
        "header_v2" => vectors(2),
        "private_data" => {
            let block = private_data();
            vec![block.clone(), [&[0; 5][..], &block].concat()]
        }
        "rpc" => rpc(),
        "portmap" => portmap(),
        "nsm" => nsm(),
        "nfs" => nfs(),
        "nfs2" => nfs2(),
        "nfs4" => nfs4(),
        "nfs4_state" => nfs4_state(),
        "nlm" => nlm(),
        "iwarp_headers" => vec![set_up(Kind::Request), set_up(Kind::Reply), sent(b"x"), vec![0x41; 30], vec![0xC1; 20]],
        "iwarp" => work(),
        "engine_v1" => vectors(1).chunks(6).flat_map(played).collect(),
        "engine_v2" => vectors(2).chunks(6).flat_map(played).collect(),
        "capture_file" => exchanges(&sends()).iter().map(|steps| capture::file_of(&borrowed(steps))).collect(),
        "capture_streams" => exchanges(&sends()).iter().map(|steps| written(steps)).collect(),
        "records" => records(),
        "server" => sends().chunks(3).map(served).collect(),
        _ => Vec::new(),
    }
}

/// The vectors of a version.
fn vectors(version: u64) -> Vec<Vec<u8>> {
    let of_version = |line: &str| {
        let vector: Value = serde_json::from_str(line).expect("a vector is JSON");
        (vector["version"] == version).then(|| octets(vector["hex"].as_str().expect("it has bytes")))
    };
    VECTORS.lines().filter_map(of_version).filter(|octets| octets.len() < 1024).collect()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn private_data() -> Vec<u8> {
    PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 }.to_octets().to_vec()
}

fn set_up(kind: Kind) -> Vec<u8> {
    let head = Head { markers: false, crc: true, reject: false, enhanced: true, revision: 2, private_octets: 0 };
    let enhanced = Some(Enhanced { ird: 4, ord: 4, ..Enhanced::default() });
    Frame { head, enhanced, private_data: private_data() }.encode(kind)
}

/// Calls of every procedure of NFS in a message of version 1, with an invalid handle.
fn calls() -> Vec<Vec<u8>> {
    let call = |procedure| {
        let header = [5, 1, 8, 0, 0, 0, 0, 5, 0, 2, 100_003, 3, procedure];
        [words(&header), words(&[1, 24, 0, 0, 5, 6, 0]), words(&[0, 0, 8, 1, 2, 0, 4, 7, 0, 0, 9, 0, 0])].concat()
    };
    (0..22).map(call).collect()
}

fn rpc() -> Vec<Vec<u8>> {
    let with = |kind: u8, octets: &[u8]| [&[kind][..], octets].concat();
    let mut all = vec![
        with(0, &words(&[1, 0, 2, 100_003, 3, 6, 1, 20, 9, 0, 5, 6, 0, 0, 0])),
        with(2, &words(&[9, 4, 0x6162_6364, 5, 6, 2, 7, 8])),
        with(3, b"192.0.2.7.78.81"),
        with(3, b"2001:db8::7.78.81"),
    ];
    let replies: [&[u32]; 5] =
        [&[1, 1, 0, 0, 0, 0], &[1, 1, 0, 0, 0, 2, 3, 4], &[1, 1, 0, 0, 0, 4], &[1, 1, 1, 0, 2, 2], &[1, 1, 1, 1, 5]];
    all.extend(replies.map(|reply| with(1, &words(reply))));
    all
}

/// Questions to a portmapper, as `portmap::datagrams` reads them: every procedure of every version, from both address
/// families, and all of them one after the other.
fn portmap() -> Vec<Vec<u8>> {
    let text = |text: &str| {
        let mut octets = [&words(&[text.len() as u32])[..], text.as_bytes()].concat();
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    };
    let registration = [&words(&[100_003, 3])[..], &text("rdma"), &text("192.0.2.1.8.1"), &text("me")].concat();
    let mapping = words(&[100_005, 3, 6, 0]);
    let of_socket = [&words(&[16, 16])[..], &[2, 0, 8, 1, 192, 0, 2, 1], &[0; 8]].concat();
    let mut all = Vec::new();
    for version in 1..=5 {
        for procedure in 0..=13 {
            let arguments = match (version, procedure) {
                (_, 0 | 4 | 6 | 12) => Vec::new(),
                (2, _) | (_, 5 | 10) => mapping.clone(),
                (_, 7) => text("2001:db8::7.78.81"),
                (_, 8) => of_socket.clone(),
                _ => registration.clone(),
            };
            let len = (arguments.len() as u16).to_be_bytes();
            all.push([&[procedure & 1, 7, version, procedure][..], &len, &arguments].concat());
        }
    }
    let whole = call_of_portmap();
    all.push([&[2, 9, 0, 0][..], &(whole.len() as u16).to_be_bytes(), &whole].concat());
    let every = all.concat();
    all.into_iter().chain([every]).collect()
}

/// A whole call, with a credential of AUTH_SYS.
fn call_of_portmap() -> Vec<u8> {
    words(&[1, 0, 2, 100_000, 2, 3, 1, 20, 9, 0, 5, 6, 0, 0, 0, 100_003, 3, 6, 0])
}

/// Each type of NSM, and names of hosts that are equal or nearly equal.
fn nsm() -> Vec<Vec<u8>> {
    let asker = words(&[2, 0x6D65_0000, 100_021, 4, 16]);
    let name = words(&[3, 0x686F_7300]);
    let bodies = [
        name.clone(),
        words(&[1, 3]),
        [&name[..], &asker, &[7; 16]].concat(),
        [&name[..], &asker].concat(),
        asker.clone(),
        words(&[5]),
        [&name[..], &words(&[5])].concat(),
    ];
    let types = (0..).zip(bodies).map(|(kind, body)| [&[kind][..], &body].concat());
    let names = [&b"\x07\x01aA"[..], b"\x07\x01aa.example", b"\x07\x03192192.0.2.1", b"\x07\x03a.ba.b.c", b"\x07\x00"];
    types.chain(names.map(<[u8]>::to_vec)).collect()
}

/// Each type of version 2, with a handle of 32 bytes before words that can be a name, attributes, data or entries.
fn nfs2() -> Vec<Vec<u8>> {
    let text = words(&[4, 0x6e61_6d65]);
    let attributes = words(&[0o100_644, 1, 2, 4096, 5, 999_999, 6, 1_000_000]);
    let handle = [0xA5; 32];
    let told = words(&[1, 0o100_644, 1, 2, 3, 8193, 4096, u32::MAX, 17, 7, 8, 1, 2, 3, 4, 5, 6]);
    let arguments = [
        [&handle[..], &text, &attributes].concat(),
        [&handle[..], &attributes].concat(),
        [&handle[..], &words(&[7, 8192, 9]), &text].concat(),
        [&handle[..], &text, &text, &attributes].concat(),
        [&handle[..], &text, &handle, &text].concat(),
        text.clone(),
        handle.to_vec(),
    ];
    let results = [
        [&words(&[0])[..], &told].concat(),
        [&words(&[0])[..], &handle, &told].concat(),
        [&words(&[0])[..], &told, &text].concat(),
        [&words(&[0, 1, 5])[..], &text, &words(&[9, 1, 6]), &text, &words(&[10, 0, 1])].concat(),
        [&words(&[0])[..], &text].concat(),
        words(&[0, 8192, 4096, 100, 50, 40]),
        words(&[70]),
    ];
    let of = |kind: u8| {
        let all = if kind.is_multiple_of(2) { &arguments } else { &results };
        all.iter().map(move |octets| [&[kind][..], octets].concat()).collect::<Vec<_>>()
    };
    (0..nfs2::KINDS as u8).flat_map(of).collect()
}

/// For each type, a few words that fit many fields.
fn nfs() -> Vec<Vec<u8>> {
    let shapes = [vec![0; 240], words(&[4, 7, 1, 0x6100_0000, 0, 1, 5, 0, 0, 2, 8, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0])];
    let kinds = 0..nfs::KINDS as u8;
    // Lists with one user and the classes, behind the fields that come before them in results and arguments of NFSACL,
    // versions 3 and 2.
    let entries = [1, 0, 6, 2, 1000, 7, 4, 0, 4, 16, 0, 5, 32, 0, 0];
    let lists = [&[5, 5, 5][..], &entries, &[0, 0]].concat();
    let acls = [(53, vec![0, 0]), (54, vec![4, 0x6669_6C65]), (57, vec![0; 18]), (58, vec![0; 8])];
    let acls = acls.into_iter().map(|(kind, front)| [&[kind][..], &words(&[front, lists.clone()].concat())].concat());
    let plain = kinds.flat_map(|kind| shapes.iter().map(move |shape| [&[kind][..], shape].concat()));
    plain.chain(acls).collect()
}

/// Each type of NLM with a plausible lock, the same in the narrow form, and calls of every procedure of every version.
fn nlm() -> Vec<Vec<u8>> {
    let (cookie, name, file, owner) = (words(&[4, 7]), words(&[1, 0x6100_0000]), words(&[8, 1, 2]), words(&[1, 0]));
    let lock = [&name[..], &file, &owner, &words(&[5, 0, 0, 0, 8])].concat();
    let shapes = [
        [&cookie[..], &words(&[1, 1]), &lock, &words(&[0, 1])].concat(),
        [&cookie[..], &words(&[1]), &lock].concat(),
        [&cookie[..], &lock].concat(),
        [&cookie[..], &words(&[1, 1, 5]), &owner, &words(&[0, 0, 0, 8])].concat(),
        [&cookie[..], &name, &file, &owner, &words(&[2, 1, 0, 0])].concat(),
        [&name[..], &words(&[3])].concat(),
        words(&[0, 3, 0]),
    ];
    let kinds = 0..=nlm::KINDS.len() as u8;
    let types = kinds.flat_map(|kind| shapes.iter().map(move |shape| [&[kind][..], shape].concat()));
    let calls = |version: u8| {
        let call = |procedure: u8| {
            let shape = &shapes[usize::from(procedure) % shapes.len()];
            [&[procedure, version, procedure, shape.len() as u8][..], shape].concat()
        };
        [&[nlm::KINDS.len() as u8 + 1][..], &(0..24).flat_map(call).collect::<Vec<u8>>()].concat()
    };
    types.chain((0..4).map(calls)).collect()
}

/// Two clients that exist and may open; one that holds something when its lease is over or the server restarts; then
/// random bytes.
fn nfs4_state() -> Vec<Vec<u8>> {
    // `nfs4_state/mod.rs` and the files that it calls define what the bytes mean.
    let begin: &[u8] = &[0, 0, 1, 0, 0, 1, 1, 1];
    let holds: &[u8] = &[4, 0, 0, 0, 2, 0, 2, 0, 1, 14, 0, 0, 0, 0, 0, 1, 3, 2, 0, 1];
    let reads: &[u8] = &[21, 1, 0, 0, 1, 0, 0, 1];
    let waits: &[u8] = &[28, 0, 3];
    let wants: &[u8] = &[4, 1, 0, 0, 2, 1, 0, 1];
    let frees: &[u8] = &[30, 0, 2, 26, 0, 0, 26, 0, 0];
    let restarts: &[u8] = &[29, 1, 0, 0, 0];
    let reclaims: &[u8] = &[9, 0, 0, 0, 2, 0, 2, 0, 1, 14, 0, 0, 0, 0, 0, 0, 3, 2, 0, 1, 1, 0];
    // Data behind a long hole; a copy of it that is cancelled, and one that is not; a name that is made twice.
    let far: &[u8] = &[32, 0, 0, 0, 5, 9, 8, 0, 1];
    let cancelled: &[u8] = &[32, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1];
    let copied: &[u8] = &[32, 0, 9, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1];
    let named: &[u8] = &[32, 0, 12, 0, 0, 0, 1, 1, 1, 0, 1];
    // A client of minor version 0 whose owners open, confirm and lock; the first owner is in the way of the second.
    let zero: &[u8] = &[48, 0];
    let first: &[u8] = &[48, 0, 0, 1, 7, 0, 2, 48, 0, 0, 6, 0, 1, 48, 0, 0, 9, 0, 5, 0];
    let second: &[u8] = &[48, 0, 1, 1, 7, 0, 2, 48, 0, 1, 6, 0, 1, 48, 0, 1, 9, 0, 5, 0];
    let used: &[u8] = &[48, 0, 0, 12, 48, 0, 0, 13, 3, 1, 48, 0, 0, 14, 48, 0, 0, 15, 48, 0, 0, 11, 0];
    // After a restart the client registers again, tries to reclaim the root, reclaims its file, and waits with all
    // others; then all this once more.
    let back: &[u8] = &[51, 0, 1, 51, 0, 0, 5, 7, 0, 2, 0, 51, 0, 0, 5, 0, 2, 1, 51, 0, 0, 1, 0, 2];
    let again: &[u8] = &[2, 0, 28, 0, 3, 29, 0, 0];
    let begins = [
        begin.to_vec(),
        [begin, holds, reads, waits, wants, frees].concat(),
        [begin, holds, restarts, reclaims, &[0, 1, 1, 1][..], wants].concat(),
        [begin, far, cancelled, copied, named, named].concat(),
        [begin, zero, first, second, used].concat(),
        [begin, zero, first, restarts, back, again, back].concat(),
    ];
    let seed = |(number, begin): (usize, &Vec<u8>)| {
        let random = SeededRandom::new(number as u64);
        begin.iter().copied().chain((0..900).map(|_| random.below(256) as u8)).collect()
    };
    begins.iter().cycle().take(48).enumerate().map(seed).collect()
}

fn nfs4() -> Vec<Vec<u8>> {
    let shapes =
        [vec![0; 40], vec![1; 24], vec![0, 0, 0, 0, 1, 0, 0, 1, 0, 2, 4, 0x6E61_6D65, 1, 2, 4, 0o644, 3, 2, 1, 0]];
    let of = |kind: u8, head: &[u32], number: u32| {
        let shapes = shapes.clone().into_iter();
        let head = head.to_vec();
        shapes.map(move |shape| [&[kind][..], &words(&head), &words(&[number]), &words(&shape)].concat())
    };
    let calls = (3..=76).flat_map(|number| of(0, &[0, 2, 2, 24], number));
    let results = (3..=76).flat_map(|number| of(1, &[0, 0, 2, 24, 0], number));
    let callbacks = (3..=16).flat_map(|number| of(2, &[0, 2, 7, 2, 10, 1], number));
    let answers = (3..=16).flat_map(|number| of(3, &[0, 0, 2, 10, 0], number));
    let attributes = (0..=87u32).map(|number| {
        let set = [3, 0, 1, 2].map(|word| if word == 3 { 3 } else { u32::from(number / 32 == word) << (number % 32) });
        [&[4][..], &words(&set), &words(&[16, 1, 2, 0, 1])].concat()
    });
    // WRITE and CREATE of a link, with the data in a chunk: the last bytes choose the word at which the chunk begins,
    // and that the word before it says its length.
    let write = words(&[0, 2, 2, 24, 38, 0, 0, 0, 0, 0, 0, 2, 7, 0x6461_7461, 0x6461_7461]);
    let create = words(&[0, 2, 2, 24, 6, 5, 4, 0x6C69_6E6B, 4, 0x6E61_6D65, 0, 0]);
    let chunked = [(write, 13), (create, 7)].into_iter().flat_map(|(call, at)| {
        [[at, 0], [at - 1, 0], [at, 3], [at, 255]].map(|chosen| [&[0][..], &call, &chosen].concat())
    });
    calls.chain(results).chain(callbacks).chain(answers).chain(attributes).chain(chunked).collect()
}

/// Calls of every procedure, as `records::calls` reads them: alone, after others, and to MOUNT.
fn records() -> Vec<Vec<u8>> {
    let name = words(&[4, 0x6669_6C65]);
    let attributes = words(&[1, 0o644, 0, 0, 1, 0, 9, 0, 0]);
    let step = |procedure: u8, arguments: &[u8]| {
        [&[5, procedure][..], &(arguments.len() as u16).to_be_bytes(), arguments].concat()
    };
    let steps = [
        step(1, &[]),
        step(8, &[&name[..], &words(&[0]), &attributes].concat()),
        step(9, &[&words(&[1, 0x6400_0000]), &attributes[..]].concat()),
        step(10, &[&words(&[1, 0x6C00_0000]), &attributes[..], &name].concat()),
        step(11, &[&words(&[1, 0x7000_0000, 7]), &attributes[..]].concat()),
        step(3, &name),
        step(4, &words(&[63])),
        step(6, &words(&[0, 0, 4096])),
        step(7, &[&words(&[0, 0, 4, 2]), &name[..]].concat()),
        step(2, &[&attributes[..], &words(&[0])].concat()),
        step(16, &words(&[0, 0, 0, 0, 4096])),
        step(17, &words(&[0, 0, 0, 0, 4096, 8192])),
        step(12, &name),
        step(13, &words(&[1, 0x6400_0000])),
        step(18, &[]),
        step(19, &[]),
        step(20, &[]),
        step(21, &words(&[0, 0, 0])),
    ];
    let alone = steps.iter().map(|step| [&[1][..], step].concat());
    let upto = (1..=steps.len()).map(|end| [&[1][..], &steps[..end].concat()].concat());
    let of_mount = (0..6).map(|procedure| [&[0, 3, procedure, 0, 8][..], &words(&[1, 0x2F00_0000])].concat());
    alone.chain(upto).chain(of_mount).collect()
}

/// A DDP segment: a Send.
fn sent(octets: &[u8]) -> Vec<u8> {
    [&[0x41, 0x43][..], &words(&[0, 0, 1, 0]), octets].concat()
}

/// The actions of an iWARP end and its peer, as `iwarp::endpoint` reads them: Sends, Writes and Reads both ways, and an
/// invalidation.
fn work() -> Vec<Vec<u8>> {
    const OUTPUT: [u8; 3] = [10, 0xFF, 0xFF];
    let steps: [&[u8]; 9] = [
        // The peer's Sends, whole and in two segments.
        &[2, 0, 0, 1, 0, 10, 0],
        &[2, 0, 1, 2, 0, 100, 0, 2, 0, 2, 2, 0, 100, 0, 50, 7],
        // Its Write, its Read Request, and our response.
        &[2, 1, 0, 0, 0, 8, 1, 0, 0],
        &[2, 2, 0, 1, 3, 0, 0, 0, 0, 9, 1, 0, 16, 0],
        &OUTPUT,
        // Our Read, and its response.
        &[7, 1, 0, 0, 0, 0, 5],
        &OUTPUT,
        &[2, 3, 0, 2, 0, 0, 1, 0, 0],
        // Our Send and Write, its invalidation, and the completions.
        &[6, 3, 0, 8, 2, 0, 0, 0, 0, 77, 0, 0, 0, 0, 10, 0xFF, 0xFF, 2, 4, 0, 3, 0, 0, 4, 0, 11, 9],
    ];
    let upto = |flags: u8| (1..=steps.len()).map(move |end| [&[flags][..], &steps[..end].concat()].concat());
    (0..16).flat_map(upto).collect()
}

/// Messages that the engine receives, as a client, and as a server that answers the calls.
fn played(messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let step = |message: &Vec<u8>| {
        let message = &message[..message.len().min(255)];
        [&[0, message.len() as u8][..], message, &[12, 7, 1, 0]].concat()
    };
    let steps: Vec<u8> = messages.iter().flat_map(step).collect();
    // As a client, with one of its own calls before them.
    let call = [7, 2, 1, 0, 60, 1, 0, 80, 0, 80, 0];
    vec![[&[0][..], &steps].concat(), [&[1][..], &call, &steps].concat()]
}

/// Exchanges of a connection: the set-up, and a few Sends to and fro.
fn exchanges(messages: &[Vec<u8>]) -> Vec<Vec<(bool, Vec<u8>)>> {
    let exchange = |messages: &[Vec<u8>]| {
        let mut steps = vec![(true, set_up(Kind::Request)), (false, set_up(Kind::Reply))];
        for (at, message) in messages.iter().enumerate() {
            steps.push((at % 2 == 0, iwarp::fpdu(&sent(message))));
        }
        steps
    };
    messages.chunks(8).map(exchange).collect()
}

fn borrowed(steps: &[(bool, Vec<u8>)]) -> Vec<(bool, &[u8])> {
    steps.iter().map(|(from_initiator, octets)| (*from_initiator, &octets[..])).collect()
}

/// Encodes steps as [`capture::streams`] reads them.
fn written(steps: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let step = |(from_initiator, octets): &(bool, Vec<u8>)| {
        [&[u8::from(!from_initiator)][..], &(octets.len() as u16).to_be_bytes(), octets].concat()
    };
    steps.iter().flat_map(step).collect()
}

/// Messages to the server, each in a right Send.
fn served(messages: &[Vec<u8>]) -> Vec<u8> {
    let send = |message: &Vec<u8>| [&[2][..], &(message.len() as u16).to_be_bytes(), message].concat();
    [vec![0], messages.iter().flat_map(send).collect()].concat()
}
