//! Chunk lists, which both versions have, for JSON and for a person.

use rpcrdma_wire::chunk::{Lists, Segment};
use serde_json::{Map, Value, json};

/// The members `reads`, `writes` and `reply`.
pub(super) fn insert(fields: &mut Map<String, Value>, lists: &Lists) {
    let chunk = |segments: &[Segment]| segments.iter().map(segment_json).collect::<Vec<_>>();
    let reads = lists.reads.segments().iter().map(|read| {
        let mut segment = segment_json(&read.segment);
        segment["position"] = read.position.into();
        segment
    });
    fields.insert("reads".into(), reads.collect::<Vec<_>>().into());
    let writes = lists.writes.chunks().iter().map(|write| chunk(write.segments())).collect::<Vec<_>>();
    fields.insert("writes".into(), writes.into());
    fields.insert("reply".into(), lists.reply.as_ref().map_or(Value::Null, |reply| chunk(reply.segments()).into()));
}

fn segment_json(segment: &Segment) -> Value {
    json!({ "handle": segment.handle, "length": segment.length, "offset": segment.offset })
}

/// What follows the fixed words in a line for a person.
pub(super) fn text(lists: &Lists) -> String {
    let mut line = String::new();
    for read in lists.reads.segments() {
        line += &format!(", read at {} {}", read.position, segment_text(&read.segment));
    }
    for write in lists.writes.chunks() {
        line += &format!(", write chunk{}", chunk_text(write.segments()));
    }
    if let Some(reply) = &lists.reply {
        line += &format!(", reply chunk{}", chunk_text(reply.segments()));
    }
    line
}

fn chunk_text(segments: &[Segment]) -> String {
    if segments.is_empty() {
        return " (empty)".into();
    }
    segments.iter().map(|segment| format!(" {}", segment_text(segment))).collect()
}

fn segment_text(segment: &Segment) -> String {
    format!("{:#010x}:{:#x}+{}", segment.handle, segment.offset, segment.length)
}
