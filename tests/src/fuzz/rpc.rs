//! RPC messages and credentials: a decoded value survives its own encoding. The first byte chooses the type of the
//! rest.

use super::mint::Mint;
use bytes::Bytes;
use rpcrdma_oncrpc::{CallHeader, ReplyHeader, SysCredential, parse_universal_address};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};

pub(super) fn messages(input: &[u8]) {
    let mut mint = Mint::new(input);
    let kind = mint.below(4);
    let octets = Bytes::copy_from_slice(mint.rest());
    let mut decoder = Decoder::new(Stream::from(octets.clone()));
    match kind {
        0 => {
            if let Ok(header) = CallHeader::decode(&mut decoder) {
                let again = encoded(|encoder| header.encode(encoder));
                assert_eq!(CallHeader::decode(&mut Decoder::new(Stream::from(again))).ok(), Some(header));
            }
        }
        1 => {
            if let Ok(header) = ReplyHeader::decode(&mut decoder) {
                let again = encoded(|encoder| header.encode(encoder));
                assert_eq!(ReplyHeader::decode(&mut Decoder::new(Stream::from(again))).ok(), Some(header));
            }
        }
        2 => {
            if let Ok(credential) = SysCredential::decode(&mut decoder) {
                let again = encoded(|encoder| credential.encode(encoder));
                assert_eq!(again.len(), decoder.position());
                assert_eq!(SysCredential::decode(&mut Decoder::new(Stream::from(again))), Ok(credential));
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(&octets) {
                let _ = parse_universal_address(text);
            }
        }
    }
}

fn encoded(encode: impl FnOnce(&mut Encoder)) -> Bytes {
    let mut encoder = Encoder::new();
    encode(&mut encoder);
    encoder.finish().to_bytes()
}
