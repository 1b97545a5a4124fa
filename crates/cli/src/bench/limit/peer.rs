//! The end that answers.
//!
//! It reads and sends a block, or receives and writes it, in pieces that stay in the processor's caches. A server of
//! NFS cannot do all of that. It has to know how a READ ends before it answers; it needs memory for each call that it
//! has accepted; and a thread that writes may wait for a disk, which must not keep other clients waiting. With
//! `--as-server` this end works in that way.

use super::{
    ANSWER, CRC, Lengths, REQUEST, SEND_BUFFER, Work, frame,
    messages::Replies,
    open,
    room::Room,
    wire::{self, Wire},
};
use crate::bench::{Op, affinity::stay_on};
use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::{
    collections::VecDeque,
    fs::File,
    io::{IoSlice, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, mpsc},
    thread,
};
use tokio::task::JoinSet;

/// The bytes that are read and sent, or received and written, at a time: frames of about 256 KiB.
const PIECE: usize = 4 * frame::PAYLOAD;

/// Answers until the other end goes.
pub(in crate::bench) fn peer(address: SocketAddr, path: &Path, work: Work, cpu: Option<usize>) -> Result<()> {
    cpu.map(stay_on).transpose()?;
    let (file, _) = open(path, work)?;
    let streams = (0..work.connections).map(|_| connect(address)).collect::<Result<Vec<_>>>()?;
    match (<[TcpStream; 1]>::try_from(streams), work.is_one_piece()) {
        (Ok([stream]), true) => wire::run(async { small(Wire::new(stream, work.waits)?, &file, work).await }),
        (Ok([stream]), false) if work.as_server => as_server(&stream, &file, work),
        (Ok([stream]), false) => large(stream, &file, work),
        (Err(streams), _) => wire::run(many(streams, Arc::new(file), work)),
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
    Ok(stream)
}

/// Answers calls in one piece over all connections.
async fn many(streams: Vec<TcpStream>, file: Arc<File>, work: Work) -> Result<()> {
    let answering = streams.into_iter().map(|stream| {
        let file = file.clone();
        async move { small(Wire::new(stream, work.waits)?, &file, work).await }
    });
    let mut answering: JoinSet<_> = answering.collect();
    while let Some(ended) = answering.join_next().await {
        ended??;
    }
    Ok(())
}

fn place(request: &[u8]) -> Result<u64> {
    let octets = request.first_chunk().context("a request is too short")?;
    Ok(u64::from_be_bytes(*octets))
}

/// The answer to a request, which is sent as it is here.
struct Answer {
    head: Vec<u8>,
    octets: Room,
    crc: [u8; CRC],
}

/// Answers all requests that one system call has brought by one further system call.
pub(super) async fn small(mut wire: Wire, file: &File, work: Work) -> Result<()> {
    let Lengths { request: ask, head } = Lengths::of(work);
    let mut replies = if work.messages { Some(Replies::of(work, file)?) } else { None };
    // One more than can come, as at the other end.
    let mut asks = vec![0; ask * work.depth + 1];
    let answer = || Answer { head: vec![0x41; head], octets: Room::new(work.data()), crc: [0; CRC] };
    let mut answers: Vec<_> = (0..work.depth).map(|_| answer()).collect();
    let mut have = 0;
    loop {
        let received = wire.receive(&mut asks[have..]).await?;
        if received == 0 {
            return Ok(());
        }
        have += received;
        let whole = have / ask;
        for (request, Answer { head, octets, crc }) in asks.chunks(ask).zip(&mut answers).take(whole) {
            match (&mut replies, work.op) {
                (Some(replies), _) => replies.answer(request, file, head, octets)?,
                (None, Op::Read) => file.read_exact_at(octets, place(request)?)?,
                (None, Op::Getattr) => {
                    file.metadata()?;
                }
                (None, Op::Null | Op::Write) => {}
            }
            *crc = frame::crc(head, octets);
        }
        let parts = answers.iter().take(whole).flat_map(|answer| [&answer.head[..], &answer.octets[..], &answer.crc]);
        let mut slices: Vec<_> = parts.map(IoSlice::new).collect();
        wire.send(&mut slices).await?;
        asks.copy_within(whole * ask..have, 0);
        have -= whole * ask;
    }
}

/// Answers with blocks in frames, or takes them.
fn large(mut stream: TcpStream, file: &File, work: Work) -> Result<()> {
    let (mut request, mut room) = ([0; REQUEST], Room::new(work.block.min(PIECE)));
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

/// The same as a server has to: each block whole, in memory of its own for each call under way; a second thread writes.
fn as_server(stream: &TcpStream, file: &File, work: Work) -> Result<()> {
    let rooms = (0..work.depth).map(|_| Room::new(work.block)).collect();
    match work.op {
        Op::Write => write_on_a_thread(stream, file, rooms),
        _ => read_whole(stream, file, rooms),
    }
}

fn read_whole(mut stream: &TcpStream, file: &File, mut rooms: VecDeque<Room>) -> Result<()> {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        rooms.rotate_left(1);
        file.read_exact_at(&mut rooms[0], place(&request)?)?;
        frame::send(stream, &[], &rooms[0])?;
    }
    Ok(())
}

fn write_on_a_thread(mut stream: &TcpStream, file: &File, mut rooms: VecDeque<Room>) -> Result<()> {
    let mut request = [0; REQUEST];
    let (to_writer, blocks) = mpsc::channel();
    let (give_back, given_back) = mpsc::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let written = write_blocks(stream, file, &blocks, &give_back);
            if written.is_err() {
                // Both ends wait for messages: this wakes them.
                let _ = stream.shutdown(Shutdown::Both);
            }
            written
        });
        while stream.read_exact(&mut request).is_ok() {
            rooms.extend(given_back.try_iter());
            let mut room = rooms.pop_front().context("the other end has more blocks under way than it said")?;
            if frame::receive(stream, &mut room).is_err() || to_writer.send((room, place(&request)?)).is_err() {
                // The other end has gone, or the writer has failed and says why.
                break;
            }
        }
        drop(to_writer);
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Writes blocks to their places until no more come, and gives their memory back.
fn write_blocks(
    mut stream: &TcpStream,
    file: &File,
    blocks: &mpsc::Receiver<(Room, u64)>,
    give_back: &mpsc::Sender<Room>,
) -> Result<()> {
    for (octets, at) in blocks {
        file.write_all_at(&octets, at)?;
        // Before the answer, because the other end may then send another block. The receiving thread may have ended.
        let _ = give_back.send(octets);
        stream.write_all(&[0; ANSWER])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The other end waits for the answer, and this end for another request.
    #[test]
    fn a_write_that_fails_is_told_and_keeps_no_end_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut asking = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        let waiting = thread::spawn(move || {
            frame::send(&asking, &[0; REQUEST], &[7; 100]).unwrap();
            asking.read(&mut [0; ANSWER]).unwrap()
        });
        let full = File::options().write(true).open("/dev/full").unwrap();
        let failed = write_on_a_thread(&stream, &full, VecDeque::from([Room::new(100), Room::new(100)])).unwrap_err();
        assert!(format!("{failed:#}").contains("No space left"), "{failed:#}");
        assert_eq!(waiting.join().unwrap(), 0, "the connection has ended");
    }
}
