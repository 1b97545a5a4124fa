//! What calls and replies say, in words and as JSON.

use super::gss;
use crate::{
    content::{Content, Field, Operation, Value},
    event, names,
};
use rpcrdma_nfs::v4::{STATE_ID_OTHER_BYTES, StateId, Status};
use serde_json::{Map, Value as Json};
use std::fmt::Write as _;

/// Bytes of a name that text shows; JSON has it whole, which the protocol's types bound.
const MAX_SHOWN_NAME_BYTES: usize = 128;
/// Bytes of a handle that text shows at its beginning and at its end, where servers put what differs most.
const SHOWN_HANDLE_BYTES: (usize, usize) = (2, 4);

/// The operations with their fields. The name of an operation that `named` has named already is left out.
pub(super) fn text(content: &Content, named: Option<&str>) -> String {
    let mut text = content.gss.as_ref().map(gss::text).unwrap_or_default();
    if let Some(compound) = &content.compound {
        if let Some(minor) = compound.minor {
            let _ = write!(text, " minor {minor}");
        }
        if !compound.tag.is_empty() {
            let _ = write!(text, " tag {}", name(&compound.tag));
        }
    }
    for operation in &content.operations {
        if named != Some(operation.name) {
            let _ = write!(text, " {}", operation.name);
        }
        for each in &operation.fields {
            text.push(' ');
            text += &field(each);
        }
        if let Some(status) = operation.status.filter(|status| *status != Status::OK) {
            let _ = write!(text, " -> {}", event::Status::Nfs4(status));
        }
    }
    if let Some(problem) = &content.problem {
        let _ = write!(text, " ({problem})");
    }
    text
}

fn field(field: &Field) -> String {
    let key = field.key;
    let text = match &field.value {
        Value::Handle(octets) => handle(octets.as_slice()),
        Value::Name(octets) => name(octets),
        Value::Count(octets) => octets.to_string(),
        Value::Offset(offset) => format!("@{offset}"),
        Value::Number(number) => format!("{key}={number}"),
        Value::Mode(mode) => format!("{key}={mode:04o}"),
        Value::Word(word) => (*word).into(),
        Value::Flag => key.into(),
        Value::Verifier(octets) => format!("{key}={}", super::json::hex(octets)),
        Value::Time(time) => format!("{key}={}.{:09}", time.seconds, time.nanoseconds),
        Value::Elsewhere(octets) => format!("({octets} bytes in a chunk)"),
        Value::Octets(octets) => handle(octets),
        Value::Keyed(number) => format!("{key} {number}"),
        Value::KeyedWord(word) => format!("{key} {word}"),
        Value::Length(u64::MAX) => "to the end".into(),
        Value::Length(octets) => octets.to_string(),
        Value::Flags(flags) => format!("{key}={flags:#x}"),
        Value::Client(client) => format!("{key} {client:016x}"),
        Value::Session(octets) => format!("{key} {}", words(octets)),
        Value::State(sequence, octets) => match special(*sequence, octets) {
            Some(name) => format!("{key} {name}"),
            None => format!("{key} {sequence}:{}", words(octets)),
        },
    };
    if field.target { format!("-> {text}") } else { text }
}

/// The name of a stateid that stands for no open or lock of its own (RFC 8881 section 8.2.3).
fn special(sequence: u32, octets: &[u8; STATE_ID_OTHER_BYTES]) -> Option<&'static str> {
    let named = [
        (StateId::ANONYMOUS, "anonymous"),
        (StateId::BYPASS, "bypass"),
        (StateId::CURRENT, "current"),
        (StateId::INVALID, "invalid"),
    ];
    let is_this = |(state, _): &&(StateId, _)| state.sequence == sequence && state.other.0 == *octets;
    named.iter().find(is_this).map(|(_, name)| *name)
}

pub(super) fn handle(octets: &[u8]) -> String {
    let (first, last) = SHOWN_HANDLE_BYTES;
    match (octets.get(..first), octets.len().checked_sub(last).and_then(|at| octets.get(at..))) {
        (Some(begin), Some(end)) if octets.len() > first + last => {
            format!("{}..{}", super::json::hex(begin), super::json::hex(end))
        }
        _ if octets.is_empty() => "(empty handle)".into(),
        _ => super::json::hex(octets),
    }
}

/// The first word, and the last one that is not zero: servers put what differs there.
fn words(octets: &[u8]) -> String {
    let mut words = octets.chunks(4).map(super::json::hex);
    let first = words.next().unwrap_or_default();
    match words.rfind(|word| word.bytes().any(|digit| digit != b'0')) {
        Some(last) => format!("{first}..{last}"),
        None => first,
    }
}

fn name(octets: &[u8]) -> String {
    let shown = octets.get(..MAX_SHOWN_NAME_BYTES).unwrap_or(octets);
    // A name must not end the quotes that it stands in.
    let text = names::escaped(shown).replace('"', "\\\"");
    if shown.len() == octets.len() { format!("\"{text}\"") } else { format!("\"{text}\"..({} bytes)", octets.len()) }
}

/// The same for programs: keys as in text, handles whole, numbers as on the wire.
pub(super) fn json(content: &Content) -> Json {
    let mut fields = Map::new();
    fields.insert("operations".into(), content.operations.iter().map(operation).collect());
    if let Some(compound) = &content.compound {
        fields.insert("callback".into(), compound.callback.into());
        if let Some(minor) = compound.minor {
            fields.insert("minor".into(), minor.into());
        }
        octets(&mut fields, "tag", &compound.tag);
    }
    if let Some(gss) = &content.gss {
        fields.insert("gss".into(), gss::json(gss));
    }
    if let Some(problem) = &content.problem {
        fields.insert("problem".into(), problem.as_str().into());
    }
    Json::Object(fields)
}

fn operation(operation: &Operation) -> Json {
    let mut fields = Map::new();
    fields.insert("operation".into(), operation.name.into());
    if let Some(status) = operation.status {
        fields.insert("status".into(), status.0.into());
        fields.insert("status_name".into(), event::Status::Nfs4(status).to_string().into());
    }
    for each in &operation.fields {
        let value = match &each.value {
            Value::Handle(handle) => super::json::hex(handle.as_slice()).into(),
            Value::Name(name) => {
                octets(&mut fields, each.key, name);
                continue;
            }
            Value::Count(number)
            | Value::Offset(number)
            | Value::Number(number)
            | Value::Keyed(number)
            | Value::Length(number)
            | Value::Client(number) => (*number).into(),
            Value::Flags(flags) => (*flags).into(),
            Value::Octets(octets) => super::json::hex(octets).into(),
            Value::Session(octets) => super::json::hex(octets).into(),
            Value::State(sequence, octets) => {
                let mut state = serde_json::json!({ "sequence": sequence, "other": super::json::hex(octets) });
                if let Some(name) = special(*sequence, octets) {
                    state["special"] = name.into();
                }
                state
            }
            Value::Mode(mode) => (*mode).into(),
            Value::Word(word) | Value::KeyedWord(word) => (*word).into(),
            Value::Flag => true.into(),
            Value::Verifier(octets) => super::json::hex(octets).into(),
            Value::Time(time) => serde_json::json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds }),
            Value::Elsewhere(octets) => serde_json::json!({ "octets_in_a_chunk": octets }),
        };
        fields.insert(each.key.into(), value);
    }
    Json::Object(fields)
}

/// Bytes as text if they are text, else in hexadecimal under another key.
fn octets(fields: &mut Map<String, Json>, key: &str, octets: &[u8]) {
    match std::str::from_utf8(octets) {
        Ok(text) => fields.insert(key.into(), text.into()),
        Err(_) => fields.insert(format!("{key}_hex"), super::json::hex(octets).into()),
    };
}
