//! A path that is cut now and then: passes bytes on, and ends its connections at any moment.

use super::Scene;
use rpcrdma_env::{Random as _, SeededRandom};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

/// The longest time that a connection lasts; half of it on average.
const LASTS: Duration = Duration::from_secs(20);

/// Starts the relay, and returns its address.
pub(super) async fn start(server: SocketAddr, scene: Arc<Scene>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let random = SeededRandom::new(scene.seed.rotate_left(17));
    tokio::spawn(async move {
        loop {
            let Ok((client, _)) = listener.accept().await else { continue };
            let lasts = LASTS.mul_f64(random.below(1000) as f64 / 1000.0);
            let scene = scene.clone();
            tokio::spawn(async move {
                let passing = async {
                    let mut client = client;
                    let mut onward = TcpStream::connect(server).await?;
                    client.set_nodelay(true)?;
                    onward.set_nodelay(true)?;
                    copy_bidirectional(&mut client, &mut onward).await
                };
                if tokio::time::timeout(lasts, passing).await.is_err() {
                    scene.report(|report| report.cuts += 1);
                }
            });
        }
    });
    Ok(address)
}
