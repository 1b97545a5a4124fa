//! The transport alone, with the same calls over software iWARP and over a simulated fabric:
//! `cargo run --example two_providers`.

use rpcrdma::{
    env::{Env, tokio_env},
    fabric::Fabric,
    iwarp::{Config, Iwarp},
    oncrpc::{Client, NoAuth, Router},
    service::Program,
    transport::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, connect},
};
use rpcrdma_sim::World;
use std::{error::Error, future::poll_fn, sync::Arc};

/// The program's number and version.
const DOUBLER: (u32, u32) = (0x2000_0008, 1);

/// Serves a program on one host of a fabric, and calls it from another.
async fn double(server: &dyn Fabric, client: Arc<dyn Fabric>, at: &str, env: &Env) -> Result<u32, Box<dyn Error>> {
    let program = Program::new(DOUBLER).procedure(1, async |number: u32| number * 2);
    let router = Arc::new(Router::new(env).with_service(Arc::new(program)));
    let memory = ServerMemory::budget(64 << 20);
    let rdma = Server::new(server, router, memory, env.clone(), ServerOptions::default(), Arc::new(Quiet));
    let mut listener = server.listen(at.parse()?).await?;
    let address = listener.local_addr();

    // Each end has a driver, a future that does its work while it is polled.
    let serving = async {
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await?;
        let (_, driver) = rdma.accept(pending).await?;
        Ok::<_, Box<dyn Error>>(driver.await?)
    };
    let calling = async {
        let (transport, driver) = connect(client, address, env, ClientOptions::default(), Arc::new(Quiet)).await?;
        let client = Client::new(transport, Arc::new(NoAuth), DOUBLER.0, DOUBLER.1);
        tokio::select! {
            doubled = client.call_inline(1, &21u32, 4) => Ok(doubled?),
            () = driver => Err("the connection has ended".into()),
        }
    };
    tokio::select! {
        doubled = calling => doubled,
        ended = serving => Err(ended.err().unwrap_or_else(|| "the client has gone".into())),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let doubled = runtime.block_on(async {
        let env = tokio_env()?;
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        double(&*fabric, fabric.clone(), "127.0.0.1:0", &env).await
    })?;
    println!("over iWARP: {doubled}");

    let world = World::new(7);
    let (server, client) = (world.fabric([10, 0, 0, 1].into()), world.fabric([10, 0, 0, 2].into()));
    let doubled = world.block_on(double(&server, Arc::new(client), "10.0.0.1:20049", &world.env()))?;
    println!("over a simulated fabric: {doubled}");
    Ok(())
}
