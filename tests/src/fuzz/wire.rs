//! Transport headers and private data: a decoded value is encoded to the same bytes, and no answer goes to a message
//! that must not be answered.

use bytes::Bytes;
use rpcrdma_wire::{
    PrivateData,
    v1::{self, Role},
    v2::{self, NoExtensions, Place, Receiver, probe},
};

pub(super) fn header_v1(input: &[u8]) {
    if let Ok((header, len)) = v1::Header::decode(input) {
        assert_eq!(header.encoded_len(), len);
        assert_eq!(header.to_bytes(), input[..len]);
    }
    for role in [Role::Responder, Role::Requester] {
        match v1::judge(role, input) {
            v1::Judgement::Accept { header, payload_offset } => {
                assert_eq!(header.to_bytes(), input[..payload_offset]);
            }
            v1::Judgement::Reply { .. } => assert_eq!(role, Role::Responder, "requesters answer nothing"),
            _ => {}
        }
    }
}

pub(super) fn header_v2(input: &[u8]) {
    let message = Bytes::copy_from_slice(input);
    for decoded in [v2::Header::decode(&message), v2::Header::decode_piece(&message)] {
        let Ok((header, len)) = decoded else { continue };
        assert!(len <= message.len());
        let again = header.to_bytes();
        assert_eq!(again.len(), header.encoded_len());
        // Reserved flags do not survive; nothing else is lost.
        let same = v2::Header::decode(&again).into_iter().chain(v2::Header::decode_piece(&again));
        assert!(same.into_iter().any(|(same, len)| same == header && len == again.len()), "{header:?}");
    }
    let _ = probe::answer(&message);
    for role in [Role::Responder, Role::Requester] {
        for place in [Place::First, Place::Later { head: &[0x55; 8], octets: 100 }] {
            let receiver = Receiver { role, extensions: &NoExtensions, place };
            if let v2::Judgement::Accept { header, payload_offset } = v2::judge(&receiver, &message) {
                assert!(payload_offset <= message.len());
                // A version error may name any version.
                let about_version = matches!(header.body, v2::Body::Error(v2::ErrorBody::Version { .. }));
                assert!(header.version == v2::VERSION || about_version, "{header:?}");
            }
        }
    }
}

pub(super) fn private_data(input: &[u8]) {
    if let Some(found) = PrivateData::find(input) {
        assert_eq!(PrivateData::find(&found.to_octets()), Some(found));
    }
}
