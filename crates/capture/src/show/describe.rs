//! What a message is, in words: shared by text and ladder.

use super::{content, header_text};
use crate::content::Content;
use crate::event::{CallTag, Event, EventKind, Message, Outcome, Rpc, Tagged};
use crate::read::Summary;
use rpcrdma_iwarp::protocol::{
    mpa::{Frame, Kind},
    rdmap::Opcode,
};
use rpcrdma_oncrpc::Rejection;
use rpcrdma_wire::PrivateData;
use std::fmt::Write as _;

pub(super) fn count(number: u64, thing: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{end}")
}

pub(super) fn event(event: &Event) -> String {
    let content = event.content.as_ref();
    match &event.kind {
        EventKind::SetUp(kind, frame) => set_up(*kind, frame),
        EventKind::Unread(why) => format!("not read from here on: {why}"),
        EventKind::Gap { octets } => format!("{} not in the capture", count(*octets, "byte")),
        EventKind::Resumed { skipped_bytes: 0 } => "read from here on".into(),
        EventKind::Resumed { skipped_bytes } => {
            format!("read again from here on, after {} that could not be", count(*skipped_bytes, "byte"))
        }
        EventKind::BadCrc { octets } => format!("FPDU with a wrong CRC, {}", count(*octets as u64, "byte")),
        EventKind::Send { opcode, invalidate, octets, message, .. } => {
            let mut text = send_name(*opcode, *invalidate);
            match message {
                Message::Empty => text += ", empty",
                Message::Partial => {
                    let _ = write!(text, ", not all of it in the capture ({})", count(*octets, "byte"));
                }
                Message::Unreadable(error) => {
                    let _ = write!(text, ", {}: {error}", count(*octets, "byte"));
                    if let Some(cause) = std::error::Error::source(error) {
                        let _ = write!(text, ": {cause}");
                    }
                }
                Message::Transport { header, inline_bytes, rpc, continues } => {
                    text += " ";
                    let rpc = rpc.map(|rpc| self::rpc(rpc, content));
                    // The last part of a message that came in several completes it.
                    let rpc = rpc.or(content.map(|content| content::text(content, None).trim_start().to_owned()));
                    text += &header_text::text(header, *inline_bytes, rpc, *continues);
                }
            }
            text
        }
        EventKind::Record { octets, fragments, rpc, .. } => {
            let mut text = format!("Record, {}", count(*octets, "byte"));
            if *fragments != 1 {
                let _ = write!(text, " in {}", count((*fragments).into(), "fragment"));
            }
            match rpc {
                Some(rpc) => text = format!("{text}: {}", self::rpc(*rpc, content)),
                None => text += ", no RPC message",
            }
            text
        }
        EventKind::ReadRequest(request) => format!(
            "RDMA Read Request {:#010x}+{:#x}, {}",
            request.source_stag,
            request.source_offset,
            count(request.size.into(), "byte")
        ),
        EventKind::ReadResponse(message) => tagged("RDMA Read Response", message, content),
        EventKind::Write(message) => tagged("RDMA Write", message, content),
        EventKind::Terminate(Some(reading)) => format!("Terminate: {reading}"),
        EventKind::Terminate(None) => "Terminate".into(),
        EventKind::Closed { reset: true } => "connection reset".into(),
        EventKind::Closed { reset: false } => "connection closed".into(),
    }
}

fn set_up(kind: Kind, frame: &Frame) -> String {
    let head = &frame.head;
    let mut text = match kind {
        Kind::Request => "MPA Request".to_owned(),
        Kind::Reply if head.reject => "MPA Reply, refused".into(),
        Kind::Reply => "MPA Reply".into(),
    };
    let _ = write!(text, ", revision {}, CRC {}", head.revision, if head.crc { "on" } else { "off" });
    if head.markers {
        text += ", markers";
    }
    if let Some(enhanced) = &frame.enhanced {
        let _ = write!(text, ", IRD {}, ORD {}", enhanced.ird, enhanced.ord);
        if enhanced.peer_to_peer {
            text += ", peer-to-peer";
        }
    }
    match PrivateData::find(&frame.private_data) {
        Some(data) => {
            let _ = write!(text, ", sends {}, receives {}", data.send_size, data.receive_size);
            if data.remote_invalidation {
                text += ", remote invalidation";
            }
        }
        None if frame.private_data.is_empty() => {}
        None => {
            let _ = write!(text, ", {} of private data", count(frame.private_data.len() as u64, "byte"));
        }
    }
    text
}

fn send_name(opcode: Opcode, invalidate: Option<u32>) -> String {
    let solicited = matches!(opcode, Opcode::SendSolicited | Opcode::SendSolicitedInvalidate);
    let mut text = if solicited { "Send with SE".to_owned() } else { "Send".into() };
    if let Some(handle) = invalidate {
        let _ = write!(text, "{} Invalidate {handle:#010x}", if solicited { " and" } else { " with" });
    }
    text
}

fn tagged(name: &str, message: &Tagged, content: Option<&Content>) -> String {
    let mut text = format!(
        "{name} {:#010x}+{:#x}, {} in {}",
        message.handle,
        message.offset,
        count(message.octets, "byte"),
        count(message.fpdus.into(), "FPDU")
    );
    if !message.complete {
        text += ", without its end";
    }
    if let Some(rpc) = message.rpc {
        text += ": ";
        text += &self::rpc(rpc, content);
    }
    text
}

fn rpc(rpc: Rpc, content: Option<&Content>) -> String {
    let (text, named) = match rpc {
        Rpc::Call(id) => {
            let name = crate::event::ProcedureName::of(id, content);
            (format!("Call {name}"), name.procedure_name())
        }
        // A reply to a procedure is named by its call.
        Rpc::Reply { outcome, .. } => {
            let whole = content.filter(|content| content.compound.is_none());
            let only = whole.and_then(|content| content.operations.first()).map(|operation| operation.name);
            (format!("Reply {}", self::outcome(outcome)), only)
        }
    };
    text + &content.map(|content| content::text(content, named)).unwrap_or_default()
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Executed(None) => "executed".into(),
        Outcome::Executed(Some(status)) => status.to_string(),
        // The words show only its number.
        Outcome::Rejected(rejection @ Rejection::Auth(_)) => format!("rejected: {}: {rejection}", rejection.name()),
        Outcome::Rejected(rejection) => format!("rejected: {rejection}"),
    }
}

/// The call that a message belongs to.
pub(super) fn call(tag: &CallTag) -> String {
    match tag.name {
        Some(name) => format!("call {} {name}", tag.number),
        None => format!("call {}", tag.number),
    }
}

pub(super) fn summary(summary: &Summary) -> String {
    let mut text =
        format!("{}, {} with iWARP", count(summary.packets, "packet"), count(summary.connections, "connection"));
    if summary.record_connections > 0 {
        let _ = write!(text, ", {} with RPC in records", summary.record_connections);
    }
    let _ = write!(text, ", {} without, {}", summary.other_connections, count(summary.messages, "message"));
    if summary.record_connections > 0 {
        let _ = write!(text, ", {}", count(summary.records, "record"));
    }
    if summary.missing_bytes > 0 {
        let _ = write!(text, ", {} missing", count(summary.missing_bytes, "byte"));
    }
    if summary.bad_crcs > 0 {
        let _ = write!(text, ", {}", count(summary.bad_crcs, "wrong CRC"));
    }
    if summary.cut_short {
        text += ", the file ends in the middle of a packet";
    }
    text
}
