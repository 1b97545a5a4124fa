//! Another project's server, with which `cargo xtask figures --only others` compares ours: the crate `nfs3_server`
//! serves one file from memory on the loopback port that the command line names.

use nfs3_server::{
    memfs::{MemFs, MemFsConfig},
    tcp::{NFSTcp as _, NFSTcpListener},
};

/// The length of the file that `rpcrdma bench` makes, in bytes.
const FILE: usize = 256 << 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "0".into());
    let mut config = MemFsConfig::default();
    config.add_file("/bench", vec![0x5A; FILE]);
    let files = MemFs::new(config).map_err(|status| anyhow::anyhow!("no file system: {status:?}"))?;
    let listener = NFSTcpListener::bind(&format!("127.0.0.1:{port}"), files).await?;
    println!("ready on port {}", listener.get_listen_port());
    listener.handle_forever().await?;
    Ok(())
}
