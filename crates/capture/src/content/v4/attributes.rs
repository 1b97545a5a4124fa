//! Data that many operations have: attributes, states, sessions, rights to share.

use crate::content::{Operation, Value};
use rpcrdma_nfs::v4::{self, FileAttributes, FileType, StateId, ops};

fn file_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Block => "block device",
        FileType::Character => "character device",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
        FileType::Fifo => "named pipe",
        FileType::AttributeDirectory => "attribute directory",
        FileType::NamedAttribute => "named attribute",
    }
}

/// The attributes in which a person is interested; if they cannot be decoded, only how many there should be.
pub(super) fn attributes(attributes: &FileAttributes, to: &mut Operation) {
    let Ok(values) = attributes.values() else {
        to.number("unread_attributes", attributes.set.len() as u64);
        return;
    };
    for value in &values {
        match value {
            v4::Value::Type(kind) => to.put("file_type", Value::Word(file_type(*kind))),
            v4::Value::Mode(mode) => to.put("mode", Value::Mode(*mode)),
            v4::Value::Size(size) => to.number("size", *size),
            v4::Value::FileId(id) => to.number("fileid", *id),
            v4::Value::Owner(owner) => to.name("owner", owner.as_slice()),
            v4::Value::Group(group) => to.name("group", group.as_slice()),
            _ => to,
        };
    }
}

pub(super) fn state(to: &mut Operation, state: &StateId) {
    to.put("state", Value::State(state.sequence, state.other.0));
}

pub(super) fn slot(to: &mut Operation, session: &v4::SessionId, slot: u32, sequence: u32) {
    to.put("session", Value::Session(session.0));
    to.put("slot", Value::Keyed(slot.into())).put("seq", Value::Keyed(sequence.into()));
}

pub(super) fn range(to: &mut Operation, offset: u64, length: u64) {
    to.put("offset", Value::Offset(offset)).put("length", Value::Length(length));
}

/// `read deny none`.
pub(super) fn share(to: &mut Operation, access: u32, deny: u32) {
    let word = |bits: u32, none: &'static str| match bits & ops::share::BOTH {
        ops::share::READ => "read",
        ops::share::WRITE => "write",
        ops::share::BOTH => "both",
        _ => none,
    };
    to.put("access", Value::Word(word(access, "no access")));
    to.put("deny", Value::KeyedWord(word(deny, "none")));
}

pub(super) fn lock(to: &mut Operation, kind: ops::LockKind) {
    let word = if kind.excludes() { "write" } else { "read" };
    to.put("lock", Value::Word(word)).flag("waiting", kind.waits());
}

pub(super) fn stability(stability: ops::Stability) -> Value {
    Value::Word(match stability {
        ops::Stability::Unstable => "unstable",
        ops::Stability::DataSync => "data_sync",
        ops::Stability::FileSync => "file_sync",
    })
}

pub(super) fn delegation(to: &mut Operation, delegation: &ops::Delegation) {
    use ops::Delegation::{None, NoneExtended, Read, ReadAttributes, Write, WriteAttributes};
    let (word, of) = match delegation {
        None | NoneExtended(_) => return,
        Read(of) | ReadAttributes(of) => ("read", &of.state),
        Write(of) | WriteAttributes(of) => ("write", &of.state),
    };
    to.put("delegation", Value::KeyedWord(word));
    to.put("delegation_state", Value::State(of.sequence, of.other.0));
}
