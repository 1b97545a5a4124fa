//! The fields of an operation: each has a key for programs and a form for people.

use bytes::Bytes;
use rpcrdma_nfs::{
    v3::{Handle, Time},
    v4,
};

/// An operation with its arguments or its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// The name that its protocol gives it.
    pub name: &'static str,
    /// Its fields, as far as they are known.
    pub fields: Vec<Field>,
    /// Its status, where operations have one of their own: in the reply to a COMPOUND.
    pub status: Option<v4::Status>,
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its key in JSON; in text only where the value is not clear without it.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// It is a destination, such as the new name of RENAME.
    pub target: bool,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A file handle.
    Handle(Handle),
    /// A name or a path: any bytes.
    Name(Bytes),
    /// A number of bytes.
    Count(u64),
    /// A position in a file, in bytes.
    Offset(u64),
    /// A number that needs its key.
    Number(u64),
    /// Permission bits.
    Mode(u32),
    /// A word of the protocol.
    Word(&'static str),
    /// A flag that is set.
    Flag,
    /// Eight bytes that only the server understands.
    Verifier([u8; 8]),
    /// A time.
    Time(Time),
    /// A file handle of NFS version 4.
    Octets(Bytes),
    /// A number behind its key, with a space.
    Keyed(u64),
    /// A word behind its key, with a space.
    KeyedWord(&'static str),
    /// A length; all ones mean up to the end.
    Length(u64),
    /// Flags, in hexadecimal.
    Flags(u32),
    /// A client, as the server names it.
    Client(u64),
    /// A session, as the server names it.
    Session([u8; v4::SESSION_ID_BYTES]),
    /// An open, a lock or a delegation: how often it has changed, and its name.
    State(u32, [u8; v4::STATE_ID_OTHER_BYTES]),
    /// This many bytes that the reader does not have: they travelled in a chunk.
    Elsewhere(u64),
}

impl Operation {
    /// An operation of which nothing is known yet.
    pub(super) fn new(name: &'static str) -> Self {
        Operation { name, ..Operation::default() }
    }

    pub(super) fn put(&mut self, key: &'static str, value: Value) -> &mut Self {
        self.fields.push(Field { key, value, target: false });
        self
    }

    pub(super) fn handle(&mut self, key: &'static str, handle: &Handle) -> &mut Self {
        self.put(key, Value::Handle(handle.clone()))
    }

    pub(super) fn name(&mut self, key: &'static str, name: &[u8]) -> &mut Self {
        self.put(key, Value::Name(Bytes::copy_from_slice(name)))
    }

    pub(super) fn octets(&mut self, key: &'static str, octets: &[u8]) -> &mut Self {
        self.put(key, Value::Octets(Bytes::copy_from_slice(octets)))
    }

    pub(super) fn number(&mut self, key: &'static str, number: impl Into<u64>) -> &mut Self {
        self.put(key, Value::Number(number.into()))
    }

    pub(super) fn flag(&mut self, key: &'static str, is: bool) -> &mut Self {
        if is { self.put(key, Value::Flag) } else { self }
    }

    /// Marks the field that was put last as a destination.
    pub(super) fn is_target(&mut self) -> &mut Self {
        if let Some(field) = self.fields.last_mut() {
            field.target = true;
        }
        self
    }
}
