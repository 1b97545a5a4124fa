//! Every version 2 vector of spec/rpcrdma-headers.jsonl: decoded, judged, encoded back.

use bytes::Bytes;
use rpcrdma_wire::v2::{
    Body, ErrorBody, Header, HeaderError, Judgement, Lists, NO_CHUNKS_OCTETS, PREFIX_OCTETS, Prefix, Property,
    PropertySet, Receiver, Role, Segment, judge,
};
use serde_json::{Value, json};

/// The number of vectors.
const VECTORS: usize = 862;

struct Vector {
    name: String,
    role: Role,
    octets: Bytes,
    decode: Value,
    classify: Vec<Value>,
}

impl Vector {
    fn only_accept(&self) -> bool {
        self.classify == [json!({"action": "accept"})]
    }

    fn judge(&self) -> Judgement {
        judge(&Receiver::new(self.role), &self.octets)
    }
}

fn vectors() -> Vec<Vector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/rpcrdma-headers.jsonl");
    let text = std::fs::read_to_string(path).expect("the vectors are part of the repository");
    let vectors: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("each line is an object"))
        .filter(|value| value["version"] == 2)
        .map(|value| Vector {
            name: value["name"].as_str().unwrap().to_owned(),
            role: if value["role"] == "responder" { Role::Responder } else { Role::Requester },
            octets: unhex(value["hex"].as_str().unwrap()),
            decode: value["decode"].clone(),
            classify: value["classify"].as_array().unwrap().clone(),
        })
        .collect();
    assert_eq!(vectors.len(), VECTORS, "all version 2 vectors are there");
    vectors
}

fn unhex(hex: &str) -> Bytes {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn segment(segment: &Segment) -> Value {
    json!({"handle": segment.handle, "length": segment.length, "offset": segment.offset})
}

fn lists(into: &mut Value, lists: &Lists) {
    let chunk = |segments: &[Segment]| Value::Array(segments.iter().map(segment).collect());
    let reads = lists.reads.segments().iter().map(|entry| {
        let mut value = segment(&entry.segment);
        value["position"] = entry.position.into();
        value
    });
    into["reads"] = Value::Array(reads.collect());
    into["writes"] = Value::Array(lists.writes.chunks().iter().map(|c| chunk(c.segments())).collect());
    into["reply"] = lists.reply.as_ref().map_or(Value::Null, |c| chunk(c.segments()));
}

fn property(property: &Property) -> Value {
    let named = |name: &str, value: Value| json!({"id": property.code(), "name": name, "value": value});
    match property {
        Property::Default(id) => json!({"id": id.code(), "name": id.name()}),
        Property::SendSize(value) => named("SBSIZ", (*value).into()),
        Property::ReceiveSize(value) => named("RBSIZ", (*value).into()),
        Property::SegmentSize(value) => named("RSSIZ", (*value).into()),
        Property::SegmentCount(value) => named("RCSIZ", (*value).into()),
        Property::Reverse(value) => named("BRS", (*value).into()),
        Property::HostAuth(material) => named("HOSTAUTH", hex(material).into()),
        Property::Other(other) => json!({"id": other.code(), "data": hex(other.data())}),
        other => panic!("{other:?}"),
    }
}

fn shape(header: &Header, len: usize) -> Option<Value> {
    let mut value = json!({
        "version": header.version,
        "xid": header.xid,
        "credit": {"granted": header.credits.granted, "maximum": header.credits.maximum},
        "type": header.prefix().type_name()?,
        "flags": header.flags.names().collect::<Vec<_>>(),
    });
    if let Some(chunks) = header.body.chunks() {
        value["inv_handle"] = chunks.inv_handle.into();
        lists(&mut value, &chunks.lists);
    }
    if header.body.has_payload() {
        value["payload_offset"] = len.into();
    }
    match &header.body {
        Body::Error(error) => {
            value["error"] = json!({"code": error.code()});
            if let Some(name) = error.name() {
                value["error"]["name"] = name.into();
            }
            for (name, field) in error.fields() {
                value["error"][name] = field.into();
            }
        }
        Body::Connprop(set) => value["properties"] = set.0.iter().map(property).collect(),
        Body::ConnpropPiece(octets) => {
            value["properties"] = PropertySet::decode(octets).ok()?.0.0.iter().map(property).collect();
        }
        _ => {}
    }
    if value.get("properties") == Some(&Value::Null) {
        value["properties"] = json!([]);
    }
    Some(value)
}

fn action(judgement: &Judgement) -> Value {
    match judgement {
        Judgement::Accept { .. } => json!({"action": "accept"}),
        Judgement::Discard { .. } => json!({"action": "discard"}),
        Judgement::Reply { error, .. } => json!({"action": "reply", "error": error.name().unwrap()}),
    }
}

/// The subjects of the vectors: the second part of their names, with a test for each group.
const CHUNKS: &[&str] = &[
    "msg",
    "nomsg",
    "refresh",
    "inv-handle",
    "payload",
    "xid-mismatch",
    "discriminator",
    "count",
    "trailing",
    "position",
    "reply-side",
];
const LENGTHS: &[&str] = &["short", "truncated"];
const TYPES: &[&str] = &["version", "htype"];
const FLAGS: &[&str] = &["more", "reserved-flags", "tpmore", "direction", "msg-type"];
const PROPERTIES: &[&str] = &["connprop"];
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
        let decoded = Header::decode(&vector.octets);
        match decoded.map(|(header, len)| shape(&header, len)) {
            Ok(value) if !vector.decode.is_null() => assert_eq!(value, Some(vector.decode), "{}", vector.name),
            Ok(Some(_)) => panic!("{} is no header", vector.name),
            Ok(None) => assert!(!vector.only_accept(), "{}", vector.name),
            // The decoder refuses the whole message; the vectors name the fault of a property.
            Err(HeaderError::Property { .. }) => assert!(!vector.only_accept(), "{}", vector.name),
            Err(error) => assert!(vector.decode.is_null(), "{}: {error}", vector.name),
        }
    }
}

fn all_judged(subjects: &[&str]) {
    for vector in about(subjects) {
        let judgement = vector.judge();
        assert_eq!(action(&judgement), vector.classify[0], "{} {judgement:?}", vector.name);
    }
}

/// proves: V2-6.2.3-b, V2-6.3-a, V2-6.3-b, V2-6.3.1-a, V2-6.3.2-a, V2-8.3-a, V2-8.3-b, V2-8.3-c, V2-4.3.5-a
/// proves: V2-4.3.6-a, V2-4.3.6-g, V2-3.1.4.2-a
#[test]
fn chunk_lists_decode_to_what_the_vectors_say() {
    all_decode(CHUNKS, 137);
}

/// proves: V2-6-a, V2-6.1-a, V2-6.2.1-a, V2-6.2.2-a, V2-4.2.1.1-c, V2-4.2.3-e, V2-3.1.4-a, V2-8.5-a, ULB-1-b
#[test]
fn prefixes_decode_to_what_the_vectors_say() {
    all_decode(TYPES, 49);
    all_decode(LENGTHS, 243);
    all_decode(RANDOM, 126);
}

/// proves: V2-6.2.2-b, V2-6.2.2-d
#[test]
fn flags_decode_to_what_the_vectors_say() {
    all_decode(FLAGS, 53);
}

/// proves: V2-6.1-b, V2-6.3.4-a, V2-5.1-a, V2-5.2-a, V2-8.4-b
#[test]
fn properties_decode_to_what_the_vectors_say() {
    all_decode(PROPERTIES, 169);
}

/// proves: V2-6.3.3-a, V2-6.3.3-b, V2-8.4-a, V2-B.5-c, ULB-5.5-e
#[test]
fn errors_decode_to_what_the_vectors_say() {
    all_decode(ERRORS, 85);
}

/// proves: V2-6.3.2-c, V2-6.3.2-f, V2-6.3.2-g, V2-6.3.2-h, V2-6.3.1-b, V2-4.3.5-h, V2-4.4.3-j, V2-4.2.1.1-i
/// proves: V2-7.2-a, V2-8.3-d, V2-C.1-b, V2-7.2.1-a
#[test]
fn chunk_lists_are_judged_as_the_vectors_prefer() {
    all_judged(CHUNKS);
    all_judged(RANDOM);
}

/// proves: V2-7-a, V2-7.2.1-a, V2-7.2.1-b
#[test]
fn what_is_cut_off_is_judged_as_the_vectors_prefer() {
    all_judged(LENGTHS);
}

/// proves: V2-7.1.1-a, V2-7.1.1-b, V2-C.1-a, V2-4.2.3.3-d, V2-7.1.2-a, V2-7.1.2-b, V2-6.1-c, V2-6.1-d, V2-6.1-e
/// proves: V2-7.2-d
#[test]
fn versions_and_types_are_judged_as_the_vectors_prefer() {
    all_judged(TYPES);
}

/// proves: V2-6.2.2-d, V2-6.2.2-e, V2-6.2.2.1-e, V2-6.2.2.1-f, V2-6.2.2.1-g, V2-6.2.2.2-d, V2-6.2.2.2-e
/// proves: V2-6.2.2.2-g, V2-6.2.2.2-h, V2-6.2.2.3-b
#[test]
fn flags_are_judged_as_the_vectors_prefer() {
    all_judged(FLAGS);
}

/// proves: V2-5.1-c, V2-5.1-d, V2-5.1-e, V2-5.1-f, V2-5.1-g, V2-5.1-k, V2-5.1-l, V2-7.2.2-a, V2-7.2.2-b, V2-6.3.4-e
/// proves: V2-B.4-a, V2-5.2.5-f
#[test]
fn properties_are_judged_as_the_vectors_prefer() {
    all_judged(PROPERTIES);
}

/// proves: V2-7-f, V2-7-g
#[test]
fn errors_are_judged_as_the_vectors_prefer() {
    all_judged(ERRORS);
}

/// proves: V2-6.2.2.3-a, V2-6.2.2.3-f, V2-6.2.2.2-n
#[test]
fn property_exchanges_in_parts_are_judged_as_the_vectors_prefer() {
    let parts = |vector: &Vector| ["/tpmore", "/more"].iter().any(|word| vector.name.contains(word));
    let in_parts: Vec<_> = about(PROPERTIES).into_iter().chain(about(FLAGS)).filter(parts).collect();
    assert!(in_parts.len() > 20, "{}", in_parts.len());
    for vector in in_parts {
        assert_eq!(action(&vector.judge()), vector.classify[0], "{}", vector.name);
    }
}

#[test]
fn every_vector_is_in_a_group() {
    let groups = [CHUNKS, LENGTHS, TYPES, FLAGS, PROPERTIES, ERRORS, RANDOM];
    assert_eq!(groups.into_iter().map(|group| about(group).len()).sum::<usize>(), VECTORS);
}

/// proves: V2-7-b, V2-7-c, V2-7-e, V2-6.2.2.1-d, V2-7.1.1-a
#[test]
fn errors_repeat_what_they_answer() {
    let mut answered = 0;
    for vector in vectors() {
        let Judgement::Reply { xid, version, error, credits } = vector.judge() else { continue };
        let octets = Header::error(xid, version, credits.unwrap_or_default(), error).to_bytes();
        assert_eq!(octets[..8], vector.octets[..8], "{}", vector.name);
        assert_eq!(octets[12..20], [0, 0, 0, 4, 0, 0, 0, 1], "{}", vector.name);
        if let ErrorBody::Version { low, high } = error {
            assert_eq!((low, high, octets.len()), (2, 2, 32), "{}", vector.name);
        }
        answered += 1;
    }
    assert!(answered > 200);
}

/// proves: V2-6.3.2-f, V2-7-d
#[test]
fn what_is_dropped_says_what_it_granted() {
    for vector in vectors() {
        let Ok(prefix) = Prefix::decode(&vector.octets) else { continue };
        let expected = (prefix.version == 2).then_some(prefix.credits);
        if let Judgement::Reply { credits, .. } | Judgement::Discard { credits, .. } = vector.judge() {
            assert_eq!(credits, expected, "{}", vector.name);
        }
    }
}

/// proves: V2-6.2.1-a, V2-6.2.2-a, V2-6.2.2-c, V2-3.1.4.2-a
#[test]
fn headers_encode_back_to_the_same_octets() {
    for vector in vectors() {
        let Ok((header, len)) = Header::decode(&vector.octets) else { continue };
        let encoded = header.to_bytes();
        assert_eq!(encoded.len(), len, "{}", vector.name);
        assert_eq!(header.encoded_len(), len, "{}", vector.name);
        if vector.only_accept() {
            assert_eq!(encoded[..16], vector.octets[..16], "{}", vector.name);
            assert_eq!(encoded[16..19], [0; 3], "{}: reserved flags", vector.name);
            assert_eq!(encoded[19], vector.octets[19] & 7, "{}", vector.name);
            assert_eq!(encoded[PREFIX_OCTETS..], vector.octets[PREFIX_OCTETS..len], "{}", vector.name);
        }
    }
}

/// proves: V2-6.2.3-b, V2-6.3.2-d, V2-4.2.1.2-a
#[test]
fn the_smallest_headers_have_36_octets() {
    let grant = Header::grant(rpcrdma_wire::v2::Credits::new(4, 32));
    let words: Vec<u32> = vec![0, 2, 0x0020_0004, 1, 0, 0, 0, 0, 0];
    let octets: Bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    assert_eq!(grant.to_bytes(), octets);
    assert_eq!(octets.len(), NO_CHUNKS_OCTETS);
    assert!(grant.is_grant());
}
