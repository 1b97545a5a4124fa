//! `rpcrdma decode`: what messages contain, and what a receiver does with them.

use crate::{
    args::{DecodeArgs, Role},
    capture::{self, Shown},
};
use anyhow::{Context, Result, bail};
use rpcrdma_capture::show::Style;
use rpcrdma_wire::v1::{self, Body, ErrorBody, Header, Judgement, Lists, Segment};
use serde_json::{Map, Value, json};
use std::io::{BufRead, Write};

/// The longest line that is read, in characters: a message of 64 KiB in hex, and more than any Send is long.
const MAX_LINE_CHARACTERS: u64 = 2 * (1 << 20);

pub(crate) fn run(args: &DecodeArgs, input: impl BufRead, output: &mut impl Write) -> Result<()> {
    if let Some(file) = &args.file {
        let shown = match (args.json, args.ladder, args.unicode) {
            (true, _, _) => Shown::Json,
            (false, false, _) => Shown::Text,
            (false, true, true) => Shown::Ladder(Style::Unicode),
            (false, true, false) => Shown::Ladder(Style::Ascii),
        };
        return capture::show(file, shown, output);
    }
    let mut input = input;
    let mut unreadable = 0_u64;
    for number in 1_u64.. {
        let mut line = String::new();
        let read = std::io::Read::take(&mut input, MAX_LINE_CHARACTERS)
            .read_line(&mut line)
            .with_context(|| format!("cannot read line {number}"))?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE_CHARACTERS && !line.ends_with('\n') {
            bail!("line {number} is longer than {MAX_LINE_CHARACTERS} characters");
        }
        let text = match parse_hex(line.trim()) {
            Some(message) if args.json => describe_json(&message, args.classify).to_string(),
            Some(message) => describe(&message, args.classify),
            None => {
                unreadable += 1;
                eprintln!("rpcrdma: line {number} is not hexadecimal");
                if args.json {
                    json!({ "decode": null, "error": "not hexadecimal" }).to_string()
                } else {
                    "not hexadecimal".into()
                }
            }
        };
        writeln!(output, "{text}")?;
    }
    output.flush()?;
    if unreadable > 0 {
        bail!("{unreadable} lines could not be read");
    }
    Ok(())
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn judge(message: &[u8], role: Role) -> Judgement {
    let role = match role {
        Role::Responder => v1::Role::Responder,
        Role::Requester => v1::Role::Requester,
    };
    v1::judge(role, message)
}

/// The shapes that spec/VECTORS.md defines.
fn describe_json(message: &[u8], classify: Option<Role>) -> Value {
    let decoded = Header::decode(message).ok();
    let mut line = Map::new();
    line.insert("decode".into(), decoded.map_or(Value::Null, |(header, end)| header_json(&header, end)));
    if let Some(role) = classify {
        let action = match judge(message, role) {
            Judgement::Accept { .. } => json!({ "action": "accept" }),
            Judgement::Discard(_) => json!({ "action": "discard" }),
            Judgement::Reply { error, .. } => json!({ "action": "reply", "error": error.name() }),
        };
        line.insert("classify".into(), action);
    }
    Value::Object(line)
}

fn header_json(header: &Header, end: usize) -> Value {
    let mut fields = Map::new();
    fields.insert("version".into(), header.version.into());
    fields.insert("xid".into(), header.xid.into());
    fields.insert("credit".into(), json!({ "value": header.credit }));
    fields.insert("type".into(), header.body.procedure().name().into());
    if let Body::Msgp { align, thresh, .. } = &header.body {
        fields.insert("align".into(), (*align).into());
        fields.insert("thresh".into(), (*thresh).into());
    }
    if let Some(lists) = header.body.lists() {
        insert_lists(&mut fields, lists);
    }
    if header.body.has_payload() {
        fields.insert("payload_offset".into(), end.into());
    }
    if let Body::Error(error) = &header.body {
        let mut inner = Map::new();
        inner.insert("code".into(), error.code().into());
        inner.insert("name".into(), error.name().into());
        if let ErrorBody::Version { low, high } = error {
            inner.insert("vers_low".into(), (*low).into());
            inner.insert("vers_high".into(), (*high).into());
        }
        fields.insert("error".into(), inner.into());
    }
    Value::Object(fields)
}

fn insert_lists(fields: &mut Map<String, Value>, lists: &Lists) {
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

/// One line for a person.
fn describe(message: &[u8], classify: Option<Role>) -> String {
    let mut line = match Header::decode(message) {
        Ok((header, end)) => {
            let mut line =
                format!("{} xid {:#010x} credits {}", header.body.procedure().name(), header.xid, header.credit);
            if let Some(lists) = header.body.lists() {
                for read in lists.reads.segments() {
                    line += &format!(", read at {} {}", read.position, segment_text(&read.segment));
                }
                for write in lists.writes.chunks() {
                    line += &format!(", write chunk{}", chunk_text(write.segments()));
                }
                if let Some(reply) = &lists.reply {
                    line += &format!(", reply chunk{}", chunk_text(reply.segments()));
                }
            }
            match &header.body {
                Body::Error(ErrorBody::Version { low, high }) => line += &format!(", ERR_VERS {low} to {high}"),
                Body::Error(ErrorBody::Chunk) => line += ", ERR_CHUNK",
                body if body.has_payload() => {
                    line += &format!(", {} octets of payload", message.len().saturating_sub(end));
                }
                _ => {}
            }
            line
        }
        Err(error) => format!("no header: {error}"),
    };
    if let Some(role) = classify {
        line += match judge(message, role) {
            Judgement::Accept { .. } => "; accepted".to_owned(),
            Judgement::Discard(_) => "; discarded".to_owned(),
            Judgement::Reply { error, .. } => format!("; answered with {}", error.name()),
        }
        .as_str();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &str, json: bool, classify: Option<Role>) -> (Result<()>, String) {
        let mut output = Vec::new();
        let args = DecodeArgs { hex: true, file: None, json, ladder: false, unicode: false, rpcrdma: 1, classify };
        let result = run(&args, input.as_bytes(), &mut output);
        (result, String::from_utf8(output).unwrap())
    }

    /// Every version 1 vector, asked as a user would ask.
    ///
    /// proves: V1-4.2-a, V1-4.2.4-a, V1-4.5-a, V1-4.5.1-a, V1-4.5.2-a
    #[test]
    fn vectors_are_answered() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/rpcrdma-headers.jsonl");
        let mut seen = 0;
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let vector: Value = serde_json::from_str(line).unwrap();
            if vector["version"] != 1 {
                continue;
            }
            seen += 1;
            let role = if vector["role"] == "responder" { Role::Responder } else { Role::Requester };
            let (result, output) = decode(&format!("{}\n", vector["hex"].as_str().unwrap()), true, Some(role));
            result.unwrap();
            let answer: Value = serde_json::from_str(&output).unwrap();
            let allowed = vector["classify"].as_array().unwrap();
            assert!(allowed.contains(&answer["classify"]), "{}: {answer}", vector["name"]);
            let only_accept = allowed.len() == 1 && allowed[0]["action"] == "accept";
            assert!(
                answer["decode"] == vector["decode"] || (!only_accept && answer["decode"].is_null()),
                "{}: {answer}",
                vector["name"]
            );
        }
        assert!(seen > 500, "{seen} vectors");
    }

    #[test]
    fn lines_that_are_not_hex_are_counted() {
        let (result, output) = decode("zz\n0\n\n", true, None);
        assert!(result.is_err());
        let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], json!({ "decode": null }), "an empty line is an empty message");
    }

    #[test]
    fn a_person_reads_one_line() {
        let message = "11223344000000010000002000000004000000010000000100000001\n";
        let (_, output) = decode(message, false, Some(Role::Requester));
        assert_eq!(output, "RDMA_ERROR xid 0x11223344 credits 32, ERR_VERS 1 to 1; accepted\n");
    }
}
