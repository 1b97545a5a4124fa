//! From bytes in order to MPA's frames, and back into step where bytes are missing.
//!
//! Holds at most one frame; a search holds a few. A search takes an FPDU for one when its CRC is right, or, where
//! CRCs may be off, when [`CHAIN_FPDUS`] in a row look like FPDUs.

use rpcrdma_iwarp::protocol::{
    crc::Crc,
    ddp::{Header, Placement, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE, UNTAGGED_OCTETS, header_bytes},
    fpdu::{CRC_OCTETS, LENGTH_OCTETS, pad_bytes},
    mpa::{Frame, HEAD_OCTETS, Head, Kind},
    rdmap::{Opcode, READ_REQUEST_OCTETS},
};

/// FPDUs in a row that look right, for a search without CRCs. Each has some 20 bits whose values are fixed.
const CHAIN_FPDUS: usize = 3;
/// After this many bytes in which a search has found nothing, a stream whose beginning was not captured does not count
/// as iWARP. The longest FPDU has 65,544.
const MAX_SKIPPED_BYTES: u64 = 1 << 20;
/// The beginning of both set-up frames.
const KEY: &[u8] = b"MPA ID Re";
/// Bytes that tell whether something looks like an FPDU.
const LOOK_BYTES: usize = LENGTH_OCTETS + UNTAGGED_OCTETS;

/// The output of the framing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unit<'a> {
    SetUp(Kind, Frame),
    Ulpdu(&'a [u8]),
    BadCrc {
        octets: usize,
    },
    Resumed {
        skipped_bytes: u64,
    },
    Unread(&'static str),
    /// The stream carries something else.
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A set-up frame comes.
    SetUp,
    /// FPDUs come.
    Fpdus,
    /// It is not known where the next FPDU begins.
    Search,
    /// The rest is not looked at.
    Ended,
}

/// What both directions know.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Whether CRCs are on, once that was seen.
    pub(super) crc: Option<bool>,
    pub(super) searched_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Framing {
    state: State,
    held: Vec<u8>,
    skipped_bytes: u64,
    /// Something was read in this direction.
    found: bool,
}

/// What to do with the first of the bytes.
enum Step<'a> {
    Wait,
    Skip(usize),
    Take(usize, Option<Unit<'a>>),
}

impl Framing {
    /// `from_start`: the SYN was seen.
    pub(super) fn new(from_start: bool) -> Self {
        let state = if from_start { State::SetUp } else { State::Search };
        Framing { state, held: Vec::new(), skipped_bytes: 0, found: false }
    }

    #[cfg(test)]
    pub(super) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Reads no more bytes.
    pub(super) fn end(&mut self) {
        self.state = State::Ended;
        self.held = Vec::new();
    }

    /// Bytes are missing here.
    pub(super) fn gap(&mut self) {
        if self.state != State::Ended {
            self.skipped_bytes += self.held.len() as u64;
            self.held.clear();
            self.state = State::Search;
        }
    }

    /// No more bytes come: bytes that look right are accepted, and if the last ones hold no FPDU, the output says so.
    pub(super) fn finish<E>(
        &mut self,
        known: &mut Known,
        out: &mut dyn FnMut(Unit<'_>, &mut Known) -> Result<(), E>,
    ) -> Result<(), E> {
        self.octets(&[], true, known, out)?;
        if self.state == State::Search && self.found && self.skipped_bytes + self.held.len() as u64 > 0 {
            out(Unit::Unread("the last bytes hold no FPDU"), known)?;
        }
        Ok(())
    }

    /// Takes the next bytes. `last`: no more will come, so bytes that look right are accepted.
    pub(super) fn octets<E>(
        &mut self,
        octets: &[u8],
        last: bool,
        known: &mut Known,
        out: &mut dyn FnMut(Unit<'_>, &mut Known) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.state == State::Ended {
            return Ok(());
        }
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(octets);
        let mut at = 0;
        while let Some(rest) = held.get(at..).filter(|rest| !rest.is_empty()) {
            match self.step(rest, last, known) {
                Step::Wait => break,
                Step::Skip(octets) => {
                    at += octets;
                    self.skipped_bytes += octets as u64;
                    if !self.found && self.skipped_bytes > MAX_SKIPPED_BYTES {
                        self.end();
                        return out(Unit::Foreign, known);
                    }
                }
                Step::Take(octets, unit) => {
                    at += octets;
                    if let Some(unit) = unit {
                        self.found |= matches!(unit, Unit::SetUp(..) | Unit::Ulpdu(_));
                        out(unit, known)?;
                    }
                }
            }
            if self.state == State::Ended {
                return Ok(());
            }
        }
        held.drain(..at);
        self.held = held;
        Ok(())
    }

    fn step<'a>(&mut self, rest: &'a [u8], last: bool, known: &mut Known) -> Step<'a> {
        match self.state {
            State::SetUp => self.set_up(rest),
            State::Fpdus => self.fpdu(rest, known),
            State::Search => self.search(rest, last, known),
            State::Ended => Step::Wait,
        }
    }

    fn set_up<'a>(&mut self, rest: &'a [u8]) -> Step<'a> {
        if !rest.iter().zip(KEY).all(|(a, b)| a == b) {
            self.end();
            return Step::Take(0, Some(Unit::Foreign));
        }
        let Some(head) = rest.first_chunk::<HEAD_OCTETS>() else { return Step::Wait };
        let decoded =
            [Kind::Request, Kind::Reply].into_iter().find_map(|kind| Some((kind, Head::decode(kind, head).ok()?)));
        let Some((kind, head)) = decoded else {
            self.end();
            return Step::Take(0, Some(Unit::Unread("a set-up frame that MPA does not define")));
        };
        let len = HEAD_OCTETS + head.private_octets;
        let Some(private_data) = rest.get(HEAD_OCTETS..len) else { return Step::Wait };
        match Frame::decode(head, private_data) {
            Ok(frame) => {
                self.state = State::Fpdus;
                Step::Take(len, Some(Unit::SetUp(kind, frame)))
            }
            Err(_) => {
                self.end();
                Step::Take(0, Some(Unit::Unread("a set-up frame that MPA does not define")))
            }
        }
    }

    fn fpdu<'a>(&mut self, rest: &'a [u8], known: &Known) -> Step<'a> {
        let Some(frame) = Fpdu::at(rest) else { return Step::Wait };
        let Some(whole) = rest.get(..frame.octets) else { return Step::Wait };
        if known.crc == Some(true) && !crc_is_right(whole) {
            return Step::Take(frame.octets, Some(Unit::BadCrc { octets: frame.ulpdu_octets }));
        }
        let ulpdu = whole.get(LENGTH_OCTETS..LENGTH_OCTETS + frame.ulpdu_octets).unwrap_or_default();
        if Header::decode(ulpdu).is_err() {
            self.state = State::Search;
            return Step::Skip(LENGTH_OCTETS);
        }
        Step::Take(frame.octets, Some(Unit::Ulpdu(ulpdu)))
    }

    fn search<'a>(&mut self, rest: &'a [u8], last: bool, known: &mut Known) -> Step<'a> {
        let mut at = 0;
        while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
            match looks_right(here, last, known) {
                Look::Wait => break,
                Look::No => at += 1,
                Look::SetUp | Look::Fpdu if at > 0 => break,
                found @ (Look::SetUp | Look::Fpdu) => {
                    self.state = if matches!(found, Look::SetUp) { State::SetUp } else { State::Fpdus };
                    let skipped_bytes = std::mem::take(&mut self.skipped_bytes);
                    return Step::Take(0, Some(Unit::Resumed { skipped_bytes }));
                }
                Look::GiveUp => {
                    self.end();
                    return Step::Take(0, Some(Unit::Unread("the search for FPDUs has reached its limit")));
                }
            }
        }
        if at == 0 { Step::Wait } else { Step::Skip(at) }
    }
}

/// Where an FPDU ends.
struct Fpdu {
    ulpdu_octets: usize,
    octets: usize,
}

impl Fpdu {
    fn at(octets: &[u8]) -> Option<Fpdu> {
        let ulpdu_octets = usize::from(u16::from_be_bytes(*octets.first_chunk()?));
        let octets = LENGTH_OCTETS + ulpdu_octets + pad_bytes(ulpdu_octets) + CRC_OCTETS;
        Some(Fpdu { ulpdu_octets, octets })
    }
}

fn crc_is_right(fpdu: &[u8]) -> bool {
    let Some((covered, field)) = fpdu.split_last_chunk::<CRC_OCTETS>() else { return false };
    let mut crc = Crc::new();
    crc.update(covered);
    crc.octets() == *field
}

enum Look {
    No,
    Wait,
    SetUp,
    Fpdu,
    GiveUp,
}

/// Whether a frame begins here.
fn looks_right(here: &[u8], last: bool, known: &mut Known) -> Look {
    let more = if last { Look::No } else { Look::Wait };
    if here.iter().zip(KEY).all(|(a, b)| a == b) {
        return if here.len() < KEY.len() { more } else { Look::SetUp };
    }
    let first = match has_fpdu_header(here) {
        None => return more,
        Some(false) => return Look::No,
        Some(true) => Fpdu::at(here).map_or(0, |frame| frame.octets),
    };
    let Some(whole) = here.get(..first) else { return more };
    known.searched_bytes += first as u64;
    if known.searched_bytes > super::MAX_SEARCHED_BYTES {
        return Look::GiveUp;
    }
    if crc_is_right(whole) {
        known.crc = Some(true);
        return Look::Fpdu;
    }
    if known.crc == Some(true) {
        return Look::No;
    }
    let mut at = first;
    for _ in 1..CHAIN_FPDUS {
        let next = here.get(at..).unwrap_or_default();
        if last && next.is_empty() {
            break;
        }
        match has_fpdu_header(next) {
            None => return more,
            Some(false) => return Look::No,
            Some(true) => at += Fpdu::at(next).map_or(0, |frame| frame.octets),
        }
    }
    Look::Fpdu
}

/// Whether an FPDU's length and header may stand here. `None`: more bytes tell.
fn has_fpdu_header(here: &[u8]) -> Option<bool> {
    // Reserved bits, which everyone sends as zero.
    let (&ddp, &rdmap) = (here.get(LENGTH_OCTETS)?, here.get(LENGTH_OCTETS + 1)?);
    if ddp & 0x3C != 0 || rdmap & 0x30 != 0 {
        return Some(false);
    }
    let ulpdu_octets = Fpdu::at(here)?.ulpdu_octets;
    if ulpdu_octets < header_bytes(ddp) {
        return Some(false);
    }
    let header = match Header::decode(here.get(LENGTH_OCTETS..here.len().min(LOOK_BYTES))?) {
        Ok(header) => header,
        Err(_) if here.len() < LOOK_BYTES => return None,
        Err(_) => return Some(false),
    };
    Some(match header.placement {
        Placement::Tagged { .. } => true,
        Placement::Untagged { queue, msn, invalidate, .. } => {
            let right_queue = match header.opcode {
                Opcode::ReadRequest => {
                    ulpdu_octets == UNTAGGED_OCTETS + READ_REQUEST_OCTETS && queue == QUEUE_READ_REQUEST
                }
                Opcode::Terminate => queue == QUEUE_TERMINATE,
                _ => queue == QUEUE_SEND,
            };
            right_queue && msn != 0 && (invalidate == 0 || header.opcode.invalidates())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fpdu(payload: &[u8], crc: bool) -> Vec<u8> {
        let placement = Placement::Untagged { queue: 0, msn: 1, offset: 0, invalidate: 0 };
        let mut header = [0; UNTAGGED_OCTETS];
        let len = Header { opcode: Opcode::Send, last: true, placement }.encode(&mut header);
        let ulpdu = len + payload.len();
        let mut out = (ulpdu as u16).to_be_bytes().to_vec();
        out.extend(&header[..len]);
        out.extend(payload);
        out.resize(LENGTH_OCTETS + ulpdu + pad_bytes(ulpdu), 0);
        let mut sum = Crc::new();
        sum.update(&out);
        out.extend(if crc { sum.octets() } else { [0; 4] });
        out
    }

    fn read(framing: &mut Framing, known: &mut Known, octets: &[u8], last: bool) -> Vec<String> {
        let mut seen = Vec::new();
        framing
            .octets::<()>(octets, last, known, &mut |unit, _| {
                seen.push(match unit {
                    Unit::Ulpdu(ulpdu) => format!("ulpdu {}", ulpdu.len()),
                    other => format!("{other:?}"),
                });
                Ok(())
            })
            .unwrap();
        seen
    }

    #[test]
    fn bytes_at_the_end_that_hold_no_fpdu_are_told() {
        let told = |last: &[u8], gap: bool| {
            let (mut framing, mut known) = (Framing::new(true), Known { crc: Some(true), searched_bytes: 0 });
            let mut units = Vec::new();
            let mut out = |unit: Unit<'_>, _: &mut Known| {
                units.push(format!("{unit:?}"));
                Ok::<_, ()>(())
            };
            framing.state = State::Fpdus;
            framing.found = true;
            if gap {
                framing.gap();
            }
            framing.octets(last, false, &mut known, &mut out).unwrap();
            framing.finish(&mut known, &mut out).unwrap();
            units.iter().filter(|unit| unit.starts_with("Unread")).count()
        };
        // One octet is too short for any header, and its CRC is right.
        let mut crc = Crc::new();
        crc.update(&[0, 1, 0, 0]);
        let short = [&[0, 1, 0, 0][..], &crc.octets()].concat();
        assert_eq!(told(&short, false), 1);
        assert_eq!(told(&short[..3], true), 1);
        assert_eq!(told(&[], false), 0);
        assert_eq!(told(&[], true), 0);
        assert_eq!(told(&[1, 0, 0x81], false), 0, "an FPDU that was cut off is no surprise at the end");
    }

    #[test]
    fn a_lost_beginning_is_got_over_by_crc() {
        for step in [1, 7, 5000] {
            let (mut framing, mut known) = (Framing::new(false), Known::default());
            let octets = [vec![0x40; 33], fpdu(&[5; 100], true), fpdu(b"", true)].concat();
            let seen: Vec<_> =
                octets.chunks(step).flat_map(|octets| read(&mut framing, &mut known, octets, false)).collect();
            assert_eq!(seen, ["Resumed { skipped_bytes: 33 }", "ulpdu 118", "ulpdu 18"], "{step} at a time");
            assert_eq!(known.crc, Some(true));
        }
    }

    #[test]
    fn without_crcs_three_in_a_row_are_believed_and_two_are_not() {
        let (mut framing, mut known) = (Framing::new(false), Known::default());
        let two = [vec![9; 5], fpdu(b"one", false), fpdu(b"two", false)].concat();
        assert_eq!(read(&mut framing, &mut known, &two, false), [""; 0]);
        let seen = read(&mut framing, &mut known, &fpdu(b"three", false), false);
        assert_eq!(seen, ["Resumed { skipped_bytes: 5 }", "ulpdu 21", "ulpdu 21", "ulpdu 23"]);
        let (mut framing, mut known) = (Framing::new(false), Known::default());
        let seen = read(&mut framing, &mut known, &two, true);
        assert_eq!(seen, ["Resumed { skipped_bytes: 5 }", "ulpdu 21", "ulpdu 21"], "up to the end of the stream");
    }

    #[test]
    fn a_wrong_crc_is_told_and_the_next_fpdu_read() {
        let (mut framing, mut known) = (Framing::new(true), Known { crc: Some(true), ..Known::default() });
        let request =
            Head { markers: false, crc: true, reject: false, enhanced: false, revision: 1, private_octets: 0 };
        let octets = [request.encode(Kind::Request).to_vec(), fpdu(b"bad", false), fpdu(b"good", true)].concat();
        let seen = read(&mut framing, &mut known, &octets, false);
        assert_eq!(seen[1..], ["BadCrc { octets: 21 }", "ulpdu 22"]);
    }

    #[test]
    fn other_streams_are_left_alone() {
        let (mut framing, mut known) = (Framing::new(true), Known::default());
        assert_eq!(read(&mut framing, &mut known, b"SSH-2.0", false), ["Foreign"]);
        assert!(framing.is_ended());
        let (mut framing, mut known) = (Framing::new(false), Known::default());
        let most = vec![0xEE; MAX_SKIPPED_BYTES as usize];
        assert_eq!(read(&mut framing, &mut known, &most, false), [""; 0]);
        assert_eq!(read(&mut framing, &mut known, &[0xEE; LOOK_BYTES + 1], false), ["Foreign"]);
    }

    #[test]
    fn a_search_ends_at_its_limit() {
        let octets = fpdu(b"found", true);
        let before = super::super::MAX_SEARCHED_BYTES - octets.len() as u64;
        for (searched_bytes, expected) in [(before, "Resumed"), (before + 1, "Unread")] {
            let (mut framing, mut known) = (Framing::new(false), Known { searched_bytes, ..Known::default() });
            let seen = read(&mut framing, &mut known, &octets, false);
            assert!(seen[0].starts_with(expected), "{seen:?}");
        }
    }
}
