//! Figures as they are kept: what `rpcrdma-load load` reports, and the machine.

use crate::figures::machine::Machine;
use serde::{Deserialize, Serialize};

/// All figures of a run, and where they were measured.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Figures {
    pub(super) machine: Machine,
    pub(super) report: Report,
}

/// Fields here and below: see `tests/load/src/load.rs`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) connections: usize,
    pub(super) seconds: f64,
    pub(super) arguments: Vec<String>,
    pub(super) versions: Vec<Version>,
    pub(super) clients_rss_kib: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Version {
    pub(super) version: u8,
    pub(super) decent_alone: Decent,
    pub(super) before: Resources,
    pub(super) idle: Resources,
    pub(super) idle_octets_each: u64,
    pub(super) idle_tcp_octets: u64,
    pub(super) idle_cpu: f64,
    pub(super) decent_beside_idle: Decent,
    pub(super) sometimes: Active,
    pub(super) flat_out: Active,
    pub(super) idle_again: Resources,
    pub(super) after: Resources,
    pub(super) after_again: Resources,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Active {
    pub(super) depth: usize,
    pub(super) pause_ms: u64,
    pub(super) calls_per_s: f64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) longest_us: u64,
    pub(super) peak: Resources,
    pub(super) octets_each: u64,
    pub(super) peak_tcp_octets: u64,
    pub(super) cpu: f64,
    pub(super) decent: Decent,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Decent {
    pub(super) calls_per_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Resources {
    pub(super) rss_kib: u64,
    pub(super) pss_kib: u64,
    pub(super) anonymous_kib: u64,
    pub(super) sockets: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
    pub(super) cpu_s: f64,
}
