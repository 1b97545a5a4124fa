//! Values at random of the types of version 3 that are written by hand.

use super::{CreateHow, Handle, MAX_HANDLE_BYTES, Name, NewAttributes, NodeKind, Path, SetTime, Verifier};
use crate::sample::{Draw, Sample};

impl Sample for Handle {
    fn sample(draw: &mut Draw) -> Self {
        Handle::new(&draw.octets(MAX_HANDLE_BYTES)).expect("not too long")
    }
}

impl Sample for Name {
    fn sample(draw: &mut Draw) -> Self {
        Name(draw.octets(255))
    }
}

impl Sample for Path {
    fn sample(draw: &mut Draw) -> Self {
        Path(draw.octets(255))
    }
}

impl Sample for Verifier {
    fn sample(draw: &mut Draw) -> Self {
        Verifier(draw.u64().to_be_bytes())
    }
}

impl Sample for SetTime {
    fn sample(draw: &mut Draw) -> Self {
        match draw.below(3) {
            0 => SetTime::Keep,
            1 => SetTime::Server,
            _ => SetTime::Client(Sample::sample(draw)),
        }
    }
}

impl Sample for CreateHow {
    fn sample(draw: &mut Draw) -> Self {
        match draw.below(3) {
            0 => CreateHow::Unchecked(NewAttributes::sample(draw)),
            1 => CreateHow::Guarded(NewAttributes::sample(draw)),
            _ => CreateHow::Exclusive(Sample::sample(draw)),
        }
    }
}

impl Sample for NodeKind {
    fn sample(draw: &mut Draw) -> Self {
        match draw.below(4) {
            0 => NodeKind::Block(Sample::sample(draw), Sample::sample(draw)),
            1 => NodeKind::Character(Sample::sample(draw), Sample::sample(draw)),
            2 => NodeKind::Socket(Sample::sample(draw)),
            _ => NodeKind::Fifo(Sample::sample(draw)),
        }
    }
}

/// Drawn values survive the wire.
#[test]
fn drawn_arguments_survive_the_wire() {
    fn survives<T: Sample + rpcrdma_xdr::Encode + rpcrdma_xdr::Decode + PartialEq + std::fmt::Debug>(draw: &mut Draw) {
        let value = T::sample(draw);
        let mut encoder = rpcrdma_xdr::Encoder::new();
        value.encode(&mut encoder);
        let mut decoder = rpcrdma_xdr::Decoder::new(encoder.finish().to_bytes().into());
        assert_eq!(T::decode(&mut decoder), Ok(value));
        decoder.finish().unwrap();
    }
    for seed in 0..200 {
        let draw = &mut Draw::new(seed);
        survives::<super::SetAttributes>(draw);
        survives::<super::Create>(draw);
        survives::<super::SymbolicLink>(draw);
        survives::<super::MakeNode>(draw);
        survives::<super::Rename>(draw);
        survives::<super::Created>(draw);
        survives::<super::EntryPlus>(draw);
    }
}
