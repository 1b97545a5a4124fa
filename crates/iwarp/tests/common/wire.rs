//! Endpoints without sockets, and FPDUs made by hand.

#![allow(dead_code)]

use rpcrdma_env::SeededRandom;
use rpcrdma_fabric::{Buffer, Completion, Fabric, Receives};
use rpcrdma_iwarp::{
    Config,
    protocol::{
        Endpoint, ReceiveQueue, Role, Setup,
        crc::Crc,
        ddp::{Header, Placement, UNTAGGED_OCTETS},
        fpdu::{CRC_OCTETS, LENGTH_OCTETS, Segmentation, pad_bytes},
        negotiation::Agreed,
        rdmap::Opcode,
    },
};
use std::sync::Arc;

pub(crate) const AGREED: Agreed = Agreed { crc: true, ird: 2, ord: 2, ready_by_send: false, ready_by_read: false };

/// An endpoint with `receives` receives of 1,000 bytes.
pub(crate) fn endpoint(role: Role, agreed: Agreed, receives: usize, fpdu_octets: usize) -> Endpoint {
    let buffers = (0..receives).map(|_| Buffer::from_vec(vec![0; 1000])).collect();
    let fabric = super::iwarp(Config::default());
    let setup = Setup {
        role,
        agreed,
        segmentation: Segmentation::for_fpdu(fpdu_octets),
        receives: ReceiveQueue::new(Receives::Own(buffers)),
        capabilities: Arc::new(fabric.capabilities().clone()),
    };
    Endpoint::new(setup, &SeededRandom::new(1))
}

/// An FPDU with a right CRC.
pub(crate) fn fpdu(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut octets = [0; UNTAGGED_OCTETS];
    let len = header.encode(&mut octets);
    raw_fpdu(&[&octets[..len], payload].concat())
}

/// An FPDU around any ULPDU.
pub(crate) fn raw_fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut out = (ulpdu.len() as u16).to_be_bytes().to_vec();
    out.extend(ulpdu);
    out.resize(out.len() + pad_bytes(ulpdu.len()), 0);
    let mut crc = Crc::new();
    crc.update(&out);
    out.extend(crc.octets());
    out
}

pub(crate) fn tagged(opcode: Opcode, last: bool, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    fpdu(Header { opcode, last, placement: Placement::Tagged { stag, offset } }, payload)
}

pub(crate) fn untagged(
    opcode: Opcode,
    last: bool,
    (queue, msn, offset, invalidate): (u32, u32, u32, u32),
    payload: &[u8],
) -> Vec<u8> {
    fpdu(Header { opcode, last, placement: Placement::Untagged { queue, msn, offset, invalidate } }, payload)
}

/// A Send of one segment.
pub(crate) fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send, true, (0, msn, 0, 0), payload)
}

/// All that an endpoint has to write.
pub(crate) fn output(endpoint: &mut Endpoint) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let octets: Vec<u8> = endpoint.write_slices().iter().flat_map(|s| s.to_vec()).collect();
        if octets.is_empty() {
            return out;
        }
        endpoint.written(octets.len());
        out.extend(octets);
    }
}

/// Delivers bytes as a socket does: at most as many at a time as `cut` says, into the endpoint's own slices.
pub(crate) fn deliver(endpoint: &mut Endpoint, mut octets: &[u8], mut cut: impl FnMut() -> usize) {
    while !octets.is_empty() {
        let most = cut().clamp(1, octets.len());
        let mut taken = 0;
        for slice in &mut endpoint.read_slices() {
            let len = slice.len().min(most - taken);
            slice[..len].copy_from_slice(&octets[taken..taken + len]);
            taken += len;
        }
        assert!(taken > 0, "there is always room");
        endpoint.read(taken);
        octets = &octets[taken..];
    }
}

pub(crate) fn completions(endpoint: &mut Endpoint) -> Vec<Completion> {
    std::iter::from_fn(|| endpoint.next_completion()).collect()
}

/// The FPDUs of a stream: header and payload of each. CRCs are checked.
pub(crate) fn parse(mut octets: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut all = Vec::new();
    while !octets.is_empty() {
        let ulpdu_octets = usize::from(u16::from_be_bytes([octets[0], octets[1]]));
        let covered = LENGTH_OCTETS + ulpdu_octets + pad_bytes(ulpdu_octets);
        let mut crc = Crc::new();
        crc.update(&octets[..covered]);
        assert_eq!(octets[covered..covered + CRC_OCTETS], crc.octets());
        let ulpdu = &octets[LENGTH_OCTETS..LENGTH_OCTETS + ulpdu_octets];
        let header = Header::decode(ulpdu).unwrap();
        let header_bytes = rpcrdma_iwarp::protocol::ddp::header_bytes(ulpdu[0]);
        all.push((header, ulpdu[header_bytes..].to_vec()));
        octets = &octets[covered + CRC_OCTETS..];
    }
    all
}
