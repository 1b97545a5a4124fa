//! Arguments and results of NFS version 2, and MNT of the versions of MOUNT that go with it: a decoded value survives
//! its own encoding, says how large a reply may be, and its attributes survive the conversion to neutral attributes.
//! The first byte chooses the type of the rest.

use super::{
    mint::Mint,
    nfs::{arguments, both, is_read, survives},
};
use bytes::Bytes;
use rpcrdma_nfs::{
    Call, mount,
    v2::{self, Attributes, NewAttributes},
};
use rpcrdma_xdr::{Decode, Decoder, Stream};

/// Reads bytes as one type.
type Check = fn(Bytes);

/// How many types there are: all procedures, arguments and results.
pub(super) const KINDS: usize = 2 * PROCEDURES.len();

const PROCEDURES: [(Check, Check); 19] = [
    both::<v2::Null>(),
    (arguments::<v2::GetAttributes>, told),
    (set, told),
    both::<v2::Root>(),
    both::<v2::Lookup>(),
    both::<v2::ReadLink>(),
    (arguments::<v2::Read>, is_read::<<v2::Read as Call>::Reply>),
    both::<v2::WriteCache>(),
    both::<v2::Write>(),
    both::<v2::Create>(),
    both::<v2::Remove>(),
    both::<v2::Rename>(),
    both::<v2::Link>(),
    both::<v2::SymbolicLink>(),
    both::<v2::MakeDirectory>(),
    both::<v2::RemoveDirectory>(),
    both::<v2::ReadDirectory>(),
    both::<v2::FileSystemStatus>(),
    both::<mount::Mount1>(),
];

pub(super) fn types(input: &[u8]) {
    let mut mint = Mint::new(input);
    let kind = mint.below(KINDS);
    let (arguments, results) = PROCEDURES[kind / 2];
    let octets = Bytes::copy_from_slice(mint.rest());
    if kind.is_multiple_of(2) { arguments(octets) } else { results(octets) }
}

/// Attributes with a known file type survive the conversion to neutral attributes and back, except fields that neutral
/// attributes lack.
fn told(octets: Bytes) {
    let answer = v2::Answer::<Attributes>::decode(&mut Decoder::new(Stream::from(octets.clone())));
    if let Ok(v2::Answer::Ok(told)) = answer
        && let Some(neutral) = told.neutral()
    {
        let again = Attributes::from(neutral.clone());
        assert_eq!((again.size, again.blocks, again.file_id), (told.size, told.blocks, told.file_id));
        assert_eq!(again.neutral(), Some(neutral));
    }
    survives::<v2::Answer<Attributes>>(octets);
}

/// Attributes to set survive the conversion to neutral attributes and back.
fn set(octets: Bytes) {
    let call = v2::SetAttributes::decode(&mut Decoder::new(Stream::from(octets.clone())));
    if let Ok(v2::SetAttributes { attributes, .. }) = call {
        let mode = attributes.mode.map(|mode| mode & 0o7777);
        let again = NewAttributes::try_from(rpcrdma_nfs::attr::NewAttributes::from(attributes));
        assert_eq!(again, Ok(NewAttributes { mode, ..attributes }));
    }
    arguments::<v2::SetAttributes>(octets);
}
