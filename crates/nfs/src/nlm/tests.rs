//! That all types survive the wire wherever it is cut, and are what the protocol says, octet by octet.

mod known;

use super::*;
use crate::sample::{Draw, Sample};
use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder};
use std::fmt::Debug;

fn encoded(value: &impl Encode) -> Bytes {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().to_bytes()
}

/// The encoding of a value decodes to the value, and fails to decode if it is cut anywhere.
fn survives<T: Encode + Decode + Sample + PartialEq + Debug>(draw: &mut Draw) {
    let value = T::sample(draw);
    let octets = encoded(&value);
    let mut decoder = Decoder::new(octets.clone().into());
    assert_eq!(T::decode(&mut decoder).as_ref(), Ok(&value));
    decoder.finish().unwrap();
    for end in 0..octets.len() {
        assert!(T::decode(&mut Decoder::new(octets.slice(..end).into())).is_err(), "cut at {end}: {value:?}");
    }
}

fn all_survive<W: Width + Sample + Debug + PartialEq>(draw: &mut Draw) {
    survives::<LockArguments<W>>(draw);
    survives::<CancelArguments<W>>(draw);
    survives::<TestArguments<W>>(draw);
    survives::<UnlockArguments<W>>(draw);
    survives::<TestResponse<W>>(draw);
}

proptest! {
    #[test]
    fn all_types_survive_the_wire(seed: u64) {
        let draw = &mut Draw::new(seed);
        all_survive::<u32>(draw);
        all_survive::<u64>(draw);
        survives::<Response>(draw);
        survives::<ShareArguments>(draw);
        survives::<ShareResponse>(draw);
        survives::<Notice>(draw);
        survives::<Procedure>(draw);
    }

    /// Widening a narrow value keeps its offsets, and narrowing it again returns the same value.
    #[test]
    fn what_is_widened_is_the_same(seed: u64) {
        let draw = &mut Draw::new(seed);
        let narrow = TestArguments::<u32>::sample(draw);
        let wide = narrow.clone().widen();
        prop_assert_eq!(wide.lock.offset, u64::from(narrow.lock.offset));
        prop_assert_eq!(wide.narrow::<u32>(), narrow);
        let told = TestResponse::<u32>::sample(draw);
        prop_assert_eq!(told.clone().widen().narrow::<u32>(), told);
    }

    /// Every decoder reads arbitrary octets to an error or a value, and never past their end.
    #[test]
    fn arbitrary_octets_are_survived(
        octets in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => 1u8..8, 1 => any::<u8>()], 0..200),
    ) {
        let decoder = || Decoder::new(Bytes::copy_from_slice(&octets).into());
        let _ = LockArguments::<u32>::decode(&mut decoder());
        let _ = LockArguments::<u64>::decode(&mut decoder());
        let _ = TestResponse::<u64>::decode(&mut decoder());
        let _ = ShareArguments::decode(&mut decoder());
        let _ = Notice::decode(&mut decoder());
    }
}

/// proves: NLM-6.1.4-c
#[test]
fn names_owners_and_cookies_have_1024_octets_and_no_more() {
    for (len, is_read) in [(0, true), (MAX_NAME_BYTES, true), (MAX_NAME_BYTES + 1, false)] {
        let mut encoder = Encoder::new();
        encoder.opaque(&vec![b'n'; len]);
        let octets = encoder.finish().to_bytes();
        let read = |octets: &Bytes| Decoder::new(octets.clone().into());
        assert_eq!(CallerName::decode(&mut read(&octets)).is_ok(), is_read, "{len}");
        assert_eq!(OwnerHandle::decode(&mut read(&octets)).is_ok(), is_read, "{len}");
        assert_eq!(Cookie::decode(&mut read(&octets)).is_ok(), is_read, "{len}");
    }
}

/// proves: NLM-6.1.4-b
#[test]
fn a_handle_longer_than_version_3_has_is_no_handle() {
    let mut encoder = Encoder::new();
    CallerName::from("host").encode(&mut encoder);
    encoder.opaque(&[7; 65]);
    OwnerHandle::from("owner").encode(&mut encoder);
    [0u32, 0, 0].iter().for_each(|word| word.encode(&mut encoder));
    assert!(Lock::<u32>::decode(&mut Decoder::new(encoder.finish().to_bytes().into())).is_err());
}

#[test]
fn a_name_does_not_keep_the_message() {
    let octets = encoded(&Notice { name: CallerName::from("host"), state: 1 });
    let range = octets.as_ptr_range();
    let notice = Notice::decode(&mut Decoder::new(octets.clone().into())).unwrap();
    assert!(!range.contains(&notice.name.as_slice().as_ptr()));
}

/// proves: NLM-6.2-a
#[test]
fn procedures_have_their_numbers_and_versions() {
    let numbers: Vec<u32> = Procedure::ALL.iter().map(|procedure| *procedure as u32).collect();
    assert_eq!(numbers, (0..=15).chain(20..=23).collect::<Vec<u32>>());
    for number in 0..64 {
        assert_eq!(
            Procedure::from_number(number).map(|found| found as u32),
            numbers.contains(&number).then_some(number)
        );
    }
    for procedure in Procedure::ALL {
        assert!(procedure.is_in(VERSION_3) && procedure.is_in(VERSION_4) && !procedure.is_in(2));
        assert_eq!(procedure.is_in(VERSION_1), (*procedure as u32) < 16);
        assert_eq!(procedure.response().is_some(), procedure.form() == Form::Message);
        assert_eq!(procedure.name().ends_with("_MSG"), procedure.form() == Form::Message);
        assert_eq!(procedure.name().ends_with("_RES"), procedure.form() == Form::Response);
    }
    assert!(!Procedure::Lock.is_idempotent() && Procedure::Test.is_idempotent());
}

/// proves: NLM-6.1.4-a
#[test]
fn versions_1_and_3_have_five_statuses() {
    for status in Status::ALL {
        assert_eq!(status.in_version(VERSION_4), status);
        for version in [VERSION_1, VERSION_3] {
            assert!(status.in_version(version) as u32 <= Status::DeniedGracePeriod as u32);
            assert!(status as u32 > 4 || status.in_version(version) == status);
        }
    }
    assert_eq!(Status::StaleHandle.in_version(VERSION_1), Status::DeniedNoLocks);
    assert_eq!(Status::Deadlock.in_version(VERSION_3), Status::Denied);
}
