//! Messages of version 1.

use super::{Role, lists};
use rpcrdma_wire::v1::{self, Body, ErrorBody, Header, Judgement};
use serde_json::{Map, Value, json};

fn judge(message: &[u8], role: Role) -> Judgement {
    let role = match role {
        Role::Responder => v1::Role::Responder,
        Role::Requester => v1::Role::Requester,
    };
    v1::judge(role, message)
}

/// The shapes that spec/VECTORS.md defines.
pub(super) fn describe_json(message: &[u8], classify: Option<Role>) -> Value {
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
    if let Some(chunks) = header.body.lists() {
        lists::insert(&mut fields, chunks);
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

/// One line for a person.
pub(super) fn describe(message: &[u8], classify: Option<Role>) -> String {
    let mut line = match Header::decode(message) {
        Ok((header, end)) => {
            let mut line =
                format!("{} xid {:#010x} credits {}", header.body.procedure().name(), header.xid, header.credit);
            if let Some(chunks) = header.body.lists() {
                line += &lists::text(chunks);
            }
            match &header.body {
                Body::Error(ErrorBody::Version { low, high }) => line += &format!(", ERR_VERS {low} to {high}"),
                Body::Error(ErrorBody::Chunk) => line += ", ERR_CHUNK",
                body if body.has_payload() => {
                    line += &format!(", {} bytes of payload", message.len().saturating_sub(end));
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
