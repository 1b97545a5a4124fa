//! Octets written by hand from the protocol's description.

use super::encode;
use crate::v4::{
    Args, Arguments, Attribute, Bitmap, ClientId, FileAttributes, Name, Outcome, Owner, OwnerName, Results, SessionId,
    StateId, StateIdOther, Status, Tag, Value, Verifier, callback, ops,
};
use rpcrdma_xdr::{Decode, Decoder};
use std::fmt::Debug;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn is_written<T: rpcrdma_xdr::Encode + Decode + PartialEq + Debug>(value: &T, as_words: &[u32]) {
    assert_eq!(encode(value).to_bytes(), words(as_words), "{value:?}");
    let mut decoder = Decoder::new(bytes::Bytes::from(words(as_words)).into());
    assert_eq!(T::decode(&mut decoder).as_ref(), Ok(value));
    decoder.finish().unwrap();
}

const STATE: StateId = StateId { sequence: 5, other: StateIdOther([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]) };
const STATE_WORDS: [u32; 4] = [5, 1 << 24, 2 << 24, 3 << 24];
const SESSION: SessionId = SessionId([9; 16]);
const NINES: u32 = 0x0909_0909;

/// The call by which Linux's client looks a name up: SEQUENCE PUTFH LOOKUP GETFH GETATTR.
#[test]
fn a_lookup_is_written_as_the_protocol_says() {
    let sequence = ops::Sequence { session: SESSION, sequence: 2, slot: 1, highest_slot: 3, cache: true };
    let file = crate::v4::Handle::new(b"handl").unwrap();
    let call = Arguments::new(
        2,
        vec![
            Args::Sequence(sequence),
            Args::PutFh(ops::PutFh { file: file.clone() }),
            Args::Lookup(ops::Lookup { name: Name::from("name") }),
            Args::GetFh,
            Args::GetAttr(ops::GetAttr { asked: Bitmap::of(&[Attribute::Size, Attribute::Mode]) }),
        ],
    );
    let handle = [5, u32::from_be_bytes(*b"hand"), u32::from(b'l') << 24];
    let name = [4, u32::from_be_bytes(*b"name")];
    let asked = [2, 1 << 4, 1 << 1];
    let octets =
        [&[0, 2, 5, 53, NINES, NINES, NINES, NINES, 2, 1, 3, 1, 22][..], &handle, &[15], &name, &[10, 9], &asked]
            .concat();
    is_written(&call, &octets);

    let attributes = FileAttributes::of(&[Value::Mode(0o600), Value::Size(1 << 32)]);
    let ok = ops::SequenceOk {
        session: SESSION,
        sequence: 2,
        slot: 1,
        highest_slot: 3,
        target_highest_slot: 4,
        status: ops::sequence_status::CB_PATH_DOWN_SESSION,
    };
    let results = Results::of(
        Tag::default(),
        vec![
            Outcome::Sequence(Ok(ok)),
            Outcome::PutFh(Ok(())),
            Outcome::Lookup(Ok(())),
            Outcome::GetFh(Ok(ops::GetFhOk { file })),
            Outcome::GetAttr(Ok(ops::GetAttrOk { attributes })),
        ],
    );
    let octets = [
        &[0, 0, 5, 53, 0, NINES, NINES, NINES, NINES, 2, 1, 3, 4, 0x200, 22, 0, 15, 0, 10, 0][..],
        &handle,
        &[9, 0],
        &asked,
        &[12, 1, 0, 0o600],
    ]
    .concat();
    is_written(&results, &octets);
}

#[test]
fn an_open_is_written_as_the_protocol_says() {
    let owner = Owner { client: ClientId(0x1_0000_0002), name: OwnerName::from("own") };
    let verifier = Verifier(*b"verifier");
    let attributes = FileAttributes::of(&[Value::Mode(0o644)]);
    let how = ops::CreateHow::Exclusive41(ops::CreateExclusive { verifier, attributes });
    let open = ops::Open {
        sequence: 0,
        access: ops::share::BOTH | ops::share::WANT_NONE,
        deny: 0,
        owner,
        how: ops::OpenHow::Create(how),
        claim: ops::Claim::Null(Name::from("f")),
    };
    let verifier = [u32::from_be_bytes(*b"veri"), u32::from_be_bytes(*b"fier")];
    let octets = [
        &[0, 2, 1, 18, 0, 0x403, 0, 1, 2, 3, u32::from_be_bytes(*b"own\0"), 1, 3][..],
        &verifier,
        &[2, 0, 2, 4, 0o644],
        &[0, 1, u32::from(b'f') << 24],
    ]
    .concat();
    is_written(&Arguments::new(2, vec![Args::Open(Box::new(open))]), &octets);

    let permissions = crate::v4::Ace { kind: 0, flags: 0, rights: 0, who: "".into() };
    let write = ops::WriteDelegation { state: STATE, recalled: false, limit: ops::SpaceLimit::Size(7), permissions };
    let directory = crate::v4::ChangeInfo { atomic: true, before: 1, after: 2 };
    let set = Bitmap::of(&[Attribute::Mode]);
    let delegation = ops::Delegation::Write(Box::new(write));
    let mut ok = ops::OpenOk { state: STATE, directory, flags: 4, set, delegation };
    let head = [&[18, 0][..], &STATE_WORDS, &[1, 0, 1, 0, 2, 4, 2, 0, 2]].concat();
    let write = [&[2][..], &STATE_WORDS, &[0, 1, 0, 7, 0, 0, 0, 0]].concat();
    is_written(&<Outcome>::Open(Ok(Box::new(ok.clone()))), &[&head[..], &write].concat());
    ok.delegation = ops::Delegation::NoneExtended(ops::WhyNoDelegation::Contention(true));
    is_written(&<Outcome>::Open(Ok(Box::new(ok.clone()))), &[&head[..], &[3, 1, 1]].concat());
    ok.delegation = ops::Delegation::NoneExtended(ops::WhyNoDelegation::NotWanted);
    is_written(&<Outcome>::Open(Ok(Box::new(ok))), &[&head[..], &[3, 0]].concat());
}

#[test]
fn data_is_written_as_the_protocol_says() {
    let write = ops::Write { state: STATE, offset: 3, stability: ops::Stability::FileSync, data: b"12345"[..].into() };
    let data = [5, u32::from_be_bytes(*b"1234"), u32::from(b'5') << 24];
    let octets = [&[0, 0, 1, 38][..], &STATE_WORDS, &[0, 3, 2], &data].concat();
    is_written(&Arguments::new(0, vec![Args::Write(write)]), &octets);
    let read = ops::ReadOk { end: true, data: bytes::Bytes::from_static(b"12345") };
    is_written(&Outcome::Read(Ok(read)), &[&[25, 0, 1][..], &data].concat());
    let piece = ops::Piece::Hole(ops::HolePiece { offset: 1, length: 2 });
    let bytes = ops::Piece::Data(ops::DataPiece { offset: 3, data: "12345".into() });
    let plus = ops::ReadPlusOk { end: false, pieces: vec![piece, bytes].into() };
    let octets = [&[68, 0, 0, 2, 1, 0, 1, 0, 2, 0, 0, 3][..], &data].concat();
    is_written(&<Outcome>::ReadPlus(Ok(plus)), &octets);
}

/// Results that add something to some statuses.
#[test]
fn failures_are_written_as_the_protocol_says() {
    let owner = Owner { client: ClientId(1), name: OwnerName::from("o") };
    let denied = ops::LockDenied { offset: 1, length: u64::MAX, kind: ops::LockKind::Write, owner };
    let octets = [13, 10_010, 0, 1, u32::MAX, u32::MAX, 2, 0, 1, 1, u32::from(b'o') << 24];
    is_written(&<Outcome>::LockT(Err(ops::Refusal::Told(denied))), &octets);
    is_written(&<Outcome>::LockT(Err(Status::GRACE.into())), &[13, 10_013]);
    let set = Bitmap::of(&[Attribute::Size]);
    is_written(&<Outcome>::SetAttr(Err(ops::SetAttrFailure { status: Status::INVAL, set })), &[34, 22, 1, 1 << 4]);
    is_written(&<Outcome>::SetAttr(Ok(ops::SetAttrOk { set })), &[34, 0, 1, 1 << 4]);
    let requirements = ops::CopyRequirements { consecutive: true, synchronous: false };
    is_written(&<Outcome>::Copy(Err(ops::Refusal::Told(requirements))), &[60, 10_094, 1, 0]);
    is_written(&<Outcome>::GetDeviceInfo(Err(ops::Refusal::Told(4096))), &[47, 10_005, 4096]);
    is_written(&<Outcome>::LayoutGet(Err(ops::Refusal::Told(true))), &[50, 10_058, 1]);
    // A status alone, where further fields belong to it, is filled up: what is sent can always be read.
    assert_eq!(encode(&<Outcome>::failed(crate::v4::Op::LayoutGet, Status::LAYOUTTRYLATER)).len(), 12);
    let plain = <Outcome>::LayoutGet(Err(ops::Refusal::Plain(Status::LAYOUTTRYLATER)));
    assert_eq!(encode(&plain).len(), 12);
}

#[test]
fn a_session_is_written_as_the_protocol_says() {
    let channel = |rdma_ird| ops::ChannelAttributes {
        header_padding: 0,
        max_request: 1,
        max_response: 2,
        max_response_cached: 3,
        max_operations: 4,
        max_requests: 5,
        rdma_ird,
    };
    let credential =
        rpcrdma_oncrpc::SysCredential { stamp: 7, machine: b"m"[..].into(), uid: 1, gid: 2, groups: vec![3] };
    let create = ops::CreateSession {
        client: ClientId(0x1_0000_0002),
        sequence: 1,
        flags: ops::create_session::CONN_BACK_CHAN,
        fore: channel(None),
        back: channel(Some(8)),
        callback_program: 0x4000_0000,
        callback_security: vec![ops::CallbackSecurity::None, ops::CallbackSecurity::Sys(Box::new(credential))].into(),
    };
    let octets = [
        &[0, 1, 1, 43, 1, 2, 1, 2, 0, 1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 4, 5, 1, 8, 0x4000_0000][..],
        &[2, 0, 1, 7, 1, u32::from(b'm') << 24, 1, 2, 1, 3],
    ]
    .concat();
    is_written(&Arguments::new(1, vec![Args::CreateSession(Box::new(create))]), &octets);
}

#[test]
fn a_recall_is_written_as_the_protocol_says() {
    let calls = ops_referring();
    let sequence = callback::CbSequence {
        session: SESSION,
        sequence: 1,
        slot: 0,
        highest_slot: 0,
        cache: false,
        referring: vec![calls].into(),
    };
    let file = crate::v4::Handle::new(b"file").unwrap();
    let recall = callback::CbRecall { state: STATE, truncate: false, file };
    let call = callback::Arguments::new(1, 0, vec![callback::Args::Sequence(sequence), callback::Args::Recall(recall)]);
    let octets = [
        &[0, 1, 0, 2, 11, NINES, NINES, NINES, NINES, 1, 0, 0, 0, 1, NINES, NINES, NINES, NINES, 1, 6, 2, 4][..],
        &STATE_WORDS,
        &[0, 4, u32::from_be_bytes(*b"file")],
    ]
    .concat();
    is_written(&call, &octets);
    let results = callback::Results::of(Tag::default(), vec![callback::Outcome::Recall(Err(Status::BADHANDLE))]);
    is_written(&results, &[10_001, 0, 1, 4, 10_001]);
}

fn ops_referring() -> callback::ReferringCalls {
    callback::ReferringCalls { session: SESSION, calls: vec![callback::ReferringCall { sequence: 6, slot: 2 }].into() }
}
