//! Where MPA's frames end in a byte stream, so that each begins a packet of its own. Readers like tshark look for an
//! FPDU only at the beginning of a segment.
//!
//! Holds at most one frame that is not complete: less than [`MAX_FRAME_BYTES`].

use rpcrdma_iwarp::protocol::{
    fpdu::{CRC_OCTETS, LENGTH_OCTETS, pad_bytes},
    mpa::HEAD_OCTETS,
};

/// The longest frame: an FPDU with a ULPDU of 65,535 bytes.
#[cfg(test)]
const MAX_FRAME_BYTES: usize = LENGTH_OCTETS + 65_535 + pad_bytes(65_535) + CRC_OCTETS;
/// The beginning of both set-up frames.
const KEY: &[u8] = b"MPA ID Re";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A set-up frame comes.
    SetUp,
    /// FPDUs come.
    Fpdus,
    /// Where frames end is not known.
    Unknown,
}

/// The frames of one direction.
#[derive(Debug)]
pub(super) struct Frames {
    state: State,
    held: Vec<u8>,
}

impl Frames {
    pub(super) fn new() -> Self {
        Frames { state: State::SetUp, held: Vec::new() }
    }

    /// Bytes are missing here: gives what is held, and looks for no more frames.
    pub(super) fn lose_track(&mut self) -> Vec<u8> {
        self.state = State::Unknown;
        std::mem::take(&mut self.held)
    }

    /// Takes the next bytes and gives whole frames, in order, to `frame`.
    pub(super) fn push<E>(&mut self, octets: &[u8], mut frame: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.held.extend_from_slice(octets);
        let mut rest = &self.held[..];
        let mut result = Ok(());
        while !rest.is_empty() && result.is_ok() {
            let Some(len) = length(&mut self.state, rest) else { break };
            let Some((whole, behind)) = rest.split_at_checked(len) else { break };
            if self.state == State::SetUp {
                self.state = State::Fpdus;
            }
            result = frame(whole);
            rest = behind;
        }
        let used = self.held.len() - rest.len();
        self.held.drain(..used);
        result
    }
}

/// How long the frame at the beginning of `octets` is, as far as that is known.
fn length(state: &mut State, octets: &[u8]) -> Option<usize> {
    match state {
        State::SetUp if !octets.iter().zip(KEY).all(|(a, b)| a == b) => {
            *state = State::Unknown;
            Some(octets.len())
        }
        State::SetUp => {
            let &private = octets.get(HEAD_OCTETS - 2..)?.first_chunk()?;
            Some(HEAD_OCTETS + usize::from(u16::from_be_bytes(private)))
        }
        State::Fpdus => {
            let ulpdu = usize::from(u16::from_be_bytes(*octets.first_chunk()?));
            Some(LENGTH_OCTETS + ulpdu + pad_bytes(ulpdu) + CRC_OCTETS)
        }
        State::Unknown => Some(octets.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(frames: &mut Frames, octets: &[u8]) -> Vec<usize> {
        let mut seen = Vec::new();
        let Ok::<(), ()>(()) = frames.push(octets, |frame| {
            seen.push(frame.len());
            Ok(())
        }) else {
            unreachable!()
        };
        seen
    }

    fn setup(private: u8) -> Vec<u8> {
        let mut octets = b"MPA ID Req Frame\x40\x02\x00".to_vec();
        octets.push(private);
        octets.extend(vec![9; private.into()]);
        octets
    }

    #[test]
    fn frames_are_found_however_the_octets_come() {
        let mut stream = setup(8);
        stream.extend([0, 20]);
        stream.extend([7; 20 + 2 + 4]);
        stream.extend([0xFF, 0xFF]);
        stream.extend(vec![7; MAX_FRAME_BYTES - 2]);
        let expected = [28, 28, MAX_FRAME_BYTES];
        assert_eq!(stream.len(), expected.iter().sum::<usize>());
        assert_eq!(frames(&mut Frames::new(), &stream), expected);
        for step in [1, 3, 27, 29, 1000] {
            let mut one = Frames::new();
            let seen: Vec<_> = stream.chunks(step).flat_map(|octets| frames(&mut one, octets)).collect();
            assert_eq!(seen, expected, "{step} at a time");
        }
    }

    #[test]
    fn what_is_no_mpa_passes_as_it_comes() {
        let mut one = Frames::new();
        assert_eq!(frames(&mut one, b"MPA"), [0usize; 0]);
        assert_eq!(frames(&mut one, b"X and more"), [13]);
        assert_eq!(frames(&mut one, b"more"), [4]);
    }

    #[test]
    fn a_gap_gives_what_is_held() {
        let mut one = Frames::new();
        assert_eq!(frames(&mut one, &setup(0)), [20]);
        assert_eq!(frames(&mut one, &[0, 200, 1]), [0usize; 0]);
        assert_eq!(one.lose_track(), [0, 200, 1]);
        assert_eq!(frames(&mut one, &[0, 200, 1]), [3]);
    }
}
