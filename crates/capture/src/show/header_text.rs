//! Transport headers of both versions, in words.

use super::describe::count;
use crate::header::TransportHeader;
use rpcrdma_wire::{
    chunk::Lists,
    v1::{self, ErrorBody},
    v2::{self, Property, PropertySet},
};
use std::fmt::Write as _;

/// Chunks of one kind that are shown one by one.
const MAX_TOLD_CHUNKS: usize = 4;
/// Properties of one message that are shown one by one: more than are defined.
const MAX_TOLD_PROPERTIES: usize = 12;

/// `rpc`: the RPC header that follows, in words. `continues`: the message is a later part of a sequence.
pub(super) fn text(header: &TransportHeader, inline_bytes: u64, rpc: Option<String>, continues: bool) -> String {
    let mut text = header.type_name().to_owned();
    if continues {
        text += " continued";
    }
    if let Some(rpc) = rpc {
        text += " ";
        text += &rpc;
    }
    match header {
        TransportHeader::V1(header) => text += &of_version_1(header),
        TransportHeader::V2(header) => text += &of_version_2(header),
    }
    if header.has_payload() {
        let _ = write!(text, ", {} inline", count(inline_bytes, "byte"));
    }
    if header.flags().more {
        text += ", to be continued";
    }
    text
}

fn of_version_1(header: &v1::Header) -> String {
    let mut text = format!(", xid {:#010x}, credits {}", header.xid, header.credit);
    if let Some(lists) = header.body.lists() {
        text += &chunks(lists);
    }
    match &header.body {
        v1::Body::Error(ErrorBody::Version { low, high }) => {
            let _ = write!(text, ", ERR_VERS {low} to {high}");
        }
        v1::Body::Error(error) => {
            let _ = write!(text, ", {}", error.name());
        }
        _ => {}
    }
    text
}

fn of_version_2(header: &v2::Header) -> String {
    let credits = header.credits;
    let mut text = format!(", xid {:#010x}, credits +{} of {}", header.xid, credits.granted, credits.maximum);
    match &header.body {
        _ if header.is_grant() => text += ", a grant",
        v2::Body::Msg(of) | v2::Body::Nomsg(of) => {
            text += &chunks(&of.lists);
            if of.inv_handle != 0 {
                let _ = write!(text, ", {:#010x} may be invalidated", of.inv_handle);
            }
        }
        v2::Body::Error(error) => {
            match error.name() {
                Some(name) => text = text + ", " + name,
                None => text += &format!(", error {}", error.code()),
            }
            for (name, value) in error.fields() {
                let _ = write!(text, " {name} {value}");
            }
        }
        v2::Body::Connprop(set) => text += &properties(set),
        v2::Body::ConnpropPiece(octets) => {
            let _ = write!(text, ", {} of a property set", count(octets.len() as u64, "byte"));
        }
        v2::Body::Other(other) => {
            let octets = count(other.octets().len() as u64, "byte");
            let _ = write!(text, ", header type {}, {octets}", other.header_type());
        }
        _ => {}
    }
    if header.flags.tpmore {
        text += ", more properties follow";
    }
    text
}

fn properties(set: &PropertySet) -> String {
    let mut text = String::new();
    for property in set.0.iter().take(MAX_TOLD_PROPERTIES) {
        let _ = match property {
            Property::Default(id) => write!(text, ", {} default", id.name()),
            Property::SendSize(octets) => write!(text, ", sends {octets}"),
            Property::ReceiveSize(octets) => write!(text, ", receives {octets}"),
            Property::SegmentSize(octets) => write!(text, ", segments of {octets}"),
            Property::SegmentCount(segments) => write!(text, ", {}", count((*segments).into(), "segment")),
            Property::Reverse(level) => write!(text, ", reverse direction {level}"),
            Property::HostAuth(material) => {
                write!(text, ", {} of host authentication", count(material.len() as u64, "byte"))
            }
            Property::Other(other) => {
                write!(text, ", property {} ({})", other.code(), count(other.data().len() as u64, "byte"))
            }
            other => write!(text, ", property {}", other.code()),
        };
    }
    let untold = set.0.len().saturating_sub(MAX_TOLD_PROPERTIES);
    if untold > 0 {
        let _ = write!(text, ", {untold} more");
    }
    text
}

fn chunks(lists: &Lists) -> String {
    let sized =
        |segments: usize, octets: u64| format!("({}, {})", count(segments as u64, "segment"), count(octets, "byte"));
    let mut text = String::new();
    let reads = lists.reads.chunks();
    for chunk in reads.iter().take(MAX_TOLD_CHUNKS) {
        let _ = write!(text, ", Read chunk at {} {}", chunk.position, sized(chunk.segments.len(), chunk.len()));
    }
    let writes = lists.writes.chunks();
    for chunk in writes.iter().take(MAX_TOLD_CHUNKS) {
        let _ = write!(text, ", Write chunk {}", sized(chunk.segments().len(), chunk.len()));
    }
    let untold = reads.len().saturating_sub(MAX_TOLD_CHUNKS) + writes.len().saturating_sub(MAX_TOLD_CHUNKS);
    if untold > 0 {
        let _ = write!(text, ", {}", count(untold as u64, "more chunk"));
    }
    if let Some(chunk) = &lists.reply {
        let _ = write!(text, ", Reply chunk {}", sized(chunk.segments().len(), chunk.len()));
    }
    text
}
