//! Bytes in frames as MPA and DDP make them on loopback: a header, up to 65,472 bytes, and a CRC of both. The contents
//! of the headers do not matter here; they are as long as those of MPA and DDP.

use anyhow::{Result, ensure};
use crc_fast::{CrcAlgorithm, Digest};
use std::{
    io::{ErrorKind, IoSlice, IoSliceMut, Read, Write},
    net::TcpStream,
};

/// Bytes of a frame between header and CRC, at most.
pub(super) const PAYLOAD: usize = 65_472;
const HEAD: usize = 16;
const CRC: usize = 4;
/// What one system call receives, at most.
const AT_ONCE: usize = 512 << 10;

/// The CRC of a header and of the bytes behind it, as it is sent.
pub(super) fn crc(head: &[u8], octets: &[u8]) -> [u8; CRC] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(octets);
    (digest.finalize() as u32).to_le_bytes()
}

/// Sends all of it, with as few system calls as the kernel allows.
pub(super) fn send_all(mut stream: &TcpStream, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(sent) => IoSlice::advance_slices(&mut slices, sent),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends `before` as it is, and then `octets` in frames.
pub(super) fn send(stream: &TcpStream, before: &[u8], octets: &[u8]) -> Result<()> {
    let head = [0x41; HEAD];
    let frames: Vec<_> = octets.chunks(PAYLOAD).map(|octets| (octets, crc(&head, octets))).collect();
    let parts = frames.iter().flat_map(|(octets, crc)| [&head[..], octets, crc]);
    let mut slices: Vec<_> = [before].into_iter().chain(parts).map(IoSlice::new).collect();
    send_all(stream, &mut slices)
}

/// Receives what [`send`] has framed, each byte into its place, and checks it.
///
/// # Errors
/// If a CRC is wrong, or the other end has gone.
pub(super) fn receive(mut stream: &TcpStream, room: &mut [u8]) -> Result<()> {
    let mut heads = [([0; HEAD], [0; CRC]); AT_ONCE / PAYLOAD];
    for room in room.chunks_mut(AT_ONCE / PAYLOAD * PAYLOAD) {
        let parts = room.chunks_mut(PAYLOAD).zip(&mut heads);
        let mut slices: Vec<_> = parts.flat_map(|(octets, (head, crc))| [&mut head[..], octets, crc]).collect();
        let mut slices: Vec<_> = slices.iter_mut().map(|octets| IoSliceMut::new(octets)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match stream.read_vectored(left) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(received) => IoSliceMut::advance_slices(&mut left, received),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (octets, (head, carried)) in room.chunks(PAYLOAD).zip(&heads) {
            ensure!(crc(head, octets) == *carried, "a CRC is wrong");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn what_is_framed_comes_as_it_was() {
        for len in [0, 1, PAYLOAD, PAYLOAD + 1, AT_ONCE, 3 << 20] {
            let (client, mut server) = pair();
            let octets: Vec<_> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
            let sent = octets.clone();
            let sending = thread::spawn(move || send(&client, b"ask", &sent).unwrap());
            let mut before = [0; 3];
            server.read_exact(&mut before).unwrap();
            let mut room = vec![0; len];
            receive(&server, &mut room).unwrap();
            assert!(before == *b"ask" && room == octets, "{len}");
            sending.join().unwrap();
            assert_eq!(server.read(&mut [0; 1]).unwrap(), 0, "nothing more comes");
        }
    }

    #[test]
    fn what_is_changed_on_its_way_is_noticed() {
        let (mut client, server) = pair();
        let head = [0x41; HEAD];
        client.write_all(&[&head[..], b"octets", &crc(&head, b"octete")].concat()).unwrap();
        assert!(receive(&server, &mut [0; 6]).unwrap_err().to_string().contains("CRC"));
        drop(client);
        assert!(receive(&server, &mut [0; 6]).is_err(), "the other end has gone");
    }
}
