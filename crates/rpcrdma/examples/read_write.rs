//! Writes a file and reads it again: `cargo run --example read_write -- nfs://127.0.0.1/`.

use rpcrdma::{
    Client,
    client::{Access, Stability},
};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("nfs://HOST/PATH")?;
    let client = Client::connect(&url).await?;

    // A whole file at once.
    client.write("/hello.txt", "hello, world\n".into()).await?;
    print!("{}", String::from_utf8_lossy(&client.read("/hello.txt").await?));

    // A part of an open file.
    let file = client.open_for("/hello.txt", Access::Both).await?;
    file.write(7, Stability::FileSync, "there".into()).await?;
    let read = file.read(0, 12).await?;
    println!("{}", String::from_utf8_lossy(&read.data));
    file.close().await?;

    for entry in client.list("/").await? {
        println!("{}", String::from_utf8_lossy(entry.name.as_slice()));
    }
    client.close().await;
    Ok(())
}
