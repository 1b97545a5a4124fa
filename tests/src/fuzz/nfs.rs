//! Arguments and results of NFS version 3, MOUNT and NFSACL: a decoded value survives its own encoding, and says how
//! large a reply may be. The first byte chooses the type of the rest.

use super::mint::Mint;
use bytes::Bytes;
use rpcrdma_nfs::{
    Call, mount,
    nfsacl::{self, List, Lists},
    v3,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};

/// Reads bytes as one type.
type Check = fn(Bytes);

/// How many types there are: all procedures, arguments and results.
pub(super) const KINDS: usize = 2 * PROCEDURES.len();

/// Arguments and results of each procedure.
const PROCEDURES: [(Check, Check); 32] = [
    both::<v3::Null>(),
    both::<v3::GetAttributes>(),
    both::<v3::SetAttributes>(),
    both::<v3::Lookup>(),
    both::<v3::Access>(),
    both::<v3::ReadLink>(),
    (arguments::<v3::Read>, is_read::<<v3::Read as Call>::Reply>),
    both::<v3::Write>(),
    both::<v3::Create>(),
    both::<v3::MakeDirectory>(),
    both::<v3::SymbolicLink>(),
    both::<v3::MakeNode>(),
    both::<v3::Remove>(),
    both::<v3::RemoveDirectory>(),
    both::<v3::Rename>(),
    both::<v3::Link>(),
    both::<v3::ReadDirectory>(),
    both::<v3::ReadDirectoryPlus>(),
    both::<v3::FileSystemStatus>(),
    both::<v3::FileSystemInfo>(),
    both::<v3::PathConfiguration>(),
    both::<v3::Commit>(),
    both::<mount::Mount>(),
    both::<mount::ListMounts>(),
    both::<mount::Unmount>(),
    both::<mount::ListExports>(),
    (arguments::<nfsacl::GetAcl>, lists::<<nfsacl::GetAcl as Call>::Reply>),
    (lists::<nfsacl::SetAcl>, survives::<<nfsacl::SetAcl as Call>::Reply>),
    (arguments::<nfsacl::v2::GetAcl>, lists::<<nfsacl::v2::GetAcl as Call>::Reply>),
    (lists::<nfsacl::v2::SetAcl>, survives::<<nfsacl::v2::SetAcl as Call>::Reply>),
    both::<nfsacl::v2::GetAttributes>(),
    both::<nfsacl::v2::Access>(),
];

pub(super) const fn both<C: Call<Reply: Encode>>() -> (Check, Check) {
    (arguments::<C>, survives::<C::Reply>)
}

pub(super) fn types(input: &[u8]) {
    let mut mint = Mint::new(input);
    let kind = mint.below(KINDS);
    let (arguments, results) = PROCEDURES[kind / 2];
    let octets = Bytes::copy_from_slice(mint.rest());
    if kind.is_multiple_of(2) { arguments(octets) } else { results(octets) }
}

pub(super) fn arguments<C: Call>(octets: Bytes) {
    if let Ok(call) = C::decode(&mut Decoder::new(Stream::from(octets.clone()))) {
        let shape = call.reply_shape();
        assert!(shape.reduced_len() <= shape.max_len);
    }
    survives::<C>(octets);
}

/// Types that contain lists of users and groups.
trait HasLists {
    fn lists(&self) -> Option<&Lists>;
}

impl HasLists for nfsacl::SetAcl {
    fn lists(&self) -> Option<&Lists> {
        Some(&self.lists)
    }
}

impl HasLists for nfsacl::v2::SetAcl {
    fn lists(&self) -> Option<&Lists> {
        Some(&self.lists)
    }
}

impl<F> HasLists for v3::Answer<nfsacl::GetAclOk, F> {
    fn lists(&self) -> Option<&Lists> {
        if let v3::Answer::Ok(ok) = self { Some(&ok.lists) } else { None }
    }
}

impl<F> HasLists for v3::Answer<nfsacl::v2::GetAclOk, F> {
    fn lists(&self) -> Option<&Lists> {
        if let v3::Answer::Ok(ok) = self { Some(&ok.lists) } else { None }
    }
}

/// Like [`survives`]. Also, lists that POSIX can express survive a conversion there and back, and have at most the
/// allowed number of entries.
fn lists<T: Encode + Decode + HasLists>(octets: Bytes) {
    if let Ok(value) = T::decode(&mut Decoder::new(Stream::from(octets.clone())))
        && let Some(lists) = value.lists()
    {
        for list in [lists.access(), lists.default()].into_iter().flatten() {
            assert!(list.entries().len() <= nfsacl::MAX_ENTRIES);
            if let Some(posix) = list.posix()
                && let Some(told) = List::of(&posix, (1, 2))
            {
                assert_eq!(told.posix(), Some(posix));
            }
        }
    }
    survives::<T>(octets);
}

/// Like [`survives`], for types that are only decoded: their data may have come outside of the message.
pub(super) fn is_read<T: Decode>(octets: Bytes) {
    let mut decoder = Decoder::new(Stream::from(octets.clone()));
    let _ = T::decode(&mut decoder);
    assert!(decoder.position() <= octets.len());
}

pub(super) fn survives<T: Encode + Decode>(octets: Bytes) {
    let mut decoder = Decoder::new(Stream::from(octets.clone()));
    let Ok(value) = T::decode(&mut decoder) else { return };
    assert!(decoder.position() <= octets.len());
    let once = encoded(&value);
    let mut decoder = Decoder::new(Stream::from(once.clone()));
    let again = T::decode(&mut decoder).expect("what was written is read");
    assert_eq!(decoder.position(), once.len());
    assert_eq!(encoded(&again), once);
}

pub(super) fn encoded(value: &impl Encode) -> Bytes {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().to_bytes()
}
