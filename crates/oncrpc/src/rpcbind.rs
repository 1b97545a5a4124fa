//! Registering and finding services with rpcbind (RFC 1833, netids of RFC 5665).
//!
//! Versions 4 and 3 of the protocol share the procedures that are used here; a server without version 4 is asked in
//! version 3. The port mapper of version 2 knows only ports of TCP and UDP.

use crate::{CallError, Client, ClientTransport, Netid, NoAuth, Rejection, parse_universal_address, universal_address};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, padded};
use std::{net::SocketAddr, sync::Arc};

/// rpcbind's program.
pub const RPCBIND_PROGRAM: u32 = 100_000;
/// rpcbind's port.
pub const RPCBIND_PORT: u16 = 111;
/// Where rpcbind listens for the programs of its own host on Linux. Registrations over this socket are accepted from
/// the user who made them; over TCP rpcbind wants a reserved port.
pub const RPCBIND_SOCKET: &str = "/run/rpcbind.sock";
/// The longest netid, address or owner that is accepted, in bytes. The longest universal address has 47.
pub const MAX_STRING_BYTES: usize = 128;
/// The most registrations that a listing may have.
pub const MAX_REGISTRATIONS: usize = 1024;

const SET: u32 = 1;
const UNSET: u32 = 2;
const GETADDR: u32 = 3;
const GETPORT: u32 = 3;
const DUMP: u32 = 4;
/// The largest [`Registration`]: two words, three strings.
const MAX_REGISTRATION_BYTES: usize = 8 + 3 * (4 + padded(MAX_STRING_BYTES));

/// A transport, as version 2 of the protocol names it: by the number that the internet protocol has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
}

/// A service as rpcbind knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The transport's identifier.
    pub netid: Vec<u8>,
    /// The universal address.
    pub address: Vec<u8>,
    /// Who registered it.
    pub owner: Vec<u8>,
}

impl Encode for Registration {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.program);
        encoder.u32(self.version);
        for text in [&self.netid, &self.address, &self.owner] {
            encoder.opaque(text);
        }
    }
}

impl Decode for Registration {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let (program, version) = (decoder.u32()?, decoder.u32()?);
        let mut text = || decoder.opaque(MAX_STRING_BYTES).map(Vec::from);
        Ok(Self { program, version, netid: text()?, address: text()?, owner: text()? })
    }
}

struct Flag(bool);

impl Decode for Flag {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.bool().map(Flag)
    }
}

struct Text(Vec<u8>);

impl Decode for Text {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(MAX_STRING_BYTES).map(|text| Text(text.into()))
    }
}

struct Port(u32);

impl Decode for Port {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.u32().map(Port)
    }
}

struct Listing(Vec<Registration>);

impl Decode for Listing {
    /// A list: a flag precedes each registration, and the last flag is false.
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let mut registrations = Vec::new();
        while let Some(registration) = decoder.optional()? {
            if registrations.len() == MAX_REGISTRATIONS {
                let position = decoder.position();
                return Err(DecodeError::TooLong { position, len: MAX_REGISTRATIONS + 1, max: MAX_REGISTRATIONS });
            }
            registrations.push(registration);
        }
        Ok(Self(registrations))
    }
}

/// The arguments of the port mapper's GETPORT.
struct Mapping {
    program: u32,
    version: u32,
    protocol: Protocol,
}

impl Encode for Mapping {
    fn encode(&self, encoder: &mut Encoder) {
        [self.program, self.version, self.protocol as u32, 0].into_iter().for_each(|word| encoder.u32(word));
    }
}

/// A client of one host's rpcbind.
#[derive(Clone, Debug)]
pub struct Rpcbind {
    v4: Client,
    v3: Client,
    v2: Client,
}

impl Rpcbind {
    /// A client over `transport`, which leads to a host's rpcbind.
    pub fn new(transport: Arc<dyn ClientTransport>) -> Self {
        let [v2, v3, v4] =
            [2, 3, 4].map(|version| Client::new(transport.clone(), Arc::new(NoAuth), RPCBIND_PROGRAM, version));
        Self { v4, v3, v2 }
    }

    /// Registers a service at `address`. False if rpcbind refused: something else is registered there, or the caller
    /// may not register.
    ///
    /// # Errors
    /// If rpcbind cannot be asked.
    // RPC-1833-2.2.1-a
    pub async fn set(
        &self,
        program: u32,
        version: u32,
        netid: Netid,
        address: &SocketAddr,
        owner: &str,
    ) -> Result<bool, CallError> {
        let registration = Registration {
            program,
            version,
            netid: netid.as_str().into(),
            address: universal_address(address).into(),
            owner: owner.into(),
        };
        self.newest(SET, &registration, 4).await.map(|Flag(done)| done)
    }

    /// Removes a registration. False if there was none or rpcbind refused.
    ///
    /// # Errors
    /// If rpcbind does not answer.
    // RPC-1833-2.2.1-a
    pub async fn unset(&self, program: u32, version: u32, netid: Netid, owner: &str) -> Result<bool, CallError> {
        let netid = netid.as_str().into();
        let registration = Registration { program, version, netid, address: Vec::new(), owner: owner.into() };
        self.newest(UNSET, &registration, 4).await.map(|Flag(done)| done)
    }

    /// Where a service listens, or `None` if it is not registered. Some servers answer for the transport of the
    /// question, whatever netid it names: ask for transports other than the one in use with
    /// [`registrations`](Self::registrations).
    ///
    /// # Errors
    /// If rpcbind does not answer.
    // RPC-1833-2.2.1-a, V1-5-a
    pub async fn address(&self, program: u32, version: u32, netid: Netid) -> Result<Option<SocketAddr>, CallError> {
        let netid = netid.as_str().into();
        let registration = Registration { program, version, netid, ..Registration::default() };
        let Text(address) = self.newest(GETADDR, &registration, 4 + padded(MAX_STRING_BYTES)).await?;
        Ok(std::str::from_utf8(&address).ok().and_then(parse_universal_address))
    }

    /// Everything that is registered.
    ///
    /// # Errors
    /// If rpcbind cannot be asked, or has more than [`MAX_REGISTRATIONS`].
    // RPC-1833-2.2.1-a
    pub async fn registrations(&self) -> Result<Vec<Registration>, CallError> {
        let wanted = 4 + MAX_REGISTRATIONS * (4 + MAX_REGISTRATION_BYTES);
        let max = wanted.min(self.v4.max_results());
        self.newest(DUMP, &(), max).await.map(|Listing(registrations)| registrations)
    }

    /// The TCP port of a service by version 2 of the protocol, or `None` if it is not registered.
    ///
    /// # Errors
    /// If the port mapper cannot be asked.
    pub async fn port(&self, program: u32, version: u32) -> Result<Option<u16>, CallError> {
        self.port_over(Protocol::Tcp, program, version).await
    }

    /// The same for a service over this transport.
    ///
    /// # Errors
    /// If the port mapper cannot be asked.
    pub async fn port_over(&self, protocol: Protocol, program: u32, version: u32) -> Result<Option<u16>, CallError> {
        let Port(port) = self.v2.call_inline(GETPORT, &Mapping { program, version, protocol }, 4).await?;
        Ok(u16::try_from(port).ok().filter(|port| *port != 0))
    }

    async fn newest<T: Decode>(&self, procedure: u32, args: &(dyn Encode + Sync), max: usize) -> Result<T, CallError> {
        match self.v4.call_inline(procedure, args, max).await {
            Err(CallError::Rejected(Rejection::ProgramMismatch { .. })) => {
                self.v3.call_inline(procedure, args, max).await
            }
            other => other,
        }
    }
}

#[cfg(test)]
#[path = "rpcbind_tests.rs"]
mod tests;
