//! Messages of version 2.

use super::{Role, lists};
use bytes::Bytes;
use rpcrdma_wire::v2::{
    self, Body, Header, HeaderError, Judgement, PREFIX_OCTETS, Prefix, Property, PropertyId, PropertySet, RawProperty,
    Receiver,
};
use serde_json::{Map, Value, json};

/// The contents of a header, including properties whose values do not fit.
enum Shown {
    Header(Header, usize),
    BadProperties(Prefix, Vec<RawProperty>),
}

impl Shown {
    fn of(message: &Bytes) -> Result<Self, HeaderError> {
        match Header::decode(message) {
            Ok((header, end)) => Ok(Shown::Header(header, end)),
            Err(HeaderError::Property { prefix, cause }) => {
                match PropertySet::decode_raw(&message.slice(PREFIX_OCTETS.min(message.len())..)) {
                    Ok(properties) => Ok(Shown::BadProperties(prefix, properties)),
                    Err(_) => Err(HeaderError::Property { prefix, cause }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// `None`: no properties, or bytes of some that end elsewhere.
    fn properties(&self) -> Option<Vec<RawProperty>> {
        match self {
            Shown::BadProperties(_, properties) => Some(properties.clone()),
            Shown::Header(Header { body: Body::Connprop(set), .. }, _) => {
                let mut octets = Vec::with_capacity(set.encoded_len());
                set.encode(&mut octets);
                PropertySet::decode_raw(&octets.into()).ok()
            }
            Shown::Header(Header { body: Body::ConnpropPiece(octets), .. }, _) => PropertySet::decode_raw(octets).ok(),
            Shown::Header(..) => None,
        }
    }

    fn prefix(&self) -> Prefix {
        match self {
            Shown::Header(header, _) => header.prefix(),
            Shown::BadProperties(prefix, _) => *prefix,
        }
    }
}

fn judge(message: &Bytes, role: Role) -> Judgement {
    let role = match role {
        Role::Responder => v2::Role::Responder,
        Role::Requester => v2::Role::Requester,
    };
    v2::judge(&Receiver::new(role), message)
}

/// The shapes that spec/VECTORS.md defines.
pub(super) fn describe_json(message: &Bytes, classify: Option<Role>) -> Value {
    let decoded = Shown::of(message).ok().and_then(|shown| header_json(&shown));
    let mut line = Map::new();
    line.insert("decode".into(), decoded.unwrap_or_default());
    if let Some(role) = classify {
        let action = match judge(message, role) {
            Judgement::Accept { .. } => json!({ "action": "accept" }),
            Judgement::Discard { .. } => json!({ "action": "discard" }),
            Judgement::Reply { error, .. } => json!({ "action": "reply", "error": error.name() }),
        };
        line.insert("classify".into(), action);
    }
    Value::Object(line)
}

fn header_json(shown: &Shown) -> Option<Value> {
    let prefix = shown.prefix();
    let mut fields = Map::new();
    fields.insert("version".into(), prefix.version.into());
    fields.insert("xid".into(), prefix.xid.into());
    let credits = json!({ "granted": prefix.credits.granted, "maximum": prefix.credits.maximum });
    fields.insert("credit".into(), credits);
    fields.insert("type".into(), prefix.type_name()?.into());
    fields.insert("flags".into(), prefix.flags.names().collect::<Vec<_>>().into());
    if let Shown::Header(header, end) = shown {
        if let Some(chunks) = header.body.chunks() {
            fields.insert("inv_handle".into(), chunks.inv_handle.into());
            lists::insert(&mut fields, &chunks.lists);
        }
        if header.body.has_payload() {
            fields.insert("payload_offset".into(), (*end).into());
        }
        if let Body::Error(error) = &header.body {
            let mut inner = Map::new();
            inner.insert("code".into(), error.code().into());
            if let Some(name) = error.name() {
                inner.insert("name".into(), name.into());
            }
            inner.extend(error.fields().map(|(name, value)| (name.to_owned(), value.into())));
            fields.insert("error".into(), inner.into());
        }
    }
    if prefix.header_type == v2::HeaderType::Connprop.code() {
        let properties = shown.properties()?.into_iter().map(property_json).collect::<Vec<_>>();
        fields.insert("properties".into(), properties.into());
    }
    Some(Value::Object(fields))
}

fn property_json(raw: RawProperty) -> Value {
    let mut fields = Map::new();
    fields.insert("id".into(), raw.code.into());
    if let Some(id) = PropertyId::from_code(raw.code) {
        fields.insert("name".into(), id.name().into());
    }
    let (member, value) = match value(&raw) {
        Some(PropertyValue::Default) => return Value::Object(fields),
        Some(PropertyValue::Number(number)) => ("value", number.into()),
        Some(PropertyValue::Octets(octets)) => ("value", hex(&octets).into()),
        None => ("data", hex(&raw.data).into()),
    };
    fields.insert(member.into(), value);
    Value::Object(fields)
}

enum PropertyValue {
    Default,
    Number(u32),
    Octets(Bytes),
}

/// `None` if the property is unknown, or the bytes are not a value of it.
fn value(raw: &RawProperty) -> Option<PropertyValue> {
    match Property::try_from(raw.clone()).ok()? {
        Property::Default(_) => Some(PropertyValue::Default),
        Property::SendSize(number)
        | Property::ReceiveSize(number)
        | Property::SegmentSize(number)
        | Property::SegmentCount(number)
        | Property::Reverse(number) => Some(PropertyValue::Number(number)),
        Property::HostAuth(octets) => Some(PropertyValue::Octets(octets)),
        _ => None,
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// One line for a person.
pub(super) fn describe(message: &Bytes, classify: Option<Role>) -> String {
    let mut line = match Shown::of(message) {
        Ok(shown) => header_text(&shown, message.len()),
        Err(error) => format!("no header: {error}"),
    };
    if let Some(role) = classify {
        line += &match judge(message, role) {
            Judgement::Accept { .. } => "; accepted".to_owned(),
            Judgement::Discard { .. } => "; discarded".to_owned(),
            Judgement::Reply { error, .. } => format!("; answered with {}", error.name().unwrap_or("an error")),
        };
    }
    line
}

fn header_text(shown: &Shown, message_bytes: usize) -> String {
    let prefix = shown.prefix();
    let mut line = prefix.type_name().map_or(format!("header type {}", prefix.header_type), str::to_owned);
    for flag in prefix.flags.names() {
        line += " ";
        line += flag;
    }
    let credits = prefix.credits;
    line += &format!(" xid {:#010x} credits +{} of {}", prefix.xid, credits.granted, credits.maximum);
    if let Shown::Header(header, end) = shown {
        if let Some(chunks) = header.body.chunks() {
            if chunks.inv_handle != 0 {
                line += &format!(", may invalidate {:#010x}", chunks.inv_handle);
            }
            line += &lists::text(&chunks.lists);
        }
        match &header.body {
            Body::Msg(_) => line += &format!(", {} bytes of payload", message_bytes.saturating_sub(*end)),
            _ if header.is_grant() => line += ", nothing but the grant",
            Body::Error(error) => {
                line += &error.name().map_or(format!(", error {}", error.code()), |name| format!(", {name}"));
                for (name, value) in error.fields() {
                    line += &format!(" {name} {value}");
                }
            }
            Body::ConnpropPiece(octets) => line += &format!(", {} bytes of a property set", octets.len()),
            Body::Other(other) => line += &format!(", {} bytes", other.octets().len()),
            _ => {}
        }
    }
    for raw in shown.properties().unwrap_or_default() {
        line += &property_text(&raw);
    }
    line
}

fn property_text(raw: &RawProperty) -> String {
    let Some(id) = PropertyId::from_code(raw.code) else {
        return format!(", property {} ({} bytes)", raw.code, raw.data.len());
    };
    let name = id.name();
    match value(raw) {
        Some(PropertyValue::Default) => format!(", {name} default"),
        Some(PropertyValue::Number(number)) => format!(", {name} {number}"),
        Some(PropertyValue::Octets(octets)) => format!(", {name} ({} bytes)", octets.len()),
        None => format!(", {name} ({} bytes that are not a value)", raw.data.len()),
    }
}
