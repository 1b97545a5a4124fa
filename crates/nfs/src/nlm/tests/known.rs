//! Octets written by hand from the protocol's description.

use super::*;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn is_written<T: Encode + Decode + PartialEq + Debug>(value: &T, as_words: &[u32]) {
    assert_eq!(encoded(value), words(as_words), "{value:?}");
    let mut decoder = Decoder::new(Bytes::from(words(as_words)).into());
    assert_eq!(T::decode(&mut decoder).as_ref(), Ok(value));
    decoder.finish().unwrap();
}

const HOST: [u32; 2] = [4, u32::from_be_bytes(*b"host")];
const FILE: [u32; 3] = [5, u32::from_be_bytes(*b"hand"), (b'l' as u32) << 24];
const OWNER: [u32; 2] = [2, u32::from_be_bytes([b'o', b'w', 0, 0])];

fn lock<W>(offset: W, length: W) -> Lock<W> {
    Lock {
        caller: CallerName::from("host"),
        file: crate::v3::Handle::new(b"handl").unwrap(),
        owner: OwnerHandle::from("ow"),
        process: -2,
        offset,
        length,
    }
}

/// proves: NLM-6.1.4-d, NLM-6.1.4-e
#[test]
fn a_lock_is_written_as_each_version_says() {
    let cookie = Cookie::from(&[1, 2, 3, 4][..]);
    let before = [&[4, 0x0102_0304, 1, 0][..], &HOST, &FILE, &OWNER, &[0xFFFF_FFFE]].concat();
    let call = LockArguments {
        cookie: cookie.clone(),
        block: true,
        exclusive: false,
        lock: lock(7_u32, 0),
        reclaim: true,
        state: 9,
    };
    is_written(&call, &[&before[..], &[7, 0, 1, 9]].concat());
    let wide =
        LockArguments { cookie, block: true, exclusive: false, lock: lock(7_u64 << 32, 1), reclaim: true, state: 9 };
    is_written(&wide, &[&before[..], &[7, 0, 0, 1, 1, 9]].concat());
}

#[test]
fn the_other_calls_are_written_as_the_protocol_says() {
    let place = [&HOST[..], &FILE, &OWNER, &[0xFFFF_FFFE, 0, 7, 0, 8]].concat();
    let cookie = Cookie::from("cook");
    let cook = [4, u32::from_be_bytes(*b"cook")];
    let cancel = CancelArguments { cookie: cookie.clone(), block: true, exclusive: true, lock: lock(7_u64, 8) };
    is_written(&cancel, &[&cook[..], &[1, 1], &place].concat());
    let test = TestArguments { cookie: cookie.clone(), exclusive: true, lock: lock(7_u64, 8) };
    is_written(&test, &[&cook[..], &[1], &place].concat());
    let unlock = UnlockArguments { cookie: cookie.clone(), lock: lock(7_u64, 8) };
    is_written(&unlock, &[&cook[..], &place].concat());
    let share = Share {
        caller: CallerName::from("host"),
        file: crate::v3::Handle::new(b"handl").unwrap(),
        owner: OwnerHandle::from("ow"),
        deny: ShareDeny::Write,
        access: ShareAccess::Read,
    };
    let share = ShareArguments { cookie: cookie.clone(), share, reclaim: false };
    is_written(&share, &[&cook[..], &HOST, &FILE, &OWNER, &[2, 1, 0]].concat());
    is_written(&Notice { name: CallerName::from("host"), state: 3 }, &[&HOST[..], &[3]].concat());

    is_written(&Response { cookie: cookie.clone(), status: Status::Blocked }, &[&cook[..], &[3]].concat());
    let answer = ShareResponse { cookie: cookie.clone(), status: Status::Denied, sequence: 0 };
    is_written(&answer, &[&cook[..], &[1, 0]].concat());
    let free = TestResponse::<u32> { cookie: cookie.clone(), tested: Tested::Other(Status::Granted) };
    is_written(&free, &[&cook[..], &[0]].concat());
    let holder = Holder { exclusive: true, process: 5, owner: OwnerHandle::from("ow"), offset: 7_u64, length: 0 };
    let held = TestResponse { cookie, tested: Tested::Denied(holder) };
    is_written(&held, &[&cook[..], &[1, 1, 5], &OWNER, &[0, 7, 0, 0]].concat());
}

/// proves: NLM-6.1.4-f
#[test]
fn what_does_not_fit_into_32_bits_is_told_as_far_as_they_go() {
    let holder = |offset, length| Holder { exclusive: true, process: 5, owner: OwnerHandle::default(), offset, length };
    for ((offset, length), told) in [
        ((7_u64, 9_u64), (7_u32, 9_u32)),
        ((7, 1 << 32), (7, 0)),
        ((1 << 32, 1), (u32::MAX, 1)),
        ((u64::from(u32::MAX), u64::from(u32::MAX)), (u32::MAX, u32::MAX)),
    ] {
        let wide = TestResponse { cookie: Cookie::default(), tested: Tested::Denied(holder(offset, length)) };
        let Tested::Denied(narrow) = wide.narrow::<u32>().tested else { panic!("it was denied") };
        assert_eq!((narrow.offset, narrow.length), told);
    }
}
