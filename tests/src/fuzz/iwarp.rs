//! iWARP: reading and writing of headers, and an endpoint whose peer sends anything while it works.

use super::mint::Mint;
use bytes::Bytes;
use rpcrdma_env::{SeededRandom, tokio_env};
use rpcrdma_fabric::{
    Buffer, Capabilities, Completion, Fabric, Lent, ReadWork, Receives, RemoteSegment, SendWork, Token, WorkKind,
    WriteWork,
};
use rpcrdma_iwarp::{
    Config, Iwarp,
    protocol::{
        Endpoint, ReceiveQueue, Role, Setup,
        crc::Crc,
        ddp::{self, Header, Placement, UNTAGGED_OCTETS},
        fpdu::{Segmentation, pad_bytes},
        mpa::{Frame, HEAD_OCTETS, Head, Kind},
        negotiation::{self, Agreed},
        rdmap::{Opcode, READ_REQUEST_OCTETS, ReadRequest},
        terminate,
    },
};
use std::sync::{Arc, OnceLock};

/// Receives of the endpoint, and the bytes of each.
const RECEIVES: usize = 8;
const RECEIVE_BYTES: usize = 600;
/// Bytes of memory that the endpoint lends.
const LENT_OCTETS: usize = 2000;
/// FPDUs of 512 bytes, so that messages have several.
const FPDU_OCTETS: usize = 512;

/// Headers of every layer.
pub(super) fn headers(input: &[u8]) {
    for kind in [Kind::Request, Kind::Reply] {
        let Some((first, rest)) = input.split_first_chunk::<HEAD_OCTETS>() else { continue };
        let Ok(head) = Head::decode(kind, first) else { continue };
        let Some(private) = rest.get(..head.private_octets) else { continue };
        let frame = Frame::decode(head, private).expect("a head says only what is there");
        let octets = frame.encode(kind);
        let (first, rest) = octets.split_first_chunk().expect("it has a head");
        let again = Head::decode(kind, first).and_then(|head| Frame::decode(head, rest)).expect("it was written here");
        assert_eq!(again, frame);
        if kind == Kind::Request && negotiation::check_request(&frame).is_ok() {
            let _ = negotiation::reject(&frame, &[]);
        }
    }
    if let Ok(header) = Header::decode(input) {
        let mut octets = [0; UNTAGGED_OCTETS];
        let len = header.encode(&mut octets);
        assert_eq!(len, ddp::header_bytes(input[0]));
        assert_eq!(Header::decode(&octets[..len]).ok(), Some(header));
    }
    if let Some(request) = input.first_chunk::<READ_REQUEST_OCTETS>() {
        assert_eq!(ReadRequest::decode(request).encode(), *request);
    }
    let _ = terminate::decode(input);
    let _ = terminate::quoted_sink(input);
}

/// Reads the capabilities once; they are the same for all runs.
fn capabilities() -> Arc<Capabilities> {
    static ONCE: OnceLock<Arc<Capabilities>> = OnceLock::new();
    let ask = || {
        let env = tokio_env().expect("the system has randomness");
        Arc::new(Iwarp::new(env, Config::default()).capabilities().clone())
    };
    ONCE.get_or_init(ask).clone()
}

fn buffer(octets: usize) -> Buffer {
    Buffer::from_vec(vec![0; octets])
}

/// An FPDU with a right CRC.
pub(super) fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut out = (ulpdu.len() as u16).to_be_bytes().to_vec();
    out.extend(ulpdu);
    out.resize(out.len() + pad_bytes(ulpdu.len()), 0);
    let mut crc = Crc::new();
    crc.update(&out);
    out.extend(crc.octets());
    out
}

/// One end, and what its peer may know of it.
struct End {
    endpoint: Endpoint,
    /// Handles that the peer knows: a sink, a source, then the sinks of Reads as they appeared on the wire.
    handles: Vec<u32>,
    /// How many receives have come back, and how many pieces of memory.
    receives: usize,
    fenced: usize,
    over: bool,
}

impl End {
    fn new(mint: &mut Mint<'_>) -> Self {
        let flags = mint.u8();
        let crc = flags & 2 != 0;
        let agreed = Agreed { crc, ird: 2, ord: 2, ready_by_send: flags & 4 != 0, ready_by_read: flags & 8 != 0 };
        let setup = Setup {
            role: if flags & 1 == 0 { Role::Initiator } else { Role::Responder },
            agreed,
            segmentation: Segmentation::for_fpdu(FPDU_OCTETS),
            receives: ReceiveQueue::new(Receives::Own((0..RECEIVES).map(|_| buffer(RECEIVE_BYTES)).collect())),
            capabilities: capabilities(),
        };
        let mut endpoint = Endpoint::new(setup, &SeededRandom::new(1));
        let lent = [Lent::Sink(buffer(LENT_OCTETS)), Lent::Source(Bytes::from_static(&[0x5A; LENT_OCTETS]))];
        let lend = |memory| endpoint.expose(Token(0), memory).expect("it is open").handle;
        Self { handles: lent.map(lend).to_vec(), endpoint, receives: 0, fenced: 0, over: false }
    }

    /// One thing that the peer, the driver or the upper layer does.
    fn step(&mut self, mint: &mut Mint<'_>) {
        match mint.below(12) {
            0 => {
                let len = mint.u8().into();
                self.deliver(mint.take(len), mint.u8());
            }
            1 => {
                let len = usize::from(mint.u16() % 1200);
                self.deliver(&fpdu(mint.take(len)), mint.u8());
            }
            2..=5 => {
                let octets = self.segment(mint);
                self.deliver(&fpdu(&octets), mint.u8());
            }
            6 => {
                let octets = vec![Bytes::from(vec![7; usize::from(mint.u16() % 1500)])];
                let _ = self.endpoint.post_send(SendWork { octets: octets.into(), ..SendWork::default() });
            }
            7 => {
                let length = u32::from(mint.u16() % 1500);
                let sources = vec![RemoteSegment { handle: 77, length, offset: mint.u32().into() }];
                let _ = self.endpoint.post_read(ReadWork { token: Token(1), sink: buffer(length as usize), sources });
            }
            8 => {
                let octets = vec![Bytes::from(vec![8; usize::from(mint.u16() % 1500)])];
                let write = WriteWork {
                    octets: octets.into(),
                    handle: mint.u32(),
                    offset: mint.u32().into(),
                    ..WriteWork::default()
                };
                let _ = self.endpoint.post_write(write);
            }
            9 => {
                let handle = self.handle(mint);
                self.endpoint.invalidate(handle);
            }
            10 => self.output(usize::from(mint.u16())),
            _ => match mint.below(16) {
                0 => self.endpoint.peer_closed(),
                1 => self.endpoint.disconnect(),
                2 => self.endpoint.time_up(30),
                3 => self.endpoint.nudge(),
                _ => self.completions(),
            },
        }
    }

    fn handle(&self, mint: &mut Mint<'_>) -> u32 {
        let which = mint.below(self.handles.len() + 1);
        self.handles.get(which).copied().unwrap_or_else(|| mint.u32())
    }

    /// A well-formed segment.
    fn segment(&self, mint: &mut Mint<'_>) -> Vec<u8> {
        const OPCODES: [Opcode; 6] = [
            Opcode::Send,
            Opcode::Write,
            Opcode::ReadRequest,
            Opcode::ReadResponse,
            Opcode::SendInvalidate,
            Opcode::Terminate,
        ];
        let opcode = OPCODES[mint.below(OPCODES.len())];
        let flags = mint.u8();
        let placement = if matches!(opcode, Opcode::Write | Opcode::ReadResponse) {
            Placement::Tagged { stag: self.handle(mint), offset: mint.u16().into() }
        } else {
            let queue = match opcode {
                Opcode::ReadRequest => 1,
                Opcode::Terminate => 2,
                _ => u32::from(flags & 0x40 != 0),
            };
            Placement::Untagged {
                queue,
                msn: u32::from(mint.u8()),
                offset: if flags & 2 != 0 { mint.u16().into() } else { 0 },
                invalidate: if opcode == Opcode::SendInvalidate { self.handle(mint) } else { 0 },
            }
        };
        let mut header = [0; UNTAGGED_OCTETS];
        let len = Header { opcode, last: flags & 1 == 0, placement }.encode(&mut header);
        let mut octets = header[..len].to_vec();
        if opcode == Opcode::ReadRequest && flags & 0x80 == 0 {
            let size = u32::from(mint.u16());
            let (sink_stag, source_stag, source_offset) = (mint.u32(), self.handle(mint), mint.u16().into());
            octets.extend(ReadRequest { sink_stag, sink_offset: 0, size, source_stag, source_offset }.encode());
        } else {
            let len = usize::from(mint.u16() % 700);
            octets.resize(octets.len() + len, 9);
        }
        octets
    }

    /// Delivers bytes as a socket does, at most `cut` at a time.
    fn deliver(&mut self, mut octets: &[u8], cut: u8) {
        while !octets.is_empty() {
            let most = if cut == 0 { octets.len() } else { octets.len().min(cut.into()) };
            let mut taken = 0;
            for slice in &mut self.endpoint.read_slices() {
                let len = slice.len().min(most - taken);
                slice[..len].copy_from_slice(&octets[taken..taken + len]);
                taken += len;
            }
            if taken == 0 {
                return assert!(!self.endpoint.mid_fpdu(), "there is room while it is open");
            }
            self.endpoint.read(taken);
            octets = &octets[taken..];
        }
    }

    /// Takes the output, and learns handles from it as a peer does.
    fn output(&mut self, most: usize) {
        let slices: Vec<u8> = self.endpoint.write_slices().iter().flat_map(|slice| slice.to_vec()).collect();
        let len = slices.len().min(most);
        if len == 0 {
            return;
        }
        for at in 2..slices.len() {
            let Ok(Header { opcode: Opcode::ReadRequest, .. }) = Header::decode(&slices[at..]) else { continue };
            let Some(request) = slices.get(at + UNTAGGED_OCTETS..).and_then(|rest| rest.first_chunk()) else {
                continue;
            };
            let stag = ReadRequest::decode(request).sink_stag;
            if self.handles.len() < 8 && !self.handles.contains(&stag) {
                self.handles.push(stag);
            }
        }
        self.endpoint.written(len);
    }

    fn completions(&mut self) {
        while let Some(completion) = self.endpoint.next_completion() {
            assert!(!self.over, "nothing comes after the end");
            match completion {
                Completion::Received { buffer, .. } => {
                    assert!(buffer.filled().len() <= RECEIVE_BYTES);
                    self.receives += 1;
                }
                Completion::Failed { kind: WorkKind::Receive, .. } => self.receives += 1,
                Completion::Fenced { .. } => self.fenced += 1,
                Completion::Closed { .. } => self.over = true,
                _ => {}
            }
        }
    }
}

/// An endpoint whose peer sends anything. At the end all memory must have come back exactly once.
pub(super) fn endpoint(input: &[u8]) {
    let mut mint = Mint::new(input);
    let mut end = End::new(&mut mint);
    while !mint.is_empty() {
        end.step(&mut mint);
    }
    end.endpoint.broken("the end of the input".to_owned());
    end.completions();
    assert!(end.over, "it has ended: {:?}", end.endpoint.phase());
    assert_eq!(end.receives, RECEIVES, "each receive comes back once");
    assert_eq!(end.fenced, 2, "and so does what was lent");
}
