//! The end that answers.

use super::{
    ANSWER, CRC, REQUEST, SEND_BUFFER, Work, frame, open,
    wire::{self, Wire},
};
use crate::bench::{Op, affinity::stay_on};
use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::{
    fs::File,
    io::{IoSlice, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::FileExt,
    path::Path,
};

/// The bytes that are read and sent, or received and written, at a time: frames of about 256 KiB.
const PIECE: usize = 4 * frame::PAYLOAD;

/// Answers until the other end goes.
pub(in crate::bench) fn peer(address: SocketAddr, path: &Path, work: Work, cpu: Option<usize>) -> Result<()> {
    cpu.map(stay_on).transpose()?;
    let (file, _) = open(path, work)?;
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
    match work.is_small() {
        true => wire::run(async { small(Wire::new(stream, work.waits)?, &file, work).await }),
        false => large(stream, &file, work),
    }
}

fn place(request: &[u8]) -> Result<u64> {
    let octets = request.first_chunk().context("a request is too short")?;
    Ok(u64::from_be_bytes(*octets))
}

/// Answers all requests that one system call has brought by one further system call.
async fn small(mut wire: Wire, file: &File, work: Work) -> Result<()> {
    // One more than can come, as at the other end.
    let mut asks = vec![0; REQUEST * work.depth + 1];
    let mut answers = vec![(vec![0; work.data()], [0; CRC]); work.depth];
    let (head, mut have) = ([0x41; ANSWER], 0);
    loop {
        let received = wire.receive(&mut asks[have..]).await?;
        if received == 0 {
            return Ok(());
        }
        have += received;
        let whole = have / REQUEST;
        for (request, (octets, crc)) in asks.chunks(REQUEST).zip(&mut answers).take(whole) {
            match work.op {
                Op::Read => file.read_exact_at(octets, place(request)?)?,
                Op::Getattr => {
                    file.metadata()?;
                }
                Op::Null | Op::Write => {}
            }
            *crc = frame::crc(&head, octets);
        }
        let parts = answers.iter().take(whole).flat_map(|(octets, crc)| [&head[..], octets, crc]);
        let mut slices: Vec<_> = parts.map(IoSlice::new).collect();
        wire.send(&mut slices).await?;
        asks.copy_within(whole * REQUEST..have, 0);
        have -= whole * REQUEST;
    }
}

/// Answers with blocks in frames, or takes them.
fn large(mut stream: TcpStream, file: &File, work: Work) -> Result<()> {
    let (mut request, mut room) = ([0; REQUEST], vec![0; work.block.min(PIECE)]);
    // The other end ends the measurement by going.
    while stream.read_exact(&mut request).is_ok() {
        let (mut at, end) = (place(&request)?, place(&request)? + work.block as u64);
        while at < end {
            let octets = &mut room[..usize::try_from(end - at)?.min(PIECE)];
            if work.op == Op::Write {
                frame::receive(&stream, octets)?;
                file.write_all_at(octets, at)?;
            } else {
                file.read_exact_at(octets, at)?;
                frame::send(&stream, &[], octets)?;
            }
            at += octets.len() as u64;
        }
        if work.op == Op::Write {
            stream.write_all(&[0; ANSWER])?;
        }
    }
    Ok(())
}
