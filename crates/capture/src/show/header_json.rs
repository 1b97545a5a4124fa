//! Transport headers of both versions, as JSON.

use crate::header::TransportHeader;
use rpcrdma_wire::{
    chunk::{Lists, Segment},
    v1::{self, ErrorBody},
    v2::{self, Property},
};
use serde_json::{Value, json};

pub(super) fn fields(header: &TransportHeader) -> Value {
    let mut fields = match header {
        TransportHeader::V1(header) => of_version_1(header),
        TransportHeader::V2(header) => of_version_2(header),
    };
    if let Some(lists) = header.lists() {
        insert_lists(&mut fields, lists);
    }
    fields
}

fn of_version_1(header: &v1::Header) -> Value {
    let mut fields = json!({
        "version": header.version,
        "xid": header.xid,
        "credit": header.credit,
        "type": header.body.procedure().name(),
    });
    if let v1::Body::Error(error) = &header.body {
        fields["error"] = error.name().into();
        if let ErrorBody::Version { low, high } = error {
            fields["vers_low"] = (*low).into();
            fields["vers_high"] = (*high).into();
        }
    }
    fields
}

fn of_version_2(header: &v2::Header) -> Value {
    let prefix = header.prefix();
    let mut fields = json!({
        "version": prefix.version,
        "xid": prefix.xid,
        "credit": { "granted": prefix.credits.granted, "maximum": prefix.credits.maximum },
        "type": prefix.type_name().map_or(prefix.header_type.into(), Value::from),
        "flags": prefix.flags.names().collect::<Vec<_>>(),
    });
    match &header.body {
        v2::Body::Msg(chunks) | v2::Body::Nomsg(chunks) => fields["inv_handle"] = chunks.inv_handle.into(),
        v2::Body::Error(error) => {
            fields["error"] = error.name().map_or(error.code().into(), Value::from);
            for (name, value) in error.fields() {
                fields[name] = value.into();
            }
        }
        v2::Body::Connprop(set) => fields["properties"] = set.0.iter().map(property).collect::<Vec<_>>().into(),
        v2::Body::ConnpropPiece(octets) => fields["octets"] = octets.len().into(),
        v2::Body::Other(other) => fields["octets"] = other.octets().len().into(),
        _ => {}
    }
    fields
}

fn property(property: &Property) -> Value {
    let named = |name: &str, value: Value| json!({ "id": property.code(), "name": name, "value": value });
    match property {
        Property::Default(id) => json!({ "id": id.code(), "name": id.name() }),
        Property::SendSize(value) => named("SBSIZ", (*value).into()),
        Property::ReceiveSize(value) => named("RBSIZ", (*value).into()),
        Property::SegmentSize(value) => named("RSSIZ", (*value).into()),
        Property::SegmentCount(value) => named("RCSIZ", (*value).into()),
        Property::Reverse(value) => named("BRS", (*value).into()),
        Property::HostAuth(material) => named("HOSTAUTH", super::json::hex(material).into()),
        Property::Other(other) => json!({ "id": other.code(), "data": super::json::hex(other.data()) }),
        other => json!({ "id": other.code() }),
    }
}

fn insert_lists(fields: &mut Value, lists: &Lists) {
    let chunk = |segments: &[Segment]| segments.iter().map(segment).collect::<Vec<_>>();
    let reads = lists.reads.segments().iter().map(|read| {
        let mut fields = segment(&read.segment);
        fields["position"] = read.position.into();
        fields
    });
    fields["reads"] = reads.collect::<Vec<_>>().into();
    fields["writes"] = lists.writes.chunks().iter().map(|write| chunk(write.segments())).collect::<Vec<_>>().into();
    fields["reply"] = lists.reply.as_ref().map_or(Value::Null, |reply| chunk(reply.segments()).into());
}

fn segment(segment: &Segment) -> Value {
    json!({ "handle": segment.handle, "length": segment.length, "offset": segment.offset })
}
