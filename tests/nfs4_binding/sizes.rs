//! How large replies can become (section 5.2), and that sessions do not change the transport (section 5.5).

use super::{
    ops::{self, result},
    served::{Served, Setup, each_version, large, rpc_reply},
    wire::{Lists, filled, words},
};

/// A client that cannot compute the size of a reply offers as much as its session allows for a reply. That is enough
/// for every call. The server shortens a READ to what fits, so READ needs no Write chunk.
///
/// proves: ULB-5.2.2-a, NFS4-8881-2.10.6.4-b
#[test]
fn no_reply_is_larger_than_its_session_allows() {
    // Two replies do not fit a message of 4 KiB, and one is no multiple of four.
    for max_response in [8_192, 5_002] {
        let setup = Setup { max_response, ..Setup::default() };
        each_version(setup, async |served: &Served| {
            let mut client = served.client(1).await;
            let root = client.root.clone();
            let [put, looked] = ops::at_it();
            let front = 24 + 12 + 44 + 16;
            let data = (max_response as usize - front - 16) / 4 * 4;
            let large = large();

            let chunk = client.wire.sink(max_response as usize);
            let offered = Lists::default().with_reply(chunk);
            let call = client.call().ops(ops::to(&root, "large")).op(&ops::read(0, 100_000));
            let message = client.exchange(&call, &offered).await;
            let results = [put.clone(), looked.clone(), ops::read_ok_inline(false, &large[..data])];
            let stream = [rpc_reply(call.xid), client.results(0, &results)].concat();
            assert!(stream.len() <= max_response as usize && stream.len() + 4 > max_response as usize);
            let returned = Lists::default().with_reply(filled(chunk, stream.len() as u32));
            assert_eq!(message[..], client.wire.reply(call.xid, true, &returned));
            client.wire.has(chunk, &stream).await;

            // Placed data count as well, and a second READ has no room left.
            let (sink, chunk) = (client.wire.sink(100_000), client.wire.sink(max_response as usize));
            let call = client.call().ops(ops::to(&root, "large")).op(&ops::read(0, 100_000)).op(&ops::read(0, 100_000));
            let (offered, returned) = (Lists::writes(&[&[sink]]), Lists::writes(&[&[filled(sink, data as u32)]]));
            let (offered, returned) = (offered.with_reply(chunk), returned.with_reply(filled(chunk, 0)));
            let too_big = 10066;
            let results = [put, looked, ops::read_ok(false, data as u32), result(ops::READ, too_big)];
            client.answered(&call, &offered, &returned, too_big, &results).await;
            client.wire.has(sink, &large[..data]).await;
        });
    }
}

/// The size of a call is its size without chunks: with its RPC header, the credential included, and with the data that
/// are in chunks. A call that is too large does not change its slot.
///
/// proves: NFS4-8881-2.10.6.4-a
#[test]
fn data_in_chunks_counts_as_part_of_a_call() {
    const REQ_TOO_BIG: u32 = 10065;
    let setup = Setup { max_request: 8192, ..Setup::default() };
    each_version(setup, async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        let front = client.call().ops(ops::to(&root, "new")).op(&ops::write(0, 0)).end();
        let fits = setup.max_request - front;
        let source = client.wire.source(&vec![5; fits as usize + 1]);
        for len in [fits + 1, fits] {
            let call = client.call().ops(ops::to(&root, "new")).op(&ops::write(0, len));
            let message = client.exchange(&call, &Lists::reads(&[(call.end(), filled(source, len))])).await;
            let header = client.header(&call, &Lists::default());
            let results = if len > fits {
                words(&[REQ_TOO_BIG, 0, 1, 53, REQ_TOO_BIG])
            } else {
                let [put, looked] = ops::at_it();
                client.results(0, &[put, looked, ops::write_ok(len, &message[message.len() - 8..])])
            };
            assert_eq!(message[..], [header, results].concat(), "{len} bytes of data");
        }
    });
}

/// Sessions with more slots than the connection has credits, and with fewer: the transport obeys credits, and each slot
/// carries one call at a time. SEQUENCE's results go inline, although chunks are offered.
///
/// proves: ULB-5.5-a
#[test]
fn slots_and_credits_need_not_match() {
    for (slots, credits) in [(64, 2), (1, 64)] {
        let setup = Setup { slots, credits, ..Setup::default() };
        each_version(setup, async |served: &Served| {
            let mut client = served.client(1).await;
            let sink = client.wire.sink(100);
            let (offered, returned) = (Lists::writes(&[&[sink]]), Lists::writes(&[&[filled(sink, 0)]]));
            for _ in 0..2 * slots {
                let call = client.call().op(&words(&[24]));
                client.answered(&call, &offered, &returned, 0, &[result(24, 0)]).await;
            }
            client.wire.has(sink, &[]).await;
        });
    }
}
