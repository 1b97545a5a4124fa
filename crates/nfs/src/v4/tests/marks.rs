//! The items of a COMPOUND that may be placed directly, and the order in which results find their chunks (ULB sections
//! 5.1 and 5.1.2).

use super::encode;
use crate::{
    Call, binding,
    sample::Draw,
    v4::{Args, Arguments, Op, Outcome, Results, StateId, Status, Tag, callback, ops},
};
use bytes::Bytes;
use rpcrdma_xdr::{Buffer, Decode, Decoder, Encode, Encoder, ItemData, Placed, Stream};

fn read(count: u32) -> Args {
    Args::Read(ops::Read { state: StateId::ANONYMOUS, offset: 0, count })
}

fn read_ok(data: &'static [u8]) -> Outcome {
    Outcome::Read(Ok(ops::ReadOk { end: true, data: Bytes::from_static(data) }))
}

fn link_ok(text: &str) -> Outcome {
    Outcome::ReadLink(Ok(ops::ReadLinkOk { text: text.into() }))
}

fn lookup() -> [Args; 2] {
    [Args::PutRootFh, Args::Lookup(ops::Lookup { name: "name".into() })]
}

fn looked_up() -> [Outcome; 2] {
    [Outcome::PutRootFh(Ok(())), Outcome::Lookup(Ok(()))]
}

/// The call of ULB section 5.1.2.3 (with PUTROOTFH for PUTFH).
fn example() -> Arguments {
    let ops =
        [lookup().to_vec(), vec![read(16)], lookup().to_vec(), vec![Args::ReadLink], lookup().to_vec(), vec![read(8)]];
    Arguments::new(2, ops.concat())
}

fn example_results() -> Results {
    let [a, b] = looked_up();
    let found = || [a.clone(), b.clone()];
    let results = [
        found().to_vec(),
        vec![read_ok(b"first")],
        found().to_vec(),
        vec![link_ok("../link")],
        found().to_vec(),
        vec![read_ok(b"second")],
    ];
    Results::of(Tag::default(), results.concat())
}

/// proves: ULB-5.1.2.3-a
#[test]
fn results_are_marked_in_the_order_of_their_operations() {
    let rooms = example().reply_shape().items;
    assert_eq!(rooms.iter().map(|room| room.max_len).collect::<Vec<_>>(), [16, 4096, 8], "A, B, C");
    let payload = encode(&example_results());
    let items: Vec<_> = payload.items().map(|(_, data)| data.clone()).collect();
    assert_eq!(items, [&b"first"[..], b"../link", b"second"]);
    assert!(payload.len() <= example().reply_shape().max_len);
}

/// The reply's stream without the items that went into chunks, and those chunks.
fn reply(results: &Results, chunks: &[Option<usize>]) -> Stream {
    let mut stream = Stream::new();
    let payload = encode(results);
    let mut sizes = chunks.iter();
    let mut placed = Vec::new();
    for part in payload.parts() {
        match part {
            rpcrdma_xdr::Part::Run(run) => stream.push_run(run.clone()),
            rpcrdma_xdr::Part::Item(data) => match sizes.next() {
                Some(Some(offered)) => {
                    let mut memory = data.to_vec();
                    memory.resize(*offered, 0);
                    let mut buffer = Buffer::from_vec(memory);
                    buffer.set_len(data.len());
                    placed.push(Placed { offered: *offered, buffer: Some(buffer) });
                }
                other => {
                    stream.push_run(Bytes::from([&data[..], &vec![0; rpcrdma_xdr::padding(data.len())]].concat()));
                    if other.is_some() {
                        placed.push(Placed { offered: 0, buffer: None });
                    }
                }
            },
        }
    }
    for offered in sizes {
        let buffer = offered.map(|offered| {
            let mut buffer = Buffer::from_vec(vec![0; offered]);
            buffer.set_len(0);
            buffer
        });
        placed.push(Placed { offered: offered.unwrap_or(0), buffer });
    }
    placed.into_iter().for_each(|placed| stream.push_placed(placed));
    stream
}

fn data_of(outcome: &Outcome<ItemData>) -> Option<(&[u8], bool)> {
    match outcome {
        Outcome::Read(Ok(ok)) => Some((ok.data.as_slice(), matches!(ok.data, ItemData::Placed(_)))),
        Outcome::ReadLink(Ok(ok)) => Some((ok.text.as_slice(), false)),
        _ => None,
    }
}

/// proves: ULB-5.1.2.3-a
#[test]
fn a_client_finds_each_result_where_its_chunk_was() {
    let cases: [(&[Option<usize>], [bool; 2]); 4] = [
        (&[Some(16), Some(4096), Some(8)], [true, true]),
        // B is empty: the link comes inline, and C still belongs to the second READ.
        (&[Some(16), None, Some(8)], [true, true]),
        // One chunk: an item without a chunk comes inline.
        (&[Some(16)], [true, false]),
        (&[], [false, false]),
    ];
    for (chunks, in_chunks) in cases {
        let mut decoder = Decoder::new(reply(&example_results(), chunks));
        let results = Results::<ItemData>::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        let data: Vec<_> = results.results.iter().filter_map(data_of).collect();
        assert_eq!(data, [(&b"first"[..], in_chunks[0]), (b"../link", false), (b"second", in_chunks[1])], "{chunks:?}");
    }
}

#[test]
fn a_failed_read_ends_the_call_and_its_chunk_comes_back_unused() {
    let results = Results::of(Tag::default(), vec![read_ok(b"first"), Outcome::Read(Err(Status::IO))]);
    assert_eq!(encode(&results).items().count(), 1);
    let mut decoder = Decoder::new(reply(&results, &[Some(16), Some(8)]));
    let read = Results::<ItemData>::decode(&mut decoder).unwrap();
    assert_eq!(read.results.iter().filter_map(data_of).collect::<Vec<_>>(), [(&b"first"[..], true)]);
    let unused = decoder.take_unused_buffers();
    assert_eq!(unused.iter().map(Buffer::capacity).collect::<Vec<_>>(), [8]);
    decoder.finish().unwrap();
}

/// proves: ULB-5.1.1-a, ULB-5.1.1-c
#[test]
fn read_plus_takes_no_chunk() {
    let plus = Args::ReadPlus(ops::ReadPlus { state: StateId::ANONYMOUS, offset: 0, count: 4096 });
    let shape = Arguments::new(2, vec![plus, read(8)]).reply_shape();
    assert_eq!(shape.items.iter().map(|room| room.max_len).collect::<Vec<_>>(), [8], "the chunk is READ's");
    let piece = ops::Piece::Data(ops::DataPiece { offset: 0, data: (&[7; 4096][..]).into() });
    let plus = Outcome::ReadPlus(Ok(ops::ReadPlusOk { end: true, pieces: vec![piece].into() }));
    let payload = encode(&Results::of(Tag::default(), vec![plus, read_ok(b"read")]));
    assert_eq!(payload.items().map(|(_, data)| data.clone()).collect::<Vec<_>>(), [&b"read"[..]]);
}

/// proves: ULB-5.1-a, ULB-5.1-b, ULB-5.1-c, ULB-5.1-d
#[test]
fn the_table_says_what_the_encoders_do() {
    for op in Op::ALL {
        let (mut arguments, mut results) = (0, 0);
        for seed in 0..100 {
            let draw = &mut Draw::new(seed);
            arguments = encode(&Args::sample_of(*op, draw)).items().count().max(arguments);
            results = encode(&Outcome::sample_of(*op, draw)).items().count().max(results);
        }
        assert_eq!(arguments, usize::from(op.eligible_argument().is_some()), "{op}");
        assert_eq!(results, usize::from(op.eligible_result().is_some()), "{op}");
        assert_eq!(Arguments::new(2, vec![Args::sample_of(*op, &mut Draw::new(1))]).reply_shape().items.len(), results);
    }
    let rows = binding::nfs_v4();
    let eligible = |item: fn(&binding::Binding) -> Option<&'static str>| {
        rows.iter().filter_map(|row| item(row).map(|name| (row.procedure, name))).collect::<Vec<_>>()
    };
    assert_eq!(eligible(|row| row.eligible_argument), [(6, "linkdata"), (38, "data")]);
    assert_eq!(eligible(|row| row.eligible_result), [(25, "data"), (27, "link")]);
}

/// No callback has anything to place, in either direction: encoders mark nothing, and a chunk refuses the call
/// wherever it stands.
///
/// proves: ULB-6.2-c
#[test]
fn callbacks_have_nothing_to_place() {
    for op in callback::Op::ALL {
        for seed in 0..20 {
            let draw = &mut Draw::new(seed);
            let call = encode(&callback::Arguments::new(2, 9, vec![callback::Args::sample_of(*op, draw)]));
            let results = encode(&callback::Outcome::sample_of(*op, draw));
            assert_eq!((call.items().count(), results.items().count()), (0, 0), "{op}");
            let octets = call.to_bytes();
            for at in (0..octets.len()).step_by(4) {
                let mut stream = Stream::from(octets.slice(..at));
                stream.push_chunk(octets.slice(at..at + 4));
                stream.push_run(octets.slice(at + 4..));
                let read = callback::Arguments::decode(&mut Decoder::new(stream));
                assert!(read.is_err_and(|error| error.is_placement()), "{op}, a chunk at {at}");
            }
        }
    }
}

/// A READ's room is as large as what it can bring, and a call's room is the sum of its operations'.
#[test]
fn shapes_add_up() {
    for count in [0, 1, 4096, 1 << 20, u32::MAX] {
        let shape = Arguments::new(1, vec![read(count)]).reply_shape();
        let most = (count as usize).min(crate::v4::MAX_TRANSFER_BYTES);
        assert_eq!(shape.items[0].max_len, most);
        let data = vec![1; most].into();
        let results = Results::of(Tag::default(), vec![Outcome::Read(Ok(ops::ReadOk { end: true, data }))]);
        assert_eq!(encode(&results).len(), shape.max_len);
    }
    let one = |op: &Args| op.largest_results();
    let call = example();
    assert_eq!(call.largest_results(), 12 + call.ops.iter().map(one).sum::<usize>());
    let tagged = Arguments { tag: Tag::from("12345"), ..call.clone() };
    assert_eq!(tagged.largest_results(), call.largest_results() + 8);
    let mut encoder = Encoder::new();
    Results { tag: tagged.tag.clone(), ..example_results() }.encode(&mut encoder);
    assert!(encoder.position() <= tagged.largest_results());
}
