//! All operations: that they survive the wire, wherever it is cut, and are as large as they say.

mod compound;
mod known;
mod marks;

use super::{Args, Op, Outcome, callback};
use crate::sample::Draw;
use proptest::prelude::*;
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Part, Payload, Stream};
use std::fmt::Debug;

fn encode(value: &impl Encode) -> Payload {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish()
}

/// The stream that a transport delivers if it has moved every item.
fn chunked(payload: &Payload) -> Stream {
    let mut stream = Stream::new();
    for part in payload.parts() {
        match part {
            Part::Run(run) => stream.push_run(run.clone()),
            Part::Item(data) => stream.push_chunk(data.clone()),
        }
    }
    stream
}

/// The encoding of a value decodes to the value, inline and with its items in chunks, and fails to decode if it is cut
/// anywhere.
fn survives<T: Encode + PartialEq + Debug>(value: &T, decode: impl Fn(&mut Decoder) -> Option<T>) {
    let payload = encode(value);
    for stream in [Stream::from(payload.to_bytes()), chunked(&payload)] {
        let mut decoder = Decoder::new(stream);
        assert_eq!(decode(&mut decoder).as_ref(), Some(value));
        decoder.finish().unwrap();
    }
    let octets = payload.to_bytes();
    for end in 0..octets.len() {
        assert_eq!(decode(&mut Decoder::new(octets.slice(..end).into())), None, "cut at {end}: {value:?}");
    }
}

proptest! {
    /// proves: ULB-5-a
    #[test]
    fn arguments_and_results_of_all_operations_survive_the_wire(seed: u64) {
        let draw = &mut Draw::new(seed);
        for op in Op::ALL {
            survives(&Args::sample_of(*op, draw), |decoder| {
                let number = decoder.u32().ok()?;
                Args::decode_of(Op::from_number(number)?, decoder).ok()
            });
            survives(&Outcome::sample_of(*op, draw), |decoder| Outcome::decode(decoder).ok());
        }
        for op in callback::Op::ALL {
            survives(&callback::Args::sample_of(*op, draw), |decoder| {
                let number = decoder.u32().ok()?;
                callback::Args::decode_of(callback::Op::from_number(number)?, decoder).ok()
            });
            survives(&callback::Outcome::sample_of(*op, draw), |decoder| callback::Outcome::decode(decoder).ok());
        }
    }

    /// Every decoder reads arbitrary octets to an error or a value, and never past their end.
    #[test]
    fn arbitrary_octets_are_survived(
        octets in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => 1u8..8, 1 => any::<u8>()], 0..200),
    ) {
        let decoder = || Decoder::new(bytes::Bytes::copy_from_slice(&octets).into());
        for op in Op::ALL {
            let mut decoder = decoder();
            let _ = Args::decode_of(*op, &mut decoder);
            assert!(decoder.position() <= octets.len());
        }
        for op in callback::Op::ALL {
            let _ = callback::Args::decode_of(*op, &mut decoder());
        }
        for number in Op::ALL.iter().map(|op| *op as u32) {
            let octets = [&number.to_be_bytes()[..], &octets].concat();
            let _ = <Outcome>::decode(&mut Decoder::new(bytes::Bytes::from(octets.clone()).into()));
            let _ = callback::Outcome::decode(&mut Decoder::new(bytes::Bytes::from(octets).into()));
        }
    }
}

/// Operations whose results have a fixed size, without strings and lists: the stated size is exact.
const EXACT: &[Op] = &[
    Op::Access,
    Op::Close,
    Op::Commit,
    Op::DelegPurge,
    Op::DelegReturn,
    Op::Link,
    Op::LockU,
    Op::Lookup,
    Op::LookupP,
    Op::NVerify,
    Op::OpenAttr,
    Op::OpenConfirm,
    Op::OpenDowngrade,
    Op::PutFh,
    Op::PutPubFh,
    Op::PutRootFh,
    Op::Remove,
    Op::Rename,
    Op::Renew,
    Op::RestoreFh,
    Op::SaveFh,
    Op::SetClientIdConfirm,
    Op::Verify,
    Op::Write,
    Op::ReleaseLockOwner,
    Op::BackchannelCtl,
    Op::BindConnToSession,
    Op::CreateSession,
    Op::DestroySession,
    Op::FreeStateId,
    Op::LayoutCommit,
    Op::LayoutReturn,
    Op::Sequence,
    Op::DestroyClientId,
    Op::ReclaimComplete,
    Op::Allocate,
    Op::Copy,
    Op::Deallocate,
    Op::LayoutError,
    Op::LayoutStats,
    Op::OffloadCancel,
    Op::OffloadStatus,
    Op::Seek,
    Op::WriteSame,
    Op::Clone,
    Op::SetXattr,
    Op::RemoveXattr,
    Op::GetFh,
    Op::Create,
    Op::SetAttr,
    Op::IoAdvise,
];

/// Operations whose largest results depend on their arguments: drawn results need not belong to the drawn arguments.
const ASKED: &[Op] = &[
    Op::GetAttr,
    Op::Read,
    Op::ReadDir,
    Op::ReadPlus,
    Op::ListXattrs,
    Op::TestStateId,
    Op::ExchangeId,
    Op::GetDeviceInfo,
    Op::LayoutGet,
];

/// proves: ULB-5.2-a
#[test]
fn results_are_no_larger_than_said() {
    for op in Op::ALL {
        let (mut largest, mut said) = (0, 0);
        for seed in 0..300 {
            let draw = &mut Draw::new(seed);
            said = Args::sample_of(*op, draw).largest_results();
            let outcome = Outcome::sample_of(*op, draw);
            assert_eq!(
                (outcome.op(), Outcome::<bytes::Bytes>::failed(*op, outcome.status()).op()),
                (Some(*op), Some(*op))
            );
            largest = largest.max(encode(&outcome).len());
        }
        match op {
            _ if EXACT.contains(op) => assert_eq!(largest, said, "{op}"),
            _ if ASKED.contains(op) => {}
            _ => assert!(largest <= said, "{op}: {largest} > {said}"),
        }
    }
    for op in callback::Op::ALL.iter().filter(|op| **op != callback::Op::GetAttr) {
        let draws = (0..100).map(|seed| {
            let draw = &mut Draw::new(seed);
            (
                callback::Args::sample_of(*op, draw).largest_results(),
                encode(&callback::Outcome::sample_of(*op, draw)).len(),
            )
        });
        let all: Vec<_> = draws.collect();
        assert_eq!(all.iter().map(|(said, _)| said).max(), all.iter().map(|(_, len)| len).max(), "{op}");
    }
}
