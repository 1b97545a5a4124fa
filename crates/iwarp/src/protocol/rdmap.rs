//! RDMAP's operations and the RDMA Read Request (RFC 5040 sections 4.1 and 4.4).

/// The operation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
}

impl Opcode {
    /// The operation with this number, if RFC 5040 defines it.
    // RDMAP-5040-4.1-a
    pub fn from_raw(raw: u8) -> Option<Opcode> {
        Some(match raw {
            0 => Opcode::Write,
            1 => Opcode::ReadRequest,
            2 => Opcode::ReadResponse,
            3 => Opcode::Send,
            4 => Opcode::SendInvalidate,
            5 => Opcode::SendSolicited,
            6 => Opcode::SendSolicitedInvalidate,
            7 => Opcode::Terminate,
            _ => return None,
        })
    }

    /// The Send with these properties.
    pub fn send(invalidate: bool, solicited: bool) -> Opcode {
        match (invalidate, solicited) {
            (false, false) => Opcode::Send,
            (true, false) => Opcode::SendInvalidate,
            (false, true) => Opcode::SendSolicited,
            (true, true) => Opcode::SendSolicitedInvalidate,
        }
    }

    /// Whether it uses tagged segments.
    pub fn tagged(self) -> bool {
        matches!(self, Opcode::Write | Opcode::ReadResponse)
    }

    /// Whether it is one of the four Sends.
    pub fn is_send(self) -> bool {
        matches!(self, Opcode::Send | Opcode::SendInvalidate | Opcode::SendSolicited | Opcode::SendSolicitedInvalidate)
    }

    /// Whether it names a steering tag to invalidate.
    pub fn invalidates(self) -> bool {
        matches!(self, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)
    }
}

/// Octets of a [`ReadRequest`].
// RDMAP-5040-4.4-a
pub const READ_REQUEST_OCTETS: usize = 28;

/// An RDMA Read Request.
///
/// ```text
/// sink STag (4) | sink offset (8) | size (4) | source STag (4) | source offset (8)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The steering tag to put in the response.
    pub sink_stag: u32,
    /// The offset to put in the response's first segment.
    pub sink_offset: u64,
    /// Octets to read.
    pub size: u32,
    /// The steering tag of the source.
    pub source_stag: u32,
    /// The offset in the source.
    pub source_offset: u64,
}

impl ReadRequest {
    /// The wire form.
    pub fn encode(&self) -> [u8; READ_REQUEST_OCTETS] {
        let mut out = [0; READ_REQUEST_OCTETS];
        out[..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.size.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        out[20..].copy_from_slice(&self.source_offset.to_be_bytes());
        out
    }

    /// Reads the wire form.
    pub fn decode(octets: &[u8; READ_REQUEST_OCTETS]) -> ReadRequest {
        let be32 = |at: usize| u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        let be64 = |at: usize| (u64::from(be32(at)) << 32) | u64::from(be32(at + 4));
        ReadRequest {
            sink_stag: be32(0),
            sink_offset: be64(4),
            size: be32(12),
            source_stag: be32(16),
            source_offset: be64(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: RDMAP-5040-4.4-a
    #[test]
    fn golden_read_request() {
        let request = ReadRequest {
            sink_stag: 0x0101_0101,
            sink_offset: 0x0202_0202_0303_0303,
            size: 0x0404_0404,
            source_stag: 0x0505_0505,
            source_offset: 0x0606_0606_0707_0707,
        };
        let mut expected = Vec::new();
        for octet in 1..=7u8 {
            expected.extend([octet; 4]);
        }
        assert_eq!(request.encode()[..], expected[..]);
        assert_eq!(ReadRequest::decode(&request.encode()), request);
    }

    #[test]
    fn sends_are_told_by_their_properties() {
        for raw in 0..=255 {
            let Some(opcode) = Opcode::from_raw(raw) else {
                assert!(raw > 7);
                continue;
            };
            assert_eq!(opcode as u8, raw);
            if opcode.is_send() {
                let solicited = matches!(opcode, Opcode::SendSolicited | Opcode::SendSolicitedInvalidate);
                assert_eq!(Opcode::send(opcode.invalidates(), solicited), opcode);
            }
        }
    }
}
