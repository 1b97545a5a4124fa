//! The same server behind a socket.

use rpcrdma_env::{Clock, Heap};
use rpcrdma_oncrpc::{
    Handler,
    tcp::{self, Endpoint, ServerOptions},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::JoinHandle,
    time::timeout,
};

/// Marks the last fragment of a record.
const LAST: u32 = 1 << 31;

/// A connection, which carries one call at a time.
pub(crate) struct Wire(Mutex<TcpStream>, JoinHandle<()>);

impl Wire {
    pub(crate) async fn to(handler: Arc<dyn Handler>, clock: Arc<dyn Clock>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = listener.local_addr().unwrap();
        let stream = TcpStream::connect(local).await.unwrap();
        let (io, peer) = listener.accept().await.unwrap();
        let endpoint = Endpoint { peer, local, id: 1, allocator: Arc::new(Heap) };
        let (_, driver) = tcp::serve(io, endpoint, handler, clock, ServerOptions::default());
        let driver = tokio::spawn(async move { drop(driver.await) });
        Self(Mutex::new(stream), driver)
    }

    /// Ends the connection, and waits until the server keeps nothing of it.
    pub(crate) async fn hang_up(self) {
        drop(self.0);
        timeout(Duration::from_secs(30), self.1).await.expect("the connection ends").unwrap();
    }

    /// Sends a call and returns its reply.
    pub(crate) async fn exchange(&self, call: &[u8]) -> Vec<u8> {
        let mut stream = self.0.lock().await;
        stream.write_all(&(LAST | call.len() as u32).to_be_bytes()).await.unwrap();
        stream.write_all(call).await.unwrap();
        let mut reply = Vec::new();
        loop {
            let mark = stream.read_u32().await.unwrap();
            let begin = reply.len();
            reply.resize(begin + (mark & !LAST) as usize, 0);
            stream.read_exact(&mut reply[begin..]).await.unwrap();
            if mark & LAST != 0 {
                return reply;
            }
        }
    }
}
