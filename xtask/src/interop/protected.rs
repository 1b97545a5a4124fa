//! Reads with `rpcrdma decode` what travels in chunks under each service of Kerberos. With integrity and privacy
//! neither end places data (RFC 8166 section 8.2.2.3), so long calls and long replies carry them; with authentication
//! alone data are placed as usual.

use super::{context::Context, wire};
use anyhow::ensure;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The service that protects the caller's identity, and nothing else.
const AUTHENTICATION: &str = "krb5";
/// The services that protect arguments and results.
const WHOLE: [&str; 2] = ["krb5i", "krb5p"];

/// Which chunks the messages of a call had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Chunks {
    /// A chunk carried data of the call or of its reply.
    placed: bool,
    /// A chunk carried the call itself.
    long_call: bool,
    /// A chunk carried the reply itself, or offered room for it.
    long_reply: bool,
}

/// The calls of a capture, by connection and number.
#[derive(Default)]
struct Calls {
    services: BTreeMap<(u64, u64), String>,
    chunks: BTreeMap<(u64, u64), Chunks>,
}

impl Calls {
    fn take(&mut self, record: &Value) {
        let number = |value: &Value| value.as_u64();
        let (Some(connection), Some(call)) = (number(&record["connection"]), number(&record["call"]["number"])) else {
            return;
        };
        let gss = &record["content"]["gss"];
        if let ("DATA", Some(service)) = (gss["procedure"].as_str().unwrap_or(""), gss["service"].as_str()) {
            self.services.insert((connection, call), service.to_owned());
        }
        let header = &record["header"];
        let list = |name: &str| header[name].as_array().into_iter().flatten();
        let position_zero = |read: &&Value| read["position"].as_u64() == Some(0);
        let chunks = self.chunks.entry((connection, call)).or_default();
        chunks.placed |= list("writes").next().is_some() || list("reads").any(|read| !position_zero(&read));
        chunks.long_call |= list("reads").any(|read| position_zero(&read));
        chunks.long_reply |= header["reply"].is_array();
    }

    /// How many calls with a service had each kind of chunk: data, the call, the reply.
    fn with(&self, services: &[&str]) -> [usize; 3] {
        let is_wanted = |service: &str| services.contains(&service);
        let wanted: BTreeSet<_> =
            self.services.iter().filter(|(_, service)| is_wanted(service)).map(|(call, _)| *call).collect();
        let found = self.chunks.iter().filter(|(call, _)| wanted.contains(call));
        found.fold([0; 3], |[placed, call, reply], (_, chunks)| {
            let one = usize::from;
            [placed + one(chunks.placed), call + one(chunks.long_call), reply + one(chunks.long_reply)]
        })
    }
}

/// Fails if data was placed under integrity or privacy, or if a capture over RDMA does not show both other cases.
pub(super) fn judge(context: &Context, capture: &Path) -> anyhow::Result<()> {
    let mut calls = Calls::default();
    wire::decode(context, capture, |record| calls.take(record))?;
    let (plain, whole) = (calls.with(&[AUTHENTICATION]), calls.with(&WHOLE));
    let see = capture.display();
    ensure!(whole[0] == 0, "{} calls with integrity or privacy had data in chunks; see {see}", whole[0]);
    if context.flavour().is_tcp() {
        return Ok(());
    }
    ensure!(plain[0] > 0 && plain[1] == 0, "chunks with krb5: {plain:?} (data, call, reply); see {see}");
    ensure!(whole[1] > 0 && whole[2] > 0, "chunks with krb5i and krb5p: {whole:?} (data, call, reply); see {see}");
    context.note(format!(
        "in chunks: with krb5 data of {} calls, with krb5i and krb5p no data, {} long calls, {} long replies offered",
        plain[0], whole[1], whole[2]
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Calls;
    use serde_json::json;

    #[test]
    fn chunks_are_counted_by_the_service_of_their_call() {
        let mut calls = Calls::default();
        let mut send = |call: u64, service: Option<&str>, header: serde_json::Value| {
            let gss = json!({ "procedure": "DATA", "service": service });
            let content = if service.is_some() { json!({ "gss": gss }) } else { json!(null) };
            calls.take(&json!({
                "connection": 1, "call": { "number": call }, "content": content, "header": header,
            }));
        };
        let write = json!({ "reads": [], "writes": [[{ "handle": 1 }]], "reply": null });
        let read = |position| json!({ "reads": [{ "position": position }], "writes": [], "reply": [{ "handle": 2 }] });
        send(1, Some("krb5"), write.clone());
        send(2, Some("krb5"), read(48));
        // The call's chunk carries the header that names the service.
        send(3, None, read(0));
        send(3, Some("krb5p"), json!(null));
        send(4, Some("krb5i"), json!({ "reads": [], "writes": [], "reply": null }));
        // A call without a service counts nowhere.
        send(5, None, write.clone());
        assert_eq!(calls.with(&["krb5"]), [2, 0, 1]);
        assert_eq!(calls.with(&["krb5i", "krb5p"]), [0, 1, 1]);
        let mut placed = calls;
        placed.take(&json!({ "connection": 1, "call": { "number": 4 }, "header": write }));
        assert_eq!(placed.with(&["krb5i", "krb5p"]), [1, 1, 1]);
    }
}
