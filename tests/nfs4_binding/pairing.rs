//! Which result goes into which Write chunk (section 5.1.2.1), and what happens to chunks that no result needs.

use super::{
    ops::{self, result},
    served::{FIRST, LINK, SECOND, Served, Setup, each_version, large},
    wire::{Lists, filled},
};

/// proves: ULB-5.1.2.1-b
#[test]
fn without_write_chunks_all_results_come_inline() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let call = client.call().ops(ops::to(&root, "first")).op(&ops::read(4, 31));
        let call = call.ops(ops::to(&root, "link")).op(&ops::read_link());
        let [a, b] = ops::at_it();
        let first = [a.clone(), b.clone(), ops::read_ok_inline(true, &FIRST[4..])];
        let results = [&first[..], &[a, b, ops::read_link_ok_inline(LINK)]].concat();
        client.answered(&call, &Lists::default(), &Lists::default(), 0, &results).await;
    });
}

/// One chunk for two READs and a READLINK: the first READ takes it.
///
/// proves: ULB-5.1.2.1-c, ULB-5.1.2.1-g
#[test]
fn results_beyond_the_chunks_come_inline() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let a = client.wire.sink(100);
        let call = client.call().ops(ops::to(&root, "first")).op(&ops::read(0, 4)).op(&ops::read(30, 100));
        let call = call.ops(ops::to(&root, "link")).op(&ops::read_link());
        let [put, looked] = ops::at_it();
        let read = [put.clone(), looked.clone(), ops::read_ok(false, 4), ops::read_ok_inline(true, &FIRST[30..])];
        let results = [&read[..], &[put, looked, ops::read_link_ok_inline(LINK)]].concat();
        let returned = Lists::writes(&[&[filled(a, 4)]]);
        client.answered(&call, &Lists::writes(&[&[a]]), &returned, 0, &results).await;
        client.wire.has(a, &FIRST[..4]).await;
    });
}

/// The second READ fails, and the third operation with a result to place is not executed. Their chunks come back with
/// the same segments and with no bytes in them: the form that RFC 8166 section 4.3.2 calls unused, not a chunk without
/// segments.
///
/// proves: ULB-5.1.2.1-f, ULB-5.1.2.1-h, ULB-5.1.2.1-i
#[test]
fn the_chunk_of_a_read_that_fails_comes_back_unused() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let sinks: Vec<_> = [100, 60, 40, 1000].map(|octets| client.wire.sink(octets)).to_vec();
        let &[a, b1, b2, c] = &sinks[..] else { unreachable!() };
        let call = client.call().ops(ops::to(&root, "second")).op(&ops::read(0, 100));
        let call =
            call.op(&ops::put_fh(&root)).op(&ops::read(0, 100)).ops(ops::to(&root, "link")).op(&ops::read_link());
        let [put, looked] = ops::at_it();
        let results = [put, looked, ops::read_ok(true, 10), result(22, 0), result(ops::READ, ops::ISDIR)];
        let returned = Lists::writes(&[&[filled(a, 10)], &[filled(b1, 0), filled(b2, 0)], &[filled(c, 0)]]);
        client.answered(&call, &Lists::writes(&[&[a], &[b1, b2], &[c]]), &returned, ops::ISDIR, &results).await;
        client.wire.has(a, SECOND).await;
        for unused in [b1, b2, c] {
            client.wire.has(unused, &[]).await;
        }
    });
}

/// A READ that fails before any other leaves all chunks unused; so does a COMPOUND that fails at its SEQUENCE.
///
/// proves: ULB-5.1.2.1-f, ULB-5.1.2.1-h
#[test]
fn a_call_that_reads_nothing_returns_all_chunks_unused() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let (a, b) = (client.wire.sink(100), client.wire.sink(100));
        let (offered, returned) = (Lists::writes(&[&[a], &[b]]), Lists::writes(&[&[filled(a, 0)], &[filled(b, 0)]]));
        let call = client.call().op(&ops::put_fh(&root)).op(&ops::read(0, 100)).op(&ops::read(0, 100));
        let results = [result(22, 0), result(ops::READ, ops::ISDIR)];
        client.answered(&call, &offered, &returned, ops::ISDIR, &results).await;
        // A sequence number that is not the next one: SEQ_MISORDERED.
        client.sequence += 5;
        let call = client.call().op(&ops::put_fh(&root)).op(&ops::read(0, 100));
        client.sequence -= 5;
        let message = client.exchange(&call, &offered).await;
        let misordered = super::wire::words(&[10063, 0, 1, 53, 10063]);
        assert_eq!(message[..], [client.header(&call, &returned), misordered].concat());
    });
}

/// A READ that reads nothing has a result, too, of no bytes: it uses its chunk, and the next READ takes the next one.
///
/// proves: ULB-5.1.2.1-c, ULB-5.1.2.1-d
#[test]
fn a_read_of_nothing_keeps_its_chunk_from_the_next() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let sinks: Vec<_> = [100, 100, 100].map(|octets| client.wire.sink(octets)).to_vec();
        let &[a, b, c] = &sinks[..] else { unreachable!() };
        let call = client.call().ops(ops::to(&root, "first"));
        let call = call.op(&ops::read(1000, 100)).op(&ops::read(0, 0)).op(&ops::read(0, 5));
        let [put, looked] = ops::at_it();
        let results = [put, looked, ops::read_ok(true, 0), ops::read_ok(false, 0), ops::read_ok(false, 5)];
        let returned = Lists::writes(&[&[filled(a, 0)], &[filled(b, 0)], &[filled(c, 5)]]);
        client.answered(&call, &Lists::writes(&[&[a], &[b], &[c]]), &returned, 0, &results).await;
        client.wire.has(a, &[]).await;
        client.wire.has(b, &[]).await;
        client.wire.has(c, &FIRST[..5]).await;
    });
}

/// A result fills the segments of its chunk one after the other. The reply says how many bytes each segment has.
///
/// proves: ULB-5.1.2.1-d
#[test]
fn a_result_fills_the_segments_of_its_chunk_in_order() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let sinks: Vec<_> = [10_000, 7, 50_000, 100].map(|octets| client.wire.sink(octets)).to_vec();
        let &[a, b, c, d] = &sinks[..] else { unreachable!() };
        let call = client.call().ops(ops::to(&root, "large")).op(&ops::read(3, 30_001));
        let [put, looked] = ops::at_it();
        let returned = Lists::writes(&[&[a, b, filled(c, 19_994), filled(d, 0)]]);
        let results = [put, looked, ops::read_ok(false, 30_001)];
        client.answered(&call, &Lists::writes(&[&[a, b, c, d]]), &returned, 0, &results).await;
        let large = large();
        client.wire.has(a, &large[3..10_003]).await;
        client.wire.has(b, &large[10_003..10_010]).await;
        client.wire.has(c, &large[10_010..30_004]).await;
        client.wire.has(d, &[]).await;
    });
}
