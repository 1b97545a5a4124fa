//! COMPOUND, CB_COMPOUND and attributes of NFS version 4: what is read survives its own encoding, no more is read than the limits allow,
//! and for each call that breaks off there is an answer. The first octet says which type the rest is of.

use super::{
    mint::Mint,
    nfs::{encoded, survives},
};
use bytes::Bytes;
use rpcrdma_nfs::{
    Call,
    v4::{self, callback},
};
use rpcrdma_xdr::{Decode, Decoder, ItemData};

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
    survives::<v4::Arguments>(octets);
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
