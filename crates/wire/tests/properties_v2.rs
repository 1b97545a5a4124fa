//! Arbitrary bytes and arbitrary headers of version 2.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rpcrdma_wire::v2::{
    Body, Chunks, Credits, ErrorBody, Flags, Header, HeaderType, Judgement, Lists, NO_CHUNKS_OCTETS, NoExtensions,
    OtherBody, OtherProperty, PREFIX_OCTETS, Place, Prefix, Property, PropertyId, PropertySet, PropertySubset,
    ReadList, ReadSegment, Receiver, Role, Segment, WriteChunk, WriteList, judge, probe,
};

fn segment() -> impl Strategy<Value = Segment> {
    any::<(u32, u32, u64)>().prop_map(|(handle, length, offset)| Segment { handle, length, offset })
}

fn chunk() -> impl Strategy<Value = WriteChunk> {
    prop::collection::vec(segment(), 0..6).prop_map(|segments| WriteChunk(segments.into()))
}

fn chunks() -> impl Strategy<Value = Chunks> {
    let entry = (any::<u32>(), segment()).prop_map(|(position, segment)| ReadSegment { position, segment });
    let lists =
        (prop::collection::vec(entry, 0..6), prop::collection::vec(chunk(), 0..4), prop::option::of(chunk())).prop_map(
            |(reads, writes, reply)| Lists { reads: ReadList(reads.into()), writes: WriteList(writes.into()), reply },
        );
    (any::<u32>(), lists).prop_map(|(inv_handle, lists)| Chunks { inv_handle, lists })
}

fn octets(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn property() -> impl Strategy<Value = Property> {
    prop_oneof![
        prop::sample::select(PropertyId::ALL.to_vec()).prop_map(Property::Default),
        any::<u32>().prop_map(Property::SendSize),
        any::<u32>().prop_map(Property::ReceiveSize),
        any::<u32>().prop_map(Property::SegmentSize),
        any::<u32>().prop_map(Property::SegmentCount),
        any::<u32>().prop_map(Property::Reverse),
        octets(20).prop_map(Property::HostAuth),
        (7..=u32::MAX, octets(20)).prop_map(|(code, data)| Property::Other(OtherProperty::new(code, data).unwrap())),
    ]
}

fn properties() -> impl Strategy<Value = PropertySet> {
    prop::collection::vec(property(), 0..8).prop_map(PropertySet)
}

fn error() -> impl Strategy<Value = ErrorBody> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(low, high)| ErrorBody::Version { low, high }),
        prop::sample::select(vec![
            ErrorBody::BadXdr,
            ErrorBody::BadPropertyValue,
            ErrorBody::InvalidHeaderType,
            ErrorBody::InvalidContinuation,
            ErrorBody::System,
        ]),
        any::<u32>().prop_map(|max_chunks| ErrorBody::ReadChunks { max_chunks }),
        any::<u32>().prop_map(|max_chunks| ErrorBody::WriteChunks { max_chunks }),
        any::<u32>().prop_map(|max_segments| ErrorBody::Segments { max_segments }),
        any::<(u32, u32)>()
            .prop_map(|(chunk_index, length_needed)| ErrorBody::WriteResource { chunk_index, length_needed }),
        any::<u32>().prop_map(|length_needed| ErrorBody::ReplyResource { length_needed }),
        (101..=u32::MAX).prop_map(|code| ErrorBody::of_extension(code).unwrap()),
    ]
}

/// Any header that can be sent, sensible or not.
fn header() -> impl Strategy<Value = Header> {
    let body = prop_oneof![
        chunks().prop_map(Body::Msg),
        chunks().prop_map(Body::Nomsg),
        error().prop_map(Body::Error),
        properties().prop_map(Body::Connprop),
        octets(40).prop_map(Body::ConnpropPiece),
        (6..=u32::MAX, octets(40)).prop_map(|(code, octets)| Body::Other(OtherBody::new(code, octets).unwrap())),
    ];
    (any::<u32>(), any::<u32>(), any::<(bool, bool, bool)>(), body).prop_map(
        |(xid, credits, (response, more, tpmore), body)| {
            // The flag says whether it is a piece.
            let more = match &body {
                Body::Connprop(_) => false,
                Body::ConnpropPiece(_) => true,
                _ => more,
            };
            let (flags, credits) = (Flags { response, more, tpmore }, Credits::from_word(credits));
            Header { xid, version: 2, credits, flags, body }
        },
    )
}

/// How many bytes the header needs at least: all, unless it extends to the end of the message.
fn needed(header: &Header) -> usize {
    match &header.body {
        Body::Other(_) | Body::ConnpropPiece(_) => PREFIX_OCTETS,
        _ => header.encoded_len(),
    }
}

fn receivers() -> [Receiver<'static>; 4] {
    let places = [Place::First, Place::Later { head: &[0x55; 8], octets: 100 }];
    let receiver = |role, place| Receiver { role, extensions: &NoExtensions, place };
    let [first, later] = places;
    [
        receiver(Role::Responder, first),
        receiver(Role::Requester, first),
        receiver(Role::Responder, later),
        receiver(Role::Requester, later),
    ]
}

proptest! {
    /// What is plain is accepted by both roles as a whole message without chunks, and what is accepted as such is
    /// plain.
    ///
    /// proves: V2-6.3.1-b, V2-6.2.2.1-e, V2-6.2.2.1-g
    #[test]
    fn plain_messages_are_what_is_judged_to_be_whole_and_without_chunks(
        (xid, credits, response) in any::<(u32, u32, bool)>(),
        stream in octets(12),
        starts_well in prop::bool::weighted(0.8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let prefix = Prefix::rpc(xid, Credits::from_word(credits), response, false, true);
        let mut octets = BytesMut::new();
        prefix.encode_with(&Chunks::default(), &mut octets);
        if starts_well {
            octets.extend_from_slice(&xid.to_be_bytes());
            octets.extend_from_slice(&u32::from(response).to_be_bytes());
        }
        octets.extend_from_slice(&stream);
        for (at, octet) in changes {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        if let Some(cut) = cut {
            octets.truncate(cut.index(octets.len() + 1));
        }
        let octets = octets.freeze();
        let plain = Prefix::decode(&octets).ok().filter(|prefix| prefix.is_plain(&octets));
        for role in [Role::Responder, Role::Requester] {
            let accepted = match judge(&Receiver::new(role), &octets) {
                Judgement::Accept { header, payload_offset }
                    if header.version == 2
                        && header.body == Body::Msg(Chunks::default())
                        && !header.flags.more
                        && octets.len() >= payload_offset + 8 =>
                {
                    prop_assert_eq!(payload_offset, NO_CHUNKS_OCTETS);
                    Some((header.xid, header.credits, header.flags))
                }
                _ => None,
            };
            prop_assert_eq!(plain.map(|prefix| (prefix.xid, prefix.credits, prefix.flags)), accepted, "{:?}", role);
        }
    }

    /// proves: V2-6.2.1-a, V2-6.2.2-a, V2-8.5-a, V2-4.1-a
    #[test]
    fn a_header_survives_the_wire(header in header(), tail in octets(20)) {
        let encoded = header.to_bytes();
        prop_assert_eq!(encoded.len(), header.encoded_len());
        let open_ended = matches!(header.body, Body::Other(_) | Body::ConnpropPiece(_));
        let message: Bytes = if open_ended { encoded.clone() } else { [&encoded[..], &tail].concat().into() };
        let (decoded, len) = Header::decode(&message).unwrap();
        prop_assert_eq!(len, encoded.len());
        prop_assert_eq!(decoded.prefix(), header.prefix());
        prop_assert_eq!(decoded, header);
    }

    /// proves: V2-7-a, V2-7.2.1-a
    #[test]
    fn a_header_cut_anywhere_is_no_header(header in header()) {
        let encoded = header.to_bytes();
        for len in 0..needed(&header) {
            let cut = encoded.slice(..len);
            prop_assert!(Header::decode(&cut).is_err(), "cut to {len}");
            for receiver in receivers().iter().filter(|receiver| receiver.place == Place::First) {
                let accepted = matches!(judge(receiver, &cut), Judgement::Accept { .. });
                prop_assert!(!accepted, "cut to {len}");
                if len < PREFIX_OCTETS {
                    let silent = matches!(judge(receiver, &cut), Judgement::Discard { credits: None, .. });
                    prop_assert!(silent, "cut to {len}");
                }
            }
        }
    }

    /// Bytes that look like headers, with a few of them changed or cut off.
    ///
    /// proves: V2-11.2.2.4-b, V2-7-g, V2-7-b, V2-7-c
    #[test]
    fn damaged_headers_are_survived(
        header in header(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut octets = header.to_bytes().to_vec();
        for (at, octet) in changes {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        octets.truncate(cut.index(octets.len() + 1));
        let message = Bytes::from(octets);
        let _ = probe::answer(&message);
        let _ = PropertySet::decode_raw(&message);
        let _ = PropertySubset::decode(&message);
        for receiver in receivers() {
            match judge(&receiver, &message) {
                Judgement::Accept { header, payload_offset } => {
                    // Decoding drops reserved flags and padding.
                    let again = Bytes::from([&header.to_bytes()[..], &message[payload_offset..]].concat());
                    prop_assert_eq!(again.len(), message.len());
                    let expected = Judgement::Accept { header, payload_offset };
                    prop_assert_eq!(judge(&receiver, &again), expected);
                }
                Judgement::Reply { xid, version, error, .. } => {
                    prop_assert_eq!(&xid.to_be_bytes()[..], &message[..4]);
                    prop_assert_eq!(&version.to_be_bytes()[..], &message[4..8]);
                    let to_error = message[12..16] == [0, 0, 0, 4];
                    prop_assert!(!to_error || error == ErrorBody::InvalidHeaderType, "an answer to an error");
                }
                Judgement::Discard { .. } => {}
            }
        }
    }

    #[test]
    fn arbitrary_octets_are_survived(mut octets in prop::collection::vec(any::<u8>(), 0..200), known in any::<bool>()) {
        if known && octets.len() >= 16 {
            octets[4..8].copy_from_slice(&2u32.to_be_bytes());
            octets[12..15].copy_from_slice(&[0; 3]);
            octets[15] %= 7;
        }
        let message = Bytes::from(octets);
        let _ = probe::answer(&message);
        for receiver in receivers() {
            judge(&receiver, &message);
        }
    }

    /// proves: V2-6.3.4-c, V2-6.2.2.2-n
    #[test]
    fn split_sets_say_the_same(set in properties(), max in 0usize..100) {
        let parts = set.clone().split(max);
        for part in &parts {
            prop_assert!(part.encoded_len() <= max || part.0.len() <= 1);
        }
        let joined = PropertySet(parts.into_iter().flat_map(|part| part.0).collect());
        prop_assert_eq!(joined, set);
    }

    /// proves: V2-3.1.4-a, V2-5.1-a
    #[test]
    fn opaque_data_share_the_message(data in octets(64)) {
        let other = OtherProperty::new(99, data.clone()).unwrap();
        let set = PropertySet(vec![Property::HostAuth(data.clone()), Property::Other(other)]);
        let message = Header::connprop(1, Credits::new(1, 1), false, set).to_bytes();
        let (header, _) = Header::decode(&message).unwrap();
        let Body::Connprop(set) = header.body else { panic!("{:?}", HeaderType::from_code(header.body.type_code())) };
        let within = message.as_ptr_range();
        for property in &set.0 {
            let read = match property {
                Property::HostAuth(read) => read,
                Property::Other(other) => other.data(),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(read, &data);
            prop_assert!(read.is_empty() || within.contains(&read.as_ptr()));
        }
    }
}
