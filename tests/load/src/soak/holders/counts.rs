//! When all clients have gone, the server's metrics must say that it holds nothing.

use anyhow::Context as _;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The metrics that must be zero in the end.
const NOTHING: &[&str] = &[
    "rpcrdma_nfs4_clients",
    "rpcrdma_nfs4_sessions",
    "rpcrdma_nfs4_session_connections",
    "rpcrdma_nfs4_stateids",
    "rpcrdma_connections",
    "rpcrdma_calls_in_progress",
    "rpcrdma_memory_bytes",
];
/// How long it may take until they are zero: the server updates them once a second.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until the server holds nothing any more. Returns what is left.
///
/// # Errors
/// If the server does not answer.
pub(in super::super) async fn judge(metrics: SocketAddr) -> anyhow::Result<BTreeMap<String, f64>> {
    let begin = Instant::now();
    loop {
        let left = left(&scrape(metrics).await?)?;
        if left.is_empty() || begin.elapsed() > PATIENCE {
            return Ok(left);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn scrape(metrics: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(metrics).await.context("the server's numbers")?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// The metrics among [`NOTHING`] that are not zero. Metrics of limits do not count.
fn left(text: &str) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut left = BTreeMap::new();
    for name in NOTHING {
        let is_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let mut lines = text.lines().filter(is_it).peekable();
        lines.peek().with_context(|| format!("the server does not tell {name}"))?;
        for line in lines.filter(|line| !line.contains("what=\"limit\"")) {
            let (what, value) = line.rsplit_once(' ').context("a number")?;
            let value: f64 = value.parse().with_context(|| line.to_owned())?;
            if value != 0.0 {
                left.insert(what.to_owned(), value);
            }
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(value: u64) -> String {
        let lines: Vec<_> = NOTHING.iter().map(|name| format!("{name}{{kind=\"any\"}} {value}\n")).collect();
        lines.concat() + "rpcrdma_memory_bytes{what=\"limit\"} 7\nrpcrdma_connections_total 9\n"
    }

    #[test]
    fn what_is_left_is_told_and_what_is_missing_is_an_error() {
        assert_eq!(left(&numbers(0)).unwrap(), BTreeMap::new());
        assert_eq!(left(&numbers(3)).unwrap().len(), NOTHING.len());
        assert!(left("rpcrdma_nfs4_clients 0\n").is_err());
    }
}
