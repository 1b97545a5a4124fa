//! Every version 1 vector of spec/rpcrdma-headers.jsonl: decoded, judged, encoded back.

use rpcrdma_wire::v1::{Body, ErrorBody, Header, Judgement, Lists, Role, Segment, judge};
use serde_json::{Value, json};

struct Vector {
    name: String,
    role: Role,
    octets: Vec<u8>,
    decode: Value,
    classify: Vec<Value>,
}

fn vectors() -> Vec<Vector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/rpcrdma-headers.jsonl");
    let text = std::fs::read_to_string(path).expect("the vectors are part of the repository");
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("each line is an object"))
        .filter(|value| value["version"] == 1)
        .map(|value| Vector {
            name: value["name"].as_str().unwrap().to_owned(),
            role: if value["role"] == "responder" { Role::Responder } else { Role::Requester },
            octets: unhex(value["hex"].as_str().unwrap()),
            decode: value["decode"].clone(),
            classify: value["classify"].as_array().unwrap().clone(),
        })
        .collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn segment(segment: &Segment) -> Value {
    json!({"handle": segment.handle, "length": segment.length, "offset": segment.offset})
}

fn lists(into: &mut Value, lists: &Lists) {
    into["reads"] = lists
        .reads
        .segments()
        .iter()
        .map(|entry| {
            let mut value = segment(&entry.segment);
            value["position"] = entry.position.into();
            value
        })
        .collect();
    let chunk = |segments: &[Segment]| segments.iter().map(segment).collect::<Value>();
    into["writes"] = lists.writes.chunks().iter().map(|c| chunk(c.segments())).collect::<Vec<_>>().into();
    into["reply"] = lists.reply.as_ref().map_or(Value::Null, |c| chunk(c.segments()));
}

fn shape(header: &Header, len: usize) -> Value {
    let mut value = json!({
        "version": header.version,
        "xid": header.xid,
        "credit": {"value": header.credit},
        "type": header.body.procedure().name(),
    });
    if let Some(chunks) = header.body.lists() {
        lists(&mut value, chunks);
    }
    match &header.body {
        Body::Msgp { align, thresh, .. } => {
            value["align"] = (*align).into();
            value["thresh"] = (*thresh).into();
        }
        Body::Error(error) => {
            value["error"] = json!({"code": error.code(), "name": error.name()});
            if let ErrorBody::Version { low, high } = error {
                value["error"]["vers_low"] = (*low).into();
                value["error"]["vers_high"] = (*high).into();
            }
        }
        _ => {}
    }
    if header.body.has_payload() {
        value["payload_offset"] = len.into();
    }
    // An empty list from an iterator is an array only if it was said so.
    for member in ["reads", "writes"] {
        if value.get(member) == Some(&Value::Null) {
            value[member] = json!([]);
        }
    }
    value
}

fn action(judgement: &Judgement) -> Value {
    match judgement {
        Judgement::Accept { .. } => json!({"action": "accept"}),
        Judgement::Discard(_) => json!({"action": "discard"}),
        Judgement::Reply { error, .. } => json!({"action": "reply", "error": error.name()}),
    }
}

/// proves: V1-4-a, V1-4.1.2-a, V1-4.1.2-b, V1-4.1.2-c, V1-4.1.2-d, V1-4.1.2-e, V1-4.2-a, V1-4.2.4-a, V1-4.3-a, V1-4.7-a
/// proves: V1-4.7-b, V1-4.7-c, V1-4.7-d, V1-4.7-e, V1-7-a
/// proves: V1-3.4.3-a, V1-3.4.6-a, V1-4.2.4-b, V1-4.3.1-a
#[test]
fn headers_decode_to_what_the_vectors_say() {
    for vector in vectors() {
        let decoded = Header::decode(&vector.octets).map(|(header, len)| shape(&header, len));
        match decoded {
            Ok(value) if !vector.decode.is_null() => assert_eq!(value, vector.decode, "{}", vector.name),
            Ok(_) => assert_ne!(vector.classify[0]["action"], "accept", "{}", vector.name),
            Err(error) => assert!(
                vector.decode.is_null() || vector.classify != [json!({"action": "accept"})],
                "{}: {error}",
                vector.name
            ),
        }
    }
}

/// proves: V1-4.2.4-c, V1-4.2.4-d, V1-4.2.4-e, V1-4.2.4-g, V1-4.3.1-b, V1-4.5-a, V1-4.5-b, V1-4.5-c, V1-4.5-h, V1-4.5-i
/// proves: V1-4.5-j, V1-4.5.1-a, V1-4.5.2-a, V1-4.6.1-b, V1-4.6.1-c, V1-4.6.2-b, V1-4.2.1-c, V1-4.3.3-e
/// proves: IE-4.6.1-a, IE-7.1.2.1-a, IE-7.1.3-a
#[test]
fn messages_are_judged_as_the_vectors_prefer() {
    let mut judged = 0;
    for vector in vectors() {
        let judgement = judge(vector.role, &vector.octets);
        assert_eq!(action(&judgement), vector.classify[0], "{} {judgement:?}", vector.name);
        judged += 1;
    }
    assert_eq!(judged, 521, "all version 1 vectors are there");
}

/// proves: V1-4.5-d, V1-4.5-e
#[test]
fn errors_repeat_what_they_answer() {
    let mut answered = 0;
    for vector in vectors() {
        let Judgement::Reply { xid, version, .. } = judge(vector.role, &vector.octets) else { continue };
        assert_eq!(xid.to_be_bytes(), vector.octets[..4], "{}", vector.name);
        assert_eq!(version.to_be_bytes(), vector.octets[4..8], "{}", vector.name);
        answered += 1;
    }
    assert!(answered > 100);
}

/// proves: V1-4-a, V1-4.2.2-a
#[test]
fn headers_encode_back_to_the_same_octets() {
    for vector in vectors() {
        let Ok((header, len)) = Header::decode(&vector.octets) else { continue };
        assert_eq!(header.to_bytes(), vector.octets[..len], "{}", vector.name);
        assert_eq!(header.encoded_len(), len, "{}", vector.name);
    }
}
