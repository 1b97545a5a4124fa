//! The portmapper: versions 2, 3 and 4 of rpcbind. Of lists only the length is shown.

use super::{Describe, Operation};
use bytes::Bytes;
use rpcrdma_oncrpc::rpcbind::{MAX_REGISTRATIONS, MAX_STRING_BYTES, Registration};
use rpcrdma_xdr::{Decode, DecodeError, Decoder};

/// The most bytes of a call that is made for a client, or of its results: the most that a datagram holds.
const MAX_REMOTE_BYTES: usize = 65_507;

/// The question of version 2.
pub(super) struct Mapping {
    program: u32,
    version: u32,
    protocol: u32,
    port: u32,
}

impl Decode for Mapping {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let (program, version, protocol) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        Ok(Self { program, version, protocol, port: decoder.u32()? })
    }
}

impl Describe for Mapping {
    fn describe(&self, to: &mut Operation) {
        to.number("program", self.program).number("version", self.version);
        to.number("protocol", self.protocol).number("port", self.port);
    }
}

impl Describe for Registration {
    fn describe(&self, to: &mut Operation) {
        to.number("program", self.program).number("version", self.version);
        to.name("netid", &self.netid).name("address", &self.address);
    }
}

/// A port.
pub(super) struct Port(u32);

/// Whether something was done.
pub(super) struct Done(bool);

/// A universal address.
pub(super) struct Address(Bytes);

/// A time of day.
pub(super) struct Seconds(u32);

/// An address as a socket has it.
pub(super) struct OfSocket(Bytes);

/// A call that the portmapper is to make for a client.
pub(super) struct Remote {
    program: u32,
    version: u32,
    procedure: u32,
}

/// The result of such a call in versions 3 and 4: the program's address.
pub(super) struct RemoteDone(Bytes);

/// The same in version 2.
pub(super) struct RemoteDone2(u32);

/// How many ports a list has.
pub(super) struct Mappings(u64);

/// How many registrations a list has.
pub(super) struct Registrations(u64);

/// How many addresses of a program a list has.
pub(super) struct Addresses(u64);

/// Statistics, whose numbers are not shown.
pub(super) struct Statistics;

impl Decode for Port {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.u32().map(Self)
    }
}

impl Describe for Port {
    fn describe(&self, to: &mut Operation) {
        to.number("port", self.0);
    }
}

impl Decode for Done {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.bool().map(Self)
    }
}

impl Describe for Done {
    fn describe(&self, to: &mut Operation) {
        to.flag("done", self.0).flag("refused", !self.0);
    }
}

impl Decode for Address {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(MAX_STRING_BYTES).map(Self)
    }
}

impl Describe for Address {
    fn describe(&self, to: &mut Operation) {
        to.name("address", &self.0);
    }
}

impl Decode for Seconds {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.u32().map(Self)
    }
}

impl Describe for Seconds {
    fn describe(&self, to: &mut Operation) {
        to.number("seconds", self.0);
    }
}

impl Decode for OfSocket {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        // The size of the buffer says nothing about the address.
        decoder.u32()?;
        decoder.opaque(MAX_STRING_BYTES).map(Self)
    }
}

impl Describe for OfSocket {
    fn describe(&self, to: &mut Operation) {
        to.octets("address", &self.0);
    }
}

impl Decode for Remote {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let (program, version, procedure) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        decoder.opaque(MAX_REMOTE_BYTES)?;
        Ok(Self { program, version, procedure })
    }
}

impl Describe for Remote {
    fn describe(&self, to: &mut Operation) {
        to.number("program", self.program).number("version", self.version).number("procedure", self.procedure);
    }
}

impl Decode for RemoteDone {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let address = decoder.opaque(MAX_STRING_BYTES)?;
        decoder.opaque(MAX_REMOTE_BYTES)?;
        Ok(Self(address))
    }
}

impl Describe for RemoteDone {
    fn describe(&self, to: &mut Operation) {
        to.name("address", &self.0);
    }
}

impl Decode for RemoteDone2 {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let port = decoder.u32()?;
        decoder.opaque(MAX_REMOTE_BYTES)?;
        Ok(Self(port))
    }
}

impl Describe for RemoteDone2 {
    fn describe(&self, to: &mut Operation) {
        to.number("port", self.0);
    }
}

/// How many entries a list has: a flag precedes each, and the last flag is false.
fn count<T: Decode>(decoder: &mut Decoder) -> Result<u64, DecodeError> {
    let mut count = 0;
    while decoder.optional::<T>()?.is_some() {
        count += 1;
        if count > MAX_REGISTRATIONS {
            let position = decoder.position();
            return Err(DecodeError::TooLong { position, len: count, max: MAX_REGISTRATIONS });
        }
    }
    Ok(count as u64)
}

/// An entry of GETADDRLIST: address, netid, semantics, family, protocol.
struct Listed;

impl Decode for Listed {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(MAX_STRING_BYTES)?;
        decoder.opaque(MAX_STRING_BYTES)?;
        decoder.u32()?;
        decoder.opaque(MAX_STRING_BYTES)?;
        decoder.opaque(MAX_STRING_BYTES)?;
        Ok(Self)
    }
}

impl Decode for Mappings {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        count::<Mapping>(decoder).map(Self)
    }
}

impl Decode for Registrations {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        count::<Registration>(decoder).map(Self)
    }
}

impl Decode for Addresses {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        count::<Listed>(decoder).map(Self)
    }
}

impl Decode for Statistics {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.discard_rest();
        Ok(Self)
    }
}

impl Describe for Mappings {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.0);
    }
}

impl Describe for Registrations {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.0);
    }
}

impl Describe for Addresses {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.0);
    }
}

impl Describe for Statistics {
    fn describe(&self, _: &mut Operation) {}
}
