//! The server's metrics as numbers, read over HTTP as Prometheus does.

use anyhow::{Context as _, bail};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// How long an answer may take; the machine may be busy with emulation.
const PATIENCE: Duration = Duration::from_secs(10);

/// All samples: the name with its labels as the server wrote them, and the value.
pub(super) struct Metrics {
    samples: Vec<(String, f64)>,
    /// As the server wrote them.
    pub(super) text: String,
}

impl Metrics {
    /// Asks a server on the loopback.
    pub(super) fn fetch(port: u16) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).context("the server's metrics")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("the server's metrics")?;
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            bail!("the metrics' answer has no end of header")
        };
        if !head.lines().next().is_some_and(|line| line.contains(" 200 ")) {
            bail!("the metrics' answer is {head:?}");
        }
        Ok(Self::parse(body))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self { samples: samples.collect(), text: text.to_owned() }
    }

    /// The sum of all samples with this name whose labels contain each of these (`label="value"`).
    pub(super) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let matching = self.samples.iter().filter(|(sample, _)| {
            let (found, with) = sample.split_once('{').unwrap_or((sample, ""));
            found == name && labels.iter().all(|label| with.contains(label))
        });
        matching.map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn sums_what_has_the_labels() {
        let metrics = Metrics::parse("# HELP a b\na{x=\"1\",y=\"2\"} 3\na{x=\"1\",y=\"3\"} 4\na_b 100\nc 5\n");
        assert_eq!(metrics.sum("a", &["x=\"1\""]), 7.0);
        assert_eq!(metrics.sum("a", &["y=\"3\""]), 4.0);
        assert_eq!(metrics.sum("c", &[]), 5.0);
    }
}
