//! COMPOUNDs of NFS version 4, written from RFC 8881 and RFC 5662: calls that may be as wrong as the caller likes, and
//! results that are read strictly. [`link`] carries them over TCP or iWARP, [`client`] is a decent client, and [`zero`]
//! is a client of minor version 0.

pub mod client;
pub mod link;
pub mod zero;

use crate::rpc::{Xdr, word};

/// Numbers of operations.
pub mod op {
    pub const CLOSE: u32 = 4;
    pub const CREATE: u32 = 6;
    pub const DELEGRETURN: u32 = 8;
    pub const GETATTR: u32 = 9;
    pub const GETFH: u32 = 10;
    pub const LOCK: u32 = 12;
    pub const LOCKT: u32 = 13;
    pub const LOCKU: u32 = 14;
    pub const LOOKUP: u32 = 15;
    pub const OPEN: u32 = 18;
    pub const OPEN_CONFIRM: u32 = 20;
    pub const PUTFH: u32 = 22;
    pub const PUTROOTFH: u32 = 24;
    pub const READ: u32 = 25;
    pub const REMOVE: u32 = 28;
    pub const RENEW: u32 = 30;
    pub const SETCLIENTID: u32 = 35;
    pub const SETCLIENTID_CONFIRM: u32 = 36;
    pub const WRITE: u32 = 38;
    pub const RELEASE_LOCKOWNER: u32 = 39;
    pub const BACKCHANNEL_CTL: u32 = 40;
    pub const BIND_CONN_TO_SESSION: u32 = 41;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const DESTROY_SESSION: u32 = 44;
    pub const FREE_STATEID: u32 = 45;
    pub const SEQUENCE: u32 = 53;
    pub const TEST_STATEID: u32 = 55;
    pub const DESTROY_CLIENTID: u32 = 57;
    pub const RECLAIM_COMPLETE: u32 = 58;
    pub const SEEK: u32 = 69;
    pub const ILLEGAL: u32 = 10_044;
}

/// Statuses.
pub mod status {
    pub const OK: u32 = 0;
    pub const NOENT: u32 = 2;
    pub const EXIST: u32 = 17;
    pub const NOSPC: u32 = 28;
    pub const NOTSUPP: u32 = 10_004;
    pub const DELAY: u32 = 10_008;
    pub const DENIED: u32 = 10_010;
    pub const EXPIRED: u32 = 10_011;
    pub const SHARE_DENIED: u32 = 10_015;
    pub const GRACE: u32 = 10_013;
    pub const CLID_INUSE: u32 = 10_017;
    pub const MINOR_VERS_MISMATCH: u32 = 10_021;
    pub const STALE_CLIENTID: u32 = 10_022;
    pub const BAD_STATEID: u32 = 10_025;
    pub const BAD_SEQID: u32 = 10_026;
    pub const NO_GRACE: u32 = 10_033;
    pub const BADXDR: u32 = 10_036;
    pub const LOCKS_HELD: u32 = 10_037;
    pub const OP_ILLEGAL: u32 = 10_044;
    pub const ADMIN_REVOKED: u32 = 10_047;
    pub const CB_PATH_DOWN: u32 = 10_048;
    pub const BADSESSION: u32 = 10_052;
    pub const BADSLOT: u32 = 10_053;
    pub const COMPLETE_ALREADY: u32 = 10_054;
    pub const CONN_NOT_BOUND_TO_SESSION: u32 = 10_055;
    pub const SEQ_MISORDERED: u32 = 10_063;
    pub const SEQUENCE_POS: u32 = 10_064;
    pub const REP_TOO_BIG_TO_CACHE: u32 = 10_067;
    pub const RETRY_UNCACHED_REP: u32 = 10_068;
    pub const TOO_MANY_OPS: u32 = 10_070;
    pub const OP_NOT_IN_SESSION: u32 = 10_071;
    pub const CLIENTID_BUSY: u32 = 10_074;
    pub const SEQ_FALSE_RETRY: u32 = 10_076;
    pub const BAD_HIGH_SLOT: u32 = 10_077;
    pub const NOT_ONLY_OP: u32 = 10_081;
}

/// The arguments of a COMPOUND.
#[derive(Clone, Debug)]
pub struct Compound {
    pub minor: u32,
    pub tag: Vec<u8>,
    /// The number of operations that it announces.
    pub announced: u32,
    /// Numbers and arguments.
    pub ops: Vec<u8>,
}

impl Compound {
    /// A COMPOUND without operations.
    pub fn new(minor: u32) -> Self {
        Self { minor, tag: Vec::new(), announced: 0, ops: Vec::new() }
    }

    /// Adds an operation.
    #[must_use]
    pub fn op(mut self, number: u32, args: Xdr) -> Self {
        self.announced += 1;
        self.ops.extend(number.to_be_bytes());
        self.ops.extend(args.0);
        self
    }

    /// Adds an operation without arguments.
    #[must_use]
    pub fn plain(self, number: u32) -> Self {
        self.op(number, Xdr::default())
    }

    /// Adds the operations of another COMPOUND.
    #[must_use]
    pub fn then(mut self, other: &Self) -> Self {
        self.announced += other.announced;
        self.ops.extend(&other.ops);
        self
    }

    /// The arguments as bytes.
    pub fn args(&self) -> Vec<u8> {
        let mut args = Xdr::default().opaque(&self.tag).words(&[self.minor, self.announced]).0;
        args.extend(&self.ops);
        args
    }
}

/// The results of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub op: u32,
    pub status: u32,
    /// The results behind the status.
    pub body: Vec<u8>,
}

/// The results of a COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    pub status: u32,
    pub tag: Vec<u8>,
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// Reads results to the last byte. Panics if they are inconsistent.
    pub fn read(octets: &[u8]) -> Self {
        let mut reader = Reader { octets, at: 0 };
        let status = reader.u32();
        let tag = reader.opaque();
        let count = reader.u32();
        assert!(count <= 65, "{count} results");
        let outcomes: Vec<_> = (0..count).map(|_| reader.outcome()).collect();
        assert_eq!(reader.at, octets.len(), "bytes behind the results");
        if let Some((last, before)) = outcomes.split_last() {
            assert_eq!(last.status, status, "the last status is that of all");
            assert!(before.iter().all(|outcome| outcome.status == 0), "nothing is executed behind a failure");
        }
        Self { status, tag, outcomes }
    }

    /// The status and the number of operations with results.
    pub fn short(&self) -> (u32, usize) {
        (self.status, self.outcomes.len())
    }

    /// The results of an operation, which must have succeeded.
    pub fn body(&self, op: u32) -> &[u8] {
        let outcome = self.outcomes.iter().find(|outcome| outcome.op == op && outcome.status == 0);
        &outcome.unwrap_or_else(|| panic!("operation {op} has not succeeded: {self:?}")).body
    }
}

struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip(&mut self, octets: usize) {
        self.at += octets;
        assert!(self.at <= self.octets.len(), "results end too early");
    }

    fn u32(&mut self) -> u32 {
        let value = word(self.octets, self.at);
        self.at += 4;
        value
    }

    fn opaque(&mut self) -> Vec<u8> {
        let len = self.u32() as usize;
        let at = self.at;
        self.skip(len.next_multiple_of(4));
        self.octets[at..at + len].to_vec()
    }

    fn words(&mut self) {
        let count = self.u32() as usize;
        self.skip(4 * count);
    }

    fn outcome(&mut self) -> Outcome {
        let (op, status) = (self.u32(), self.u32());
        let at = self.at;
        match status {
            0 => self.ok(op),
            status::DENIED if matches!(op, op::LOCK | op::LOCKT) => {
                self.skip(8 + 8 + 4 + 8);
                self.opaque();
            }
            // The callback address of the client that uses this name. TOOSMALL of layouts does not occur here.
            status::CLID_INUSE if op == op::SETCLIENTID => {
                self.opaque();
                self.opaque();
            }
            _ if op == 34 => self.words(),
            _ => {}
        }
        Outcome { op, status, body: self.octets[at..self.at].to_vec() }
    }

    /// Skips the results of a successful operation.
    fn ok(&mut self, op: u32) {
        match op {
            3 => self.skip(8),
            op::CLOSE | op::LOCK | op::LOCKU | op::OPEN_CONFIRM | 21 | op::SETCLIENTID => self.skip(16),
            5 => self.skip(8),
            op::CREATE => {
                self.skip(20);
                self.words();
            }
            op::GETATTR => {
                self.words();
                self.opaque();
            }
            op::GETFH => drop(self.opaque()),
            11 | op::REMOVE => self.skip(20),
            op::OPEN => {
                self.skip(16 + 20 + 4);
                self.words();
                match self.u32() {
                    0 => {}
                    // A delegation for reading: the stateid, whether it is recalled at once, and an access control
                    // entry.
                    1 => {
                        self.skip(16 + 4 + 12);
                        self.opaque();
                    }
                    3 => {
                        // For contention and for resources, a word says whether the server will signal.
                        if matches!(self.u32(), 1 | 2) {
                            self.skip(4);
                        }
                    }
                    other => panic!("a delegation of kind {other}"),
                }
            }
            op::READ => {
                self.skip(4);
                self.opaque();
            }
            29 => self.skip(40),
            34 => self.words(),
            op::WRITE => self.skip(16),
            op::BIND_CONN_TO_SESSION => self.skip(24),
            op::EXCHANGE_ID => {
                self.skip(8 + 4 + 4);
                assert_eq!(self.u32(), 0, "SP4_NONE");
                self.skip(8);
                self.opaque();
                self.opaque();
                assert!(self.u32() <= 1, "one implementation at most");
            }
            op::CREATE_SESSION => {
                self.skip(16 + 8);
                for _ in 0..2 {
                    self.skip(24);
                    self.words();
                }
            }
            33 | 52 => {
                for _ in 0..self.u32() {
                    assert_ne!(self.u32(), 6, "no RPCSEC_GSS");
                }
            }
            op::SEQUENCE => self.skip(36),
            op::TEST_STATEID => self.words(),
            op::DESTROY_SESSION
            | op::DELEGRETURN
            | op::RENEW
            | op::SETCLIENTID_CONFIRM
            | op::RELEASE_LOCKOWNER
            | op::DESTROY_CLIENTID
            | op::RECLAIM_COMPLETE
            | op::FREE_STATEID
            | op::LOCKT
            | op::LOOKUP
            | op::PUTFH
            | op::PUTROOTFH
            | 16
            | 17
            | 23
            | 31
            | 32
            | 37 => {}
            other => panic!("results of operation {other}, which the test does not know"),
        }
    }
}
