//! The summary as a table and as JSON.

use super::{Procedure, Statistics, credits::Range};
use crate::{event::ProcedureName, names, read::Summary, show::describe};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// What a key stands for.
fn name(key: Option<ProcedureName>) -> String {
    key.map_or("others".into(), |name| name.to_string())
}

/// A quantile in milliseconds. `None`: nothing was measured.
fn quantile_ms(of: &Procedure, quantile: f64) -> Option<f64> {
    (!of.times_ns.is_empty()).then(|| of.times_ns.value_at_quantile(quantile) as f64 / 1e6)
}

fn shown_ms(ms: Option<f64>) -> String {
    ms.map_or("-".into(), |ms| format!("{ms:.3}"))
}

fn shown_range(range: Range) -> String {
    range.0.map_or("none seen".into(), |(low, high)| format!("{low} to {high}"))
}

impl<W: Write> Statistics<W> {
    pub(super) fn print_text(&mut self, summary: &Summary) -> io::Result<()> {
        let out = &mut self.out;
        let heads = ["calls", "answered", "again", "p50 ms", "p99 ms", "max ms", "bytes out", "bytes in"];
        write!(out, "{:<24}", "procedure")?;
        heads.iter().try_for_each(|head| write!(out, " {head:>12}"))?;
        writeln!(out)?;
        for (key, of) in &self.procedures {
            let times = [0.5, 0.99, 1.0].map(|at| shown_ms(quantile_ms(of, at)));
            let [p50, p99, max] = times;
            let counts = [of.calls, of.answered, of.retransmissions].map(|count| count.to_string());
            let octets = [of.requester_bytes, of.responder_bytes].map(|count| count.to_string());
            write!(out, "{:<24}", name(*key))?;
            let columns = counts.iter().chain([&p50, &p99, &max]).chain(&octets);
            columns.into_iter().try_for_each(|column| write!(out, " {column:>12}"))?;
            writeln!(out)?;
            for (status, count) in &of.statuses {
                writeln!(out, "    {count} {status}")?;
            }
            if of.calls > of.answered {
                writeln!(out, "    {} without an answer in the capture", of.calls - of.answered)?;
            }
        }
        if !self.operations.0.is_empty() {
            writeln!(out, "{:<24} {:>12} {:>12}", "operation", "calls", "answered")?;
        }
        for (name, of) in &self.operations.0 {
            writeln!(out, "{name:<24} {:>12} {:>12}", of.calls, of.answered)?;
            for (status, count) in &of.statuses {
                writeln!(out, "    {count} {status}")?;
            }
        }
        for (number, of) in &self.credits.connections {
            let (from, to) = (of.connection.initiator, of.connection.responder);
            let (granted, in_use) = (shown_range(of.granted), shown_range(of.in_use));
            writeln!(out, "connection {number} {from} > {to}: credits granted {granted}, in use {in_use}")?;
        }
        if let Some(last) = self.credits.untold {
            writeln!(out, "further connections, up to connection {last}: their credits are not shown")?;
        }
        writeln!(out, "{}", describe::summary(summary))?;
        out.flush()
    }

    pub(super) fn print_json(&mut self, summary: &Summary) -> io::Result<()> {
        let procedures: Vec<Value> = self.procedures.iter().map(|(key, of)| procedure(*key, of)).collect();
        let connections = self.credits.connections.iter().map(|(number, of)| {
            json!({
                "connection": number,
                "initiator": of.connection.initiator.to_string(),
                "responder": of.connection.responder.to_string(),
                "credits_granted": range(of.granted),
                "credits_in_use": range(of.in_use),
            })
        });
        let operations = self.operations.0.iter().map(|(name, of)| {
            json!({ "name": name, "calls": of.calls, "answered": of.answered, "statuses": statuses(&of.statuses) })
        });
        let line = json!({
            "type": "statistics",
            "procedures": procedures,
            "operations": operations.collect::<Vec<_>>(),
            "connections": connections.collect::<Vec<_>>(),
            "credits_not_told_up_to_connection": self.credits.untold,
        });
        writeln!(self.out, "{}", names::json(&line))?;
        writeln!(self.out, "{}", crate::show::json::summary(summary))?;
        self.out.flush()
    }
}

fn range(range: Range) -> Value {
    range.0.map_or(Value::Null, |(low, high)| json!({ "lowest": low, "highest": high }))
}

fn statuses(of: &BTreeMap<String, u64>) -> Map<String, Value> {
    of.iter().map(|(name, count)| (name.clone(), (*count).into())).collect()
}

fn procedure(key: Option<ProcedureName>, of: &Procedure) -> Value {
    let seconds = |at: f64| quantile_ms(of, at).map(|ms| ms / 1e3);
    json!({
        "name": name(key),
        "program": key.map(|name| name.program),
        "version": key.map(|name| name.version),
        "procedure": key.map(|name| name.procedure),
        "calls": of.calls,
        "answered": of.answered,
        "unanswered": of.calls.saturating_sub(of.answered),
        "retransmissions": of.retransmissions,
        "statuses": statuses(&of.statuses),
        "p50_seconds": seconds(0.5),
        "p99_seconds": seconds(0.99),
        "max_seconds": seconds(1.0),
        "requester_bytes": of.requester_bytes,
        "responder_bytes": of.responder_bytes,
    })
}
