//! Chunk lists of calls: which lists a server has to take (section 5.1.2.2), and how many more chunks ours takes.

use super::{
    ops::{self, result},
    served::{Call, Client, FIRST, Served, Setup, each_version},
    wire::{Lists, Refusal, Version, filled, words},
};

/// The most Read chunks and the most Write chunks that our server takes in a call (in version 2 it announces this
/// limit).
const MAX_CHUNKS: u32 = 64;

/// The verifier of writes: the last bytes of a reply to a WRITE.
fn verifier(message: &[u8]) -> Vec<u8> {
    message[message.len() - 8..].to_vec()
}

/// Sends a call that ends with WRITE; the server must execute all of it.
async fn written(client: &mut Client, message: Vec<u8>, call: &Call, results: &[Vec<u8>], count: u32) {
    client.wire.say(message).await;
    let heard = client.wire.hear().await;
    let write = ops::write_ok(count, &verifier(&heard));
    let expected = [client.header(call, &Lists::default()), client.results(0, &[results, &[write]].concat())].concat();
    assert_eq!(heard[..], expected[..]);
}

/// WRITE's data in a Read chunk; the whole call in a Position Zero chunk, with the data inside or in another chunk; and
/// a Write chunk.
///
/// proves: ULB-5.1.2.2-a
#[test]
fn the_lists_that_every_server_takes_are_taken() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let version = client.wire.version;
        let data: Vec<u8> = (0..=250).collect();
        let source = client.wire.source(&data);

        let call = client.call().ops(ops::to(&root, "new")).op(&ops::write(0, 251));
        let lists = Lists::reads(&[(call.end(), source)]);
        let message = [version.call(call.xid, false, &lists), call.octets()].concat();
        written(&mut client, message, &call, &ops::at_it(), 251).await;
        assert_eq!(client.contents("new").await, data);

        let call = client.call().ops(ops::to(&root, "new")).op(&ops::write_inline(1, &data));
        let whole = client.wire.source(&call.octets());
        let message = version.call(call.xid, true, &Lists::reads(&[(0, whole)]));
        written(&mut client, message, &call, &ops::at_it(), 251).await;
        assert_eq!(client.contents("new").await, [&data[..1], &data[..]].concat());

        let call = client.call().ops(ops::to(&root, "new")).op(&ops::write(2, 251));
        let whole = client.wire.source(&call.octets());
        let message = version.call(call.xid, true, &Lists::reads(&[(0, whole), (call.end(), source)]));
        written(&mut client, message, &call, &ops::at_it(), 251).await;
        assert_eq!(client.contents("new").await, [&data[..1], &data[..1], &data[..]].concat());

        let sink = client.wire.sink(35);
        let call = client.call().ops(ops::to(&root, "first")).op(&ops::read(0, 35));
        let [put, looked] = ops::at_it();
        let results = [put, looked, ops::read_ok(true, 35)];
        let (offered, returned) = (Lists::writes(&[&[sink]]), Lists::writes(&[&[filled(sink, 35)]]));
        client.answered(&call, &offered, &returned, 0, &results).await;
        client.wire.has(sink, FIRST).await;
    });
}

/// All at once: a Position Zero chunk, an argument's chunk and a result's.
///
/// proves: ULB-5.1.2.2-a
#[test]
fn read_and_write_chunks_may_come_together() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let call = client.call().op(&ops::put_fh(&root)).op(&ops::create_link(9));
        let at = call.end();
        let call = call.rest(&ops::create_link_end("made")).op(&ops::read_link());
        let (whole, text, sink) =
            (client.wire.source(&call.octets()), client.wire.source(b"some/path"), client.wire.sink(20));
        let lists = Lists { writes: vec![vec![sink]], ..Lists::reads(&[(0, whole), (at, text)]) };
        client.wire.say(client.wire.version.call(call.xid, true, &lists)).await;
        let heard = client.wire.hear().await;
        let returned = Lists::writes(&[&[filled(sink, 9)]]);
        // CREATE's results: how the directory has changed (20 bytes), and that no attributes were set.
        let created = heard.len() - 12 - 24..heard.len() - 12;
        let results = [result(22, 0), [&result(6, 0), &heard[created]].concat(), ops::read_link_ok(9)];
        let expected = [client.header(&call, &returned), client.results(0, &results)].concat();
        assert_eq!(heard[..], expected[..]);
        client.wire.has(sink, b"some/path").await;
    });
}

/// As many WRITEs as a call can have besides SEQUENCE and PUTFH, each with its chunk. In version 2 the server refuses a
/// call with more Read chunks than its limit; version 1 has no such limit, and there it refuses chunks that belong to
/// no argument.
#[test]
fn read_chunks_are_taken_up_to_the_limit() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let many = |call: Call, count: u32, pad: u32| {
            let mut positions = Vec::new();
            let mut call = call;
            for at in 0..count {
                call = call.op(&ops::write(4 * at, 4));
                positions.push(call.end() + 4 * at);
            }
            positions.extend((0..pad).map(|at| call.end() + 4 * count + 4 * at));
            (call, positions)
        };
        let sources: Vec<_> = (0..=MAX_CHUNKS).map(|at| client.wire.source(&at.to_be_bytes())).collect();
        let listed = |positions: &[u32]| {
            Lists::reads(&positions.iter().zip(&sources).map(|(at, source)| (*at, *source)).collect::<Vec<_>>())
        };
        let front = client.call().ops(ops::to(&root, "new"));
        let (call, positions) = many(front, MAX_CHUNKS - 3, 0);
        let message = client.exchange(&call, &listed(&positions)).await;
        let write = ops::write_ok(4, &verifier(&message));
        let results = [&ops::at_it()[..], &vec![write; MAX_CHUNKS as usize - 3]].concat();
        assert_eq!(message[..], [client.header(&call, &Lists::default()), client.results(0, &results)].concat());
        assert_eq!(client.contents("new").await, (0..MAX_CHUNKS - 3).flat_map(u32::to_be_bytes).collect::<Vec<_>>());
        // More chunks, which are no operation's argument.
        for (chunks, refusal) in [(MAX_CHUNKS, Refusal::BadXdr), (MAX_CHUNKS + 1, Refusal::ReadChunks(MAX_CHUNKS))] {
            let front = client.call().ops(ops::to(&root, "new"));
            let (call, positions) = many(front, 4, chunks - 4);
            client.refused(&call, &listed(&positions), refusal).await;
        }
    });
}

/// The same for Write chunks: chunks that no result needs come back unused.
#[test]
fn write_chunks_are_taken_up_to_the_limit() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let sink = client.wire.sink(35);
        let most = MAX_CHUNKS as usize;
        for chunks in [most, most + 1] {
            let call = client.call().ops(ops::to(&root, "first")).op(&ops::read(0, 100));
            let offered = Lists { writes: vec![vec![sink]; chunks], ..Lists::default() };
            if chunks > most && client.wire.version == Version::Two {
                client.refused(&call, &offered, Refusal::WriteChunks(MAX_CHUNKS)).await;
                continue;
            }
            let unused = vec![vec![filled(sink, 0)]; chunks - 1];
            let returned = Lists { writes: [vec![vec![sink]], unused].concat(), ..Lists::default() };
            let [put, looked] = ops::at_it();
            client.answered(&call, &offered, &returned, 0, &[put, looked, ops::read_ok(true, 35)]).await;
        }
        client.wire.has(sink, FIRST).await;
    });
}

/// An operation that takes no chunk leaves it to the next operation that does. READ_PLUS has nothing to place and
/// returns its data inline. An operation that does not exist ends the call, so that all chunks come back unused.
///
/// proves: ULB-5.1.1-a, ULB-5.1.2.1-h
#[test]
fn operations_without_results_to_place_take_no_chunk() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let sink = client.wire.sink(100);
        let (offered, unused) = (Lists::writes(&[&[sink]]), Lists::writes(&[&[filled(sink, 0)]]));
        let [put, looked] = ops::at_it();
        let unknown = words(&[77, 1, 2, 3]);
        for op in [unknown, words(&[59_999])] {
            let call = client.call().ops(ops::to(&root, "first")).op(&op).op(&ops::read(0, 100));
            let results = [put.clone(), looked.clone(), result(ops::ILLEGAL, ops::OP_ILLEGAL)];
            client.answered(&call, &offered, &unused, ops::OP_ILLEGAL, &results).await;
        }
        client.wire.has(sink, &[]).await;
        let sink = client.wire.sink(100);
        let offered = Lists::writes(&[&[sink]]);
        let call = client.call().ops(ops::to(&root, "first")).op(&ops::read_plus(100)).op(&ops::read(0, 100));
        let returned = Lists::writes(&[&[filled(sink, FIRST.len() as u32)]]);
        let results = [put, looked, ops::read_plus_ok(true, FIRST), ops::read_ok(true, FIRST.len() as u32)];
        client.answered(&call, &offered, &returned, 0, &results).await;
        client.wire.has(sink, FIRST).await;
    });
}
