//! Who calls: the identities that credentials carry (RFC 5531 sections 8 and 10, appendix A).

mod gss;

use bytes::Bytes;
pub use gss::{GssCaller, GssService, GssUser};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::sync::Arc;

/// The largest body of a credential or verifier in bytes (RFC 5531 section 8.2).
// RPC-5531-8.2-a
pub const MAX_AUTH_BODY_BYTES: usize = 400;
/// The largest machine name of AUTH_SYS in bytes (RFC 5531 appendix A).
// RPC-5531-A-a
pub const MAX_MACHINE_NAME_BYTES: usize = 255;
/// The most supplementary groups of AUTH_SYS (RFC 5531 appendix A).
// RPC-5531-A-a
pub const MAX_GROUPS: usize = 16;

/// The flavour number of AUTH_NONE.
pub const AUTH_NONE: u32 = 0;
/// The flavour number of AUTH_SYS.
pub const AUTH_SYS: u32 = 1;
/// The flavour number of AUTH_SHORT.
pub const AUTH_SHORT: u32 = 2;

/// A caller's identity, as the server understood its credential.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// None was given.
    None,
    /// The identity that AUTH_SYS states, without proof.
    Sys(Arc<SysCredential>),
    /// A principal that has proven who it is by RPCSEC_GSS.
    Gss(Arc<GssCaller>),
}

/// An identity of AUTH_SYS. Nothing in it is proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysCredential {
    /// A number that the client chooses.
    pub stamp: u32,
    /// The client's name for itself, at most 255 bytes.
    pub machine: Bytes,
    /// The user's number.
    pub uid: u32,
    /// The number of the user's group.
    pub gid: u32,
    /// Supplementary groups, at most 16.
    pub groups: Vec<u32>,
}

impl Encode for SysCredential {
    /// stamp, machine name, uid, gid, counted groups.
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.stamp);
        encoder.opaque(&self.machine);
        encoder.u32(self.uid);
        encoder.u32(self.gid);
        encoder.u32(self.groups.len() as u32);
        for group in &self.groups {
            encoder.u32(*group);
        }
    }
}

impl Decode for SysCredential {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let stamp = decoder.u32()?;
        let machine = decoder.opaque(MAX_MACHINE_NAME_BYTES)?;
        let uid = decoder.u32()?;
        let gid = decoder.u32()?;
        let count = decoder.count(MAX_GROUPS)?;
        let groups = (0..count).map(|_| decoder.u32()).collect::<Result<_, _>>()?;
        Ok(Self { stamp, machine, uid, gid, groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rpcrdma_xdr::Stream;

    fn encoded(credential: &SysCredential) -> Bytes {
        let mut encoder = Encoder::new();
        credential.encode(&mut encoder);
        encoder.finish().to_bytes()
    }

    fn sys(machine: usize, groups: u32) -> SysCredential {
        let groups = (0..groups).collect();
        SysCredential { stamp: 1, machine: vec![b'm'; machine].into(), uid: 1000, gid: 100, groups }
    }

    /// proves: RPC-5531-A-a
    #[test]
    fn the_largest_legal_credential_fits_and_one_more_does_not() {
        let largest = encoded(&sys(255, 16));
        assert!(largest.len() <= MAX_AUTH_BODY_BYTES);
        let mut decoder = Decoder::new(Stream::from(largest));
        assert_eq!(SysCredential::decode(&mut decoder), Ok(sys(255, 16)));
        decoder.finish().unwrap();
        for (machine, groups) in [(256, 0), (0, 17)] {
            let octets = encoded(&sys(machine, groups));
            let decoded = SysCredential::decode(&mut Decoder::new(Stream::from(octets)));
            assert!(matches!(decoded, Err(DecodeError::TooLong { .. })));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = SysCredential::decode(&mut Decoder::new(Stream::from(Bytes::from(octets))));
        }
    }
}
