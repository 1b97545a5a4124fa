//! A capture, as `rpcrdma decode --json` reads it: what the two ends agreed on, what they used, and whether both kept
//! within their credits.

use super::{
    context::Context,
    kernel_log, process,
    versions::{Spoken, Versions, is_version_2},
};
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The inline threshold of version 1 without RFC 8797: longer messages show that a larger threshold is in use.
const OLD_INLINE_THRESHOLD: u64 = 1024;

/// Credits before the first reply of a connection: the server has granted none yet, and RFC 8166 allows one call.
const FIRST_CREDITS: u64 = 1;

/// What all connections of a capture carried in one direction: from the ends that connected (`initiator`), or from the
/// ends that listened.
#[derive(Default)]
pub(super) struct Way {
    /// Connections whose set-up carried RFC 8797 private data: the receive size that it announces, in bytes, and
    /// whether it allows remote invalidation.
    pub(super) private_data: Vec<(u64, bool)>,
    /// Sends in all.
    pub(super) sends: u64,
    /// Bytes of the longest Send.
    pub(super) longest_send: u64,
    /// Sends longer than 1,024 bytes.
    pub(super) long_sends: u64,
    /// Sends with Invalidate.
    pub(super) invalidations: u64,
    /// RDMA Reads requested.
    pub(super) reads: u64,
    /// The most Reads outstanding on one connection.
    pub(super) reads_at_a_time: usize,
    /// RDMA Writes.
    pub(super) writes: u64,
    /// The most calls outstanding on one connection.
    pub(super) calls_at_a_time: usize,
    /// The most credits that one reply granted to this side.
    pub(super) credits: u64,
    /// Descriptions of connections that had more Reads outstanding than the peer's IRD, or more calls than credits.
    pub(super) overruns: Vec<String>,
}

/// What a capture shows.
#[derive(Default)]
pub(super) struct Wire {
    /// Connections seen from their beginning.
    pub(super) connections: u64,
    /// The versions of RPC-over-RDMA on these connections.
    pub(super) versions: Versions,
    /// From the ends that connected.
    pub(super) initiator: Way,
    /// From the ends that listened.
    pub(super) responder: Way,
    /// Terminates, with their meaning.
    pub(super) terminates: Vec<String>,
    /// FPDUs with a wrong CRC.
    pub(super) bad_crcs: u64,
    /// Headers that could not be read.
    pub(super) unreadable: u64,
    /// Where the reader lost the FPDUs of a connection that it has from its beginning and without a gap.
    pub(super) astray: Vec<String>,
    /// Bytes that the capture lacks.
    pub(super) missing_bytes: u64,
    /// The answered calls by name, such as `NFS 3 READ`.
    pub(super) calls: BTreeMap<String, u64>,
}

/// The state of one connection during the reading.
#[derive(Default)]
struct Connection {
    initiator: String,
    /// By side (0 initiator, 1 responder): unanswered calls, credits, unanswered Reads, and how many Reads the peer
    /// serves at a time.
    calls: [BTreeSet<u64>; 2],
    credits: [u64; 2],
    reads: [usize; 2],
    served: [Option<u64>; 2],
    spoken: Spoken,
    /// The capture lacks bytes of it.
    has_gaps: bool,
}

/// Lets the `rpcrdma` command read a capture, record by record.
pub(super) fn decode(context: &Context, capture: &Path, mut each: impl FnMut(&Value)) -> anyhow::Result<()> {
    let mut command = context.command();
    command.args(["decode", "--json"]).arg(capture);
    let name = format!("decode-{}", super::tshark::flat_name(context, capture));
    let finished = process::run(context, &name, command)?.expect_success()?;
    for line in finished.stdout.lines() {
        each(&serde_json::from_str(line).with_context(|| finished.out.display().to_string())?);
    }
    // The output is as long as the capture, and can be made again.
    let _ = fs::remove_file(&finished.out);
    let _ = fs::remove_file(&finished.err);
    Ok(())
}

impl Wire {
    /// Lets the `rpcrdma` command read a capture.
    pub(super) fn read(context: &Context, capture: &Path) -> anyhow::Result<Self> {
        let mut wire = Self::default();
        let mut connections = BTreeMap::new();
        decode(context, capture, |record| wire.take(record, &mut connections))?;
        Ok(wire)
    }

    /// Fails if one side sent more than it was granted, or if bytes arrived that no correct peer sends.
    pub(super) fn judge(&self, capture: &Path) -> anyhow::Result<()> {
        let see = capture.display();
        let overruns = self.initiator.overruns.iter().chain(&self.responder.overruns);
        if let Some(what) = overruns.chain(&self.versions.wrong).next() {
            bail!("{what}; see {see}");
        }
        if self.bad_crcs > 0 {
            bail!("{} FPDUs with a wrong CRC; see {see}", self.bad_crcs);
        }
        if self.unreadable > 0 {
            bail!("{} transport headers could not be read; see {see}", self.unreadable);
        }
        if let Some(what) = self.astray.first() {
            bail!("{what}; see {see}");
        }
        Ok(())
    }

    /// Fails if there were Terminates, except those by which soft-iWARP ends connections by its own fault.
    pub(super) fn judge_terminates(&self, context: &Context, capture: &Path) -> anyhow::Result<()> {
        let excused = kernel_log::split_trailers(context.dir());
        if self.terminates.len() > excused {
            bail!("Terminates ({excused} excused): {:?}; see {}", self.terminates, capture.display());
        }
        Ok(())
    }

    fn way(&mut self, side: usize) -> &mut Way {
        if side == 0 { &mut self.initiator } else { &mut self.responder }
    }

    fn take(&mut self, record: &Value, connections: &mut BTreeMap<u64, Connection>) {
        let number = record["connection"].as_u64().unwrap_or(0);
        let from = record["from"].as_str().unwrap_or("");
        let kind = record["type"].as_str().unwrap_or("");
        if kind == "mpa_request" {
            self.connections += 1;
            connections.insert(
                number,
                Connection { initiator: from.to_owned(), credits: [FIRST_CREDITS; 2], ..Connection::default() },
            );
        }
        if kind == "summary" {
            self.bad_crcs = record["bad_crcs"].as_u64().unwrap_or(0);
            self.missing_bytes = record["missing_octets"].as_u64().unwrap_or(0);
            return;
        }
        // Without the beginning of a connection we cannot know its credits.
        let Some(connection) = connections.get_mut(&number) else { return };
        let side = usize::from(from != connection.initiator);
        match kind {
            "mpa_request" | "mpa_reply" => {
                connection.served[1 - side] = record["ird"].as_u64();
                let data = record["private_data"].as_str().and_then(private_data);
                self.way(side).private_data.extend(data);
            }
            "send" => self.send(record, connection, side),
            "write" => self.way(side).writes += 1,
            "read_request" => {
                connection.reads[side] += 1;
                let (count, most) = (connection.reads[side], connection.served[side]);
                let way = self.way(side);
                way.reads += 1;
                way.reads_at_a_time = way.reads_at_a_time.max(count);
                if most.is_some_and(|most| most > 0 && count as u64 > most) {
                    way.overruns
                        .push(format!("connection {number}: {count} RDMA Reads outstanding, the peer serves {most:?}"));
                }
            }
            // The response goes in the other direction.
            "read_response" if record["complete"] == true => {
                connection.reads[1 - side] = connection.reads[1 - side].saturating_sub(1);
            }
            "terminate" => self.terminates.push(record["reason"].as_str().unwrap_or("unread").to_owned()),
            "closed" => connection.reads = [0; 2],
            "gap" => connection.has_gaps = true,
            "resumed" | "unread" if !connection.has_gaps => self.astray.push(format!(
                "connection {number}, from {from}: the reader could not read on where it was, although no byte is missing: {record}"
            )),
            _ => {}
        }
    }

    fn send(&mut self, record: &Value, connection: &mut Connection, side: usize) {
        let octets = record["octets"].as_u64().unwrap_or(0);
        let header = &record["header"];
        let xid = header["xid"].as_u64();
        let is_call = is_call(record);
        let in_version_2 = is_version_2(header);
        if !header.is_null() {
            self.versions.message(record, &mut connection.spoken, side);
        }
        let answered = xid.is_some_and(|xid| !is_call && connection.calls[1 - side].remove(&xid));
        if answered {
            self.versions.answered(header, &mut connection.spoken);
            let granted = if in_version_2 { &header["credit"]["maximum"] } else { &header["credit"] };
            connection.credits[1 - side] = granted.as_u64().unwrap_or(0);
            let name = record["call"]["name"].as_str().unwrap_or("?").to_owned();
            *self.calls.entry(name).or_default() += 1;
            let granted = connection.credits[1 - side];
            let other = self.way(1 - side);
            other.credits = other.credits.max(granted);
        }
        if let Some(xid) = xid.filter(|_| is_call) {
            connection.calls[side].insert(xid);
        }
        let (calls, credits) = (connection.calls[side].len(), connection.credits[side]);
        if header.is_null() && octets > 0 {
            self.unreadable += 1;
        }
        let way = self.way(side);
        way.sends += 1;
        way.longest_send = way.longest_send.max(octets);
        way.long_sends += u64::from(octets > OLD_INLINE_THRESHOLD);
        way.invalidations += u64::from(!record["invalidate"].is_null());
        way.calls_at_a_time = way.calls_at_a_time.max(calls);
        // In version 2 messages cost credits, not calls.
        if is_call && !in_version_2 && calls as u64 > credits {
            way.overruns.push(format!(
                "connection {}, xid {xid:?}: {calls} calls outstanding with {credits} credits",
                record["connection"]
            ));
        }
    }

    /// In one line, for the results.
    pub(super) fn in_short(&self) -> String {
        if self.connections == 0 {
            return "no connection of RDMA".into();
        }
        let way = |way: &Way| {
            format!(
                "longest Send {}, {} with Invalidate of {}, {} Reads ({} at a time), {} Writes, {} calls at a time of {} credits",
                way.longest_send,
                way.invalidations,
                way.sends,
                way.reads,
                way.reads_at_a_time,
                way.writes,
                way.calls_at_a_time,
                way.credits
            )
        };
        let Versions { asked, refused, calls: [one, two], .. } = &self.versions;
        format!(
            "{} connections, {asked} asked for version 2, {refused} were refused it; {one} calls in version 1, {two} in version 2; client: {}; \
             server: {}",
            self.connections,
            way(&self.initiator),
            way(&self.responder)
        )
    }
}

/// Whether a Send carries a call: its RPC header says so, or its chunk lists if the message has no RPC header.
fn is_call(record: &Value) -> bool {
    match record["rpc"]["type"].as_str() {
        Some(kind) => kind == "call",
        None => {
            let header = &record["header"];
            let is_long = header["type"] == "RDMA_NOMSG" || header["type"] == "RDMA2_NOMSG";
            is_long && header["reads"].as_array().is_some_and(|reads| !reads.is_empty())
        }
    }
}

/// RFC 8797's private data: the format's number, version, flags (bit 0: remote invalidation), then the send and the
/// receive size, each in units of 1,024 bytes less one.
fn private_data(hex: &str) -> Option<(u64, bool)> {
    let rest = hex.strip_prefix("f6ab0e18")?;
    let octet = |at: usize| rest.get(2 * at..2 * at + 2).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    (octet(0)? == 1).then_some(())?;
    Some(((octet(3)? + 1) * 1024, octet(1)? & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::{Wire, private_data};
    use serde_json::json;
    use std::{collections::BTreeMap, path::Path};

    #[test]
    fn private_data_is_read() {
        assert_eq!(private_data("f6ab0e1801010303"), Some((4096, true)));
        assert_eq!(private_data("f6ab0e1801000003"), Some((4096, false)));
        assert_eq!(private_data("f6ab0e1802000003"), None);
        assert_eq!(private_data(""), None);
    }

    #[test]
    fn bytes_that_are_no_fpdu_are_excused_by_a_gap_only() {
        let mut wire = Wire::default();
        let mut connections = BTreeMap::new();
        for number in [1, 2] {
            let begin = json!({"type": "mpa_request", "connection": number, "from": "a", "ird": 1, "private_data": ""});
            wire.take(&begin, &mut connections);
        }
        wire.take(&json!({"type": "gap", "connection": 1, "from": "a", "octets": 9}), &mut connections);
        for number in [1, 2, 3] {
            let resumed = json!({"type": "resumed", "connection": number, "from": "a", "skipped_octets": 9});
            wire.take(&resumed, &mut connections);
        }
        assert_eq!(wire.astray.len(), 1);
        assert!(wire.judge(Path::new("wire.pcap")).unwrap_err().to_string().starts_with("connection 2, from a: "));
    }

    #[test]
    fn a_call_beyond_the_credits_is_seen() {
        let mut wire = Wire::default();
        let mut connections = BTreeMap::new();
        let mut take = |record| wire.take(&record, &mut connections);
        take(json!({"type": "mpa_request", "connection": 1, "from": "a", "ird": 1, "private_data": ""}));
        let send = |from: &str, kind: &str, xid: u32, credit: u32| {
            json!({"type": "send", "connection": 1, "from": from, "octets": 68, "invalidate": null, "rpc": {"type": kind},
                   "header": {"type": "RDMA_MSG", "credit": credit, "xid": xid, "reads": []}})
        };
        take(send("a", "call", 1, 9));
        take(send("b", "reply", 1, 2));
        take(send("a", "call", 2, 9));
        take(send("a", "call", 3, 9));
        take(send("b", "reply", 2, 1));
        take(send("a", "call", 4, 9));
        assert_eq!(wire.initiator.overruns.len(), 1);
        assert_eq!(wire.initiator.calls_at_a_time, 2);
    }
}
