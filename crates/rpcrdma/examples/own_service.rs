//! A program of one's own, and a client that calls it over RDMA: `cargo run --example own_service`.

use rpcrdma::{
    Server,
    server::Spoken,
    service::{self, Program},
};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The program's number and version.
const COUNTER: (u32, u32) = (0x2000_0007, 1);
/// Takes a number and adds it; returns the sum.
const ADD: u32 = 1;
/// Takes a name; returns a sentence.
const GREET: u32 = 2;

fn counter() -> Program {
    let sum = Arc::new(AtomicU64::new(0));
    let add = move |more: u64| {
        let before = sum.fetch_add(more, Ordering::Relaxed);
        async move { before + more }
    };
    let greet = async |name: String| format!("hello, {name}");
    Program::new(COUNTER).procedure(ADD, add).repeatable(GREET, greet)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().service(counter()).listen(([127, 0, 0, 1], 0)).start().await?;

    let client = service::connect(server.addresses(Spoken::Rdma)[0], COUNTER).await?;
    for number in [20u64, 22] {
        let sum: u64 = client.call_inline(ADD, &number, 8).await?;
        println!("{sum}");
    }
    let greeting: String = client.call_inline(GREET, "world", 100).await?;
    println!("{greeting}");

    server.shutdown().await;
    Ok(())
}
