//! Calls procedure 0 of NFS version 3 over RDMA: `cargo run -p rpcrdma-transport --example null -- 127.0.0.1:20049`.

use rpcrdma_env::tokio_env;
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::{Client, NoAuth};
use rpcrdma_transport::{ClientOptions, Tracing, connect};
use std::{error::Error, sync::Arc};

const NFS: u32 = 100_003;
const VERSION: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).ok_or("say which server: ADDRESS:PORT")?.parse()?;
    let env = tokio_env()?;
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let (transport, driver) = connect(fabric, server, &env, ClientOptions::default(), Arc::new(Tracing)).await?;
    tokio::spawn(driver);
    Client::new(transport, Arc::new(NoAuth), NFS, VERSION).null().await?;
    println!("{server} has answered");
    Ok(())
}
