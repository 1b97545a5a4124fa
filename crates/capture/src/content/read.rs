//! From a message's bytes to its operations. Zeros that take no memory stand for data that travelled in chunks, or was
//! too long to be kept: only its length is shown.

use super::{Content, Describe, Operation, Value, rpcbind, v4};
use crate::event::ProcedureName;
use bytes::Bytes;
use rpcrdma_nfs::{Call, mount, nfsacl, nlm, nsm, v2, v3};
use rpcrdma_oncrpc::{
    portmap::procedure as portmap,
    rpcbind::{RPCBIND_PROGRAM, Registration},
};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Stream};

/// The most bytes that zeros stand for: what one READ or WRITE may carry, with its padding.
const MAX_STOOD_FOR_BYTES: usize = v3::MAX_TRANSFER_BYTES + 4;
/// A static of zeros takes no room in the program's file and, as long as nobody reads it, none in memory.
static ZEROS: [u8; MAX_STOOD_FOR_BYTES] = [0; MAX_STOOD_FOR_BYTES];

/// An item that travelled in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its position in the message, chunks included. A reply's chunks do not say it: they follow the rest.
    pub(crate) position: Option<u32>,
    /// Its bytes.
    pub(crate) octets: u64,
}

/// An RPC message, from its header on.
#[derive(Clone, Debug)]
pub(crate) struct Body<'a> {
    /// The bytes of it that were kept.
    pub(crate) kept: Bytes,
    /// How many bytes behind these were not kept. `None` if their number is unknown.
    pub(crate) missing_bytes: Option<u64>,
    /// The items that travelled in chunks.
    pub(crate) items: &'a [Item],
}

/// Why there is no stream to decode.
type Problem = String;

impl Body<'_> {
    /// The stream as it would be without chunks.
    pub(crate) fn stream(&self) -> Result<Stream, Problem> {
        let mut stream = Stream::new();
        let (mut taken, mut apart) = (0, 0_usize);
        for item in self.items {
            let octets = usize::try_from(item.octets).unwrap_or(usize::MAX);
            let zeros = zeros(octets)?;
            let end = match item.position {
                None => self.kept.len(),
                Some(position) => usize::try_from(position).unwrap_or(usize::MAX).saturating_sub(apart),
            };
            if end < taken || end > self.kept.len() {
                return Err(format!("a chunk at byte {}, where the message has none", end.saturating_add(apart)));
            }
            stream.push_run(self.kept.slice(taken..end));
            stream.push_chunk(zeros);
            (taken, apart) = (end, apart.saturating_add(rpcrdma_xdr::padded(octets)));
        }
        stream.push_run(self.kept.slice(taken..));
        if let Some(zeros) = self.stood_for() {
            stream.push_run(zeros);
        }
        Ok(stream)
    }

    /// The stream without the items that travelled in chunks.
    pub(crate) fn inline(&self) -> Stream {
        let mut stream = Stream::new();
        stream.push_run(self.kept.clone());
        if let Some(zeros) = self.stood_for() {
            stream.push_run(zeros);
        }
        stream
    }

    /// Zeros for the bytes that were not kept, if their number is known and not above the limit for data.
    pub(super) fn stood_for(&self) -> Option<Bytes> {
        zeros(usize::try_from(self.missing_bytes?).unwrap_or(usize::MAX)).ok()
    }

    /// Why a decoder's error about bytes that were not kept means nothing. `data`: the message ends with data, whose
    /// contents are not shown.
    pub(super) fn incomplete(&self, data: bool) -> Option<Problem> {
        match self.missing_bytes {
            Some(0) => None,
            Some(octets) if data && octets <= MAX_STOOD_FOR_BYTES as u64 => None,
            Some(octets) => Some(format!("not read: {octets} bytes at its end were not kept")),
            None => Some("not read: its end is not in the capture".into()),
        }
    }
}

/// Zeros for the data of a chunk.
pub(super) fn zeros(octets: usize) -> Result<Bytes, Problem> {
    match ZEROS.get(..octets) {
        Some(zeros) => Ok(Bytes::from_static(zeros)),
        None => Err(format!("a chunk of {octets} bytes; READ and WRITE carry at most {MAX_STOOD_FOR_BYTES}")),
    }
}

/// The path of a link, unless zeros stand for it.
pub(super) fn path(path: &Bytes) -> Value {
    match ZEROS.as_ptr_range().contains(&path.as_ptr()) {
        true if !path.is_empty() => Value::Elsewhere(path.len() as u64),
        _ => Value::Name(Bytes::copy_from_slice(path)),
    }
}

/// The arguments of a call. The decoder stands behind the call's header.
pub(crate) fn arguments(name: ProcedureName, decoder: Decoder, body: &Body<'_>) -> Option<Content> {
    if name.is_compound() {
        let read = if name.callback { v4::callback_call } else { v4::call };
        return Some(read(decoder, body));
    }
    let called = name.procedure_name()?;
    let path_apart = path_bytes(body);
    let reading = Reading { called, decoder, incomplete: body.incomplete(called == "WRITE"), path_apart };
    match (name.program, name.version) {
        (v2::PROGRAM, v2::VERSION) => v2::Procedure::from_number(name.procedure).map(|of| nfs2_arguments(of, reading)),
        (v3::PROGRAM, v3::VERSION) => v3::Procedure::from_number(name.procedure).map(|of| nfs_arguments(of, reading)),
        (mount::PROGRAM, _) => mount_arguments(name.procedure, reading),
        (nlm::PROGRAM, version) => super::nlm::arguments(name.procedure, version, reading),
        (nsm::PROGRAM, nsm::VERSION) => super::nsm::arguments(name.procedure, reading),
        (RPCBIND_PROGRAM, version) => rpcbind_arguments(name.procedure, version, reading),
        (nfsacl::PROGRAM, version) => nfsacl_arguments(name.procedure, version, reading),
        _ => None,
    }
}

/// The arguments of a call to an unknown program, if it is a CB_COMPOUND: at least one operation of it can be read.
pub(crate) fn callback_arguments(decoder: Decoder, body: &Body<'_>) -> Option<Content> {
    Some(v4::callback_call(decoder, body)).filter(|content| !content.operations.is_empty())
}

/// The results of a call. The decoder stands behind the reply's header.
pub(crate) fn results(name: ProcedureName, decoder: Decoder, body: &Body<'_>) -> Option<Content> {
    let called = name.procedure_name()?;
    let path_apart = path_bytes(body);
    let reading = Reading { called, decoder, incomplete: body.incomplete(called == "READ"), path_apart };
    match (name.program, name.version) {
        (v2::PROGRAM, v2::VERSION) => v2::Procedure::from_number(name.procedure).map(|of| nfs2_results(of, reading)),
        (v3::PROGRAM, v3::VERSION) => v3::Procedure::from_number(name.procedure).map(|of| nfs_results(of, reading)),
        (mount::PROGRAM, version) => mount_results(name.procedure, version, reading),
        (nlm::PROGRAM, version) => super::nlm::results(name.procedure, version, reading),
        (nsm::PROGRAM, nsm::VERSION) => super::nsm::results(name.procedure, reading),
        (RPCBIND_PROGRAM, version) => rpcbind_results(name.procedure, version, reading),
        (nfsacl::PROGRAM, version) => nfsacl_results(name.procedure, version, reading),
        _ => None,
    }
}

/// The results of a COMPOUND. The decoder reads what was kept, without chunks, and stands behind the reply's header.
pub(crate) fn compound_results(name: ProcedureName, decoder: Decoder, body: &Body<'_>) -> Content {
    v4::reply(decoder, body, name.callback)
}

/// The length of a path that is not in the message.
fn path_bytes(body: &Body<'_>) -> Option<u64> {
    body.items.first().map(|item| item.octets).filter(|&octets| octets > 0)
}

pub(super) struct Reading {
    called: &'static str,
    decoder: Decoder,
    incomplete: Option<Problem>,
    path_apart: Option<u64>,
}

impl Reading {
    pub(super) fn read<T: Decode + Describe>(mut self) -> Content {
        if self.incomplete.is_some() {
            return Content { problem: self.incomplete, ..Content::default() };
        }
        let failed = |error: DecodeError| format!("does not decode: {error}");
        let value = match T::decode(&mut self.decoder) {
            Ok(value) => value,
            Err(error) => return Content { problem: Some(failed(error)), ..Content::default() },
        };
        let mut operation = Operation::new(self.called);
        value.describe(&mut operation);
        // The zeros that stand for the path of a link are not shown as the path.
        if let Some(octets) = self.path_apart {
            for field in operation.fields.iter_mut().filter(|field| field.key == "path") {
                field.value = Value::Elsewhere(octets);
            }
        }
        let problem = self.decoder.finish().err().map(failed);
        Content { operations: vec![operation], problem, ..Content::default() }
    }
}

macro_rules! nfs_procedures {
    ($version:ident, $arguments:ident, $results:ident; $($name:ident),*) => {
        fn $arguments(of: $version::Procedure, reading: Reading) -> Content {
            match of { $($version::Procedure::$name => reading.read::<$version::$name>(),)* }
        }

        fn $results(of: $version::Procedure, reading: Reading) -> Content {
            match of { $($version::Procedure::$name => reading.read::<<$version::$name as Call>::Reply>(),)* }
        }
    };
}

nfs_procedures!(
    v2,
    nfs2_arguments,
    nfs2_results;
    Null,
    GetAttributes,
    SetAttributes,
    Root,
    Lookup,
    ReadLink,
    Read,
    WriteCache,
    Write,
    Create,
    Remove,
    Rename,
    Link,
    SymbolicLink,
    MakeDirectory,
    RemoveDirectory,
    ReadDirectory,
    FileSystemStatus
);

nfs_procedures!(
    v3,
    nfs_arguments,
    nfs_results;
    Null,
    GetAttributes,
    SetAttributes,
    Lookup,
    Access,
    ReadLink,
    Read,
    Write,
    Create,
    MakeDirectory,
    SymbolicLink,
    MakeNode,
    Remove,
    RemoveDirectory,
    Rename,
    Link,
    ReadDirectory,
    ReadDirectoryPlus,
    FileSystemStatus,
    FileSystemInfo,
    PathConfiguration,
    Commit
);

fn mount_arguments(procedure: u32, reading: Reading) -> Option<Content> {
    use mount::procedure::{DUMP, EXPORT, EXPORT_ALL, MOUNT, NULL, UNMOUNT, UNMOUNT_ALL};
    Some(match procedure {
        NULL | UNMOUNT_ALL => reading.read::<()>(),
        MOUNT => reading.read::<mount::Mount>(),
        UNMOUNT => reading.read::<mount::Unmount>(),
        DUMP => reading.read::<mount::ListMounts>(),
        EXPORT | EXPORT_ALL => reading.read::<mount::ListExports>(),
        _ => return None,
    })
}

fn mount_results(procedure: u32, version: u32, reading: Reading) -> Option<Content> {
    use mount::procedure::{DUMP, EXPORT, EXPORT_ALL, MOUNT, NULL, UNMOUNT, UNMOUNT_ALL};
    Some(match (procedure, version) {
        (NULL | UNMOUNT | UNMOUNT_ALL, _) => reading.read::<()>(),
        (MOUNT, mount::VERSION_3) => reading.read::<mount::MountReply>(),
        (MOUNT, _) => reading.read::<mount::MountReply1>(),
        (DUMP, _) => reading.read::<mount::Mounts>(),
        (EXPORT | EXPORT_ALL, _) => reading.read::<mount::Exports>(),
        _ => return None,
    })
}

fn rpcbind_arguments(procedure: u32, version: u32, reading: Reading) -> Option<Content> {
    Some(match (procedure, version) {
        (0 | portmap::DUMP | portmap::GETTIME | portmap::GETSTAT, _) => reading.read::<()>(),
        (portmap::SET | portmap::UNSET | portmap::GETADDR, 2) => reading.read::<rpcbind::Mapping>(),
        (portmap::SET | portmap::UNSET | portmap::GETADDR, _) => reading.read::<Registration>(),
        (portmap::GETVERSADDR | portmap::GETADDRLIST, _) => reading.read::<Registration>(),
        (portmap::CALLIT | portmap::INDIRECT, _) => reading.read::<rpcbind::Remote>(),
        (portmap::UADDR2TADDR, _) => reading.read::<rpcbind::Address>(),
        (portmap::TADDR2UADDR, _) => reading.read::<rpcbind::OfSocket>(),
        _ => return None,
    })
}

fn nfsacl_arguments(procedure: u32, version: u32, reading: Reading) -> Option<Content> {
    use nfsacl::procedure::{ACCESS, GETACL, GETATTR, NULL, SETACL};
    Some(match (version, procedure) {
        (_, NULL) => reading.read::<()>(),
        (nfsacl::VERSION_3, GETACL) => reading.read::<nfsacl::GetAcl>(),
        (nfsacl::VERSION_3, SETACL) => reading.read::<nfsacl::SetAcl>(),
        (nfsacl::VERSION_2, GETACL) => reading.read::<nfsacl::v2::GetAcl>(),
        (nfsacl::VERSION_2, SETACL) => reading.read::<nfsacl::v2::SetAcl>(),
        (nfsacl::VERSION_2, GETATTR) => reading.read::<nfsacl::v2::GetAttributes>(),
        (nfsacl::VERSION_2, ACCESS) => reading.read::<nfsacl::v2::Access>(),
        _ => return None,
    })
}

fn rpcbind_results(procedure: u32, version: u32, reading: Reading) -> Option<Content> {
    Some(match (procedure, version) {
        (0, _) => reading.read::<()>(),
        (portmap::SET | portmap::UNSET, _) => reading.read::<rpcbind::Done>(),
        (portmap::GETADDR, 2) => reading.read::<rpcbind::Port>(),
        (portmap::GETADDR | portmap::GETVERSADDR | portmap::TADDR2UADDR, _) => reading.read::<rpcbind::Address>(),
        (portmap::DUMP, 2) => reading.read::<rpcbind::Mappings>(),
        (portmap::DUMP, _) => reading.read::<rpcbind::Registrations>(),
        (portmap::CALLIT, 2) => reading.read::<rpcbind::RemoteDone2>(),
        (portmap::CALLIT | portmap::INDIRECT, _) => reading.read::<rpcbind::RemoteDone>(),
        (portmap::GETTIME, _) => reading.read::<rpcbind::Seconds>(),
        (portmap::UADDR2TADDR, _) => reading.read::<rpcbind::OfSocket>(),
        (portmap::GETADDRLIST, _) => reading.read::<rpcbind::Addresses>(),
        (portmap::GETSTAT, _) => reading.read::<rpcbind::Statistics>(),
        _ => return None,
    })
}

fn nfsacl_results(procedure: u32, version: u32, reading: Reading) -> Option<Content> {
    use nfsacl::procedure::{ACCESS, GETACL, GETATTR, NULL, SETACL};
    Some(match (version, procedure) {
        (_, NULL) => reading.read::<()>(),
        (nfsacl::VERSION_3, GETACL) => reading.read::<<nfsacl::GetAcl as Call>::Reply>(),
        (nfsacl::VERSION_3, SETACL) => reading.read::<<nfsacl::SetAcl as Call>::Reply>(),
        (nfsacl::VERSION_2, GETACL) => reading.read::<<nfsacl::v2::GetAcl as Call>::Reply>(),
        (nfsacl::VERSION_2, SETACL) => reading.read::<<nfsacl::v2::SetAcl as Call>::Reply>(),
        (nfsacl::VERSION_2, GETATTR) => reading.read::<<nfsacl::v2::GetAttributes as Call>::Reply>(),
        (nfsacl::VERSION_2, ACCESS) => reading.read::<<nfsacl::v2::Access as Call>::Reply>(),
        _ => return None,
    })
}

impl<T: Describe, F> Describe for v3::Answer<T, F> {
    /// The status of a failure is shown beside the content.
    fn describe(&self, to: &mut Operation) {
        if let v3::Answer::Ok(ok) = self {
            ok.describe(to);
        }
    }
}
