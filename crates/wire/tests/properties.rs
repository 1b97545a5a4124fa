//! Arbitrary bytes and arbitrary headers.

use proptest::prelude::*;
use rpcrdma_wire::v1::{
    Body, ErrorBody, Header, Judgement, Lists, NO_CHUNKS_OCTETS, Plain, ReadList, ReadSegment, Role, Segment,
    WriteChunk, WriteList, judge,
};

fn segment() -> impl Strategy<Value = Segment> {
    any::<(u32, u32, u64)>().prop_map(|(handle, length, offset)| Segment { handle, length, offset })
}

fn chunk() -> impl Strategy<Value = WriteChunk> {
    prop::collection::vec(segment(), 0..6).prop_map(|segments| WriteChunk(segments.into()))
}

fn lists() -> impl Strategy<Value = Lists> {
    let entry = (any::<u32>(), segment()).prop_map(|(position, segment)| ReadSegment { position, segment });
    (prop::collection::vec(entry, 0..6), prop::collection::vec(chunk(), 0..4), prop::option::of(chunk())).prop_map(
        |(reads, writes, reply)| Lists { reads: ReadList(reads.into()), writes: WriteList(writes.into()), reply },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let body = prop_oneof![
        lists().prop_map(Body::Msg),
        lists().prop_map(Body::Nomsg),
        (any::<u32>(), any::<u32>(), lists()).prop_map(|(align, thresh, lists)| Body::Msgp { align, thresh, lists }),
        Just(Body::Done),
        Just(Body::Error(ErrorBody::Chunk)),
        any::<(u32, u32)>().prop_map(|(low, high)| Body::Error(ErrorBody::Version { low, high })),
    ];
    (any::<u32>(), any::<u32>(), body).prop_map(|(xid, credit, body)| Header::new(xid, credit, body))
}

proptest! {
    #[test]
    fn a_header_survives_the_wire(header in header(), tail in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut octets = header.to_bytes().to_vec();
        prop_assert_eq!(octets.len(), header.encoded_len());
        octets.extend_from_slice(&tail);
        let (decoded, len) = Header::decode(&octets).unwrap();
        prop_assert_eq!(len + tail.len(), octets.len());
        prop_assert_eq!(decoded, header);
    }

    /// A plain header is found exactly where both roles accept a message without chunks, and tells the same.
    ///
    /// proves: V1-4.1.2-c, V1-4.2.1-c
    #[test]
    fn plain_headers_are_what_is_judged_to_be_without_chunks(
        (xid, credit) in any::<(u32, u32)>(),
        stream in prop::collection::vec(any::<u8>(), 0..12),
        starts_with_xid in prop::bool::weighted(0.8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut octets = Plain { xid, credit }.octets().to_vec();
        if starts_with_xid {
            octets.extend(xid.to_be_bytes());
        }
        octets.extend(stream);
        for (at, octet) in changes {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        if let Some(cut) = cut {
            octets.truncate(cut.index(octets.len() + 1));
        }
        let plain = Plain::of(&octets);
        for role in [Role::Responder, Role::Requester] {
            let accepted = match judge(role, &octets) {
                Judgement::Accept { header: Header { xid, credit, body: Body::Msg(lists), version: 1 }, payload_offset }
                    if lists.is_empty() =>
                {
                    prop_assert_eq!(payload_offset, NO_CHUNKS_OCTETS);
                    Some(Plain { xid, credit })
                }
                _ => None,
            };
            prop_assert_eq!(plain, accepted, "{:?}", role);
        }
    }

    /// Bytes that look like headers, with a few of them changed or cut off.
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
        for role in [Role::Responder, Role::Requester] {
            if let Judgement::Accept { header, payload_offset } = judge(role, &octets) {
                prop_assert_eq!(&header.to_bytes()[..], &octets[..payload_offset]);
            }
        }
    }

    #[test]
    fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        let answered = matches!(judge(Role::Requester, &octets), Judgement::Reply { .. });
        prop_assert!(!answered, "requesters answer nothing");
        let _ = judge(Role::Responder, &octets);
    }
}
