//! The receiver: cuts the octet stream into FPDUs so that the driver reads payload straight into its place.
//!
//! It plans each read as a list of pieces: the rest of the payload that is arriving goes to its place, the octets
//! behind it go to a small staging buffer. While a message of many segments arrives, the plan guesses that the next
//! segments have the same layout and continue the message, so that one read takes many of them. The receiver looks at
//! every header before it accepts that the payload is in place; from the first wrong guess on, it moves the octets to a
//! spill buffer and takes them from there. A guess touches only memory that holds nothing yet ([`Inbound::untouched`])
//! and that the peer may write anyway.

use super::{
    crc::Crc,
    ddp::{self, Header},
    fault::Fault,
    fpdu::{CRC_OCTETS, LENGTH_OCTETS, MAX_HEADER_OCTETS, MAX_TRAILER_OCTETS, pad_bytes},
    inbound::{HELD_OCTETS, Inbound, Target},
    terminate::Offender,
};
use smallvec::SmallVec;
use std::io::IoSliceMut;

/// Slices to read into: usually the rest of a segment, and what follows it. In a stream of segments of 64 KiB as many
/// as 512 KiB take, so that no read allocates, not even one that finds nothing.
pub type ReadSlices<'a> = SmallVec<[IoSliceMut<'a>; 20]>;

/// Segments that one read takes at most: with 1,448-octet segments so many that a MiB takes about six reads, with large
/// ones all of several MiB.
const MAX_GUESSED_SEGMENTS: usize = 128;
/// Octets of payload that one read takes at most, guesses included: so few that they are still in the cache when their
/// CRC is computed. The spill buffer may grow to this size.
const MAX_PLANNED_OCTETS: usize = 512 << 10;
/// A spill buffer of at most so many octets is kept for the next wrong guess; a larger one is freed.
const KEPT_SPILL_OCTETS: usize = 64 << 10;
/// The least octets to read behind the payload: a message with 4,096 octets of data, and its framing.
const MIN_TAIL_OCTETS: usize = 4096 + 256;
/// The most octets to read behind the payload, when many small messages come.
const MAX_TAIL_OCTETS: usize = 16 << 10;
/// Octets of an FPDU from which the receiver knows the length of its header: length and DDP control.
const PEEK_OCTETS: usize = LENGTH_OCTETS + 2;

#[derive(Clone, Copy, Debug)]
enum Piece {
    /// Octets of the target's memory, from `at`.
    Place { at: usize, len: usize },
    /// Octets of the staging buffer, from `at`.
    Stage { at: usize, len: usize },
}

impl Piece {
    fn len(&self) -> usize {
        match *self {
            Piece::Place { len, .. } | Piece::Stage { len, .. } => len,
        }
    }
}

/// The octets that were read and are not examined yet.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    left: usize,
    /// The piece, and the offset in it. After the last piece: in the spill buffer.
    piece: usize,
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Header,
    Payload { target: Target, at: usize, left: usize },
    Trailer,
}

pub(crate) struct Receiver {
    check_crc: bool,
    crc: Crc,
    phase: Phase,
    /// Length field and DDP header.
    head: [u8; MAX_HEADER_OCTETS],
    head_have: usize,
    /// The length of the header; zero until its first octets have come.
    head_want: usize,
    header: Option<Header>,
    payload_octets: usize,
    /// Pad and CRC.
    trailer: [u8; MAX_TRAILER_OCTETS],
    trailer_have: usize,
    pieces: Vec<Piece>,
    planned: Target,
    stage: Vec<u8>,
    tail_octets: usize,
    spill: Vec<u8>,
    cursor: Cursor,
}

impl Receiver {
    pub(crate) fn new(check_crc: bool) -> Self {
        Receiver {
            check_crc,
            crc: Crc::new(),
            phase: Phase::Header,
            head: [0; MAX_HEADER_OCTETS],
            head_have: 0,
            head_want: 0,
            header: None,
            payload_octets: 0,
            trailer: [0; MAX_TRAILER_OCTETS],
            trailer_have: 0,
            pieces: Vec::new(),
            planned: Target::Nowhere,
            stage: Vec::new(),
            tail_octets: MIN_TAIL_OCTETS,
            spill: Vec::new(),
            cursor: Cursor::default(),
        }
    }

    /// Whether the stream stands between two FPDUs.
    pub(crate) fn at_boundary(&self) -> bool {
        matches!(self.phase, Phase::Header) && self.head_have == 0
    }

    /// The segment under examination, for a Terminate.
    pub(crate) fn offender<'a>(&'a self, inbound: &'a Inbound) -> Offender<'a> {
        let header = self.head.get(LENGTH_OCTETS..self.head_have).unwrap_or_default();
        // A header that is not complete is useless.
        let whole = self.head_want != 0 && self.head_have == self.head_want;
        let is_request = self.header.is_some_and(|h| h.opcode == super::rdmap::Opcode::ReadRequest)
            && matches!(self.phase, Phase::Trailer);
        Offender {
            ulpdu_octets: u16::from_be_bytes([self.head[0], self.head[1]]),
            header: if whole { header } else { &[] },
            read_request: is_request.then(|| inbound.read_request()),
        }
    }

    /// The slices to read into next, in this order. Together they have at least one octet.
    pub(crate) fn slices<'a>(&'a mut self, inbound: &'a mut Inbound) -> ReadSlices<'a> {
        self.plan(inbound);
        let mut slices = ReadSlices::with_capacity(self.pieces.len());
        let mut stage = &mut self.stage[..];
        let mut place = inbound.memory(self.planned).unwrap_or_default();
        let mut place_at = 0;
        for piece in &self.pieces {
            match *piece {
                Piece::Stage { len, .. } => {
                    let (now, later) = std::mem::take(&mut stage).split_at_mut(len);
                    slices.push(IoSliceMut::new(now));
                    stage = later;
                }
                Piece::Place { at, len } => {
                    let (_, from) = std::mem::take(&mut place).split_at_mut(at - place_at);
                    let (now, later) = from.split_at_mut(len);
                    slices.push(IoSliceMut::new(now));
                    place = later;
                    place_at = at + len;
                }
            }
        }
        slices
    }

    fn plan(&mut self, inbound: &mut Inbound) {
        self.pieces.clear();
        self.planned = Target::Nowhere;
        let mut staged = 0;
        if let (Phase::Payload { target, at, left }, Some(header)) = (self.phase, self.header)
            && inbound.memory(target).is_some_and(|memory| memory.len() >= at + left)
        {
            self.planned = target;
            self.pieces.push(Piece::Place { at, len: left });
            let mut at = at + left;
            let mut room = if header.last { 0 } else { inbound.untouched(target, at) };
            let mut trailer = pad_bytes(self.ulpdu_octets()) + CRC_OCTETS;
            let (mut guesses, end) = (0, at + MAX_PLANNED_OCTETS);
            while room > 0 && self.payload_octets > 0 && guesses < MAX_GUESSED_SEGMENTS && at < end {
                let between = trailer + self.head_want;
                self.pieces.push(Piece::Stage { at: staged, len: between });
                staged += between;
                let len = room.min(self.payload_octets);
                self.pieces.push(Piece::Place { at, len });
                at += len;
                room -= len;
                trailer = pad_bytes(self.head_want - LENGTH_OCTETS + len) + CRC_OCTETS;
                guesses += 1;
            }
        }
        self.pieces.push(Piece::Stage { at: staged, len: self.tail_octets });
        let needed = staged + self.tail_octets;
        if self.stage.len() < needed {
            self.stage.resize(needed, 0);
        }
    }

    /// The driver has read the first `octets` octets of the [slices](Self::slices).
    pub(crate) fn received(&mut self, octets: usize, inbound: &mut Inbound) -> Result<(), Fault> {
        let planned: usize = self.pieces.iter().map(Piece::len).sum();
        let filled = octets >= planned;
        self.cursor = Cursor { left: octets.min(planned), piece: 0, at: 0 };
        let result = self.examine(inbound);
        if self.spill.capacity() > KEPT_SPILL_OCTETS {
            self.spill = Vec::new();
        }
        let bulk = matches!(self.phase, Phase::Payload { left, .. } if left > MIN_TAIL_OCTETS);
        if bulk {
            self.tail_octets = MIN_TAIL_OCTETS;
        } else if filled {
            self.tail_octets = (self.tail_octets * 2).min(MAX_TAIL_OCTETS);
        }
        result
    }

    /// Takes octets that the driver has read into other memory.
    pub(crate) fn feed(&mut self, octets: &[u8], inbound: &mut Inbound) -> Result<(), Fault> {
        self.pieces.clear();
        self.spill.clear();
        self.spill.extend_from_slice(octets);
        self.cursor = Cursor { left: octets.len(), piece: 0, at: 0 };
        self.examine(inbound)
    }

    /// Shows what was read, slice by slice, before [`received`](Self::received) examines it.
    pub(crate) fn show(&self, octets: usize, inbound: &mut Inbound, mut show: impl FnMut(&[u8])) {
        let mut left = octets;
        for piece in &self.pieces {
            let len = piece.len().min(left);
            if len == 0 {
                break;
            }
            let run = match *piece {
                Piece::Stage { at, .. } => self.stage.get(at..at + len),
                Piece::Place { at, .. } => inbound.memory(self.planned).and_then(|m| m.get(at..at + len)),
            };
            show(run.unwrap_or_default());
            left -= len;
        }
    }

    fn ulpdu_octets(&self) -> usize {
        u16::from_be_bytes([self.head[0], self.head[1]]).into()
    }

    fn examine(&mut self, inbound: &mut Inbound) -> Result<(), Fault> {
        while self.cursor.left > 0 {
            match self.phase {
                Phase::Header => {
                    if self.head_have == 0
                        && let Some(whole) = whole(run(&self.pieces, &self.stage, &self.spill, self.cursor))
                    {
                        self.take_whole(whole, inbound)?;
                        continue;
                    }
                    let want = if self.head_want == 0 { PEEK_OCTETS } else { self.head_want };
                    self.settle(inbound);
                    let run = run(&self.pieces, &self.stage, &self.spill, self.cursor);
                    let len = copy(run, &mut self.head, self.head_have, want);
                    self.head_have += len;
                    self.advance(len);
                    if self.head_have < want {
                        continue;
                    }
                    if self.head_want == 0 {
                        self.head_want = LENGTH_OCTETS + ddp::header_bytes(self.head[LENGTH_OCTETS]);
                        if self.ulpdu_octets() + LENGTH_OCTETS < self.head_want {
                            return Err(Fault::ShortUlpdu { octets: self.ulpdu_octets() });
                        }
                    } else {
                        self.begin(inbound)?;
                    }
                }
                Phase::Payload { target, at, left } => self.payload(target, at, left, inbound)?,
                Phase::Trailer => {
                    let want = pad_bytes(self.ulpdu_octets()) + CRC_OCTETS;
                    self.settle(inbound);
                    let run = run(&self.pieces, &self.stage, &self.spill, self.cursor);
                    let len = copy(run, &mut self.trailer, self.trailer_have, want);
                    self.trailer_have += len;
                    self.advance(len);
                    if self.trailer_have == want {
                        let (pad, crc) = self.trailer.split_at(want - CRC_OCTETS);
                        let carried = crc.first_chunk().copied().unwrap_or_default();
                        if self.check_crc {
                            self.crc.update(pad);
                        }
                        self.finish(carried, inbound)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, inbound: &mut Inbound) -> Result<(), Fault> {
        if self.check_crc {
            self.crc.reset();
            self.crc.update(self.head.get(..self.head_want).unwrap_or_default());
        }
        let (target, at) = self.judge(inbound)?;
        self.phase = match self.payload_octets {
            0 => Phase::Trailer,
            left => Phase::Payload { target, at, left },
        };
        Ok(())
    }

    /// Judges a segment by its header: the memory into which its payload goes, and the offset there.
    fn judge(&mut self, inbound: &mut Inbound) -> Result<(Target, usize), Fault> {
        let header = Header::decode(self.head.get(LENGTH_OCTETS..self.head_want).unwrap_or_default())?;
        self.payload_octets = (self.ulpdu_octets() + LENGTH_OCTETS).saturating_sub(self.head_want);
        self.header = Some(header);
        self.trailer_have = 0;
        inbound.begin(&header, self.payload_octets)
    }

    /// Takes an FPDU whose octets all lie together: what the phases do one after the other, and the CRC in one piece.
    fn take_whole(&mut self, Whole { octets, head_octets }: Whole, inbound: &mut Inbound) -> Result<(), Fault> {
        let fpdu = run(&self.pieces, &self.stage, &self.spill, self.cursor).get(..octets).unwrap_or_default();
        self.head_have = copy(fpdu, &mut self.head, 0, head_octets);
        self.head_want = head_octets;
        if self.check_crc {
            self.crc.reset();
            self.crc.update(fpdu.get(..octets - CRC_OCTETS).unwrap_or_default());
        }
        let (target, at) = self.judge(inbound)?;
        let fpdu = run(&self.pieces, &self.stage, &self.spill, self.cursor).get(..octets).unwrap_or_default();
        let behind = fpdu.get(head_octets..).unwrap_or_default();
        let (payload, trailer) = behind.split_at_checked(self.payload_octets).unwrap_or_default();
        let is_last = self.header.is_some_and(|header| header.last);
        if target == Target::Receive && at == 0 && is_last && payload.len() <= HELD_OCTETS {
            inbound.hold(payload);
        } else if target != Target::Nowhere && !payload.is_empty() {
            let place = inbound.memory(target).and_then(|memory| memory.get_mut(at..at + payload.len()));
            place.ok_or_else(|| fenced(target))?.copy_from_slice(payload);
        }
        self.phase = Phase::Trailer;
        let carried = trailer.last_chunk().copied().unwrap_or_default();
        self.advance(octets);
        self.finish(carried, inbound)
    }

    fn payload(&mut self, target: Target, at: usize, left: usize, inbound: &mut Inbound) -> Result<(), Fault> {
        let in_place = match self.pieces.get(self.cursor.piece) {
            Some(Piece::Place { at: from, len }) if self.planned == target && from + self.cursor.at == at => {
                Some(len - self.cursor.at)
            }
            _ => None,
        };
        let len = if let Some(len) = in_place {
            let len = len.min(left).min(self.cursor.left);
            let place = inbound.memory(target).and_then(|memory| memory.get(at..at + len));
            let place = place.ok_or_else(|| fenced(target))?;
            if self.check_crc {
                self.crc.update(place);
            }
            len
        } else {
            self.settle(inbound);
            let run = run(&self.pieces, &self.stage, &self.spill, self.cursor);
            let run = run.get(..left.min(run.len())).unwrap_or_default();
            if self.check_crc {
                self.crc.update(run);
            }
            if target != Target::Nowhere {
                let place = inbound.memory(target).and_then(|memory| memory.get_mut(at..at + run.len()));
                place.ok_or_else(|| fenced(target))?.copy_from_slice(run);
            }
            run.len()
        };
        self.advance(len);
        self.phase = match left - len {
            0 => Phase::Trailer,
            left => Phase::Payload { target, at: at + len, left },
        };
        Ok(())
    }

    /// A segment is in its place; `carried` is the CRC that came with it.
    fn finish(&mut self, carried: [u8; CRC_OCTETS], inbound: &mut Inbound) -> Result<(), Fault> {
        if self.check_crc {
            let computed = self.crc.octets();
            // MPA-5044-4.4-b
            if carried != computed {
                return Err(Fault::Crc { carried, computed });
            }
        }
        if let Some(header) = self.header {
            if header.last && self.planned == Target::Receive {
                // The octets behind the message may lie in its receive, where they are lost when the receive is handed
                // out. (No guess goes beyond a Read's end. Exposed memory exists until the connection ends or a Send
                // invalidates it; this Send's header is longer than the guessed one, so it has ended the guess.)
                self.leave_places(inbound);
            }
            inbound.finish(&header, self.payload_octets)?;
        }
        self.header = None;
        self.head_have = 0;
        self.head_want = 0;
        self.phase = Phase::Header;
        Ok(())
    }

    fn advance(&mut self, octets: usize) {
        let cursor = &mut self.cursor;
        cursor.left -= octets;
        cursor.at += octets;
        if self.pieces.get(cursor.piece).is_some_and(|piece| piece.len() == cursor.at) {
            cursor.piece += 1;
            cursor.at = 0;
        }
    }

    /// If the next octets lie in a place to which they do not belong, moves all remaining octets to the spill buffer.
    fn settle(&mut self, inbound: &mut Inbound) {
        if matches!(self.pieces.get(self.cursor.piece), Some(Piece::Place { .. })) {
            self.spill_rest(inbound);
        }
    }

    /// If any remaining octets lie in a place, moves all of them to the spill buffer.
    fn leave_places(&mut self, inbound: &mut Inbound) {
        let rest = self.pieces.get(self.cursor.piece..).unwrap_or_default();
        if self.cursor.left > 0 && rest.iter().any(|piece| matches!(piece, Piece::Place { .. })) {
            self.spill_rest(inbound);
        }
    }

    fn spill_rest(&mut self, inbound: &mut Inbound) {
        self.spill.clear();
        let mut skip = self.cursor.at;
        let mut left = self.cursor.left;
        let first = self.cursor.piece.min(self.pieces.len());
        for piece in &self.pieces[first..] {
            let len = (piece.len() - skip).min(left);
            let run = match *piece {
                Piece::Stage { at, .. } => self.stage.get(at + skip..at + skip + len),
                Piece::Place { at, .. } => {
                    inbound.memory(self.planned).and_then(|memory| memory.get(at + skip..at + skip + len))
                }
            };
            self.spill.extend_from_slice(run.unwrap_or_default());
            skip = 0;
            left -= len;
        }
        self.pieces.clear();
        self.cursor = Cursor { left: self.spill.len(), piece: 0, at: 0 };
    }
}

/// The next octets that lie together.
fn run<'a>(pieces: &[Piece], stage: &'a [u8], spill: &'a [u8], cursor: Cursor) -> &'a [u8] {
    let run = match pieces.get(cursor.piece) {
        Some(&Piece::Stage { at, len }) => stage.get(at + cursor.at..at + len),
        Some(Piece::Place { .. }) => None,
        None => spill.get(cursor.at..),
    };
    let run = run.unwrap_or_default();
    run.get(..cursor.left).unwrap_or(run)
}

/// The lengths of an FPDU, and of length field and header at its beginning.
struct Whole {
    octets: usize,
    head_octets: usize,
}

/// The FPDU that `run` begins with, if `run` holds all of it and its length fits its kind of header.
fn whole(run: &[u8]) -> Option<Whole> {
    let &[high, low, control, ..] = run else { return None };
    let ulpdu = usize::from(u16::from_be_bytes([high, low]));
    let octets = LENGTH_OCTETS + ulpdu + pad_bytes(ulpdu) + CRC_OCTETS;
    let head_octets = LENGTH_OCTETS + ddp::header_bytes(control);
    (LENGTH_OCTETS + ulpdu >= head_octets && octets <= run.len()).then_some(Whole { octets, head_octets })
}

/// Copies octets of `run` to `out[have..want]`, and returns how many.
fn copy(run: &[u8], out: &mut [u8], have: usize, want: usize) -> usize {
    let room = out.get_mut(have..want).unwrap_or_default();
    let len = room.len().min(run.len());
    room[..len].copy_from_slice(&run[..len]);
    len
}

/// The fault of a segment whose memory was invalidated while it arrived.
fn fenced(target: Target) -> Fault {
    Fault::Stag { stag: if let Target::Exposed(stag) = target { stag } else { 0 } }
}
