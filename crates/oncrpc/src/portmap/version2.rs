//! Version 2, the old port mapper: ports of TCP and UDP.
//!
//! It was made for IPv4. Over IPv6 it answers with the ports on IPv6: the caller knows the address that it has asked.

use super::{
    Entry, procedure,
    services::{Asked, Known},
};
use crate::{Answer, Netid};
use rpcrdma_xdr::{DecodeError, Decoder, Encoder};

/// The numbers of TCP and UDP among the protocols above IP.
const PROTOCOL_TCP: u32 = 6;
const PROTOCOL_UDP: u32 = 17;

/// The protocol's number for a transport; `None` for RDMA, which has none here.
fn protocol(netid: Netid) -> Option<u32> {
    match netid {
        Netid::Tcp | Netid::Tcp6 => Some(PROTOCOL_TCP),
        Netid::Udp | Netid::Udp6 => Some(PROTOCOL_UDP),
        Netid::Rdma | Netid::Rdma6 => None,
    }
}

pub(super) fn answer(known: &Known, asked: Asked, number: u32, mut args: Decoder) -> Result<Answer, DecodeError> {
    let mut encoder = Encoder::new();
    match number {
        procedure::SET | procedure::UNSET | procedure::GETADDR => {
            let (program, version, protocol) = (args.u32()?, args.u32()?, args.u32()?);
            // The port has no meaning in a question.
            args.u32()?;
            args.finish()?;
            match number {
                procedure::GETADDR => encoder.u32(port(known, asked, (program, version), protocol)),
                // RPC-1833-2.2.1-c
                _ => encoder.bool(false),
            }
        }
        procedure::DUMP => {
            args.finish()?;
            for entry in known.table.told(asked.local).filter(|entry| is_reached(entry, asked)) {
                let Some(protocol) = protocol(entry.netid) else { continue };
                encoder.bool(true);
                let port = u32::from(entry.address.port());
                [entry.program, entry.version, protocol, port].into_iter().for_each(|word| encoder.u32(word));
            }
            encoder.bool(false);
        }
        _ => return Ok(Answer::ProcUnavail),
    }
    Ok(Answer::Results(encoder.finish()))
}

/// The port of a program, 0 if the table does not have it.
fn port(known: &Known, asked: Asked, (program, version): (u32, u32), protocol: u32) -> u32 {
    let netid = match (protocol, asked.netid.is_ipv6()) {
        (PROTOCOL_TCP, false) => Netid::Tcp,
        (PROTOCOL_TCP, true) => Netid::Tcp6,
        (PROTOCOL_UDP, false) => Netid::Udp,
        (PROTOCOL_UDP, true) => Netid::Udp6,
        _ => return 0,
    };
    let found = known.table.find(program, version, netid, asked.local).filter(|entry| is_reached(entry, asked));
    known.statistics.found(&known.table, asked.version, found.as_ref());
    found.map_or(0, |entry| entry.address.port().into())
}

/// A port without an address means the address that the caller has asked.
fn is_reached(entry: &Entry, asked: Asked) -> bool {
    // RPC-1833-3.2-a
    entry.address.ip().to_canonical() == asked.local
}
