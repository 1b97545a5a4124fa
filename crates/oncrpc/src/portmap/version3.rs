//! Versions 3 and 4: universal addresses, over any transport.
//!
//! By RFC 1833, GETADDR answers for the transport of the question, whatever netid the question contains. Then no client
//! could ask where a program is over RDMA. So we answer for the netid if we know it, else for the transport of the
//! question.

use super::{
    Entry, procedure,
    services::{Asked, Known},
    transport_address,
};
use crate::{
    Answer, Netid, parse_universal_address,
    rpcbind::{MAX_STRING_BYTES, Registration},
    universal_address,
};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The owner that the entries show.
const OWNER: &[u8] = b"rpcrdma";
/// Transports without connections, and with connections that end in order (RFC 1833 section 2.1).
const WITHOUT_CONNECTIONS: u32 = 1;
const WITH_CONNECTIONS: u32 = 3;

pub(super) fn answer(known: &Known, asked: Asked, number: u32, mut args: Decoder) -> Result<Answer, DecodeError> {
    let mut encoder = Encoder::new();
    match number {
        procedure::SET | procedure::UNSET => {
            Registration::decode(&mut args)?;
            args.finish()?;
            encoder.bool(false);
        }
        procedure::GETADDR | procedure::GETVERSADDR => {
            let question = Registration::decode(&mut args)?;
            args.finish()?;
            encoder.opaque(address(known, asked, number, &question).as_bytes());
        }
        procedure::DUMP => {
            args.finish()?;
            known.table.told(asked.local).for_each(|entry| encoder.optional(Some(&registration(&entry))));
            encoder.bool(false);
        }
        procedure::GETTIME => {
            args.finish()?;
            // The protocol's time ends in 2106.
            encoder.u32(u32::try_from(known.clock.unix_time().as_secs()).unwrap_or(u32::MAX));
        }
        procedure::UADDR2TADDR => {
            let text = args.opaque(MAX_STRING_BYTES)?;
            args.finish()?;
            let address = std::str::from_utf8(&text).ok().and_then(parse_universal_address);
            let octets = address.map(transport_address::encode).unwrap_or_default();
            encoder.u32(u32::try_from(octets.len()).unwrap_or(0));
            encoder.opaque(&octets);
        }
        procedure::TADDR2UADDR => {
            let _room = args.u32()?;
            let octets = args.opaque(MAX_STRING_BYTES)?;
            args.finish()?;
            let address = transport_address::decode(&octets).map(|address| universal_address(&address));
            encoder.opaque(address.unwrap_or_default().as_bytes());
        }
        // RPC-1833-2.2.2-b
        procedure::GETADDRLIST => {
            let question = Registration::decode(&mut args)?;
            args.finish()?;
            let same = |entry: &Entry| {
                (entry.program, entry.version) == (question.program, question.version)
                    && entry.netid.is_ipv6() == asked.netid.is_ipv6()
            };
            known.table.told(asked.local).filter(same).for_each(|entry| encoder.optional(Some(&Listed(entry))));
            encoder.bool(false);
        }
        procedure::GETSTAT => {
            args.finish()?;
            known.statistics.encode(&known.table, &mut encoder);
        }
        _ => return Ok(Answer::ProcUnavail),
    }
    Ok(Answer::Results(encoder.finish()))
}

/// The universal address of a program; empty if the table does not have it.
fn address(known: &Known, asked: Asked, number: u32, question: &Registration) -> String {
    let netid = Netid::parse(&question.netid).unwrap_or(asked.netid);
    let (table, program, version) = (&known.table, question.program, question.version);
    let found = match number {
        procedure::GETVERSADDR => table.find_version(program, version, netid, asked.local),
        _ => table.find(program, version, netid, asked.local),
    };
    known.statistics.found(table, asked.version, found.as_ref());
    found.map(|entry| universal_address(&entry.address)).unwrap_or_default()
}

fn registration(entry: &Entry) -> Registration {
    Registration {
        program: entry.program,
        version: entry.version,
        netid: entry.netid.as_str().into(),
        address: universal_address(&entry.address).into(),
        owner: OWNER.into(),
    }
}

/// An entry in the form of GETADDRLIST.
struct Listed(Entry);

impl Encode for Listed {
    fn encode(&self, encoder: &mut Encoder) {
        let netid = self.0.netid;
        let (protocol, semantics) = match netid {
            Netid::Tcp | Netid::Tcp6 => ("tcp", WITH_CONNECTIONS),
            Netid::Udp | Netid::Udp6 => ("udp", WITHOUT_CONNECTIONS),
            Netid::Rdma | Netid::Rdma6 => ("rdma", WITH_CONNECTIONS),
        };
        let family = if netid.is_ipv6() { "inet6" } else { "inet" };
        encoder.opaque(universal_address(&self.0.address).as_bytes());
        encoder.opaque(netid.as_str().as_bytes());
        encoder.u32(semantics);
        encoder.opaque(family.as_bytes());
        encoder.opaque(protocol.as_bytes());
    }
}
