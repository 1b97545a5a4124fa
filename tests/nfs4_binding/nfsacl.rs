//! NFSACL beside NFS (section 4.2): on the connection that carries NFS, byte by byte, and without chunks for its
//! arguments and results.

use super::{
    served::{Client, Served, Setup, each_version, rpc_reply},
    wire::{Lists, Refusal, Version, filled, opaque, words},
};

const PROGRAM: u32 = 100_227;
const GETACL: u32 = 1;
const SETACL: u32 = 2;
/// Both lists with their numbers of entries.
const ALL: u32 = 0xF;
/// Where the arguments of a call begin.
const HEADER_BYTES: u32 = 60;

/// An RPC call as root.
fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    [&words(&[xid, 0, 2, PROGRAM, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0])[..], args].concat()
}

/// The handle of the export's root in version 3's encoding; both versions use the same handles.
fn handle(client: &Client) -> Vec<u8> {
    opaque(&client.root)
}

async fn say(client: &mut Client, xid: u32, lists: &Lists, rpc: Vec<u8>) {
    let header = client.wire.version.call(xid, false, lists);
    client.wire.say([header, rpc].concat()).await;
}

/// Sends a call with these lists, and returns the reply from the RPC header on; the returned chunks must be as
/// expected.
async fn answered(client: &mut Client, xid: u32, offered: &Lists, rpc: Vec<u8>, returned: &Lists) -> Vec<u8> {
    say(client, xid, offered, rpc).await;
    let message = client.wire.hear().await;
    let header = [client.wire.reply(xid, false, returned), rpc_reply(xid)].concat();
    assert_eq!(message[..header.len()], header);
    message[header.len()..].to_vec()
}

/// The lists in results of GETACL: behind the status and the attributes.
fn told(results: &[u8]) -> &[u8] {
    assert_eq!((&results[..4], &results[4..8]), (&[0; 4][..], &[0, 0, 0, 1][..]), "a status and attributes");
    &results[92..]
}

/// Encodes the entries of a list behind their counts.
fn list(entries: &[[u32; 3]]) -> Vec<u8> {
    let count = entries.len() as u32;
    [words(&[count, count]), entries.iter().flat_map(|entry| words(entry)).collect()].concat()
}

/// The connection of a session carries NFSACL: it needs no connection, port or negotiation of its own.
///
/// proves: ULB-4.2-a
#[test]
fn it_goes_over_the_connection_that_carries_nfs() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let none = Lists::default();
        assert!(answered(&mut client, 71, &none, call(71, 0, &[]), &none).await.is_empty(), "NULL");
        let args = [handle(&client), words(&[ALL])].concat();
        let results = answered(&mut client, 72, &none, call(72, GETACL, &args), &none).await;
        let of_mode = list(&[[1, 0, 7], [4, 0, 5], [16, 0, 5], [32, 0, 5]]);
        assert_eq!(told(&results), [words(&[ALL]), of_mode, list(&[])].concat());
        assert_eq!(client.contents("first").await, super::served::FIRST, "and NFS goes on");
    });
}

/// A Read chunk at any place of the arguments is refused; a Write chunk comes back unused.
///
/// proves: ULB-4.2-b
#[test]
fn nothing_of_it_may_be_placed() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let entries = list(&[[1, 0, 7], [4, 0, 5], [16, 0, 5], [32, 0, 5]]);
        let args = [handle(&client), words(&[5]), entries, list(&[])].concat();
        let source = client.wire.source(&[0; 12]);
        let mut xid = 80;
        for at in (0..=args.len()).step_by(4) {
            xid += 1;
            let lists = Lists::reads(&[(HEADER_BYTES + at as u32, source)]);
            say(&mut client, xid, &lists, call(xid, SETACL, &args)).await;
            let message = client.wire.hear().await;
            assert_eq!(message[..], client.wire.error(xid, Refusal::BadXdr), "a chunk at byte {at} of the arguments");
        }
        let args = [handle(&client), words(&[ALL])].concat();
        let sink = client.wire.sink(1000);
        let (offered, unused) = (Lists::writes(&[&[sink]]), Lists::writes(&[&[filled(sink, 0)]]));
        let results = answered(&mut client, 79, &offered, call(79, GETACL, &args), &unused).await;
        assert_eq!(told(&results)[4..12], words(&[4, 4]), "the entries are in the message");
        client.wire.has(sink, &[]).await;
    });
}

/// A list that is longer than a message of 4 KiB goes into the Reply chunk, as a whole; if a client has offered too
/// little room, a responder of version 2 continues the reply in further messages, and one of version 1 answers with an
/// error.
///
/// proves: ULB-4.2-c
#[test]
fn a_list_that_was_not_expected_comes_in_several_messages() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let users: Vec<_> = (0..600).map(|user| [2, user, 4]).collect();
        let entries = [&[[1, 0, 7]][..], &users, &[[4, 0, 5], [16, 0, 5], [32, 0, 5]]].concat();
        let both = [words(&[5]), list(&entries), list(&[])].concat();
        // More than fits into a message: the call comes in a Read chunk at Position Zero.
        let rpc = call(90, SETACL, &[handle(&client), both].concat());
        let source = client.wire.source(&rpc);
        let header = client.wire.version.call(90, true, &Lists::reads(&[(0, filled(source, rpc.len() as u32))]));
        client.wire.say(header).await;
        let message = client.wire.hear().await;
        let expected = [client.wire.reply(90, false, &Lists::default()), rpc_reply(90), words(&[0, 1])].concat();
        assert_eq!(message[..expected.len()], expected);

        let args = [handle(&client), words(&[ALL])].concat();
        let lists = [words(&[ALL]), list(&entries), list(&[])].concat();
        let whole = 24 + 92 + lists.len();
        for room in [whole, whole - 1] {
            let xid = room as u32;
            let chunk = client.wire.sink(room);
            say(&mut client, xid, &Lists::default().with_reply(chunk), call(xid, GETACL, &args)).await;
            let message = client.wire.hear().await;
            let stream = if room == whole {
                let returned = Lists::default().with_reply(filled(chunk, whole as u32));
                assert_eq!(message[..], client.wire.reply(xid, true, &returned));
                client.wire.take(chunk).await
            } else if client.wire.version == Version::One {
                assert_eq!(message[..], client.wire.error(xid, Refusal::BadXdr));
                continue;
            } else {
                // The first message has no chunks and says that more follows (flags 3); the last repeats the Reply
                // chunk.
                let front = words(&[xid, 2, 0x0040_0001, 0, 3, 0, 0, 0, 0]);
                assert_eq!((&message[..front.len()], message.len()), (&front[..], 4096));
                let last = client.wire.hear().await;
                let header = client.wire.reply(xid, false, &Lists::default().with_reply(filled(chunk, 0)));
                assert_eq!(last[..header.len()], header);
                client.wire.has(chunk, &[]).await;
                [&message[front.len()..], &last[header.len()..]].concat()
            };
            assert_eq!(stream.len(), whole);
            assert_eq!((&stream[..24], told(&stream[24..])), (&rpc_reply(xid)[..], &lists[..]));
        }
    });
}
