//! Replies that do not fit into the offered chunks, and what the session knows of such a call (sections 5.4.2 and 5.5):
//! if a client sends the call again with enough room, the server does not execute it twice.

use super::{
    ops::{self, result},
    served::{Client, FIRST, Served, Setup, each_version, rpc_reply},
    wire::{Lists, Refusal, Version, filled, words},
};

/// The first READ fits, the second does not: the error names the second chunk and how large it has to be.
async fn too_small(client: &mut Client, kept: bool) -> (super::served::Call, [super::wire::Segment; 2]) {
    let root = client.root.clone();
    let (a, b) = (client.wire.sink(35), client.wire.sink(30));
    let call = if kept { client.call_kept() } else { client.call() };
    let call = call.ops(ops::to(&root, "first")).op(&ops::read(0, 35)).op(&ops::read(4, 100));
    client.refused(&call, &Lists::writes(&[&[a], &[b]]), Refusal::WriteResource(2, 31)).await;
    client.wire.has(a, &[]).await;
    client.wire.has(b, &[]).await;
    (call, [client.wire.sink(35), client.wire.sink(31)])
}

/// If one chunk is too small, the server writes to none. But it has executed the call, and the slot has gone on. When
/// the client sends the call again with enough room, it gets the reply that the slot has kept, each result in its
/// chunk.
#[test]
fn a_kept_reply_is_placed_when_the_call_comes_again() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let (call, [a, b]) = too_small(&mut client, true).await;
        let [put, looked] = ops::at_it();
        let results = [put, looked, ops::read_ok(true, 35), ops::read_ok(true, 31)];
        let returned = Lists::writes(&[&[filled(a, 35)], &[filled(b, 31)]]);
        client.answered(&call, &Lists::writes(&[&[a], &[b]]), &returned, 0, &results).await;
        client.wire.has(a, FIRST).await;
        client.wire.has(b, &FIRST[4..]).await;
    });
}

/// The same if the client has not asked the server to keep the reply: the server says so, and the client can use the
/// slot for its next call.
#[test]
fn a_reply_that_was_not_kept_is_not_made_again() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let (call, [a, b]) = too_small(&mut client, false).await;
        let unused = Lists::writes(&[&[filled(a, 0)], &[filled(b, 0)]]);
        let (offered, uncached) = (Lists::writes(&[&[a], &[b]]), ops::RETRY_UNCACHED_REP);
        client.answered(&call, &offered, &unused, uncached, &[result(22, uncached)]).await;
        assert_eq!(client.contents("first").await, FIRST);
    });
}

/// Without the results of SEQUENCE a client cannot know what happened: the server did not execute a call that it
/// refused because of its chunks, but it executed a call whose reply had no room. The error may be the same (version 1
/// has only one).
#[test]
fn a_refused_call_may_have_been_executed_or_not() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let source = client.wire.source(&[0; 4]);
        let refused = client.call_kept().ops(ops::to(&root, "new")).op(&ops::get_fh());
        client.refused(&refused, &Lists::reads(&[(refused.end(), source)]), Refusal::BadXdr).await;
        // The slot has not seen the refused call: the next call uses the same sequence number.
        let (executed, [a, b]) = too_small(&mut client, true).await;
        // The slot has seen this second call: a different call with its number is a false repetition (SEQ_FALSE_RETRY).
        let other = client.call_kept().ops(ops::to(&root, "new")).op(&ops::get_fh());
        let message = client.exchange(&other, &Lists::default()).await;
        let false_retry = words(&[10076, 0, 1, 53, 10076]);
        assert_eq!(message[..], [client.header(&other, &Lists::default()), false_retry].concat());
        let [put, looked] = ops::at_it();
        let results = [put, looked, ops::read_ok(true, 35), ops::read_ok(true, 31)];
        let returned = Lists::writes(&[&[filled(a, 35)], &[filled(b, 31)]]);
        client.answered(&executed, &Lists::writes(&[&[a], &[b]]), &returned, 0, &results).await;
    });
}

/// The client has taken back a chunk's memory: the connection ends when the server writes there. The server has
/// executed the call. Over a new connection it refuses the call once, because its memory was gone (RFC 8166 section
/// 4.5.3); then it sends the reply that the slot has kept.
#[test]
fn a_call_whose_memory_is_gone_is_not_executed_again() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let gone = client.wire.sink(35);
        client.wire.take(gone).await;
        let call = client.call_kept().ops(ops::to(&root, "first")).op(&ops::read(0, 35));
        let header = client.wire.version.call(call.xid, false, &Lists::writes(&[&[gone]]));
        client.wire.say([header, call.octets()].concat()).await;
        client.wire.ends().await;
        served.reconnect(&mut client, 1).await;
        let sink = client.wire.sink(35);
        let (offered, returned) = (Lists::writes(&[&[sink]]), Lists::writes(&[&[filled(sink, 35)]]));
        client.refused(&call, &offered, Refusal::System).await;
        let [put, looked] = ops::at_it();
        client.answered(&call, &offered, &returned, 0, &[put, looked, ops::read_ok(true, 35)]).await;
        client.wire.has(sink, FIRST).await;
    });
}

/// A reply fits neither into a message nor into the Reply chunk: in version 1 an error; in version 2 it comes in
/// several messages, and the chunk comes back unused. With one byte more, the reply is in the Reply chunk.
#[test]
fn a_reply_chunk_may_be_too_small() {
    const COUNT: u32 = 5001;
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        // RPC header, status, tag, count, SEQUENCE; PUTFH, LOOKUP; READ and its data with the padding.
        let whole = 24 + 12 + 44 + 16 + 16 + 5004;
        let data = &super::served::large()[..COUNT as usize];
        let [put, looked] = ops::at_it();
        let results = [put, looked, ops::read_ok_inline(false, data)];
        for (room, fits) in [(whole, true), (whole - 1, false)] {
            let chunk = client.wire.sink(room);
            let offered = Lists::default().with_reply(chunk);
            let call = client.call().ops(ops::to(&root, "large")).op(&ops::read(0, COUNT));
            if !fits && client.wire.version == Version::One {
                // `BadXdr` stands for any refusal here: version 1 has one error for all.
                client.refused(&call, &offered, Refusal::BadXdr).await;
                continue;
            }
            let message = client.exchange(&call, &offered).await;
            let stream = [rpc_reply(call.xid), client.results(0, &results)].concat();
            assert_eq!(stream.len(), whole);
            if fits {
                let returned = Lists::default().with_reply(filled(chunk, whole as u32));
                assert_eq!(message[..], client.wire.reply(call.xid, true, &returned));
                client.wire.has(chunk, &stream).await;
                continue;
            }
            // The first message has no chunks and says that more follows (flags 3); the last repeats the Reply chunk.
            let front = words(&[call.xid, 2, 0x0040_0001, 0, 3, 0, 0, 0, 0]);
            assert_eq!(message[..], [&front[..], &stream[..message.len() - front.len()]].concat());
            assert_eq!(message.len(), 4096, "as much as fits");
            let returned = Lists::default().with_reply(filled(chunk, 0));
            let rest = [client.wire.reply(call.xid, false, &returned), stream[4096 - front.len()..].to_vec()];
            assert_eq!(client.wire.hear().await[..], rest.concat());
            client.wire.has(chunk, &[]).await;
        }
    });
}
