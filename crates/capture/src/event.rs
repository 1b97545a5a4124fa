//! What a capture shows: one [`Event`] for each message, with the connection and the call that it belongs to.
//!
//! Events own their data, which is bounded by the chunk lists that one Send can hold.

use crate::content::Content;
use crate::header::{TransportHeader, Unreadable};
use rpcrdma_iwarp::protocol::{
    mpa::{Frame, Kind},
    rdmap::{Opcode, ReadRequest},
    terminate::Reading,
};
use rpcrdma_nfs::{mount, nfsacl, nlm, nsm, v2, v3, v4};
use rpcrdma_oncrpc::{CallId, Rejection, portmap, rpcbind::RPCBIND_PROGRAM};
use std::{fmt, net::SocketAddr, rc::Rc, time::Duration};

/// The program of access control lists, which Linux asks for beside NFS version 3.
/// The program that Linux gives version 4's callbacks (RFC 8881 leaves the number to the client).
const NFS4_CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// The names of all procedures that have a known one.
pub const PROCEDURE_NAMES: [&str; 70] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
    "COMPOUND",
    "CB_COMPOUND",
    "MNT",
    "DUMP",
    "UMNT",
    "UMNTALL",
    "EXPORT",
    "TEST",
    "LOCK",
    "CANCEL",
    "UNLOCK",
    "GRANTED",
    "TEST_MSG",
    "LOCK_MSG",
    "CANCEL_MSG",
    "UNLOCK_MSG",
    "GRANTED_MSG",
    "TEST_RES",
    "LOCK_RES",
    "CANCEL_RES",
    "UNLOCK_RES",
    "GRANTED_RES",
    "SHARE",
    "UNSHARE",
    "NM_LOCK",
    "FREE_ALL",
    "SM_STAT",
    "SM_MON",
    "SM_UNMON",
    "SM_UNMON_ALL",
    "SM_SIMU_CRASH",
    "SM_NOTIFY",
    "SET",
    "UNSET",
    "GETPORT",
    "GETADDR",
    "CALLIT",
    "BCAST",
    "GETTIME",
    "UADDR2TADDR",
    "TADDR2UADDR",
    "GETVERSADDR",
    "INDIRECT",
    "GETADDRLIST",
    "GETSTAT",
    "GETACL",
    "SETACL",
    "GETXATTRDIR",
];

/// The names of all operations of NFS version 4, those of callbacks too.
pub fn operation_names() -> impl Iterator<Item = &'static str> {
    v4::Op::ALL.iter().map(|op| op.name()).chain(v4::callback::Op::ALL.iter().map(|op| op.name()))
}

/// The name that `v3::Status` gives to all statuses without a name.
const UNKNOWN_STATUS: &str = "NFS3ERR_?";

/// What a TCP connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// iWARP.
    Iwarp,
    /// RPC in records.
    Records,
}

/// A TCP connection that carries iWARP, or RPC in records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Counts from 1 in the order in which the capture shows them.
    pub number: u64,
    /// What it carries.
    pub carries: Carries,
    /// The end that asked for it, drawn on the left: its SYN or MPA's request shows it, or the ports, if neither was
    /// captured.
    pub initiator: SocketAddr,
    /// The other end.
    pub responder: SocketAddr,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The end that asked for the connection.
    Initiator,
    /// The end that was asked.
    Responder,
}

impl End {
    /// The other one.
    pub fn other(self) -> End {
        match self {
            End::Initiator => End::Responder,
            End::Responder => End::Initiator,
        }
    }
}

/// An RPC program's procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcedureName {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Whether the program is that of NFS version 4's callbacks. The client chooses its number: Linux's is known, and
    /// others are found by the contents of their calls.
    pub callback: bool,
}

impl From<CallId> for ProcedureName {
    fn from(id: CallId) -> Self {
        let CallId { program, version, procedure, .. } = id;
        ProcedureName { program, version, procedure, callback: program == NFS4_CALLBACK_PROGRAM }
    }
}

impl ProcedureName {
    /// Whether it is a procedure of NFS version 2 whose results begin with a status.
    pub fn has_nfs2_status(&self) -> bool {
        let is_nfs2 = (self.program, self.version) == (v2::PROGRAM, v2::VERSION);
        is_nfs2 && v2::Procedure::from_number(self.procedure).is_some_and(v2::Procedure::has_status)
    }

    /// Whether it is a procedure of NFS version 3, or of NFSACL, whose results begin with a status. The statuses of NFS
    /// version 2, which NFSACL version 2 has, have the same numbers.
    pub fn has_nfs3_status(&self) -> bool {
        let is_nfs3 = (self.program, self.version) == (v3::PROGRAM, v3::VERSION);
        (is_nfs3 || self.program == nfsacl::PROGRAM) && self.procedure != 0
    }

    /// The procedure of a call, by its header and its content.
    pub fn of(id: CallId, content: Option<&Content>) -> Self {
        let name = ProcedureName::from(id);
        ProcedureName { callback: name.callback || content.is_some_and(Content::is_callback), ..name }
    }

    /// Whether it is COMPOUND or CB_COMPOUND of NFS version 4: its results begin with a status, and consist of
    /// operations.
    pub fn is_compound(&self) -> bool {
        self.procedure == 1 && (self.callback || (self.program, self.version) == (v4::PROGRAM, v4::VERSION))
    }

    /// Whether it is the procedure of MOUNT whose results begin with a status.
    pub fn has_mount_status(&self) -> bool {
        (self.program, self.procedure) == (mount::PROGRAM, mount::procedure::MOUNT)
    }

    /// The procedure's name, if it has a known one.
    pub fn procedure_name(&self) -> Option<&'static str> {
        match (self.program, self.version, self.procedure) {
            (_, _, 0) => Some("NULL"),
            (v2::PROGRAM, v2::VERSION, procedure) => v2::Procedure::from_number(procedure).map(v2::Procedure::name),
            (v3::PROGRAM, v3::VERSION, procedure) => v3::Procedure::from_number(procedure).map(v3::Procedure::name),
            (v4::PROGRAM, v4::VERSION, 1) => Some("COMPOUND"),
            (_, _, v4::callback::Arguments::PROCEDURE) if self.callback => Some("CB_COMPOUND"),
            (nlm::PROGRAM, version, procedure) => nlm::Procedure::from_number(procedure)
                .filter(|procedure| procedure.is_in(version))
                .map(nlm::Procedure::name),
            (mount::PROGRAM, _, mount::procedure::MOUNT) => Some("MNT"),
            (mount::PROGRAM, _, mount::procedure::DUMP) => Some("DUMP"),
            (mount::PROGRAM, _, mount::procedure::UNMOUNT) => Some("UMNT"),
            (mount::PROGRAM, _, mount::procedure::UNMOUNT_ALL) => Some("UMNTALL"),
            (mount::PROGRAM, _, mount::procedure::EXPORT | mount::procedure::EXPORT_ALL) => Some("EXPORT"),
            (nsm::PROGRAM, nsm::VERSION, procedure) => {
                usize::try_from(procedure).ok().and_then(|number| nsm::procedure::NAMES.get(number).copied())
            }
            (RPCBIND_PROGRAM, version, procedure) => portmap::procedure::name(version, procedure),
            (nfsacl::PROGRAM, nfsacl::VERSION_3, procedure) => named(&nfsacl::procedure::NAMES, procedure),
            (nfsacl::PROGRAM, nfsacl::VERSION_2, procedure) => named(&nfsacl::procedure::NAMES_2, procedure),
            _ => None,
        }
    }

    /// The program's name, if it has a known one.
    pub fn program_name(&self) -> Option<&'static str> {
        match self.program {
            v3::PROGRAM => Some("NFS"),
            mount::PROGRAM => Some("MOUNT"),
            nfsacl::PROGRAM => Some("NFSACL"),
            nlm::PROGRAM => Some("NLM"),
            nsm::PROGRAM => Some("NSM"),
            RPCBIND_PROGRAM => Some("rpcbind"),
            _ if self.callback => Some("NFS callback"),
            _ => None,
        }
    }
}

/// The name that stands at a procedure's number.
fn named(names: &[&'static str], procedure: u32) -> Option<&'static str> {
    names.get(usize::try_from(procedure).ok()?).copied()
}

impl fmt::Display for ProcedureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program_name() {
            Some(name) => write!(f, "{name} {} ", self.version)?,
            None => write!(f, "program {} version {} ", self.program, self.version)?,
        }
        match self.procedure_name() {
            Some(name) => f.write_str(name),
            None => write!(f, "procedure {}", self.procedure),
        }
    }
}

/// The call that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTag {
    /// Counts from 1 on its connection.
    pub number: u64,
    /// Its XID.
    pub xid: u32,
    /// The end that made it.
    pub requester: End,
    /// Its procedure, once that was seen.
    pub name: Option<ProcedureName>,
}

/// The status at the beginning of an executed call's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A status of NFS version 2.
    Nfs2(v2::Status),
    /// A status of NFS version 3.
    Nfs3(v3::Status),
    /// A status of NFS version 4.
    Nfs4(v4::Status),
    /// A status of MOUNT.
    Mount(mount::Status),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Nfs2(status) if status.word().is_none() => write!(f, "NFS2 status {}", status.0),
            Status::Nfs2(status) => f.write_str(status.name()),
            Status::Nfs3(status) if status.name() == UNKNOWN_STATUS => write!(f, "NFS3 status {}", status.0),
            Status::Nfs3(status) => f.write_str(status.name()),
            Status::Nfs4(status) if status.word().is_none() => write!(f, "NFS4 status {}", status.0),
            Status::Nfs4(status) => f.write_str(status.name()),
            Status::Mount(mount::Status::OK) => f.write_str("OK"),
            Status::Mount(status) => write!(f, "MOUNT status {}: {status}", status.0),
        }
    }
}

/// A reply's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call was executed; with its status, where there is one.
    Executed(Option<Status>),
    /// The call was not executed.
    Rejected(Rejection),
}

/// An RPC message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rpc {
    /// A Call.
    Call(CallId),
    /// A Reply.
    Reply {
        /// The call's XID.
        xid: u32,
        /// The call's outcome.
        outcome: Outcome,
    },
}

/// What a Send carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// No byte.
    Empty,
    /// A message of RPC-over-RDMA.
    Transport {
        /// Its header.
        header: TransportHeader,
        /// Bytes behind it.
        inline_bytes: u64,
        /// The RPC message that begins behind it.
        rpc: Option<Rpc>,
        /// It continues the message before, as version 2 allows.
        continues: bool,
    },
    /// A message that cannot be read.
    Unreadable(Unreadable),
    /// The capture does not have all of it.
    Partial,
}

/// Something that happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A set-up frame of MPA.
    SetUp(Kind, Frame),
    /// What follows is not read, for this reason.
    Unread(&'static str),
    /// The capture lacks bytes here.
    Gap {
        /// How many bytes.
        octets: u64,
    },
    /// FPDUs are read from here on, after bytes that could not be.
    Resumed {
        /// How many bytes were skipped.
        skipped_bytes: u64,
    },
    /// An FPDU whose CRC is wrong.
    BadCrc {
        /// The bytes of its ULPDU.
        octets: usize,
    },
    /// One of the four Sends.
    Send {
        /// Which of the four.
        opcode: Opcode,
        /// The handle it invalidates.
        invalidate: Option<u32>,
        /// Its bytes.
        octets: u64,
        /// The FPDUs it came in.
        fpdus: u32,
        /// What it carries.
        message: Message,
        /// In a Reply: the time since its Call.
        since_call: Option<Duration>,
    },
    /// A record, on a connection that carries no iWARP.
    Record {
        /// Its bytes.
        octets: u64,
        /// The fragments it came in.
        fragments: u32,
        /// The RPC message that it is, as far as that can be read.
        rpc: Option<Rpc>,
        /// In a Reply: the time since its Call.
        since_call: Option<Duration>,
    },
    /// An RDMA Read Request.
    ReadRequest(ReadRequest),
    /// An RDMA Read Response.
    ReadResponse(Tagged),
    /// An RDMA Write.
    Write(Tagged),
    /// A Terminate, as far as it can be read.
    Terminate(Option<Reading>),
    /// The end of the connection.
    Closed {
        /// By a reset.
        reset: bool,
    },
}

/// A message to memory that was advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The handle.
    pub handle: u32,
    /// Where its first byte goes.
    pub offset: u64,
    /// Its bytes.
    pub octets: u64,
    /// The FPDUs it came in.
    pub fpdus: u32,
    /// Its last segment was seen.
    pub complete: bool,
    /// The RPC message that it carries, if it is a long one.
    pub rpc: Option<Rpc>,
}

/// Something that happened, where and when.
#[derive(Clone, Debug)]
pub struct Event {
    /// When the message's last byte was seen, since the capture's first packet.
    pub time: Duration,
    /// The connection on which it happened.
    pub connection: Rc<Connection>,
    /// The end that sent it.
    pub from: End,
    /// The call that it belongs to.
    pub call: Option<CallTag>,
    /// The kind of event.
    pub kind: EventKind,
    /// The content of the RPC message that it brings or completes, if the reader knows the message's program.
    pub content: Option<Content>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_procedures_are_listed() {
        let nfs = [(v3::PROGRAM, 3), (v3::PROGRAM, 4), (NFS4_CALLBACK_PROGRAM, 1)];
        let beside = [(mount::PROGRAM, 1), (nsm::PROGRAM, 1), (nfsacl::PROGRAM, 2), (nfsacl::PROGRAM, 3)];
        let beside = beside.into_iter().chain([(nlm::PROGRAM, 4)]);
        let programs = nfs.into_iter().chain(beside).chain(portmap::VERSIONS.map(|version| (RPCBIND_PROGRAM, version)));
        let mut found = Vec::new();
        for (program, version) in programs {
            for procedure in 0..100 {
                let callback = program == NFS4_CALLBACK_PROGRAM;
                found.extend(ProcedureName { program, version, procedure, callback }.procedure_name());
            }
        }
        assert!(found.iter().all(|name| PROCEDURE_NAMES.contains(name)), "{found:?}");
        assert!(PROCEDURE_NAMES.iter().all(|name| found.contains(name)), "{found:?}");
    }
}
