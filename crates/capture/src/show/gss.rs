//! The data of RPCSEC_GSS in a message, in words and as JSON.

use crate::content::{Gss, GssBody};
use rpcrdma_oncrpc::gss::{GssProcedure, GssService};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The status of GSS-API that asks for another token.
const CONTINUE_NEEDED: u32 = 1;

fn procedure(procedure: GssProcedure) -> &'static str {
    match procedure {
        GssProcedure::Data => "DATA",
        GssProcedure::Init => "INIT",
        GssProcedure::ContinueInit => "CONTINUE_INIT",
        GssProcedure::Destroy => "DESTROY",
    }
}

/// The name in mount options: Kerberos is the only mechanism in use.
fn service(service: GssService) -> &'static str {
    match service {
        GssService::Authentication => "krb5",
        GssService::Integrity => "krb5i",
        GssService::Privacy => "krb5p",
    }
}

/// In brackets, with a space before them.
pub(super) fn text(gss: &Gss) -> String {
    let mut text = format!(" [{}", procedure(gss.call.procedure));
    // Messages that make contexts have neither (RFC 2203 section 5.2.2).
    let in_context = matches!(gss.call.procedure, GssProcedure::Data | GssProcedure::Destroy);
    if let Some(of) = gss.call.service.filter(|_| in_context) {
        let _ = write!(text, " {}, sequence {}", service(of), gss.call.sequence);
    }
    if !gss.context.is_empty() {
        let _ = write!(text, ", context {}", super::content::handle(&gss.context));
    }
    if gss.verifier_bytes > 0 {
        let _ = write!(text, ", verifier {}", gss.verifier_bytes);
    }
    let _ = match gss.body {
        GssBody::Plain => Ok(()),
        GssBody::Signed { sequence } if sequence == gss.call.sequence => Ok(()),
        GssBody::Signed { sequence } => write!(text, ", signed for sequence {sequence}"),
        GssBody::Sealed { octets } => write!(text, ", {octets} bytes sealed"),
        GssBody::Token { octets } => write!(text, ", token of {octets} bytes"),
        GssBody::Answer { major: 0, window, token_bytes, .. } => {
            write!(text, ", made, window {window}, token of {token_bytes} bytes")
        }
        GssBody::Answer { major: CONTINUE_NEEDED, token_bytes, .. } => {
            write!(text, ", goes on, token of {token_bytes} bytes")
        }
        GssBody::Answer { major, minor, .. } => write!(text, ", refused: major {major:#010x}, minor {minor:#010x}"),
    };
    text.push(']');
    text
}

/// The same for programs: handles whole, numbers as on the wire.
pub(super) fn json(gss: &Gss) -> Value {
    let mut fields = json!({
        "procedure": procedure(gss.call.procedure),
        "service": gss.call.service.map(service),
        "sequence": gss.call.sequence,
        "context": super::json::hex(&gss.context),
        "verifier_octets": gss.verifier_bytes,
    });
    let more = match gss.body {
        GssBody::Plain => json!({}),
        GssBody::Signed { sequence } => json!({ "signed_sequence": sequence }),
        GssBody::Sealed { octets } => json!({ "sealed_octets": octets }),
        GssBody::Token { octets } => json!({ "token_octets": octets }),
        GssBody::Answer { major, minor, window, token_bytes } => {
            json!({ "major": major, "minor": minor, "window": window, "token_octets": token_bytes })
        }
    };
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}
