//! The most that this machine can do for a READ, a WRITE or a small call: the bytes of a file, a CRC at each end, the
//! framing and the system calls, between two processes of one thread each, and nothing else. There is no RPC, no credit
//! and no queue: the command's share of this limit shows what all those cost.
//!
//! It is not a proven ceiling: two threads at each end can pass it. Requests have 128 bytes, and so have the answers of
//! calls that bring no data; small answers have one CRC, larger blocks are in frames ([`frame`]). The ends can also
//! wait as a server of many connections has to ([`wire`]), and have many connections: then each answer has one CRC. In
//! the place of the 128 bytes they can write and read the messages of a call ([`messages`]), which can come from tasks
//! that share the connection ([`tasks`]).

mod frame;
mod messages;
mod peer;
mod room;
mod tasks;
mod wire;

use super::{
    Op,
    baseline::{accept, start_peer},
    cpu::CpuMeter,
    load::Sample,
    report::Report,
};
use anyhow::{Context, Result, ensure};
use messages::Calls;
pub(super) use peer::peer;
use room::Room;
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::{IoSlice, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
pub(super) use wire::Waits;
use wire::Wire;

/// A request: about an NFS call.
const REQUEST: usize = 128;
/// What stands before the data of a small answer: about an NFS reply.
const ANSWER: usize = 128;
const CRC: usize = 4;
/// Stands before a block that was asked for. The last byte of a request is 0.
const BLOCK_FOLLOWS: [u8; REQUEST] = [1; REQUEST];
/// Asks for the block of the oldest request that was not asked for yet.
const ASK_FOR_BLOCK: [u8; ANSWER] = [1; ANSWER];
/// The answer to a request whose block was written.
const WRITTEN: [u8; ANSWER] = [0; ANSWER];
/// The largest block that is answered without frames, if the ends do not wait with tokio.
const SMALL: usize = 16 << 10;
/// The bytes of the file, if it is made here.
const FILE_BYTES: u64 = 256 << 20;
/// The size of the pieces in which the file is written, as in a copy: a file that was written in small pieces is read
/// two to three times as slowly afterwards.
const FILE_PIECE: usize = 1 << 20;
/// The socket's buffer: with a larger one, data leave the processor's caches.
const SEND_BUFFER: usize = 512 << 10;

/// The work that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) op: Op,
    /// Bytes of a READ or a WRITE.
    pub(super) block: usize,
    pub(super) depth: usize,
    /// How both ends wait.
    pub(super) waits: Waits,
    /// How many connections both ends have, each with calls of its own.
    pub(super) connections: u64,
    /// Whether the end that has the file handles blocks as a server has to ([`peer`]).
    pub(super) as_server: bool,
    /// Whether requests and answers are the messages of a call ([`messages`]).
    pub(super) messages: bool,
    /// Whether calls come from tasks that share the connection ([`tasks`]).
    pub(super) tasks: bool,
}

impl Work {
    fn data(self) -> usize {
        if self.op.moves_data() { self.block } else { 0 }
    }

    /// Whether each call is answered with one piece and one CRC.
    fn is_one_piece(self) -> bool {
        self.op != Op::Write && (self.data() <= SMALL || self.waits == Waits::Tokio)
    }

    /// Whether messages can be written and read.
    fn takes_messages(self) -> bool {
        self.is_one_piece() && self.data() <= SMALL && self.waits == Waits::Tokio && self.connections == 1
    }
}

/// How long the pieces are that come before data.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// Bytes of a request.
    request: usize,
    /// Bytes of an answer before its data.
    head: usize,
}

impl Lengths {
    fn of(work: Work) -> Self {
        if work.messages { messages::lengths(work) } else { Self { request: REQUEST, head: ANSWER } }
    }
}

/// Opens the file, which is made if it is missing, and gives its size. Its contents are in memory afterwards.
fn open(path: &Path, work: Work) -> Result<(File, u64)> {
    let shown = || path.display().to_string();
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.with_context(shown)?;
    if file.metadata()?.len() == 0 {
        let piece: Vec<_> = (0..FILE_PIECE).map(|at| (at * 7 + at / 256) as u8).collect();
        for _ in 0..FILE_BYTES / FILE_PIECE as u64 {
            file.write_all(&piece).with_context(shown)?;
        }
    }
    let size = std::io::copy(&mut File::open(path)?, &mut std::io::sink()).with_context(shown)?;
    ensure!(size >= work.data() as u64, "{} has {size} bytes, fewer than a block", path.display());
    Ok((file, size))
}

/// Measures one kind of work for `time`; with `apart`, on a processor each.
pub(super) fn measure(path: &Path, work: Work, time: Duration, apart: bool) -> Result<Report> {
    ensure!(
        work.waits == Waits::Read || work.is_one_piece(),
        "--waits epoll works with blocks of at most {SMALL} bytes only, and no --waits but read works with --op write"
    );
    ensure!(
        work.connections == 1 || work.is_one_piece() && work.waits == Waits::Tokio,
        "more than one connection works only with --waits tokio, and not with --op write"
    );
    ensure!(
        !(work.as_server && work.is_one_piece()),
        "--as-server works only with --op write, and with --op read and blocks of more than {SMALL} bytes over one \
         connection, without --waits tokio"
    );
    ensure!(
        !work.messages || work.takes_messages(),
        "--messages works only with --waits tokio over one connection, with --op null, --op getattr, and --op read with \
         blocks of at most {SMALL} bytes"
    );
    let (_, size) = open(path, work)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")?;
    // Connections inherit this from their listener.
    set_socket_send_buffer_size(&listener, SEND_BUFFER)?;
    listener.set_nonblocking(true)?;
    let (at, block, depth) = (listener.local_addr()?.to_string(), work.block.to_string(), work.depth.to_string());
    let (waits, connections) = (work.waits.name(), work.connections.to_string());
    let work_of_both = ["--op", work.op.name(), "--block", &block, "--depth", &depth, "--waits", waits];
    // How calls are made is of no concern to the end that answers.
    let flags = [work.as_server.then_some("--as-server"), work.messages.then_some("--messages")];
    let more = work_of_both.into_iter().chain(["--connections", &connections, "--limit-peer", &at]);
    let more = more.chain(flags.into_iter().flatten());
    let arguments: Vec<_> = [OsStr::new("--limit"), path.as_os_str()].into_iter().chain(more.map(OsStr::new)).collect();
    let mut peer = start_peer(&arguments, apart)?;
    let meter = CpuMeter::new(Some(peer.0.id()))?;
    let streams = (0..work.connections).map(|_| accept(&listener, &mut peer.0)).collect::<Result<Vec<_>>>()?;
    let (begin, cpu) = (Instant::now(), meter.start()?);
    let sample = match (<[TcpStream; 1]>::try_from(streams), work.is_one_piece()) {
        (Ok([stream]), true) => wire::run(small(stream, work, size, begin + time))?,
        (Ok([stream]), false) if work.as_server && work.op == Op::Write => {
            Asking::new(work, size).offer(&stream, begin + time)?
        }
        (Ok([stream]), false) => Asking::new(work, size).large(&stream, begin + time)?,
        (Err(streams), _) => wire::run(many(streams, work, size, begin + time))?,
    };
    let elapsed = begin.elapsed();
    let (cpu_s, server_cpu_s) = cpu.elapsed(&meter)?;
    let op = match work.op {
        Op::Null => "limit_null",
        Op::Getattr => "limit_getattr",
        Op::Read => "limit_read",
        Op::Write => "limit_write",
    };
    let block = work.op.moves_data().then_some(u32::try_from(work.block)?);
    let depth = work.depth as u64;
    Ok(Report {
        op,
        block,
        depth,
        elapsed,
        sample,
        cpu_s,
        server_cpu_s,
        rpcrdma: None,
        nfs: None,
        connections: work.connections,
    })
}

/// Calls that are answered in one piece, over one connection.
async fn small(stream: TcpStream, work: Work, size: u64, end: Instant) -> Result<Sample> {
    let (mut asking, wire) = (Asking::new(work, size), Wire::new(stream, work.waits)?);
    match work.tasks {
        true => tasks::measure(asking, wire, end).await,
        false => asking.small(wire, end).await,
    }
}

/// The same over all connections at the same time.
async fn many(streams: Vec<TcpStream>, work: Work, size: u64, end: Instant) -> Result<Sample> {
    let mut asking: JoinSet<_> = streams.into_iter().map(|stream| small(stream, work, size, end)).collect();
    let mut all = Sample::new();
    while let Some(sample) = asking.join_next().await {
        all.add(sample??)?;
    }
    Ok(all)
}

/// The XID of a call: its number, which begins again after 2^32 calls.
fn xid(number: usize) -> u32 {
    number as u32
}

/// The end that asks.
struct Asking {
    work: Work,
    lengths: Lengths,
    /// Writes and reads messages, if the work has any.
    calls: Option<Calls>,
    /// The file's bytes.
    size: u64,
    /// Which bytes are asked for next.
    at: u64,
    asks: Vec<u8>,
    /// When each request that is under way was made, as many as the depth, each in the place of its number.
    started: Vec<Instant>,
}

impl Asking {
    fn new(work: Work, size: u64) -> Self {
        let lengths = Lengths::of(work);
        let (asks, started) = (vec![0; lengths.request * work.depth], vec![Instant::now(); work.depth]);
        Self { work, lengths, calls: work.messages.then(|| Calls::new(work)), size, at: 0, asks, started }
    }

    /// Writes the next request into its place.
    fn ask(&mut self, number: usize) -> Result<()> {
        let octets = self.lengths.request;
        let request = &mut self.asks[number % self.work.depth * octets..][..octets];
        match &self.calls {
            Some(calls) => calls.write(xid(number), self.at, request)?,
            None => request[..8].copy_from_slice(&self.at.to_be_bytes()),
        }
        let block = self.work.block as u64;
        self.at = if self.at + 2 * block > self.size { 0 } else { self.at + block };
        Ok(())
    }

    /// Starts as many requests as may be under way, from number `first` on, if it is not yet the end. Gives the number
    /// of the next.
    fn start(&mut self, first: usize, done: usize, now: Instant, end: Instant) -> usize {
        let next = if now < end { done + self.work.depth } else { first };
        for number in first..next {
            self.started[number % self.work.depth] = now;
        }
        next
    }

    /// The requests from number `first` up to `end`, which are no more than the depth, to be sent.
    fn requests(&mut self, first: usize, end: usize) -> Result<[IoSlice<'_>; 2]> {
        for number in first..end {
            self.ask(number)?;
        }
        let (depth, octets) = (self.work.depth, self.lengths.request);
        let (from, count) = (first % depth, end - first);
        let wrapped = (from + count).saturating_sub(depth);
        let run = |from: usize, count: usize| IoSlice::new(&self.asks[from * octets..][..count * octets]);
        Ok([run(from, count - wrapped), run(0, wrapped)])
    }

    /// Asks for answers with one CRC. Answers that have come together are taken together.
    async fn small(&mut self, mut wire: Wire, end: Instant) -> Result<Sample> {
        let (Work { depth, .. }, Lengths { head, .. }) = (self.work, self.lengths);
        let (answer, octets) = (head + self.work.data() + CRC, self.work.data() as u64);
        // One more than can come: when a message fills its room, tokio reads once more before it waits.
        let mut room = Room::new(answer * depth + 1);
        // Large answers come one by one, so that none has to be moved to the room's beginning.
        let together = if self.work.data() <= SMALL { room.len() } else { answer };
        let (mut sample, mut now) = (Sample::new(), Instant::now());
        let (mut sent, mut done, mut have) = (0, 0, 0);
        loop {
            let first = sent;
            sent = self.start(first, done, now, end);
            if first < sent {
                wire.send(&mut self.requests(first, sent)?).await?;
            }
            if sent == done {
                return Ok(sample);
            }
            let received = wire.receive(&mut room[have..together]).await?;
            ensure!(received > 0, "the other process has gone");
            (now, have) = (Instant::now(), have + received);
            let whole = have / answer;
            for (answer, number) in room.chunks(answer).take(whole).zip(done..) {
                let (octets, carried) = answer.split_at(answer.len() - CRC);
                let (head, octets) = octets.split_at(head);
                ensure!(frame::crc(head, octets) == *carried, "a CRC is wrong");
                if let Some(calls) = &mut self.calls {
                    calls.read(xid(number), head)?;
                }
            }
            for number in done..done + whole {
                sample.record(now - self.started[number % depth], octets);
            }
            if whole > 0 {
                room.copy_within(whole * answer..have, 0);
            }
            (done, have) = (done + whole, have - whole * answer);
        }
    }

    /// Offers blocks, and sends each when the other end asks for it.
    fn offer(&mut self, mut stream: &TcpStream, end: Instant) -> Result<Sample> {
        let Work { block, depth, .. } = self.work;
        // Each block in a place of its own, as if the caller had filled it.
        let room = Room::new(block * depth);
        let (mut sample, mut now) = (Sample::new(), Instant::now());
        let (mut sent, mut asked_for, mut done) = (0, 0, 0);
        let mut message = [0; ANSWER];
        loop {
            let first = sent;
            sent = self.start(first, done, now, end);
            if first < sent {
                frame::send_all(stream, &mut self.requests(first, sent)?)?;
            }
            if sent == done {
                return Ok(sample);
            }
            stream.read_exact(&mut message)?;
            if message == ASK_FOR_BLOCK {
                ensure!(asked_for < sent, "the other process asks for a block that was not offered");
                frame::send(stream, &BLOCK_FOLLOWS, &room[asked_for % depth * block..][..block])?;
                asked_for += 1;
            } else {
                now = Instant::now();
                sample.record(now - self.started[done % depth], block as u64);
                done += 1;
            }
        }
    }

    /// Asks for blocks in frames, or sends them.
    fn large(&mut self, mut stream: &TcpStream, end: Instant) -> Result<Sample> {
        let Work { op, block, depth, .. } = self.work;
        let mut room = Room::new(block * depth);
        let (mut sample, mut now) = (Sample::new(), Instant::now());
        let (mut sent, mut done) = (0, 0);
        loop {
            let first = sent;
            while now < end && sent - done < depth {
                self.started[sent % depth] = now;
                sent += 1;
                if op == Op::Write {
                    self.ask(sent - 1)?;
                    let slot = (sent - 1) % depth;
                    let request = &self.asks[slot * REQUEST..][..REQUEST];
                    frame::send(stream, request, &room[slot * block..][..block])?;
                    now = Instant::now();
                }
            }
            if op != Op::Write {
                frame::send_all(stream, &mut self.requests(first, sent)?)?;
            }
            if sent == done {
                return Ok(sample);
            }
            let slot = done % depth;
            match op {
                Op::Write => stream.read_exact(&mut [0; ANSWER])?,
                _ => frame::receive(stream, &mut room[slot * block..][..block])?,
            }
            now = Instant::now();
            sample.record(now - self.started[slot], block as u64);
            done += 1;
        }
    }
}
