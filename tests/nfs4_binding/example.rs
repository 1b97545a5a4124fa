//! The example of the binding (section 5.1.2.3).
//!
//! The test follows the draft's example, with two additions. SEQUENCE stands before it, as in every minor version that
//! has sessions (`zero.rs` has an example without). And the three files have names and contents. The Write list is A,
//! B, C; the operations are PUTFH LOOKUP READ, PUTFH LOOKUP READLINK, PUTFH LOOKUP READ.

use super::{
    ops,
    served::{Call, Client, FIRST, LINK, SECOND, Served, Setup, each_version},
    wire::{Lists, filled},
};

fn example(client: &mut Client) -> Call {
    let root = client.root.clone();
    client
        .call()
        .ops(ops::to(&root, "first"))
        .op(&ops::read(0, 4096))
        .ops(ops::to(&root, "link"))
        .op(&ops::read_link())
        .ops(ops::to(&root, "second"))
        .op(&ops::read(0, 4096))
}

/// All results; the caller gives those of READ and READLINK.
fn results(read: Vec<u8>, link: Vec<u8>, second: Vec<u8>) -> Vec<Vec<u8>> {
    let found = || ops::at_it().to_vec();
    [found(), vec![read], found(), vec![link], found(), vec![second]].concat()
}

/// proves: ULB-5.1.2.3-a, ULB-5.1.2.1-c, ULB-5.1.2.1-d
#[test]
fn each_result_goes_into_the_chunk_of_its_operation() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let (a, b, c) = (client.wire.sink(4096), client.wire.sink(1024), client.wire.sink(4096));
        let call = example(&mut client);
        // A has the file's bytes without padding, and the reply has only their length.
        let returned = Lists::writes(&[&[filled(a, 35)], &[filled(b, 12)], &[filled(c, 10)]]);
        let results = results(ops::read_ok(true, 35), ops::read_link_ok(12), ops::read_ok(true, 10));
        client.answered(&call, &Lists::writes(&[&[a], &[b], &[c]]), &returned, 0, &results).await;
        client.wire.has(a, FIRST).await;
        client.wire.has(b, LINK).await;
        client.wire.has(c, SECOND).await;
    });
}

/// B is empty: it has no segments. The link's text comes inline, and C still belongs to the second READ.
///
/// proves: ULB-5.1.2.3-a, ULB-5.1.2.1-e
#[test]
fn an_empty_chunk_asks_for_its_result_inline() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let (a, c) = (client.wire.sink(4096), client.wire.sink(4096));
        let call = example(&mut client);
        let returned = Lists::writes(&[&[filled(a, 35)], &[], &[filled(c, 10)]]);
        let results = results(ops::read_ok(true, 35), ops::read_link_ok_inline(LINK), ops::read_ok(true, 10));
        client.answered(&call, &Lists::writes(&[&[a], &[], &[c]]), &returned, 0, &results).await;
        client.wire.has(a, FIRST).await;
        client.wire.has(c, SECOND).await;
    });
}
