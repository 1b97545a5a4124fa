use super::*;
use crate::Encoder;
use proptest::prelude::*;

fn run(octets: &[u8]) -> Bytes {
    Bytes::copy_from_slice(octets)
}

fn item_call(len: u32, chunk: &[u8]) -> Decoder {
    let mut stream = Stream::from(run(&len.to_be_bytes()));
    stream.push_chunk(run(chunk));
    stream.push_run(run(&[0, 0, 0, 9]));
    Decoder::new(stream)
}

fn placed_reply(len: u32, offered: usize, returned: Option<usize>, inline: &[u8]) -> Decoder {
    let mut stream = Stream::from(run(&[&len.to_be_bytes()[..], inline].concat()));
    let buffer = returned.map(|returned| {
        let mut buffer = Buffer::from_vec(vec![7; offered]);
        buffer.set_len(returned);
        buffer
    });
    stream.push_placed(Placed { offered, buffer });
    Decoder::new(stream)
}

/// proves: V1-3.4.5.2-b, V1-3.4.5.2-c, V1-3.4.5.2-d, IE-3.7-a
#[test]
fn a_read_chunk_may_carry_its_padding_or_not() {
    for chunk in [&b"abcde"[..], b"abcde\0\0\0"] {
        let mut decoder = item_call(5, chunk);
        assert_eq!(&decoder.item(5).unwrap().into_bytes()[..], b"abcde");
        assert_eq!(decoder.position(), 12);
        assert_eq!(decoder.u32().unwrap(), 9, "the stream goes on after the padding");
        decoder.finish().unwrap();
    }
    for chunk in [&b"abcd"[..], b"abcdef", b"abcde\0\0\0\0"] {
        assert!(matches!(item_call(5, chunk).item(5), Err(DecodeError::ChunkLength { len: 5, .. })));
    }
}

/// proves: V1-6.1-a, V1-6.1-c
#[test]
fn a_chunk_where_nothing_may_be_placed_is_found() {
    assert_eq!(item_call(5, b"abcde").opaque(9), Err(DecodeError::NotEligible { position: 4 }));
    assert_eq!(item_call(5, b"abcde").u64(), Err(DecodeError::NotEligible { position: 4 }), "in the middle of a value");
    let mut decoder = item_call(5, b"abcde");
    decoder.u32().unwrap();
    assert_eq!(decoder.u64(), Err(DecodeError::NotEligible { position: 4 }));
    let mut decoder = item_call(5, b"abcde");
    decoder.u32().unwrap();
    assert_eq!(decoder.finish(), Err(DecodeError::NotEligible { position: 4 }));
}

#[test]
fn the_rest_can_be_passed_over_with_its_chunks() {
    let mut decoder = item_call(5, b"abcde");
    decoder.discard_rest();
    assert_eq!((decoder.position(), decoder.remaining()), (16, 0));
    assert!(decoder.u32().is_err(), "nothing is left to read");
    decoder.finish().unwrap();
    let mut decoder = placed_reply(5, 8, Some(0), b"abcde\0\0\0");
    decoder.discard_rest();
    assert_eq!(decoder.take_unused_buffers().len(), 1);
}

#[test]
fn an_empty_chunk_stands_for_an_empty_item_or_for_nothing() {
    let mut decoder = item_call(0, b"");
    assert!(decoder.item(5).unwrap().as_slice().is_empty());
    assert_eq!(decoder.u32().unwrap(), 9);
    decoder.finish().unwrap();
    let mut decoder = item_call(3, b"");
    assert!(matches!(decoder.item(5), Err(DecodeError::ChunkLength { len: 3, chunk_len: 0, .. })));
    let mut decoder = item_call(8, b"");
    assert_eq!(decoder.u64().unwrap(), 0x8_0000_0009, "an empty chunk inside a value carries nothing");
}

#[test]
fn octets_are_copied_only_where_the_transport_has_cut_them_up() {
    let whole = run(b"\0\0\0\x05abcde\0\0\0");
    let mut decoder = Decoder::new(Stream::from(whole.clone()));
    let octets = decoder.opaque(5).unwrap();
    assert_eq!((&octets[..], octets.as_ptr()), (&b"abcde"[..], whole[4..].as_ptr()));
    let mut cut = Stream::from(whole.slice(..6));
    cut.push_run(whole.slice(6..));
    let mut decoder = Decoder::new(cut);
    assert_eq!(&decoder.item(5).unwrap().into_bytes()[..], b"abcde");
    decoder.finish().unwrap();
}

/// proves: V1-3.4.6.1-a, V1-3.4.6.2-c
#[test]
fn a_placed_item_comes_back_in_its_own_buffer() {
    let mut decoder = placed_reply(3, 100, Some(3), b"");
    assert!(matches!(decoder.item(100).unwrap(), ItemData::Placed(buffer) if buffer.filled() == [7; 3]));
    decoder.finish().unwrap();
    assert!(matches!(
        placed_reply(3, 100, Some(4), b"").item(100),
        Err(DecodeError::ChunkLength { len: 3, chunk_len: 4, .. })
    ));
}

/// proves: V1-6.1-f, V1-4.3.2.3-b, V1-4.3.2.3-c
#[test]
fn inline_is_right_only_where_no_chunk_was_offered() {
    let mut decoder = placed_reply(3, 0, None, b"abc\0");
    assert_eq!(decoder.item(100).unwrap().as_slice(), b"abc");
    decoder.finish().unwrap();
    assert_eq!(
        placed_reply(3, 8, Some(0), b"abc\0").item(100).unwrap_err(),
        DecodeError::InlineDespiteChunk { position: 4, offered: 8 }
    );
    let mut decoder = placed_reply(0, 8, Some(0), b"");
    assert!(decoder.item(100).unwrap().as_slice().is_empty(), "an empty item leaves its chunk unused");
    decoder.finish().unwrap();
}

/// proves: V1-6.1-e, V1-4.3.2.2-c, V1-4.3.2.2-e
#[test]
fn placed_data_that_nobody_asks_for_is_found() {
    let mut decoder = placed_reply(5, 8, Some(8), b"");
    decoder.u32().unwrap();
    assert_eq!(decoder.finish(), Err(DecodeError::Unclaimed { octets: 8 }));
    let mut decoder = placed_reply(5, 8, Some(0), b"");
    decoder.u32().unwrap();
    assert_eq!(decoder.take_unused_buffers().len(), 1);
    decoder.finish().unwrap();
}

#[test]
fn limits_hold_at_the_limit_and_one_past_it() {
    let opaque = |max| Decoder::new(Stream::from(run(b"\0\0\0\x04abcd"))).opaque(max);
    assert_eq!(&opaque(4).unwrap()[..], b"abcd");
    assert_eq!(opaque(3), Err(DecodeError::TooLong { position: 0, len: 4, max: 3 }));
    let mut short = Decoder::new(Stream::from(run(b"\0\0\0\x05abcd")));
    assert_eq!(short.opaque(9), Err(DecodeError::Truncated { position: 4, needed: 8, left: 4 }));
    let mut long = Decoder::new(Stream::from(run(b"\0\0\0\x01\0\0\0\x02")));
    long.u32().unwrap();
    assert_eq!(long.finish(), Err(DecodeError::Trailing { position: 4, left: 4 }));
}

#[test]
fn an_array_reserves_no_more_than_the_stream_can_hold() {
    // So large that no machine has memory for as many as the count says.
    struct Large([u8; 1 << 14]);
    impl Decode for Large {
        fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
            decoder.u32().map(|word| Large([word as u8; 1 << 14]))
        }
    }
    let decoder = |octets: &[u8]| Decoder::new(Stream::from(run(octets)));
    assert!(matches!(decoder(&[0xFF; 8]).array::<Large>(usize::MAX), Err(DecodeError::Truncated { .. })));
    let two = decoder(&[0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 7]).array::<Large>(2).unwrap();
    assert!(two.len() == 2 && two.capacity() == 2 && two[1].0 == [7; 1 << 14]);
}

/// One value of each kind, to compare the encoded value with the decoded one.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Word(u32),
    Hyper(i64),
    Flag(bool),
    Opaque(Vec<u8>),
    Item(Vec<u8>),
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u32>().prop_map(Value::Word),
        any::<i64>().prop_map(Value::Hyper),
        any::<bool>().prop_map(Value::Flag),
        prop::collection::vec(any::<u8>(), 0..600).prop_map(Value::Opaque),
        prop::collection::vec(any::<u8>(), 0..600).prop_map(Value::Item),
    ]
}

fn decode_like(decoder: &mut Decoder, like: &Value) -> Result<Value, DecodeError> {
    Ok(match like {
        Value::Word(_) => Value::Word(decoder.u32()?),
        Value::Hyper(_) => Value::Hyper(decoder.i64()?),
        Value::Flag(_) => Value::Flag(decoder.bool()?),
        Value::Opaque(_) => Value::Opaque(decoder.opaque(600)?.to_vec()),
        Value::Item(_) => Value::Item(decoder.item(600)?.as_slice().to_vec()),
    })
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(
        values in prop::collection::vec(value(), 0..20),
        cuts in prop::collection::vec(1usize..40, 0..50),
        in_chunks in any::<bool>(),
    ) {
        let mut encoder = Encoder::new();
        for value in &values {
            match value {
                Value::Word(word) => encoder.u32(*word),
                Value::Hyper(hyper) => encoder.i64(*hyper),
                Value::Flag(flag) => encoder.bool(*flag),
                Value::Opaque(octets) => encoder.opaque_shared(octets.clone().into()),
                Value::Item(octets) => encoder.item(octets.clone().into()),
            }
        }
        let payload = encoder.finish();
        let mut stream = Stream::new();
        if in_chunks {
            for part in payload.parts() {
                match part {
                    crate::Part::Run(run) => stream.push_run(run.clone()),
                    crate::Part::Item(data) => stream.push_chunk(data.clone()),
                }
            }
        } else {
            let mut whole = payload.to_bytes();
            for cut in cuts {
                stream.push_run(whole.split_to(cut.min(whole.len())));
            }
            stream.push_run(whole);
        }
        prop_assert_eq!(stream.len(), payload.len());
        let mut decoder = Decoder::new(stream);
        for value in &values {
            prop_assert_eq!(&decode_like(&mut decoder, value).unwrap(), value);
        }
        decoder.finish().unwrap();
    }

    #[test]
    fn arbitrary_octets_in_arbitrary_parts_are_survived(
        parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..10),
        reads in prop::collection::vec(value(), 0..30),
    ) {
        let mut stream = Stream::new();
        for (chunk, octets) in parts {
            if chunk { stream.push_chunk(octets.into()) } else { stream.push_run(octets.into()) }
        }
        let len = stream.len();
        let mut decoder = Decoder::new(stream);
        for like in &reads {
            let _ = decode_like(&mut decoder, like);
            prop_assert!(decoder.position() + decoder.remaining() == len);
        }
        let _ = decoder.finish();
    }
}

/// Every piece that it gets, on its own: two pieces are not one.
#[derive(Default)]
struct Pieces(Vec<Vec<u8>>);

impl std::hash::Hasher for Pieces {
    fn write(&mut self, octets: &[u8]) {
        self.0.push(octets.to_vec());
    }

    fn finish(&self) -> u64 {
        0
    }
}

#[test]
fn a_message_measures_the_same_however_it_is_cut() {
    let octets: Vec<u8> = (0..40).collect();
    let measured = |most: usize, cuts: &[usize]| {
        let mut stream = Stream::new();
        let mut from = 0;
        for &cut in cuts.iter().chain([&octets.len()]) {
            stream.push_run(Bytes::copy_from_slice(&octets[from..cut]));
            from = cut;
        }
        let mut pieces = Pieces::default();
        Decoder::new(stream).measure(most, &mut pieces);
        pieces.0
    };
    for most in [0, 7, 40, 99] {
        let whole = measured(most, &[]);
        assert_eq!(whole[1], octets[..most.min(40)]);
        for first in 0..=40 {
            for second in first..=40 {
                assert_eq!(measured(most, &[first, second]), whole, "{most} {first} {second}");
            }
        }
    }
}
