//! Minor version 0, without SEQUENCE and sessions: the same chunks for the same operations.

use super::{
    ops,
    served::{Client, FIRST, LINK, SECOND, Served, Setup, each_version, hex},
    wire::{Lists, filled, words},
};

/// The beginning of the results of a COMPOUND of minor version 0.
fn front(status: u32, count: u32) -> Vec<u8> {
    words(&[status, 0, count])
}

async fn answered(client: &mut Client, call: &super::served::Call, lists: &Lists, returned: &Lists, results: Vec<u8>) {
    let message = client.exchange(call, lists).await;
    assert_eq!(hex(&message), hex(&[client.header(call, returned), results].concat()));
}

/// A WRITE between two READs: the Read chunk has WRITE's data, and the Write chunks belong to the READs in their order.
///
/// proves: ULB-5.1.2.3-a, ULB-5.1.2.1-c, ULB-5.1.2.1-d
#[test]
fn the_chunks_of_a_call_without_a_session_are_those_of_its_operations() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let data: Vec<u8> = (0..248).collect();
        let (a, b, source) = (client.wire.sink(4096), client.wire.sink(4096), client.wire.source(&data));
        let call = client.call_of_zero().ops(ops::to(&root, "first")).op(&ops::read(0, 4096));
        let call = call.ops(ops::to(&root, "new")).op(&ops::write(0, 248));
        let at = call.end();
        let call = call.ops(ops::to(&root, "second")).op(&ops::read(0, 4096));
        let lists = Lists { writes: vec![vec![a], vec![b]], ..Lists::reads(&[(at, source)]) };
        let heard = client.exchange(&call, &lists).await;

        let [found, looked] = ops::at_it();
        let last = [&found[..], &looked, &ops::read_ok(true, 10)].concat();
        // The server chooses the verifier, at the end of WRITE's results.
        let end = heard.len() - last.len();
        let write = ops::write_ok(248, &heard[end - 8..end]);
        let first = [&found[..], &looked, &ops::read_ok(true, 35), &found, &looked].concat();
        let returned = Lists::writes(&[&[filled(a, 35)], &[filled(b, 10)]]);
        let expected = [client.header(&call, &returned), front(0, 9), first, write, last].concat();
        assert_eq!(hex(&heard), hex(&expected));
        client.wire.has(a, FIRST).await;
        client.wire.has(b, SECOND).await;
        assert_eq!(client.contents("new").await, data);
    });
}

/// An empty chunk asks for its result inline; the chunk of an operation that fails comes back unused.
///
/// proves: ULB-5.1.2.1-e, ULB-5.1.2.1-f
#[test]
fn results_of_a_call_without_a_session_come_inline_or_not_at_all() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let b = client.wire.sink(4096);
        let call = client.call_of_zero().ops(ops::to(&root, "link")).op(&ops::read_link());
        let call = call.op(&ops::put_fh(&root)).op(&ops::read(0, 4096));
        let [found, looked] = ops::at_it();
        let results = [
            front(ops::ISDIR, 5),
            found.clone(),
            looked,
            ops::read_link_ok_inline(LINK),
            found,
            ops::result(ops::READ, ops::ISDIR),
        ];
        let returned = Lists::writes(&[&[], &[filled(b, 0)]]);
        answered(&mut client, &call, &Lists::writes(&[&[], &[b]]), &returned, results.concat()).await;
    });
}
