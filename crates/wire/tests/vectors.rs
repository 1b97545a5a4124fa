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
    // An empty list has no element that makes it an array, so make it one here.
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

/// The number of vectors.
const VECTORS: usize = 521;

/// The subjects of the vectors: the second part of their names, with a test for each group.
const CHUNKS: &[&str] = &[
    "msg",
    "nomsg",
    "payload",
    "xid-mismatch",
    "discriminator",
    "count",
    "trailing",
    "position",
    "reply-side",
    "credit-zero",
    "direction",
];
const LENGTHS: &[&str] = &["short", "truncated"];
const TYPES: &[&str] = &["version", "proc", "done", "msgp"];
const ERRORS: &[&str] = &["error"];
const RANDOM: &[&str] = &["random"];

/// The vectors of a group.
fn about(subjects: &[&str]) -> Vec<Vector> {
    let vectors = vectors().into_iter().filter(|vector| subjects.contains(&vector.name.split('/').nth(1).unwrap()));
    vectors.collect()
}

fn all_decode(subjects: &[&str], expected: usize) {
    let vectors = about(subjects);
    assert_eq!(vectors.len(), expected, "{subjects:?}");
    for vector in vectors {
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

fn all_judged(subjects: &[&str]) {
    for vector in about(subjects) {
        let judgement = judge(vector.role, &vector.octets);
        assert_eq!(action(&judgement), vector.classify[0], "{} {judgement:?}", vector.name);
    }
}

/// proves: V1-4.1.2-a, V1-4.1.2-b, V1-4.1.2-c, V1-4.2.4-b, V1-4.3-a, V1-4.3.1-a, V1-4.7-a, V1-4.7-b, V1-4.7-c
/// proves: V1-4.7-d, V1-4.7-e, V1-3.4.3-a
#[test]
fn chunk_lists_decode_to_what_the_vectors_say() {
    all_decode(CHUNKS, 125);
}

/// proves: V1-3.4.6-a
#[test]
fn a_write_chunk_may_have_no_segments() {
    let empty: Vec<_> = about(CHUNKS).into_iter().filter(|vector| vector.decode["writes"] == json!([[]])).collect();
    assert!(!empty.is_empty());
    for vector in empty {
        let (header, _) = Header::decode(&vector.octets).unwrap();
        assert_eq!(header.body.lists().unwrap().writes.chunks().len(), 1, "{}", vector.name);
    }
}

/// proves: V1-4-a, V1-4.2-a, V1-4.1.2-e, V1-4.2.4-a
#[test]
fn fixed_words_decode_to_what_the_vectors_say() {
    all_decode(TYPES, 35);
    all_decode(LENGTHS, 203);
    all_decode(RANDOM, 126);
}

/// proves: V1-4.1.2-d, V1-7-a
#[test]
fn errors_decode_to_what_the_vectors_say() {
    all_decode(ERRORS, 32);
}

/// proves: V1-4.2.4-c, V1-4.2.4-g, V1-4.3.1-b, V1-4.2.1-c, V1-4.3.3-e, V1-4.5-b, V1-4.5-c, V1-4.5.2-a
#[test]
fn chunk_lists_are_judged_as_the_vectors_prefer() {
    all_judged(CHUNKS);
    all_judged(RANDOM);
}

/// proves: V1-4.5-a, V1-4.5-i, V1-4.5.2-a
#[test]
fn what_is_cut_off_is_judged_as_the_vectors_prefer() {
    all_judged(LENGTHS);
}

/// proves: V1-4.5.1-a, V1-4.6.1-b, V1-4.6.1-c, V1-4.6.2-b, IE-4.6.1-a, IE-7.1.2.1-a, IE-7.1.3-a
#[test]
fn versions_and_procedures_are_judged_as_the_vectors_prefer() {
    all_judged(TYPES);
}

/// proves: V1-4.2.4-d, V1-4.2.4-e, V1-4.5-h, V1-4.5-j
#[test]
fn errors_are_judged_as_the_vectors_prefer() {
    all_judged(ERRORS);
}

#[test]
fn every_vector_is_in_a_group() {
    let groups = [CHUNKS, LENGTHS, TYPES, ERRORS, RANDOM];
    assert_eq!(groups.into_iter().map(|group| about(group).len()).sum::<usize>(), VECTORS);
    assert_eq!(vectors().len(), VECTORS, "all version 1 vectors are there");
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
