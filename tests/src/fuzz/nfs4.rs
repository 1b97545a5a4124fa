//! COMPOUND, CB_COMPOUND and attributes of NFS version 4: a decoded value survives its own encoding, decoding stays
//! within the limits, and each call that breaks off gets an answer. The first byte chooses the type of the rest.

use super::{
    mint::Mint,
    nfs::{encoded, survives},
};
use bytes::Bytes;
use rpcrdma_nfs::{
    Call,
    v4::{self, callback},
};
use rpcrdma_xdr::{Decode, Decoder, ItemData, Stream, UNIT};

pub(super) fn compounds(input: &[u8]) {
    let mut mint = Mint::new(input);
    let kind = mint.below(6);
    let octets = Bytes::copy_from_slice(mint.rest());
    match kind {
        0 => call(octets),
        1 => survives::<v4::Results>(octets),
        2 => callback_call(octets),
        3 => survives::<callback::Results>(octets),
        4 => attributes(octets),
        _ => drop(v4::Results::<ItemData>::decode(&mut decoder(&octets))),
    }
}

fn decoder(octets: &Bytes) -> Decoder {
    Decoder::new(octets.clone().into())
}

fn call(octets: Bytes) {
    let mut decoder = decoder(&octets);
    if let Ok(call) = v4::Arguments::decode(&mut decoder) {
        assert!(call.ops.len() <= v4::MAX_COMPOUND_OPS && call.ops.len() <= call.announced as usize);
        let shape = call.reply_shape();
        assert!(shape.reduced_len() <= shape.max_len);
        let is_whole = call.ops.len() == call.announced as usize || call.minor > v4::MAX_MINOR;
        assert_eq!(call.broken.is_some(), !is_whole);
        if let Some(outcome) = call.broken_outcome::<Bytes>() {
            assert_ne!(outcome.status(), v4::Status::OK);
            survives::<v4::Outcome>(encoded(&outcome));
            decoder.finish().expect("the rest is passed over");
        }
    }
    call_in_chunks(&octets);
    survives::<v4::Arguments>(octets);
}

/// The same call with bytes of it in a Read chunk, whose place and length the last two bytes choose. If it can be
/// decoded, the chunk was the data of an operation, and the call is equal to the call without a chunk.
fn call_in_chunks(octets: &Bytes) {
    let [.., place, length] = octets[..] else { return };
    let octets = octets.slice(..octets.len() / UNIT * UNIT);
    let at = UNIT * (usize::from(place) % (octets.len() / UNIT).max(1));
    // As long as the word before it says, or of any length.
    let announced = octets[..at].last_chunk().map_or(0, |word| u32::from_be_bytes(*word) as usize);
    let len = if length % 2 == 0 { announced } else { length.into() }.min(octets.len() - at);
    let mut stream = Stream::from(octets.slice(..at));
    stream.push_chunk(octets.slice(at..at + len));
    stream.push_run(octets.slice((at + len).next_multiple_of(UNIT)..));
    let mut chunked = Decoder::new(stream);
    let Ok(call) = v4::Arguments::decode(&mut chunked) else { return };
    let whole = v4::Arguments::decode(&mut decoder(&octets)).expect("it is read without the chunk, too");
    assert!(whole.ops.starts_with(&call.ops));
    if chunked.finish().is_ok() && len > 0 && call.broken.is_none() && call.minor <= v4::MAX_MINOR {
        assert_eq!(whole, call);
        assert!(call.ops.iter().any(|args| args.op().eligible_argument().is_some()), "nothing of it may be in a chunk");
    }
}

fn callback_call(octets: Bytes) {
    if let Ok(call) = callback::Arguments::decode(&mut decoder(&octets)) {
        assert!(call.ops.len() <= v4::MAX_COMPOUND_OPS);
        if let Some(outcome) = call.broken_outcome() {
            assert_ne!(outcome.status(), v4::Status::OK);
            survives::<callback::Outcome>(encoded(&outcome));
        }
    }
    survives::<callback::Arguments>(octets);
}

fn attributes(octets: Bytes) {
    if let Ok(told) = v4::FileAttributes::decode(&mut decoder(&octets)) {
        if let Ok(values) = told.values() {
            let again = v4::FileAttributes::of(&values);
            assert_eq!(again.values().as_ref(), Ok(&values), "what was told is told again");
            let _ = v4::attributes_of(&values, 65_534);
        }
        let all = v4::Bitmap::of(v4::Attribute::ALL);
        match told.to_set(&all) {
            Ok(new) => assert_eq!(new.encoded().to_set(&all), Ok(new), "what is set is set again"),
            Err(fault) => assert_ne!(fault.status(), v4::Status::OK),
        }
    }
    survives::<v4::FileAttributes>(octets);
}
