//! Connections to clients of NFS version 4.0, over which the server calls them. The crate `nfsd` decides how many it
//! makes, and to which clients.

use rpcrdma_env::BoxFuture;
use rpcrdma_nfsd::Dial;
use rpcrdma_oncrpc::tcp::Io;
use std::{
    io,
    net::{IpAddr, SocketAddr},
};
use tokio::net::TcpSocket;

/// Connects with sockets of the host.
pub(super) struct TcpDialler;

impl Dial for TcpDialler {
    fn dial(&self, from: IpAddr, to: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let socket = if to.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
            // A client behind a firewall knows the server by this address alone.
            let from = if to.is_ipv6() { from } else { from.to_canonical() };
            if from.is_ipv6() == to.is_ipv6() && !from.is_unspecified() {
                socket.bind(SocketAddr::new(from, 0))?;
            }
            let stream = socket.connect(to).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    #[tokio::test]
    async fn a_client_is_called_from_the_address_that_it_knows() {
        for address in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((address, 0)).await else { continue };
            let to = listener.local_addr().unwrap();
            let mut called = TcpDialler.dial(to.ip(), to).await.unwrap();
            let (mut client, from) = listener.accept().await.unwrap();
            assert_eq!(from.ip(), to.ip());
            called.write_all(b"call").await.unwrap();
            let mut octets = [0; 4];
            client.read_exact(&mut octets).await.unwrap();
            assert_eq!(&octets, b"call");
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        drop(listener);
        assert!(TcpDialler.dial(to.ip(), to).await.is_err(), "nobody answers there");
    }
}
