//! From the host of a URL to addresses.
//!
//! A name may have several addresses, of IPv4 and IPv6; the server may answer at one of them alone, as one that listens
//! on 127.0.0.1 does for `localhost`. They are tried in the order in which the system returns them.

use super::NfsUrl;
use super::Result;
use crate::{
    Error,
    error::{Context, bail, ensure},
};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::names::escaped;
use rpcrdma_oncrpc::{CallError, TransportError};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice::name_to_index, socket_with};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The addresses of the server that a URL names, with port 0; at least one.
pub(super) async fn resolve(url: &NfsUrl) -> Result<Vec<SocketAddr>> {
    if let Some(zone) = &url.zone {
        let address: Ipv6Addr = url.host.parse().context("only an IPv6 address has a zone")?;
        return Ok(vec![SocketAddrV6::new(address, 0, 0, index(zone)?).into()]);
    }
    if let Ok(address) = url.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, 0)]);
    }
    let host = escaped(url.host.as_bytes());
    let found = tokio::net::lookup_host((url.host.as_str(), 0)).await;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found.with_context(|| format!("cannot find the address of {host}"))? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    ensure!(!addresses.is_empty(), "{host} has no address");
    Ok(addresses)
}

/// The number of a network interface, which the text names or gives.
fn index(zone: &str) -> Result<u32> {
    let unknown = || format!("there is no network interface {:?}, which the URL names", escaped(zone.as_bytes()));
    if let Ok(number) = zone.parse() {
        return Ok(number);
    }
    let any = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    name_to_index(&any, zone).with_context(unknown)
}

/// The same address with this port.
pub(super) fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Tries addresses one after the other until one answers. A refusal is an answer.
///
/// # Errors
/// The error of the last address that was tried, with the errors of those before it.
// An `AsyncFnMut` would do, but a future that awaits its calls cannot be spawned: the compiler does not find it `Send`.
pub(super) async fn first_that_answers<'a, T>(
    addresses: &[SocketAddr],
    mut attempt: impl FnMut(SocketAddr) -> BoxFuture<'a, Result<T>>,
) -> Result<T> {
    let mut before = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        match attempt(*address).await {
            Err(error) if number + 1 < addresses.len() && is_unreachable(&error) => before.push(format!("{error:#}")),
            Err(error) if before.is_empty() => return Err(error),
            Err(error) => return Err(error.context(format!("{}; then", before.join("; ")))),
            Ok(done) => return Ok(done),
        }
    }
    bail!("the host has no address")
}

/// Whether an error means that no such server is at the address.
fn is_unreachable(error: &Error) -> bool {
    error.find().is_some_and(rpcrdma_nfs_client::Error::is_unreachable)
        || matches!(error.find(), Some(CallError::Transport(_)))
        || error.find::<TransportError>().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::ready;

    #[test]
    fn interfaces_have_numbers() {
        assert_eq!(index("7").unwrap(), 7);
        assert_eq!(index("lo").unwrap(), 1);
        let error = format!("{:#}", index("no-such-one").unwrap_err());
        assert!(error.contains("there is no network interface \"no-such-one\""), "{error}");
    }

    fn unreachable(server: SocketAddr) -> Error {
        TransportError::Unreachable { server, source: std::sync::Arc::new(std::io::Error::other("refused")) }.into()
    }

    #[test]
    fn each_address_is_tried_until_one_answers() {
        let addresses: [SocketAddr; 3] = ["[::1]:1", "127.0.0.1:2", "127.0.0.2:3"].map(|text| text.parse().unwrap());
        let try_all = async |wanted: u16| {
            let answer = |address: SocketAddr| match address.port() == wanted {
                true => Ok(address),
                false => Err(unreachable(address)),
            };
            first_that_answers(&addresses, |address| Box::pin(ready(answer(address)))).await
        };
        assert_eq!(try_all(2).now_or_never().unwrap().unwrap(), addresses[1]);
        let error = format!("{:#}", try_all(9).now_or_never().unwrap().unwrap_err());
        assert!(["[::1]:1", "127.0.0.1:2", "127.0.0.2:3"].iter().all(|part| error.contains(part)), "{error}");
        let refused =
            |_| -> BoxFuture<'static, Result<()>> { Box::pin(ready(Err(Error::message("refused by the server")))) };
        assert_eq!(
            first_that_answers(&addresses, refused).now_or_never().unwrap().unwrap_err().to_string(),
            "refused by the server"
        );
    }
}
