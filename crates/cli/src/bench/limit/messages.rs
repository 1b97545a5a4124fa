//! The messages of NFS version 3, of RPC and of RPC-over-RDMA version 1 (`--messages`), in the place of bytes that mean
//! nothing. Both ends write and read them with the types that the command's client and server use, and do nothing else
//! with them: there are no credits, no tables of calls, no services and no permissions.
//!
//! The data of a READ stand behind the message, as they travel beside it in RDMA: the message says how many bytes went
//! into the call's Write chunk. Each end owns memory for short messages, which it uses again and again. A message that
//! is malformed, or is not the one that must come, is an error, which ends the measurement.

use super::{Lengths, Work};
use crate::bench::Op;
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::{Buf, BufMut, Bytes};
use rpcrdma_env::{Buffer, Scratch};
use rpcrdma_nfs::{
    Call,
    attr::{self, FileType},
    v3::{self, Answer, Attributes, Handle},
};
use rpcrdma_oncrpc::{
    AUTH_SYS, AcceptSys, Accepted, CALL_HEADER_BYTES, CallHeader, CallId, OpaqueAuth, REPLY_HEADER_BYTES, ReplyHeader,
    ServerFlavour, SysCredential, Verdict,
};
use rpcrdma_wire::v1::{
    Body, FIXED_OCTETS, Header, Judgement, Lists, NO_CHUNKS_OCTETS, Plain, Role, Segment, WriteChunk, WriteList, judge,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Part, Payload, Placed, SharedScratch, Stream};
use std::{
    fs::{File, Metadata},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{FileExt, MetadataExt},
};

/// The credits that each message asks for or grants; no end counts them.
const CREDITS: u32 = 32;
/// The bytes of our server's handle of a file on ext4. The contents do not matter, because no end looks the file up.
const HANDLE_BYTES: usize = 40;
/// Names the memory for the data of a READ.
const STEERING_TAG: u32 = 1;
/// Room for arguments and results, without the header of RPC and the credential.
const BODY_BYTES: usize = 128;

/// The lengths of the messages for a kind of work: all calls have the same, and all replies.
pub(super) fn lengths(work: Work) -> Lengths {
    // The numbers in the attributes do not change the length.
    let attributes = attr::Attributes::new(FileType::Regular, 0, 0).into();
    Lengths { request: Calls::new(work).message(0, 0).len(), head: Replies::new(work, attributes).example(work).len() }
}

/// A message to send: its chunks, and the RPC message.
struct Message {
    xid: u32,
    lists: Lists,
    stream: Payload,
}

impl Message {
    /// What travels in the message itself. Items travel beside it.
    fn runs(stream: &Payload) -> impl Iterator<Item = &Bytes> {
        stream.parts().iter().filter_map(|part| match part {
            Part::Run(run) => Some(run),
            Part::Item(_) => None,
        })
    }

    fn len(&self) -> usize {
        FIXED_OCTETS + self.lists.encoded_len() + Self::runs(&self.stream).map(Bytes::len).sum::<usize>()
    }

    /// Writes it into its place, which must be as long as it is.
    fn write(self, mut place: &mut [u8]) -> Result<()> {
        let len = self.len();
        ensure!(len == place.len(), "a message has {len} bytes and not {}", place.len());
        let Self { xid, lists, stream } = self;
        if lists.is_empty() {
            place.put_slice(&Plain { xid, credit: CREDITS }.octets());
        } else {
            Header::new(xid, CREDITS, Body::Msg(lists)).encode(&mut place);
        }
        Self::runs(&stream).for_each(|run| place.put_slice(run));
        Ok(())
    }
}

/// The chunks of a message that was received, and the RPC message. That is a copy, as software iWARP makes one of each
/// short message, so that decoders can share it.
fn received(role: Role, message: &[u8], scratch: &mut Scratch) -> Result<(Lists, Bytes)> {
    let mut message = scratch.write(message.len(), |out| out.extend_from_slice(message));
    if Plain::of(&message).is_some() {
        message.advance(NO_CHUNKS_OCTETS);
        return Ok((Lists::default(), message));
    }
    match judge(role, &message) {
        Judgement::Accept { header: Header { body: Body::Msg(lists), .. }, payload_offset } => {
            message.advance(payload_offset.min(message.len()));
            Ok((lists, message))
        }
        other => bail!("not a message of RPC-over-RDMA with a call or a reply in it: {other:?}"),
    }
}

/// Reads a value to its end.
fn whole<T: Decode>(mut decoder: Decoder) -> Result<T> {
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

/// Checks the chunks of a message that may have none.
fn no_chunks(lists: &Lists) -> Result<()> {
    ensure!(lists.is_empty(), "a message has chunks, and may have none");
    Ok(())
}

/// The Write chunk of a message that must have it, and may have no other chunk.
fn only_write(lists: &Lists) -> Result<&WriteChunk> {
    match (lists.writes.chunks(), &lists.reply) {
        ([chunk], None) if lists.reads.is_empty() => Ok(chunk),
        _ => bail!("a message has other chunks than one Write chunk"),
    }
}

/// The lists with this Write chunk.
fn with_writes(chunk: WriteChunk) -> Lists {
    Lists { writes: WriteList([chunk].into()), ..Lists::default() }
}

/// The Write chunk that a READ offers for its data.
fn offered(octets: u32) -> WriteChunk {
    WriteChunk([Segment { handle: STEERING_TAG, length: octets, offset: 0 }].into())
}

/// The identity that the command's client states by AUTH_SYS.
fn credential() -> OpaqueAuth {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let identity = SysCredential {
        stamp: std::process::id(),
        machine: rustix::system::uname().nodename().to_bytes().to_vec().into(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).take(rpcrdma_oncrpc::MAX_GROUPS).collect(),
    };
    let mut encoder = Encoder::new();
    identity.encode(&mut encoder);
    OpaqueAuth { flavour: AUTH_SYS, body: encoder.finish().to_bytes() }
}

/// What the end that asks writes and reads.
pub(super) struct Calls {
    op: Op,
    /// The bytes that a READ asks for.
    octets: u32,
    /// Encoded once, as in the command's client.
    credential: OpaqueAuth,
    file: Handle,
    /// Stands for the memory that a READ lends: the decoder asks it for its length. The data stay where they were
    /// received.
    lent: Option<Buffer>,
    /// Memory for calls.
    written: SharedScratch,
    /// Memory for replies.
    received: Scratch,
}

impl Calls {
    pub(super) fn new(work: Work) -> Self {
        Self {
            op: work.op,
            // From an option that has 32 bits.
            octets: work.data() as u32,
            credential: credential(),
            file: Handle::new(&[0x41; HANDLE_BYTES]).expect("a handle has up to 64 bytes"),
            lent: Some(Buffer::from_vec(vec![0; work.data()])),
            written: SharedScratch::default(),
            received: Scratch::default(),
        }
    }

    /// Writes call `xid` into its place; a READ asks for the bytes from `offset` on.
    pub(super) fn write(&self, xid: u32, offset: u64, place: &mut [u8]) -> Result<()> {
        self.message(xid, offset).write(place)
    }

    fn message(&self, xid: u32, offset: u64) -> Message {
        let file = || self.file.clone();
        match self.op {
            Op::Null | Op::Write => self.call(xid, Lists::default(), &v3::Null {}),
            Op::Getattr => self.call(xid, Lists::default(), &v3::GetAttributes { file: file() }),
            Op::Read => {
                let arguments = v3::Read { file: file(), offset, count: self.octets };
                self.call(xid, with_writes(offered(self.octets)), &arguments)
            }
        }
    }

    fn call<C: Call>(&self, xid: u32, lists: Lists, arguments: &C) -> Message {
        let id = CallId { xid, program: C::PROGRAM, version: C::VERSION, procedure: C::PROCEDURE };
        let header = CallHeader { id, credential: self.credential.clone(), verifier: OpaqueAuth::none() };
        let octets = CALL_HEADER_BYTES + self.credential.body.len() + BODY_BYTES;
        let stream = self.written.write(octets, |encoder| {
            header.encode(encoder);
            arguments.encode(encoder);
        });
        Message { xid, lists, stream }
    }

    /// Reads the reply to call `xid`.
    ///
    /// # Errors
    /// If it is malformed, answers another call, or says that the call failed or has read another number of bytes.
    pub(super) fn read(&mut self, xid: u32, reply: &[u8]) -> Result<()> {
        let (lists, stream) = received(Role::Requester, reply, &mut self.received)?;
        let mut stream = Stream::from(stream);
        if self.op == Op::Read {
            stream.push_placed(self.placed(&lists)?);
        } else {
            no_chunks(&lists)?;
        }
        let mut decoder = Decoder::new(stream);
        let header = ReplyHeader::decode(&mut decoder)?;
        ensure!(header.xid == xid, "the reply to call {} came instead of the reply to call {xid}", header.xid);
        header.status?;
        match self.op {
            Op::Null | Op::Write => whole(decoder)?,
            Op::Getattr => {
                ok::<Attributes, ()>(whole(decoder)?)?;
            }
            Op::Read => {
                let read: v3::ReadOk<_> = ok::<_, Option<Attributes>>(whole(decoder)?)?;
                let rpcrdma_xdr::ItemData::Placed(data) = read.data else { bail!("the data of a READ came inline") };
                let (octets, asked) = (data.len(), self.octets);
                ensure!(octets == asked as usize, "a READ of {asked} bytes has brought {octets}");
                self.lent = Some(data);
            }
        }
        Ok(())
    }

    /// What became of the Write chunk of a READ.
    fn placed(&mut self, lists: &Lists) -> Result<Placed> {
        let chunk = only_write(lists)?;
        let repeated = offered(self.octets).filled(chunk.len());
        ensure!(repeated.as_ref() == Some(chunk), "the reply to a READ has another Write chunk than the call");
        let mut buffer = self.lent.take().context("the memory for the data is lent already")?;
        buffer.set_len(usize::try_from(chunk.len())?);
        Ok(Placed { offered: self.octets as usize, buffer: Some(buffer) })
    }
}

/// The results of a call that has succeeded.
fn ok<T, F>(answer: Answer<T, F>) -> Result<T> {
    answer.into_result().map_err(|failure| anyhow!("a call has failed with {:?}", failure.status))
}

/// What the end that answers reads and writes.
pub(super) struct Replies {
    /// The file's attributes, taken once. A server takes them anew after each READ; here that would add more than
    /// messages.
    attributes: Attributes,
    /// Stands for the data of a READ, of which the encoder takes the length only: they are sent from where they were
    /// read.
    data: Bytes,
    /// Reads the credentials.
    flavour: AcceptSys,
    /// Memory for replies.
    written: SharedScratch,
    /// Memory for calls.
    received: Scratch,
}

impl Replies {
    pub(super) fn of(work: Work, file: &File) -> Result<Self> {
        Ok(Self::new(work, attributes(&file.metadata()?)))
    }

    fn new(work: Work, attributes: Attributes) -> Self {
        Self {
            attributes,
            data: vec![0; work.data()].into(),
            flavour: AcceptSys::default(),
            written: SharedScratch::default(),
            received: Scratch::default(),
        }
    }

    /// Does what a call asks for: reads the data of a READ into `data`, and writes the reply into its place.
    ///
    /// # Errors
    /// If the call is malformed, is not one of NFS version 3, or asks for another number of bytes than `data` has.
    pub(super) fn answer(&mut self, call: &[u8], file: &File, place: &mut [u8], data: &mut [u8]) -> Result<()> {
        let (lists, stream) = received(Role::Responder, call, &mut self.received)?;
        let mut decoder = Decoder::new(Stream::from(stream));
        let header = CallHeader::decode(&mut decoder).map_err(|bad| anyhow!("not a call of RPC: {bad:?}"))?;
        let CallId { xid, program, version, procedure } = header.id;
        let is_nfs = (program, version) == (v3::PROGRAM, v3::VERSION);
        ensure!(is_nfs, "a call is of program {program}, version {version}, and not of NFS version 3");
        let flavour = header.credential.flavour;
        ensure!(flavour == self.flavour.number(), "a call has a credential of flavour {flavour} and not of AUTH_SYS");
        // The flavour looks at the port alone, and there is one caller.
        let caller = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let Verdict::Accepted(Accepted { args, .. }) = self.flavour.accept(caller, &header, decoder) else {
            bail!("a call has a malformed credential of AUTH_SYS")
        };
        let reply = match procedure {
            v3::Null::PROCEDURE => {
                no_chunks(&lists)?;
                whole::<v3::Null>(args)?;
                self.reply(xid, Lists::default(), &())
            }
            v3::GetAttributes::PROCEDURE => {
                no_chunks(&lists)?;
                whole::<v3::GetAttributes>(args)?;
                self.reply(xid, Lists::default(), &Answer::<_, ()>::Ok(attributes(&file.metadata()?)))
            }
            v3::Read::PROCEDURE => {
                let v3::Read { offset, count, .. } = whole(args)?;
                let octets = data.len();
                ensure!(count as usize == octets, "a READ of {count} bytes came instead of one of {octets}");
                let filled =
                    only_write(&lists)?.filled(count.into()).context("the Write chunk of a READ is too short")?;
                file.read_exact_at(data, offset)?;
                self.read(xid, filled, offset)
            }
            other => bail!("a call is of procedure {other}, which is none of NULL, GETATTR and READ"),
        };
        reply.write(place)
    }

    /// The reply to a READ of the bytes from `offset` on, which are in this chunk.
    fn read(&self, xid: u32, filled: WriteChunk, offset: u64) -> Message {
        let data = self.data.clone();
        let end = offset.saturating_add(data.len() as u64) >= self.attributes.size;
        let read = v3::ReadOk { attributes: Some(self.attributes.clone()), end, data };
        self.reply(xid, with_writes(filled), &Answer::<_, Option<Attributes>>::Ok(read))
    }

    fn reply(&self, xid: u32, lists: Lists, results: &impl Encode) -> Message {
        let stream = self.written.write(REPLY_HEADER_BYTES + BODY_BYTES, |encoder| {
            ReplyHeader { xid, verifier: OpaqueAuth::none(), status: Ok(()) }.encode(encoder);
            results.encode(encoder);
        });
        Message { xid, lists, stream }
    }

    /// A reply of the kind that the work has.
    fn example(&self, work: Work) -> Message {
        match work.op {
            Op::Null | Op::Write => self.reply(0, Lists::default(), &()),
            Op::Getattr => self.reply(0, Lists::default(), &Answer::<_, ()>::Ok(self.attributes.clone())),
            Op::Read => self.read(0, offered(work.data() as u32), 0),
        }
    }
}

/// A regular file's attributes, as the command's server takes them from the kernel's.
fn attributes(file: &Metadata) -> Attributes {
    let time = |seconds, nanoseconds: i64| attr::Time::new(seconds, nanoseconds as u32);
    let mut told = attr::Attributes::new(FileType::Regular, file.dev(), file.ino());
    told.mode = file.mode() & 0o7777;
    told.links = file.nlink() as u32;
    (told.uid, told.gid) = (file.uid(), file.gid());
    told.size = file.size();
    told.used = file.blocks().saturating_mul(512);
    told.accessed = time(file.atime(), file.atime_nsec());
    told.modified = time(file.mtime(), file.mtime_nsec());
    told.changed = time(file.ctime(), file.ctime_nsec());
    told.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::limit::{
        Waits, frame, peer, small,
        wire::{self, Wire},
    };
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        thread,
        time::{Duration, Instant},
    };

    const BLOCK: usize = 4096;
    /// Three blocks and a rest.
    const FILE: usize = 3 * BLOCK + 100;

    fn work(op: Op) -> Work {
        Work {
            op,
            block: BLOCK,
            depth: 1,
            waits: Waits::Tokio,
            connections: 1,
            as_server: false,
            messages: true,
            tasks: false,
        }
    }

    fn octets() -> Vec<u8> {
        (0..FILE).map(|at| (at * 7 + at / 256) as u8).collect()
    }

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&octets(), 0).unwrap();
        file
    }

    /// Both ends of one kind of work, and places for their messages.
    struct Ends {
        calls: Calls,
        replies: Replies,
        file: File,
        call: Vec<u8>,
        reply: Vec<u8>,
        data: Vec<u8>,
    }

    impl Ends {
        fn new(op: Op) -> Self {
            let (work, file) = (work(op), file());
            let Lengths { request, head } = lengths(work);
            let (calls, replies) = (Calls::new(work), Replies::of(work, &file).unwrap());
            Self { calls, replies, file, call: vec![0; request], reply: vec![0; head], data: vec![0; work.data()] }
        }

        fn answer(&mut self) -> Result<()> {
            self.replies.answer(&self.call, &self.file, &mut self.reply, &mut self.data)
        }

        /// One call and its reply.
        fn exchange(&mut self, xid: u32, offset: u64) -> Result<()> {
            self.calls.write(xid, offset, &mut self.call)?;
            self.answer()?;
            self.calls.read(xid, &self.reply)
        }
    }

    fn error(result: Result<()>) -> String {
        format!("{:#}", result.unwrap_err())
    }

    #[test]
    fn each_call_gets_its_reply_and_a_read_its_data() {
        for op in [Op::Null, Op::Getattr, Op::Read] {
            let mut ends = Ends::new(op);
            for number in 0..6 {
                let offset = u64::from(number % 3) * BLOCK as u64;
                ends.exchange(number, offset).unwrap();
                if op == Op::Read {
                    assert!(ends.data == octets()[offset as usize..][..BLOCK], "{offset}");
                }
            }
        }
        let beyond = error(Ends::new(Op::Read).exchange(1, FILE as u64));
        assert!(beyond.contains("whole buffer"), "{beyond}");
    }

    /// Two ends of a connection on loopback.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let asking = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (asking, listener.accept().unwrap().0)
    }

    fn end() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn calls_are_measured_over_a_connection() {
        let all = [(Op::Null, 1), (Op::Getattr, 3), (Op::Read, 1), (Op::Read, 5)];
        for ((op, depth), tasks) in all.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            let work = Work { depth, tasks, ..work(op) };
            let (asking, answering) = pair();
            let other = thread::spawn(move || {
                let file = file();
                wire::run(async { peer::small(Wire::new(answering, work.waits)?, &file, work).await })
            });
            let sample = wire::run(small(asking, work, FILE as u64, end())).unwrap();
            assert!(sample.ops() > 10, "{op:?}, depth {depth}, tasks: {tasks}: {} calls", sample.ops());
            other.join().unwrap().unwrap();
        }
    }

    /// The other end is right in all but the XID.
    #[test]
    fn a_reply_to_another_call_ends_the_measurement() {
        for (other, tasks) in [(0, false), (0, true), (1, false), (1, true)] {
            let (asking, mut answering) = pair();
            let mut ends = Ends::new(Op::Read);
            let peer = thread::spawn(move || {
                answering.read_exact(&mut ends.call).unwrap();
                ends.calls.write(other, BLOCK as u64, &mut ends.call).unwrap();
                ends.answer().unwrap();
                let crc = frame::crc(&ends.reply, &ends.data);
                answering.write_all(&[&ends.reply[..], &ends.data, &crc].concat()).unwrap();
            });
            let work = Work { tasks, ..work(Op::Read) };
            let measured = wire::run(small(asking, work, FILE as u64, Instant::now() + Duration::from_secs(5)));
            let why = measured.map(drop).unwrap_err().to_string();
            let told = match (other, tasks) {
                // The other end goes after one reply.
                (0, _) => "the other process has gone",
                (_, false) => "call 1 came instead of the reply to call 0",
                (_, true) => "no call 1 is under way",
            };
            assert!(why.contains(told), "{why}");
            peer.join().unwrap();
        }
    }

    #[test]
    fn the_attributes_are_those_of_the_file() {
        let told = attributes(&file().metadata().unwrap());
        assert_eq!((told.file_type, told.size, told.links), (v3::FileType::Regular, FILE as u64, 0));
        let mut ends = Ends::new(Op::Getattr);
        ends.exchange(1, 0).unwrap();
        let (_, stream) = received(Role::Requester, &ends.reply, &mut Scratch::default()).unwrap();
        let mut decoder = Decoder::new(Stream::from(stream));
        ReplyHeader::decode(&mut decoder).unwrap();
        assert_eq!(ok::<Attributes, ()>(whole(decoder).unwrap()).unwrap().size, FILE as u64);
    }

    #[test]
    fn a_reply_to_another_call_is_refused() {
        for op in [Op::Null, Op::Getattr, Op::Read] {
            let mut ends = Ends::new(op);
            ends.exchange(7, 0).unwrap();
            let other = error(ends.calls.read(8, &ends.reply));
            assert!(other.contains("call 7 came instead of the reply to call 8"), "{op:?}: {other}");
        }
    }

    /// A call has its program in the fourth word behind the header of RPC-over-RDMA, its version and procedure behind
    /// it.
    #[test]
    fn a_call_of_another_program_version_or_procedure_is_refused() {
        let words =
            [(12, "not of NFS version 3"), (16, "not of NFS version 3"), (20, "procedure 99"), (24, "AUTH_SYS")];
        for (at, why) in words {
            let mut ends = Ends::new(Op::Null);
            ends.calls.write(1, 0, &mut ends.call).unwrap();
            ends.answer().unwrap();
            ends.call[NO_CHUNKS_OCTETS + at..][..4].copy_from_slice(&99_u32.to_be_bytes());
            let refused = error(ends.answer());
            assert!(refused.contains(why), "{at}: {refused}");
        }
    }

    /// The ends must not panic, and must not take a reply that says something else.
    #[test]
    fn changed_and_cut_messages_are_survived() {
        for op in [Op::Null, Op::Getattr, Op::Read] {
            let mut ends = Ends::new(op);
            ends.exchange(1, 0).unwrap();
            let (call, reply) = (ends.call.clone(), ends.reply.clone());
            for at in 0..call.len() {
                ends.call[at] ^= 0xff;
                let is_refused = ends.answer().is_err();
                assert!(is_refused || at >= FIXED_OCTETS || (8..12).contains(&at), "{op:?}: byte {at} of a call");
                ends.call = call.clone();
                let cut = ends.replies.answer(&call[..at], &ends.file, &mut ends.reply, &mut ends.data);
                assert!(cut.is_err(), "{op:?}: a call of {at} bytes");
            }
            for at in 0..reply.len() {
                let mut calls = Calls::new(work(op));
                let mut changed = reply.clone();
                changed[at] ^= 0xff;
                let is_refused = calls.read(1, &changed).is_err();
                // XID, version and kind of the first header; the credits between them do not matter.
                assert!(is_refused || at >= FIXED_OCTETS || (8..12).contains(&at), "{op:?}: byte {at} of a reply");
                assert!(Calls::new(work(op)).read(1, &reply[..at]).is_err(), "{op:?}: a reply of {at} bytes");
            }
        }
    }

    #[test]
    fn a_read_that_brought_fewer_bytes_is_refused() {
        let mut ends = Ends::new(Op::Read);
        let short = offered(BLOCK as u32).filled(100).unwrap();
        ends.replies.data.truncate(100);
        ends.replies.read(1, short, 0).write(&mut ends.reply).unwrap();
        let short = error(ends.calls.read(1, &ends.reply));
        assert!(short.contains("a READ of 4096 bytes has brought 100"), "{short}");
    }
}
