//! What was measured, for people and programs.

use super::load::Sample;
use anyhow::Result;
use indicatif::BinaryBytes;
use serde_json::json;
use std::{io::Write, time::Duration};

/// One measurement.
pub(super) struct Report {
    pub(super) op: &'static str,
    /// Bytes in a block, where the operation moves data.
    pub(super) block: Option<u32>,
    pub(super) depth: u64,
    pub(super) elapsed: Duration,
    pub(super) sample: Sample,
    pub(super) cpu_s: f64,
    pub(super) server_cpu_s: Option<f64>,
    /// The version of RPC-over-RDMA, where that is what was measured.
    pub(super) rpcrdma: Option<u32>,
    /// The version of NFS, where that was measured.
    pub(super) nfs: Option<String>,
    /// Connections, those of `nconnect=` counted each.
    pub(super) connections: u64,
}

impl Report {
    /// Writes one line to standard output.
    pub(super) fn print(&self, json: bool) -> Result<()> {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let ops_per_s = self.sample.ops() as f64 / seconds;
        let mib_per_s = self.sample.octets as f64 / f64::from(1 << 20) / seconds;
        let (p50, p99) = (self.sample.micros(0.5), self.sample.micros(0.99));
        let mut out = std::io::stdout().lock();
        if json {
            let line = json!({
                "op": self.op, "block": self.block, "depth": self.depth,
                "ops_per_s": rounded(ops_per_s, 10.0), "mib_per_s": rounded(mib_per_s, 100.0),
                "p50_us": rounded(p50, 10.0), "p99_us": rounded(p99, 10.0),
                "cpu_s": rounded(self.cpu_s, 1000.0), "server_cpu_s": self.server_cpu_s.map(|s| rounded(s, 1000.0)),
                "rpcrdma": self.rpcrdma, "nfs": self.nfs, "connections": self.connections,
            });
            writeln!(out, "{line}")?;
            return Ok(());
        }
        write!(out, "{}", self.op)?;
        if let Some(block) = self.block {
            write!(out, " of {}", BinaryBytes(block.into()))?;
        }
        write!(out, " at depth {}: {ops_per_s:.0} op/s", self.depth)?;
        if self.block.is_some() {
            write!(out, ", {mib_per_s:.1} MiB/s")?;
        }
        write!(out, ", p50 {p50:.1} us, p99 {p99:.1} us, CPU {:.2} s", self.cpu_s)?;
        if let Some(server) = self.server_cpu_s {
            write!(out, " here and {server:.2} s in the server")?;
        }
        if self.connections > 1 {
            write!(out, ", {} connections", self.connections)?;
        }
        if let Some(version) = &self.nfs {
            write!(out, ", NFS version {version}")?;
        }
        if let Some(version) = self.rpcrdma {
            write!(out, ", RPC-over-RDMA version {version}")?;
        }
        writeln!(out)?;
        Ok(())
    }
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}
