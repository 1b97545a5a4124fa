//! What an operation costs: how often each end asks the allocator for memory for it.
//!
//! A server with files in a directory has a thread of its own, and threads that may sleep, as the command has. The
//! client has another. An allocator counts for each end. The numbers below are limits: whoever makes an operation
//! cheaper lowers them, and whoever has to raise one says why.

#[path = "../nfs/mod.rs"]
mod nfs;

mod counter;
mod ends;

use counter::Count;
use ends::{Carrier, Client, Operation, server};
use rpcrdma_transport::Versions;

/// Operations that are counted; some beyond these come before, until nothing is made for the first time.
const OPERATIONS: u64 = 200;
/// Calls at a time.
const DEPTHS: [u64; 2] = [1, 32];

const ONE: Carrier = Carrier::Rdma(Versions::One);
const TWO: Carrier = Carrier::Rdma(Versions::Two);

/// The most allocations for an operation: at the client, and at the server. How often the threads for files are woken
/// depends on chance, so that the server has some to spare for WRITE.
const LIMITS: [(Operation, Carrier, Count); 12] = [
    (Operation::Null, ONE, Count { client: 2, server: 0 }),
    (Operation::Null, TWO, Count { client: 2, server: 0 }),
    (Operation::Null, Carrier::Tcp, Count { client: 2, server: 0 }),
    (Operation::GetAttr, ONE, Count { client: 3, server: 1 }),
    (Operation::GetAttr, TWO, Count { client: 3, server: 1 }),
    (Operation::GetAttr, Carrier::Tcp, Count { client: 2, server: 1 }),
    (Operation::Read4K, ONE, Count { client: 4, server: 2 }),
    (Operation::Read4K, TWO, Count { client: 4, server: 2 }),
    (Operation::Read4K, Carrier::Tcp, Count { client: 3, server: 2 }),
    (Operation::Write1M, ONE, Count { client: 4, server: 36 }),
    (Operation::Write1M, TWO, Count { client: 4, server: 36 }),
    (Operation::Write1M, Carrier::Tcp, Count { client: 5, server: 32 }),
];

/// Three quarters of an allocation for each operation are left to tables that grow and timers that are set anew.
fn rounded(allocations: u64) -> u64 {
    (allocations + OPERATIONS / 4) / OPERATIONS
}

/// One test, as the allocator is the process's.
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
