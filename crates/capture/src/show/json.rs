//! One JSON object for each message, on a line of its own; the last one is the summary.

use super::{content, header_json};
use crate::{
    event::{CallTag, End, Event, EventKind, Message, Outcome, Rpc, Status, Tagged},
    names,
    read::{Sink, Summary},
};
use rpcrdma_iwarp::protocol::mpa::Kind;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Writes JSON lines. Numbers are those of the wire; times are seconds since the first packet.
#[derive(Debug)]
pub struct Json<W> {
    out: W,
}

impl<W: Write> Json<W> {
    /// Writes to `out`, best a buffered one.
    pub fn new(out: W) -> Self {
        Json { out }
    }
}

impl<W: Write> Sink for Json<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let connection = &event.connection;
        let (from, to) = match event.from {
            End::Initiator => (connection.initiator, connection.responder),
            End::Responder => (connection.responder, connection.initiator),
        };
        let mut line = Map::new();
        line.insert("time".into(), event.time.as_secs_f64().into());
        line.insert("connection".into(), connection.number.into());
        line.insert("from".into(), from.to_string().into());
        line.insert("to".into(), to.to_string().into());
        line.insert("call".into(), event.call.as_ref().map_or(Value::Null, call));
        if let Value::Object(rest) = kind(&event.kind) {
            line.extend(rest);
        }
        if let Some(content) = &event.content {
            line.insert("content".into(), content::json(content));
        }
        writeln!(self.out, "{}", names::json(&Value::Object(line)))
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        writeln!(self.out, "{}", self::summary(summary))?;
        self.out.flush()
    }
}

/// What the capture held.
pub(super) fn summary(summary: &Summary) -> Value {
    json!({
            "type": "summary",
            "packets": summary.packets,
            "other_packets": summary.other_packets,
            "unread_rdma_packets": unread_rdma(summary),
            "connections": summary.connections,
            "record_connections": summary.record_connections,
            "other_connections": summary.other_connections,
            "messages": summary.messages,
            "records": summary.records,
            "missing_octets": summary.missing_bytes,
            "bad_crcs": summary.bad_crcs,
            "cut_short": summary.cut_short,
    })
}

/// Packets that are not read, by protocol.
fn unread_rdma(summary: &Summary) -> Map<String, Value> {
    summary.unread_rdma().map(|(name, packets)| (name.to_owned(), packets.into())).collect()
}

fn call(tag: &CallTag) -> Value {
    let requester = match tag.requester {
        End::Initiator => "initiator",
        End::Responder => "responder",
    };
    let mut fields = json!({ "number": tag.number, "xid": tag.xid, "requester": requester });
    if let Some(name) = tag.name {
        fields["program"] = name.program.into();
        fields["version"] = name.version.into();
        fields["procedure"] = name.procedure.into();
        fields["name"] = name.to_string().into();
    }
    fields
}

fn kind(kind: &EventKind) -> Value {
    match kind {
        EventKind::SetUp(kind, frame) => {
            let name = match kind {
                Kind::Request => "mpa_request",
                Kind::Reply => "mpa_reply",
            };
            json!({
                "type": name,
                "revision": frame.head.revision,
                "crc": frame.head.crc,
                "markers": frame.head.markers,
                "reject": frame.head.reject,
                "ird": frame.enhanced.map(|enhanced| enhanced.ird),
                "ord": frame.enhanced.map(|enhanced| enhanced.ord),
                "private_data": hex(&frame.private_data),
            })
        }
        EventKind::Unread(why) => json!({ "type": "unread", "reason": why }),
        EventKind::Gap { octets } => json!({ "type": "gap", "octets": octets }),
        EventKind::Resumed { skipped_bytes } => json!({ "type": "resumed", "skipped_octets": skipped_bytes }),
        EventKind::BadCrc { octets } => json!({ "type": "bad_crc", "octets": octets }),
        EventKind::Send { opcode, invalidate, octets, fpdus, message, since_call } => {
            let mut fields = json!({
                "type": "send",
                "opcode": *opcode as u8,
                "invalidate": invalidate,
                "octets": octets,
                "fpdus": fpdus,
            });
            match message {
                Message::Empty => {}
                Message::Partial => fields["partial"] = true.into(),
                Message::Unreadable(error) => fields["error"] = error.to_string().into(),
                Message::Transport { header, inline_bytes, rpc, continues } => {
                    fields["header"] = header_json::fields(header);
                    if *continues {
                        fields["continues"] = true.into();
                    }
                    fields["inline_octets"] = (*inline_bytes).into();
                    fields["rpc"] = rpc.map_or(Value::Null, rpc_fields);
                }
            }
            if let Some(since) = since_call {
                fields["since_call"] = since.as_secs_f64().into();
            }
            fields
        }
        EventKind::Record { octets, fragments, rpc, since_call } => json!({
            "type": "record",
            "octets": octets,
            "fragments": fragments,
            "rpc": rpc.map_or(Value::Null, rpc_fields),
            "since_call": since_call.map(|since| since.as_secs_f64()),
        }),
        EventKind::ReadRequest(request) => json!({
            "type": "read_request",
            "sink_handle": request.sink_stag,
            "sink_offset": request.sink_offset,
            "octets": request.size,
            "handle": request.source_stag,
            "offset": request.source_offset,
        }),
        EventKind::ReadResponse(message) => tagged("read_response", message),
        EventKind::Write(message) => tagged("write", message),
        EventKind::Terminate(reading) => {
            json!({ "type": "terminate", "reason": reading.map(|reading| reading.to_string()) })
        }
        EventKind::Closed { reset } => json!({ "type": "closed", "reset": reset }),
    }
}

fn tagged(name: &str, message: &Tagged) -> Value {
    json!({
        "type": name,
        "handle": message.handle,
        "offset": message.offset,
        "octets": message.octets,
        "fpdus": message.fpdus,
        "complete": message.complete,
        "rpc": message.rpc.map_or(Value::Null, rpc_fields),
    })
}

fn rpc_fields(rpc: Rpc) -> Value {
    match rpc {
        Rpc::Call(id) => json!({
            "type": "call", "xid": id.xid, "program": id.program, "version": id.version, "procedure": id.procedure,
        }),
        Rpc::Reply { xid, outcome: Outcome::Executed(status) } => match status {
            Some(Status::Mount(status)) => json!({ "type": "reply", "xid": xid, "mount_status": status.0 }),
            Some(Status::Nfs2(status)) => json!({ "type": "reply", "xid": xid, "nfs_status": status.0 }),
            Some(Status::Nfs3(status)) => json!({ "type": "reply", "xid": xid, "nfs_status": status.0 }),
            Some(Status::Nfs4(status)) => json!({ "type": "reply", "xid": xid, "nfs_status": status.0 }),
            None => json!({ "type": "reply", "xid": xid, "nfs_status": null }),
        },
        Rpc::Reply { xid, outcome: Outcome::Rejected(rejection) } => {
            json!({ "type": "reply", "xid": xid, "rejected": rejection.to_string(), "rejection": rejection.name() })
        }
    }
}

pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
