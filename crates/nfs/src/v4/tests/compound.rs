//! COMPOUND and CB_COMPOUND that are long, cut, of other minor versions, or wrong.

use super::{chunked, encode};
use crate::{
    Call,
    sample::{Draw, Sample},
    v4::{
        Args, Arguments, Bitmap, Fault, ILLEGAL, MAX_COMPOUND_OPS, MAX_TAG_BYTES, Name, Op, Outcome, Results, StateId,
        Status, Tag, callback, ops,
    },
};
use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Stream};

fn decoded(octets: &[u8]) -> Result<Arguments, DecodeError> {
    let mut decoder = Decoder::new(Bytes::copy_from_slice(octets).into());
    let arguments = Arguments::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(arguments)
}

/// A call of `count` operations, whose octets follow.
fn call(minor: u32, count: u32, ops: &[u8]) -> Vec<u8> {
    let words = [0, minor, count].map(u32::to_be_bytes);
    [&words.concat()[..], ops].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A minor version in which the operation exists.
fn minor_of(op: Op) -> u32 {
    op.minors().last
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Cut anywhere, a call keeps exactly the operations before the cut.
    /// proves: NFS4-8881-16.2-a
    #[test]
    fn what_stands_before_a_cut_is_kept(seed: u64) {
        let draw = &mut Draw::new(seed);
        for op in Op::ALL {
            let minor = minor_of(*op);
            let ops = vec![Args::PutRootFh, Args::sample_of(*op, draw), Args::GetFh];
            if matches!(&ops[1], Args::Open(open) if !open.exists_in(minor)) {
                continue;
            }
            let whole = Arguments { tag: Tag::sample(draw), ..Arguments::new(minor, ops) };
            let octets = encode(&whole).to_bytes();
            prop_assert_eq!(decoded(&octets), Ok(whole.clone()));
            let head = octets.len() - whole.ops.iter().map(|op| encode(op).len()).sum::<usize>();
            let ends: Vec<usize> = whole.ops.iter().scan(head, |end, op| { *end += encode(op).len(); Some(*end) }).collect();
            for cut in 0..octets.len() {
                let read = decoded(&octets[..cut]);
                if cut < head {
                    prop_assert!(read.is_err());
                    continue;
                }
                let read = read.unwrap();
                let kept = ends.iter().filter(|end| **end <= cut).count();
                prop_assert_eq!(&read.ops[..], &whole.ops[..kept]);
                let broken = read.broken.clone().unwrap();
                let begin = if kept == 0 { head } else { ends[kept - 1] };
                let number = (cut - begin >= 4).then(|| whole.ops[kept].op() as u32);
                prop_assert_eq!(broken.number, number);
                prop_assert!(matches!(broken.fault, Fault::BadXdr(_)));
                prop_assert_eq!(read.announced, 3);
                let outcome: Outcome = read.broken_outcome().unwrap();
                prop_assert_eq!((outcome.status(), outcome.op().map(|op| op as u32)), (Status::BADXDR, number));
            }
        }
    }

    /// proves: NFS4-8881-16.2-a
    #[test]
    fn callbacks_are_cut_as_calls_are(seed: u64) {
        let draw = &mut Draw::new(seed);
        for op in callback::Op::ALL {
            let recall = callback::CbRecallSlot { target_highest_slot: 7 };
            let ops = vec![callback::Args::RecallSlot(recall), callback::Args::sample_of(*op, draw)];
            let whole = callback::Arguments::new(2, 9, ops);
            let octets = encode(&whole).to_bytes();
            for cut in 0..=octets.len() {
                let mut decoder = Decoder::new(octets.slice(..cut).into());
                let Ok(read) = callback::Arguments::decode(&mut decoder) else {
                    prop_assert!(cut < 16);
                    continue;
                };
                decoder.finish().unwrap();
                let kept = usize::from(cut >= 24) + usize::from(cut == octets.len());
                prop_assert_eq!(&read.ops[..], &whole.ops[..kept]);
                prop_assert_eq!(read.broken.is_some(), kept < 2);
                prop_assert_eq!(read.broken_outcome().map(|outcome| outcome.status()), (kept < 2).then_some(Status::BADXDR));
            }
        }
    }
}

/// proves: NFS4-8178-8-a
#[test]
fn operations_that_a_minor_version_has_not_end_the_call() {
    let seek =
        encode(&Args::Seek(ops::Seek { state: StateId::ANONYMOUS, offset: 0, what: ops::Content::Hole })).to_bytes();
    let renew = encode(&Args::Renew(ops::Renew { client: crate::v4::ClientId(1) })).to_bytes();
    let list = words(&[48, 1, 1, 0, 0, 0, 0]);
    let of = |minor, op: &[u8]| {
        let arguments = decoded(&call(minor, 2, &[&words(&[24])[..], op].concat())).unwrap();
        assert_eq!(arguments.ops[0], Args::PutRootFh);
        let outcome = arguments.broken_outcome::<Bytes>();
        (arguments.ops.len(), outcome)
    };
    assert_eq!(of(2, &seek).0, 2);
    let outcome = Outcome::Illegal(Status::OP_ILLEGAL);
    let illegal = Some(outcome.clone());
    assert_eq!(of(1, &seek), (1, illegal.clone()));
    assert_eq!(of(0, &seek), (1, illegal.clone()));
    assert_eq!(of(0, &renew).0, 2);
    assert_eq!(of(1, &renew), (1, Some(Outcome::Renew(Err(Status::NOTSUPP)))));
    assert_eq!(of(2, &renew), (1, Some(Outcome::Renew(Err(Status::NOTSUPP)))));
    assert_eq!(of(1, &list).0, 2);
    assert_eq!(of(2, &list), (1, Some(Outcome::GetDeviceList(Err(Status::NOTSUPP)))));
    for number in [0, 1, 2, 76, ILLEGAL, u32::MAX] {
        assert_eq!(of(2, &words(&[number])), (1, illegal.clone()), "{number}");
    }
    let octets = encode(&outcome).to_bytes();
    assert_eq!(octets, words(&[10_044, 10_044]), "it is answered under its own number");
}

/// proves: NFS4-8881-16.2-b
#[test]
fn of_a_minor_version_that_there_is_not_nothing_is_decoded() {
    let arguments = decoded(&call(3, 5, &words(&[2, 7, 7, 7]))).unwrap();
    assert_eq!((arguments.minor, arguments.ops.len(), &arguments.broken), (3, 0, &None));
    let refused = <Results>::refused(Tag::from("t"), Status::MINOR_VERS_MISMATCH);
    assert_eq!(encode(&refused).to_bytes(), words(&[10_021, 1, u32::from_be_bytes(*b"t\0\0\0"), 0]));
}

/// proves: NFS4-8178-8-b
#[test]
fn forms_of_open_that_minor_version_0_has_not_are_no_xdr_there() {
    let open = |how, claim| {
        let owner = crate::v4::Owner { client: crate::v4::ClientId(1), name: crate::v4::OwnerName::from("o") };
        Args::Open(Box::new(ops::Open { sequence: 1, access: 1, deny: 0, owner, how, claim }))
    };
    let name = || ops::Claim::Null(Name::from("n"));
    let exclusive = ops::CreateExclusive { verifier: Default::default(), attributes: Default::default() };
    let new = [
        open(ops::OpenHow::Create(ops::CreateHow::Exclusive41(exclusive)), name()),
        open(ops::OpenHow::NoCreate, ops::Claim::Handle),
        open(ops::OpenHow::NoCreate, ops::Claim::DelegateCurrentHandle(StateId::CURRENT)),
        open(ops::OpenHow::NoCreate, ops::Claim::DelegatePreviousHandle),
    ];
    for op in new {
        let of = |minor| decoded(&call(minor, 1, &encode(&op).to_bytes())).unwrap();
        assert_eq!(of(0).broken_outcome(), Some(<Outcome>::Open(Err(Status::BADXDR))));
        assert_eq!(of(1).ops[..], [op]);
    }
    let old = open(ops::OpenHow::Create(ops::CreateHow::Exclusive(Default::default())), name());
    assert_eq!(decoded(&call(0, 1, &encode(&old).to_bytes())).unwrap().ops, [old]);
}

/// proves: NFS4-LIM-a
#[test]
fn operations_and_tags_end_at_their_limits() {
    let of = |count: usize| decoded(&call(1, count as u32, &words(&vec![10; count]))).unwrap();
    assert_eq!((of(MAX_COMPOUND_OPS).ops.len(), of(MAX_COMPOUND_OPS).broken), (MAX_COMPOUND_OPS, None));
    let over = of(MAX_COMPOUND_OPS + 1);
    assert_eq!((over.ops.len(), over.announced), (MAX_COMPOUND_OPS, MAX_COMPOUND_OPS as u32 + 1));
    assert_eq!(over.broken.as_ref().unwrap().fault, Fault::TooMany);
    assert_eq!(over.broken_outcome(), Some(<Outcome>::GetFh(Err(Status::TOO_MANY_OPS))));
    assert_eq!(Fault::TooMany.status(0), Status::RESOURCE);
    // A call that announces 2^32 operations, and has one.
    let many = decoded(&call(1, u32::MAX, &words(&[10]))).unwrap();
    assert_eq!((many.ops.len(), many.ops.capacity() <= 8), (1, true));
    assert_eq!(many.broken_outcome(), Some(<Outcome>::Illegal(Status::BADXDR)));

    let tagged = |octets: usize| {
        let tag = Tag::from(&vec![b't'; octets][..]);
        decoded(&encode(&Arguments { tag, ..Arguments::new(1, vec![]) }).to_bytes())
    };
    assert!(tagged(MAX_TAG_BYTES).is_ok());
    assert!(matches!(tagged(MAX_TAG_BYTES + 1), Err(DecodeError::TooLong { .. })));

    let results = |count: usize| {
        let results = Results::of(Tag::default(), vec![Outcome::Illegal(Status::OP_ILLEGAL); count]);
        <Results>::decode(&mut Decoder::new(encode(&results).to_bytes().into()))
    };
    assert_eq!(results(MAX_COMPOUND_OPS).unwrap().results.len(), MAX_COMPOUND_OPS);
    assert!(results(MAX_COMPOUND_OPS + 1).is_err());
}

#[test]
fn octets_behind_the_last_operation_are_an_error() {
    let octets = call(1, 1, &words(&[10, 0]));
    assert!(matches!(decoded(&octets), Err(DecodeError::Trailing { left: 4, .. })));
}

#[test]
fn results_have_the_status_of_the_last() {
    let tag = Tag::from("tag");
    let results = Results::of(tag.clone(), vec![Outcome::PutRootFh(Ok(())), Outcome::GetFh(Err(Status::STALE))]);
    assert_eq!(results.status, Status::STALE);
    let read = <Results>::decode(&mut Decoder::new(encode(&results).to_bytes().into()));
    assert_eq!(read, Ok(results));
    assert_eq!(<Results>::of(tag, vec![]).status, Status::OK);
}

/// A chunk where nothing may be placed directly refuses the call, wherever it stands among what is decoded.
/// proves: ULB-5.1-c
#[test]
fn a_chunk_in_the_wrong_place_refuses_the_call() {
    let lookup = Arguments::new(1, vec![Args::PutRootFh, Args::Lookup(ops::Lookup { name: Name::from("long name") })]);
    let octets = encode(&lookup).to_bytes();
    for at in (0..octets.len()).step_by(4) {
        let mut stream = Stream::from(octets.slice(..at));
        stream.push_chunk(octets.slice(at..));
        let error = Arguments::decode(&mut Decoder::new(stream)).and_then(|a| a.broken.map_or(Ok(()), |_| Ok(())));
        assert!(error.is_err_and(|error| error.is_placement()), "a chunk at {at}");
    }
}

/// proves: NFS4-REPEAT-a
#[test]
fn only_calls_of_minor_version_0_that_look_are_repeated() {
    let look = vec![Args::PutRootFh, Args::GetAttr(ops::GetAttr { asked: Bitmap::EMPTY })];
    assert!(Arguments::new(0, look.clone()).is_repeatable());
    assert!(!Arguments::new(1, look.clone()).is_repeatable());
    let renew = Args::Renew(ops::Renew { client: crate::v4::ClientId(1) });
    assert!(Arguments::new(0, vec![renew]).is_repeatable(), "a lease that is renewed twice is renewed");
    let remove = Args::Remove(ops::Remove { name: Name::from("f") });
    assert!(!Arguments::new(0, [look, vec![remove]].concat()).is_repeatable());
}

/// A developer who adds an operation must say on which side it stands: an operation that changes something is neither
/// executed twice, nor executed before it is known whether its results fit.
///
/// proves: NFS4-REPEAT-a
#[test]
fn what_changes_something_is_known_of_every_operation() {
    let change = [
        Op::Close,
        Op::Commit,
        Op::Create,
        Op::DelegPurge,
        Op::DelegReturn,
        Op::Link,
        Op::Lock,
        Op::LockU,
        Op::Open,
        Op::OpenAttr,
        Op::OpenConfirm,
        Op::OpenDowngrade,
        Op::Remove,
        Op::Rename,
        Op::SetAttr,
        Op::SetClientId,
        Op::SetClientIdConfirm,
        Op::Write,
        Op::ReleaseLockOwner,
        Op::BackchannelCtl,
        Op::BindConnToSession,
        Op::ExchangeId,
        Op::CreateSession,
        Op::DestroySession,
        Op::FreeStateId,
        Op::GetDirDelegation,
        Op::GetDeviceInfo,
        Op::GetDeviceList,
        Op::LayoutCommit,
        Op::LayoutGet,
        Op::LayoutReturn,
        Op::SetSsv,
        Op::WantDelegation,
        Op::DestroyClientId,
        Op::ReclaimComplete,
        Op::Allocate,
        Op::Copy,
        Op::CopyNotify,
        Op::Deallocate,
        Op::LayoutError,
        Op::LayoutStats,
        Op::OffloadCancel,
        Op::WriteSame,
        Op::Clone,
        Op::SetXattr,
        Op::RemoveXattr,
    ];
    for op in Op::ALL {
        assert_eq!(op.only_looks(), !change.contains(op), "{op}");
    }
}

/// Several data items in one call, some in chunks and some inline, come out of the operations that they belong to.
/// proves: ULB-5.1.2.1-a
#[test]
fn several_writes_have_each_its_own_data() {
    let write = |fill: u8, len: usize| {
        let (state, stability) = (StateId::ANONYMOUS, ops::Stability::FileSync);
        Args::Write(ops::Write { state, offset: 0, stability, data: vec![fill; len].into() })
    };
    let link = ops::CreateKind::Symlink("../target".into());
    let create =
        Args::Create(Box::new(ops::Create { kind: link, name: Name::from("l"), attributes: Default::default() }));
    let call = Arguments::new(1, vec![write(1, 5), write(2, 0), create, Args::GetFh, write(3, 9)]);
    let payload = encode(&call);
    assert_eq!(payload.items().map(|(_, data)| data.len()).collect::<Vec<_>>(), [5, 0, 9, 9]);
    let mut decoder = Decoder::new(chunked(&payload));
    assert_eq!(Arguments::decode(&mut decoder), Ok(call.clone()));
    decoder.finish().unwrap();
    // The first and the last in chunks, the others inline.
    let octets = payload.to_bytes();
    let items: Vec<_> = payload.items().map(|(at, data)| (at, data.clone())).collect();
    let ((first, one), (last, three)) = (items[0].clone(), items[3].clone());
    let mut stream = Stream::from(octets.slice(..first));
    stream.push_chunk(one);
    stream.push_run(octets.slice(first + 8..last));
    stream.push_chunk(three);
    let mut decoder = Decoder::new(stream);
    assert_eq!(Arguments::decode(&mut decoder), Ok(call));
    decoder.finish().unwrap();
}

/// Octets behind a fault may hold chunks, and their operations are unknown.
#[test]
fn chunks_behind_a_fault_are_passed_over() {
    let mut encoder = Encoder::new();
    Arguments::new(1, vec![Args::GetFh]).encode(&mut encoder);
    let mut octets = encoder.finish().to_bytes().to_vec();
    octets[11] = 3;
    let mut stream = Stream::from(Bytes::from([octets, words(&[99, 1, 2, 3])].concat()));
    stream.push_chunk(Bytes::from_static(b"data"));
    stream.push_run(Bytes::from(words(&[4])));
    let mut decoder = Decoder::new(stream);
    let read = Arguments::decode(&mut decoder).unwrap();
    assert_eq!((read.ops, read.broken.unwrap().fault), (vec![Args::GetFh], Fault::Illegal));
    decoder.finish().unwrap();
}
