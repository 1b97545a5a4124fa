//! Messages of which the reader has kept only the beginning.

use super::*;
use rpcrdma_nfs::v4::{Args, Arguments, Outcome, Results, StateId, ops};
use rpcrdma_xdr::{Encode, Encoder};

fn encoded(value: &impl Encode) -> Bytes {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().to_bytes()
}

/// What is shown of a message of which this many bytes were kept: names, and the count of data.
fn told(octets: &Bytes, kept: usize, is_call: bool) -> (Vec<String>, Option<String>) {
    let missing_bytes = Some((octets.len() - kept) as u64);
    let body = Body { kept: octets.slice(..kept), missing_bytes, items: &[] };
    let decoder = Decoder::new(body.inline());
    let content = if is_call { call(decoder, &body) } else { reply(decoder, &body, false) };
    let count = |operation: &Operation| operation.fields.iter().find(|field| field.key == "count").cloned();
    let name = |operation: &Operation| match count(operation) {
        Some(field) => format!("{} {:?}", operation.name, field.value),
        None => operation.name.to_owned(),
    };
    (content.operations.iter().map(name).collect(), content.problem)
}

#[test]
fn data_that_were_not_kept_are_told_by_their_length() {
    let data = Bytes::from(vec![0xFF; 3000]);
    let stability = ops::Stability::Unstable;
    let write = ops::Write { state: StateId::ANONYMOUS, offset: 7, stability, data: data.clone() };
    let call = encoded(&Arguments::new(1, vec![Args::PutRootFh, Args::Write(write), Args::GetFh]));
    let read: Outcome = Outcome::Read(Ok(ops::ReadOk { end: true, data }));
    let reply =
        encoded(&Results::of(Tag::default(), vec![Outcome::PutRootFh(Ok(())), read, Outcome::PutRootFh(Ok(()))]));
    // How many bytes stand before the second operation, and how many of the operation before the data.
    let cases = [(&call, true, 16, WRITE_FRONT_BYTES, "WRITE"), (&reply, false, 20, READ_FRONT_BYTES, "READ")];
    for (octets, is_call, first, front, name) in cases {
        let with_data = format!("{name} Count(3000)");
        for kept in first..octets.len() {
            let (operations, problem) = told(octets, kept, is_call);
            assert_eq!(operations[0], "PUTROOTFH", "{kept}");
            assert_eq!(operations.get(1) == Some(&with_data), kept >= first + front, "{kept}: {operations:?}");
            assert!(operations.len() <= 2, "{kept}: {operations:?}");
            assert!(problem.is_some_and(|problem| problem.contains("were not kept")), "{kept}");
        }
        let (operations, problem) = told(octets, octets.len(), is_call);
        assert_eq!((operations.len(), problem), (3, None));
    }
}
