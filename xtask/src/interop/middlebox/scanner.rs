//! Finds the FPDUs in one direction of an iWARP connection, as far as a middlebox must know them: what each carries,
//! and where its middle is.
//!
//! It owns only its position in the stream. In bytes that are not iWARP it finds nonsense, but does nothing worse:
//! checks are up to both ends.

/// MPA's set-up frame (RFC 5044 section 7.1): a key of 16 bytes, flags, revision, and the length of the private data
/// in two bytes.
const SETUP_OCTETS: usize = 20;

/// An FPDU's length field, DDP's control byte and RDMAP's: enough to know what the FPDU is.
const HEADER_BYTES: usize = 4;

/// FPDUs are padded to a multiple of this, and end with a CRC of as many bytes.
const WORD: usize = 4;

/// What an FPDU carries (RFC 5040 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::interop) enum Part {
    /// A segment of an RDMA Write.
    Write,
    /// An RDMA Read's request.
    ReadRequest,
    /// A segment of an RDMA Read's response.
    ReadResponse,
    /// A Send of any kind.
    Send,
    /// A Terminate, or an undefined operation.
    Other,
}

impl Part {
    fn of(control: u8) -> Self {
        match control & 0x0f {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3..=6 => Self::Send,
            _ => Self::Other,
        }
    }
}

/// One direction of a connection, from its first byte on.
#[derive(Default)]
pub(super) struct Scanner {
    set_up: bool,
    header: [u8; SETUP_OCTETS],
    /// Bytes of the present frame that have arrived.
    position: usize,
    /// Length of the present frame in bytes, once its header has arrived.
    length: usize,
}

impl Scanner {
    /// Takes the next bytes. Returns each FPDU whose middle is among them, and the index of the byte in the middle.
    pub(super) fn feed(&mut self, octets: &[u8]) -> Vec<(Part, usize)> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(&octet) = octets.get(at) {
            let head = if self.set_up { HEADER_BYTES } else { SETUP_OCTETS };
            if self.position < head {
                self.header[self.position] = octet;
                (self.position, at) = (self.position + 1, at + 1);
                if self.position == head {
                    self.length = self.frame();
                }
            } else {
                let take = (self.length - self.position).min(octets.len() - at);
                let middle = self.length / 2;
                if self.set_up && (self.position..self.position + take).contains(&middle) {
                    found.push((Part::of(self.header[3]), at + middle - self.position));
                }
                (self.position, at) = (self.position + take, at + take);
            }
            if self.position >= head && self.position == self.length {
                (self.set_up, self.position) = (true, 0);
            }
        }
        found
    }

    /// How long a frame with this header is; never shorter than the header.
    fn frame(&self) -> usize {
        let field = |at: usize| usize::from(u16::from_be_bytes([self.header[at], self.header[at + 1]]));
        match self.set_up {
            false => SETUP_OCTETS + field(SETUP_OCTETS - 2),
            true => (2 + field(0)).next_multiple_of(WORD).max(HEADER_BYTES) + WORD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, Scanner};

    fn stream() -> Vec<u8> {
        let mut stream = b"MPA ID Req Frame".to_vec();
        stream.extend([0x40, 2, 0, 4, 9, 9, 9, 9]);
        // A Send of 18 + 2 bytes, and a segment of a Write of 14 + 1,000.
        for (length, control) in [(20u16, 0x43u8), (1014, 0x40)] {
            let begin = stream.len();
            stream.extend(length.to_be_bytes());
            stream.extend([0x41, control]);
            stream.resize(begin + (2 + usize::from(length)).next_multiple_of(4) + 4, 7);
        }
        stream
    }

    #[test]
    fn middles_are_found_however_the_octets_come() {
        let stream = stream();
        let wanted = [(Part::Send, 24 + 14), (Part::Write, 24 + 28 + 510)];
        assert_eq!(Scanner::default().feed(&stream), wanted);
        for size in [1, 2, 3, 19, 100] {
            let mut scanner = Scanner::default();
            let mut found = Vec::new();
            for (number, octets) in stream.chunks(size).enumerate() {
                found.extend(scanner.feed(octets).into_iter().map(|(part, at)| (part, number * size + at)));
            }
            assert_eq!(found, wanted, "{size} bytes at a time");
        }
    }

    #[test]
    fn a_set_up_without_private_data() {
        let mut stream = b"MPA ID Rep Frame".to_vec();
        stream.extend([0x40, 1, 0, 0]);
        stream.extend([0, 14, 0xc1, 0x42]);
        stream.resize(20 + 16 + 4, 0);
        assert_eq!(Scanner::default().feed(&stream), [(Part::ReadResponse, 30)]);
    }

    #[test]
    fn nonsense_ends_nowhere() {
        assert!(Scanner::default().feed(&[0; 4096]).len() < 4096);
    }
}
