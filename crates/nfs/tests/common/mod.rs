//! Compares encoders with the tables of the binding and with decoders, for all versions.

use bytes::Bytes;
use rpcrdma_nfs::{Call, binding::Binding};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Part, Payload, Stream};

pub(crate) fn encode(value: &impl Encode) -> Payload {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish()
}

/// Decodes what `value` encodes to, once inline and once with its items in Read chunks, and encodes it again.
pub(crate) fn round_trip<T: Encode + Decode>(value: &T) {
    let payload = encode(value);
    let mut chunked = Stream::new();
    for part in payload.parts() {
        match part {
            Part::Run(run) => chunked.push_run(run.clone()),
            Part::Item(data) => chunked.push_chunk(data.clone()),
        }
    }
    for stream in [Stream::from(payload.to_bytes()), chunked] {
        let mut decoder = Decoder::new(stream);
        let decoded = T::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        assert_eq!(encode(&decoded).to_bytes(), payload.to_bytes());
    }
}

/// Decodes alternating inline runs and chunks.
pub(crate) fn decode<T: Decode>(parts: &[Bytes]) -> Result<T, DecodeError> {
    let mut stream = Stream::new();
    for (index, part) in parts.iter().enumerate() {
        if index % 2 == 0 {
            stream.push_run(part.clone());
        } else {
            stream.push_chunk(part.clone());
        }
    }
    let mut decoder = Decoder::new(stream);
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

pub(crate) fn not_eligible<T>(result: Result<T, DecodeError>) -> bool {
    result.is_err_and(|error| error.is_placement())
}

/// For one procedure: the items that its arguments mark, and the items and size of its largest results.
pub(crate) struct Facts {
    pub(crate) procedure: u32,
    pub(crate) repeatable: bool,
    program: (u32, u32),
    argument_items: usize,
    result_items: usize,
}

pub(crate) fn facts<C: Call>(call: &C, largest: &impl Encode) -> Facts {
    round_trip(call);
    let results = encode(largest);
    let shape = call.reply_shape();
    // The size must not be below the largest results, nor above them, as that would waste memory. Except READDIR of
    // version 3, where the server decides on the size.
    match (C::VERSION, C::PROCEDURE) {
        (3, 16) => assert!(results.len() <= shape.max_len, "{} > {}", results.len(), shape.max_len),
        (_, procedure) => assert_eq!(results.len(), shape.max_len, "procedure {procedure}"),
    }
    assert_eq!(results.items().count(), shape.items.len(), "procedure {}", C::PROCEDURE);
    for ((_, item), room) in results.items().zip(&shape.items) {
        assert_eq!(item.len(), room.max_len, "procedure {}", C::PROCEDURE);
    }
    let inline = results.len() - results.items().map(|(_, item)| rpcrdma_xdr::padded(item.len())).sum::<usize>();
    assert!(inline <= shape.reduced_len());
    let mut decoder = Decoder::new(Stream::from(results.to_bytes()));
    C::Reply::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    Facts {
        procedure: C::PROCEDURE,
        program: (C::PROGRAM, C::VERSION),
        repeatable: call.is_repeatable(),
        argument_items: encode(call).items().count(),
        result_items: shape.items.len(),
    }
}

/// Checks that calls mark what a version's table says: arguments and results of these procedures.
pub(crate) fn check(facts: &[Facts], table: &[Binding], [arguments, results]: [&[u32]; 2]) {
    assert_eq!(facts.len(), table.len());
    for (facts, row) in facts.iter().zip(table) {
        assert_eq!((facts.program, facts.procedure), ((row.program, row.version), row.procedure), "{}", row.name);
        assert_eq!(facts.argument_items, usize::from(row.eligible_argument.is_some()), "{}", row.name);
        assert_eq!(facts.result_items, usize::from(row.eligible_result.is_some()), "{}", row.name);
    }
    let numbers =
        |is: fn(&Binding) -> bool| -> Vec<_> { table.iter().filter(|row| is(row)).map(|row| row.procedure).collect() };
    assert_eq!(numbers(|row| row.eligible_argument.is_some()), arguments, "WRITE and SYMLINK");
    assert_eq!(numbers(|row| row.eligible_result.is_some()), results, "READLINK and READ");
}
