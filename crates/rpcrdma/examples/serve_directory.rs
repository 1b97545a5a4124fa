//! Serves a directory over RDMA until Ctrl-C:
//! `cargo run --example serve_directory -- /srv/data /var/lib/example 127.0.0.1:20049`.

use rpcrdma::{Server, server::Spoken};
use std::{error::Error, net::SocketAddr};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, state, address] = &words[..] else { return Err("DIRECTORY STATE ADDRESS:PORT".into()) };

    // The state directory lets clients go on after a restart.
    let builder = Server::builder().directory("/", directory).state(state).listen(address.parse::<SocketAddr>()?);
    let server = builder.start().await?;
    println!("list it with: rpcrdma ls nfs://{}/", server.addresses(Spoken::Rdma)[0]);

    tokio::signal::ctrl_c().await?;
    server.shutdown().await;
    Ok(())
}
