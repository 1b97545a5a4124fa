//! What an operation costs: how many allocations it needs at each end.
//!
//! A server with files in a directory has a thread of its own, and threads that may sleep, as the command has. The
//! client has another. An allocator counts for each end. The numbers below are limits: if you make an operation
//! cheaper, lower its limit; if you must raise a limit, say why.

#[path = "../nfs/mod.rs"]
mod nfs;

mod counter;
mod ends;

use counter::Count;
use ends::{Carrier, Client, Operation, server};
use rpcrdma_transport::Versions;

/// How many operations are counted. Others run before them, until everything that is made only once exists.
const OPERATIONS: u64 = 200;
/// Calls at a time.
const DEPTHS: [u64; 2] = [1, 32];

const ONE: Carrier = Carrier::Rdma(Versions::One);
const TWO: Carrier = Carrier::Rdma(Versions::Two);

/// The most allocations for an operation: at the client, and at the server. How often the threads for files wake up
/// depends on chance, so the server's limits for WRITE leave some room. One of the client's over RDMA is the box in
/// which a call goes to its driver: copying the call from place to place costs more.
const LIMITS: [(Operation, Carrier, Count); 12] = [
    (Operation::Null, ONE, Count { client: 3, server: 0 }),
    (Operation::Null, TWO, Count { client: 3, server: 0 }),
    (Operation::Null, Carrier::Tcp, Count { client: 2, server: 0 }),
    (Operation::GetAttr, ONE, Count { client: 3, server: 0 }),
    (Operation::GetAttr, TWO, Count { client: 3, server: 0 }),
    (Operation::GetAttr, Carrier::Tcp, Count { client: 2, server: 0 }),
    (Operation::Read4K, ONE, Count { client: 4, server: 1 }),
    (Operation::Read4K, TWO, Count { client: 4, server: 1 }),
    (Operation::Read4K, Carrier::Tcp, Count { client: 3, server: 1 }),
    (Operation::Write1M, ONE, Count { client: 5, server: 28 }),
    (Operation::Write1M, TWO, Count { client: 5, server: 28 }),
    (Operation::Write1M, Carrier::Tcp, Count { client: 3, server: 22 }),
];

/// Ignores up to three quarters of an allocation for each operation: tables that grow, timers that are set again.
fn rounded(allocations: u64) -> u64 {
    (allocations + OPERATIONS / 4) / OPERATIONS
}

/// One test only, because the whole process shares the allocator.
#[test]
fn no_operation_asks_the_allocator_more_often_than_it_did() {
    counter::start();
    let server = server();
    let mut dearer = Vec::new();
    for (operation, carrier, limit) in LIMITS {
        let client = Client::connect(&server, carrier);
        for depth in DEPTHS {
            client.run(operation, depth, 2 * OPERATIONS);
            let before = Count::now();
            client.run(operation, depth, OPERATIONS);
            let spent = Count::now().since(before);
            let each = Count { client: rounded(spent.client), server: rounded(spent.server) };
            println!("{operation:?} over {carrier:?}, {depth} at a time: {each:?}, {spent:?} in {OPERATIONS}");
            if each.client > limit.client || each.server > limit.server {
                dearer.push(format!("{operation:?} over {carrier:?}, {depth} at a time: {each:?}, limit {limit:?}"));
            }
        }
    }
    assert!(dearer.is_empty(), "allocations for an operation:\n{}", dearer.join("\n"));
}
