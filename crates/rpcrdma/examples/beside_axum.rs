//! An existing web server that also serves its files over NFS: `cargo run --example beside_axum`, and then
//! `echo hello | rpcrdma put - nfs://127.0.0.1:PORT/greeting` and `curl http://127.0.0.1:PORT/greeting`.

use axum::{Router, extract::Path, http::StatusCode, routing::get};
use rpcrdma::{Client, Server, fs, server::Spoken};
use std::{error::Error, sync::Arc};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The file server runs on threads of its own, beside the tasks of this runtime.
    let files = Server::builder().export("/", fs::memory(64 << 20)?).listen(([127, 0, 0, 1], 0)).start().await?;
    let url = format!("nfs://{}/", files.addresses(Spoken::Rdma)[0]);
    println!("files at {url}");

    let client = Arc::new(Client::connect(&url).await?);
    let page = async move |Path(name): Path<String>| {
        client.read(&name).await.map_err(|error| {
            let status = if error.is_absent() { StatusCode::NOT_FOUND } else { StatusCode::BAD_GATEWAY };
            (status, format!("{error:#}\n"))
        })
    };
    let web = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("pages at http://{}/", web.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(web, Router::new().route("/{name}", get(page))).with_graceful_shutdown(stop).await?;

    files.shutdown().await;
    Ok(())
}
