//! MPA's set-up frames (RFC 5044 section 7.1, RFC 6581 sections 6 and 9).
//!
//! ```text
//! key (16) | M C R S and 4 reserved bits | revision (1) | length of private data (2) | private data
//! ```
//! With S (enhanced set-up, revision 2) private data begins with a block of four octets: A, B and IRD (14 bits), then
//! C, D and ORD (14 bits).

use super::fault::Fault;

/// Octets before the private data.
pub const HEAD_OCTETS: usize = 20;
/// The most octets of private data in a frame, with the IRD/ORD block.
pub const MAX_PRIVATE_DATA_OCTETS: usize = 512;
/// Octets of the IRD/ORD block.
pub const ENHANCED_OCTETS: usize = 4;
/// The IRD or ORD that means that the ends do not negotiate it.
// CM-6581-9.1-c
pub const NOT_NEGOTIATED: u16 = 0x3FFF;
/// The largest IRD or ORD that is a number.
pub const MAX_DEPTH: u16 = NOT_NEGOTIATED - 1;

// MPA-5044-7.1-a
const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;
const DEPTH_MASK: u16 = 0x3FFF;
/// In the IRD word: peer-to-peer. In the ORD word: ready-to-receive by Write.
const HIGH: u16 = 0x8000;
/// In the IRD word: ready-to-receive by Send. In the ORD word: by Read.
const LOW: u16 = 0x4000;

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the initiator.
    Request,
    /// From the responder.
    Reply,
}

impl Kind {
    fn key(self) -> &'static [u8; 16] {
        match self {
            Kind::Request => REQUEST_KEY,
            Kind::Reply => REPLY_KEY,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Request => "request",
            Kind::Reply => "reply",
        }
    }
}

/// A frame's first 20 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The sender wants markers in what it receives.
    pub markers: bool,
    /// The sender wants CRCs.
    pub crc: bool,
    /// In a reply: the responder refuses the connection.
    pub reject: bool,
    /// Private data begins with an [`Enhanced`] block. Only in revision 2.
    pub enhanced: bool,
    /// MPA's revision.
    pub revision: u8,
    /// The octets of private data that follow, checked against [`MAX_PRIVATE_DATA_OCTETS`].
    pub private_octets: usize,
}

impl Head {
    /// The wire form.
    pub fn encode(&self, kind: Kind) -> [u8; HEAD_OCTETS] {
        let mut out = [0; HEAD_OCTETS];
        out[..16].copy_from_slice(kind.key());
        for (set, bit) in [(self.markers, MARKERS), (self.crc, CRC), (self.reject, REJECT), (self.enhanced, ENHANCED)] {
            if set {
                out[16] |= bit;
            }
        }
        out[17] = self.revision;
        let private_octets = u16::try_from(self.private_octets).unwrap_or(u16::MAX);
        out[18..].copy_from_slice(&private_octets.to_be_bytes());
        out
    }

    /// Reads the wire form. Ignores reserved bits, R in a request, and S before revision 2.
    ///
    /// # Errors
    /// Another key, a revision other than 1 and 2, too much private data.
    pub fn decode(kind: Kind, octets: &[u8; HEAD_OCTETS]) -> Result<Head, Fault> {
        if octets[..16] != kind.key()[..] {
            // MPA-5044-7.1-c
            return Err(Fault::Key { expected: kind.name() });
        }
        let (flags, revision) = (octets[16], octets[17]);
        if !(1..=2).contains(&revision) {
            // MPA-5044-7.1-c
            return Err(Fault::Revision { revision });
        }
        let private_octets = usize::from(u16::from_be_bytes([octets[18], octets[19]]));
        // MPA-5044-7.1-b
        if private_octets > MAX_PRIVATE_DATA_OCTETS {
            return Err(Fault::PrivateData { octets: private_octets, max: MAX_PRIVATE_DATA_OCTETS });
        }
        let enhanced = revision == 2 && flags & ENHANCED != 0;
        // CM-6581-9-a
        if enhanced && private_octets < ENHANCED_OCTETS {
            return Err(Fault::Enhanced);
        }
        Ok(Head {
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: kind == Kind::Reply && flags & REJECT != 0,
            enhanced,
            revision,
            private_octets,
        })
    }
}

/// The IRD/ORD block.
// CM-6581-9-a
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// RDMA Reads that the sender serves at a time, 14 bits.
    pub ird: u16,
    /// RDMA Reads that the sender issues at a time, 14 bits.
    pub ord: u16,
    /// The peer-to-peer model: the initiator sends a ready-to-receive indication.
    pub peer_to_peer: bool,
    /// That indication can be a Send without octets.
    pub ready_by_send: bool,
    /// It can be a Write without octets.
    pub ready_by_write: bool,
    /// It can be a Read without octets.
    pub ready_by_read: bool,
}

impl Enhanced {
    /// The wire form.
    pub fn encode(&self) -> [u8; ENHANCED_OCTETS] {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let ird = self.ird & DEPTH_MASK | bit(self.peer_to_peer, HIGH) | bit(self.ready_by_send, LOW);
        let ord = self.ord & DEPTH_MASK | bit(self.ready_by_write, HIGH) | bit(self.ready_by_read, LOW);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }

    /// Reads the wire form. Without peer-to-peer the other bits mean nothing.
    // CM-6581-9.2-a
    pub fn decode(octets: &[u8; ENHANCED_OCTETS]) -> Enhanced {
        let ird = u16::from_be_bytes([octets[0], octets[1]]);
        let ord = u16::from_be_bytes([octets[2], octets[3]]);
        let peer_to_peer = ird & HIGH != 0;
        Enhanced {
            ird: ird & DEPTH_MASK,
            ord: ord & DEPTH_MASK,
            peer_to_peer,
            // CM-6581-9-a
            ready_by_send: peer_to_peer && ird & LOW != 0,
            ready_by_write: peer_to_peer && ord & HIGH != 0,
            ready_by_read: peer_to_peer && ord & LOW != 0,
        }
    }
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its head. `encode` derives the length in it from the rest.
    pub head: Head,
    /// Its IRD/ORD block, present exactly if the head says so.
    pub enhanced: Option<Enhanced>,
    /// The upper layer's private data.
    pub private_data: Vec<u8>,
}

impl Frame {
    /// The wire form.
    pub fn encode(&self, kind: Kind) -> Vec<u8> {
        let block = self.enhanced.map(|e| e.encode());
        let block = block.as_ref().map_or(&[][..], |b| &b[..]);
        let private_octets = block.len() + self.private_data.len();
        let head = Head { enhanced: self.enhanced.is_some(), private_octets, ..self.head };
        let mut out = Vec::with_capacity(HEAD_OCTETS + private_octets);
        out.extend(head.encode(kind));
        out.extend(block);
        out.extend(&self.private_data);
        out
    }

    /// Joins a head and the private data that came after it.
    ///
    /// # Errors
    /// No IRD/ORD block although the head announces one.
    pub fn decode(head: Head, private_data: &[u8]) -> Result<Frame, Fault> {
        let (enhanced, rest) = match private_data.split_first_chunk() {
            _ if !head.enhanced => (None, private_data),
            Some((block, rest)) => (Some(Enhanced::decode(block)), rest),
            None => return Err(Fault::Enhanced),
        };
        Ok(Frame { head, enhanced, private_data: rest.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(revision: u8) -> Head {
        Head { markers: false, crc: true, reject: false, enhanced: revision == 2, revision, private_octets: 0 }
    }

    fn decode(kind: Kind, octets: &[u8]) -> Result<Frame, Fault> {
        let (first, rest) = octets.split_first_chunk().expect("a whole head");
        Frame::decode(Head::decode(kind, first)?, rest)
    }

    /// proves: MPA-5044-7.1-a, CM-6581-9-a
    #[test]
    fn golden_request_of_revision_2() {
        let enhanced = Enhanced { ird: 16, ord: 3, ..Enhanced::default() };
        let frame = Frame { head: head(2), enhanced: Some(enhanced), private_data: b"abc".to_vec() };
        let octets = frame.encode(Kind::Request);
        let mut expected = b"MPA ID Req Frame".to_vec();
        expected.extend([0x50, 2, 0, 7, 0, 16, 0, 3, b'a', b'b', b'c']);
        assert_eq!(octets, expected);
        let back = decode(Kind::Request, &octets).unwrap();
        assert_eq!((back.enhanced, back.private_data), (Some(enhanced), b"abc".to_vec()));
    }

    /// proves: MPA-5044-7.1-a
    #[test]
    fn golden_reply_of_revision_1() {
        let reject = Head { reject: true, markers: true, ..head(1) };
        let frame = Frame { head: reject, enhanced: None, private_data: vec![9] };
        let octets = frame.encode(Kind::Reply);
        let mut expected = b"MPA ID Rep Frame".to_vec();
        expected.extend([0xE0, 1, 0, 1, 9]);
        assert_eq!(octets, expected);
        let back = decode(Kind::Reply, &octets).unwrap();
        assert!(back.head.reject && back.head.markers && back.head.crc);
        assert_eq!(decode(Kind::Request, &octets), Err(Fault::Key { expected: "request" }));
    }

    /// proves: CM-6581-9-a, CM-6581-9.2-a
    #[test]
    fn every_bit_of_the_enhanced_block_has_its_place() {
        let block = |set: fn(&mut Enhanced)| {
            let mut e = Enhanced::default();
            set(&mut e);
            e.encode()
        };
        assert_eq!(block(|e| e.peer_to_peer = true), [0x80, 0, 0, 0]);
        assert_eq!(block(|e| e.ready_by_send = true), [0x40, 0, 0, 0]);
        assert_eq!(block(|e| e.ready_by_write = true), [0, 0, 0x80, 0]);
        assert_eq!(block(|e| e.ready_by_read = true), [0, 0, 0x40, 0]);
        assert_eq!(block(|e| (e.ird, e.ord) = (0x3FFF, 0x1234)), [0x3F, 0xFF, 0x12, 0x34]);
        let all = Enhanced::decode(&[0xFF; 4]);
        assert!(all.ready_by_send && all.ready_by_write && all.ready_by_read);
        assert_eq!((all.ird, all.ord), (NOT_NEGOTIATED, NOT_NEGOTIATED));
        let ready = |octets| {
            let e = Enhanced::decode(octets);
            assert!(e.peer_to_peer);
            (e.ready_by_send, e.ready_by_write, e.ready_by_read)
        };
        assert_eq!(ready(&[0xC0, 0, 0, 0]), (true, false, false));
        assert_eq!(ready(&[0x80, 0, 0x80, 0]), (false, true, false));
        assert_eq!(ready(&[0x80, 0, 0x40, 0]), (false, false, true));
        assert_eq!(ready(&[0xBF, 0xFF, 0x3F, 0xFF]), (false, false, false));
        let client = Enhanced::decode(&[0x7F, 0xFF, 0xFF, 0xFF]);
        assert!(!client.ready_by_send && !client.ready_by_write && !client.ready_by_read);
    }

    /// proves: MPA-5044-7.1-b
    #[test]
    fn private_data_ends_at_its_limit() {
        let mut octets = Head { private_octets: MAX_PRIVATE_DATA_OCTETS, ..head(1) }.encode(Kind::Request);
        assert_eq!(Head::decode(Kind::Request, &octets).unwrap().private_octets, 512);
        octets[19] = 1;
        let fault = Fault::PrivateData { octets: 513, max: 512 };
        assert_eq!(Head::decode(Kind::Request, &octets), Err(fault));
    }

    /// proves: MPA-5044-7.1-c
    #[test]
    fn other_revisions_are_refused() {
        for revision in [0, 3, 255] {
            let octets = head(revision).encode(Kind::Request);
            assert_eq!(Head::decode(Kind::Request, &octets), Err(Fault::Revision { revision }));
        }
    }

    #[test]
    fn an_enhanced_frame_without_its_block_is_refused() {
        let mut octets = Head { private_octets: 3, ..head(2) }.encode(Kind::Reply);
        assert_eq!(Head::decode(Kind::Reply, &octets), Err(Fault::Enhanced));
        octets[16] = 0x40;
        assert!(Head::decode(Kind::Reply, &octets).is_ok(), "revision 2 without S needs none");
        octets[16] = 0x5F;
        octets[17] = 1;
        assert!(!Head::decode(Kind::Reply, &octets).unwrap().enhanced, "S means nothing in revision 1");
    }
}
