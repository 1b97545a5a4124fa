//! The end that answers.
//!
//! It reads and sends a block, or receives and writes it, in pieces that stay in the processor's caches. A server of
//! NFS cannot do all of that. It has to know how a READ ends before it answers; it needs memory for each call that it
//! has accepted; and a thread that writes may wait for a disk, which must not keep other clients waiting. Over RDMA it
//! asks for the bytes of a WRITE, which do not come with the call. Results have the file's attributes, of a WRITE also
//! those from before. And a server that root runs writes as the caller. With `--as-server` this end works in that way.

use super::{
    ANSWER, ASK_FOR_BLOCK, BLOCK_FOLLOWS, CRC, Lengths, REQUEST, SEND_BUFFER, WRITTEN, Work, frame,
    messages::Replies,
    open,
    room::Room,
    wire::{self, Wire},
};
use crate::bench::{Op, affinity::stay_on};
use anyhow::{Context, Result};
use rustix::{
    net::sockopt::set_socket_send_buffer_size,
    process::{Uid, geteuid},
    thread::set_thread_res_uid,
};
use std::{
    collections::VecDeque,
    fs::File,
    io::{IoSlice, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};
use tokio::task::JoinSet;

/// The bytes that are read and sent, or received and written, at a time: frames of about 256 KiB.
const PIECE: usize = 4 * frame::PAYLOAD;
/// The user as whom a server acts that takes a root of another machine for nobody.
const NOBODY: u32 = 65_534;

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

/// Whether a block follows what has come, which is a request otherwise.
fn is_block(head: &[u8; REQUEST]) -> bool {
    head.last() == BLOCK_FOLLOWS.last()
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

/// The same as a server has to: each block whole, in memory of its own for each call under way, with the file's
/// attributes. Bytes to write come when they are asked for, and a second thread writes them.
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
        file.metadata()?;
        frame::send(stream, &[], &rooms[0])?;
    }
    Ok(())
}

fn write_on_a_thread(mut stream: &TcpStream, file: &File, mut rooms: VecDeque<Room>) -> Result<()> {
    let mut head = [0; REQUEST];
    // Where the blocks go that were asked for and have not come.
    let mut asked = VecDeque::new();
    let (to_writer, blocks) = mpsc::channel();
    let (give_back, given_back) = mpsc::channel();
    // Both threads send short messages.
    let sending = Mutex::new(stream);
    thread::scope(|scope| {
        let sending = &sending;
        let writer = scope.spawn(move || {
            let written = write_blocks(sending, file, &blocks, &give_back);
            if written.is_err() {
                // Both ends wait for messages: this wakes them.
                let _ = stream.shutdown(Shutdown::Both);
            }
            written
        });
        while stream.read_exact(&mut head).is_ok() {
            if !is_block(&head) {
                asked.push_back(place(&head)?);
                if say(sending, &ASK_FOR_BLOCK).is_err() {
                    break;
                }
                continue;
            }
            rooms.extend(given_back.try_iter());
            let at = asked.pop_front().context("the other end has sent a block that nobody asked for")?;
            let mut room = rooms.pop_front().context("the other end has more blocks under way than it said")?;
            if frame::receive(stream, &mut room).is_err() || to_writer.send((room, at)).is_err() {
                // The other end has gone, or the writer has failed and says why.
                break;
            }
        }
        drop(to_writer);
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sends a short message.
fn say(sending: &Mutex<&TcpStream>, message: &[u8; ANSWER]) -> Result<()> {
    let mut stream = *sending.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((&mut stream).write_all(message)?)
}

/// Writes blocks to their places until no more come, and gives their memory back.
fn write_blocks(
    sending: &Mutex<&TcpStream>,
    file: &File,
    blocks: &mpsc::Receiver<(Room, u64)>,
    give_back: &mpsc::Sender<Room>,
) -> Result<()> {
    for (octets, at) in blocks {
        file.metadata()?;
        as_nobody(|| file.write_all_at(&octets, at))??;
        file.metadata()?;
        // Before the answer, because the other end may then send another block. The receiving thread may have ended.
        let _ = give_back.send(octets);
        say(sending, &WRITTEN)?;
    }
    Ok(())
}

/// Does something as the user nobody, as a server does it that root runs; as any other user, a server acts as itself.
fn as_nobody<T>(act: impl FnOnce() -> T) -> Result<T> {
    if !geteuid().is_root() {
        return Ok(act());
    }
    set_thread_res_uid(None, Uid::from_raw(NOBODY), None)?;
    let done = act();
    set_thread_res_uid(None, Uid::ROOT, None)?;
    Ok(done)
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
            let mut said = [0; ANSWER];
            asking.write_all(&[0; REQUEST]).unwrap();
            asking.read_exact(&mut said).unwrap();
            assert_eq!(said, ASK_FOR_BLOCK);
            frame::send(&asking, &BLOCK_FOLLOWS, &[7; 100]).unwrap();
            asking.read(&mut said).unwrap()
        });
        let full = File::options().write(true).open("/dev/full").unwrap();
        let failed = write_on_a_thread(&stream, &full, VecDeque::from([Room::new(100), Room::new(100)])).unwrap_err();
        assert!(format!("{failed:#}").contains("No space left"), "{failed:#}");
        assert_eq!(waiting.join().unwrap(), 0, "the connection has ended");
    }

    #[test]
    fn a_block_that_nobody_asked_for_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let asking = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        frame::send(&asking, &BLOCK_FOLLOWS, &[7; 100]).unwrap();
        let file = tempfile::tempfile().unwrap();
        let refused = write_on_a_thread(&stream, &file, VecDeque::from([Room::new(100)])).unwrap_err();
        assert!(format!("{refused:#}").contains("nobody asked for"), "{refused:#}");
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
