//! A server of somebody else's, beside which ours is measured (`cargo xtask figures --only others`): the crate
//! `nfs3_server` with one file in memory, on the loopback port that is named.

use nfs3_server::{
    memfs::{MemFs, MemFsConfig},
    tcp::{NFSTcp as _, NFSTcpListener},
};

/// As long as the file that `rpcrdma bench` makes, in bytes.
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
