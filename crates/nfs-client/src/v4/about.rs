//! What client and server have agreed on, and what the server supports, for people to read: the session, the minor
//! versions, the features. Asking changes nothing on the server.

use super::{
    Error, Nfs4,
    compound::{Plan, get, put},
    duties::PATH_DOWN,
    reply::done,
};
use rpcrdma_nfs::{
    Call as _,
    v4::{
        Args, Arguments, Attribute, Bitmap, Handle, List, MAX_MINOR, Op, StateId, Status, Value,
        ops::{self, Content, sequence_status},
    },
};
use rpcrdma_oncrpc::{Client, ReplyShape};
use rpcrdma_xdr::{Decode as _, Encode as _, Encoder};
use std::{sync::atomic::Ordering, time::Duration};

/// The largest reply to a COMPOUND without operations: a status, a tag as long as the call's, no results.
const EMPTY_BYTES: usize = 1_024;

/// What client and server have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// The minor version.
    pub minor: u32,
    /// How long the server keeps what a client holds while the client is silent.
    pub lease: Duration,
    /// The session, if the minor version has sessions.
    pub session: Option<AboutSession>,
}

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AboutSession {
    /// How many calls may be under way at a time.
    pub slots: u32,
    /// The largest call in bytes, including RPC's head.
    pub max_call: u32,
    /// The largest reply in bytes.
    pub max_reply: u32,
    /// The largest reply, in bytes, that the server keeps for a repetition.
    pub max_kept_reply: u32,
    /// The most operations of a call.
    pub max_operations: u32,
    /// Whether the server can call the client.
    pub back_channel: BackChannel,
}

/// Whether a server can call its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackChannel {
    /// The client has not asked for a back channel.
    NotAsked,
    /// The server does not use the connection for its calls.
    Refused,
    /// The server says that it has no connection for its calls, or that its calls have failed.
    Broken,
    /// The server uses the connection for its calls, and reports no failure.
    Works,
}

/// A feature that a server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Access control lists.
    Acl,
    /// Extended attributes.
    Xattr,
    /// Finding holes.
    Seek,
    /// Reserving space.
    Allocate,
    /// Making holes.
    Deallocate,
    /// Copying on the server.
    Copy,
    /// Sharing the blocks of files.
    Clone,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 7] = [
        Feature::Acl,
        Feature::Xattr,
        Feature::Seek,
        Feature::Allocate,
        Feature::Deallocate,
        Feature::Copy,
        Feature::Clone,
    ];

    /// The protocol's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Acl => "ACL",
            Feature::Xattr => "XATTR",
            Feature::Seek => "SEEK",
            Feature::Allocate => "ALLOCATE",
            Feature::Deallocate => "DEALLOCATE",
            Feature::Copy => "COPY",
            Feature::Clone => "CLONE",
        }
    }

    /// An operation that fails on every directory: so it does nothing, even if the server knows it.
    fn operation(self) -> Option<Args> {
        let (state, offset, length) = (StateId::ANONYMOUS, 0, 1);
        Some(match self {
            Feature::Acl | Feature::Xattr => return None,
            Feature::Seek => Args::Seek(ops::Seek { state, offset, what: Content::Data }),
            Feature::Allocate => Args::Allocate(ops::Allocate { state, offset, length }),
            Feature::Deallocate => Args::Deallocate(ops::Deallocate { state, offset, length }),
            Feature::Copy => Args::Copy(Box::new(ops::CopyRange {
                source_state: state,
                state,
                source_offset: offset,
                offset,
                count: length,
                consecutive: true,
                synchronous: true,
                source_servers: List(Vec::new()),
            })),
            Feature::Clone => {
                let (source_state, source_offset, count) = (state, offset, length);
                Args::Clone(ops::CloneRange { source_state, state, source_offset, offset, count })
            }
        })
    }
}

impl Nfs4 {
    /// What client and server have agreed on, and what the server now says about its calls.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn about(&self) -> Result<About, Error> {
        let inner = &self.inner;
        if inner.minor > 0 {
            let reply = inner.perform(Plan::looks(Op::Sequence), None, &mut |_| Ok(Vec::new())).await?;
            reply.ok()?;
        }
        let session = inner.standing().session.clone();
        let session = session.map(|session| {
            let broken = PATH_DOWN | sequence_status::BACKCHANNEL_FAULT;
            let is_broken = session.status.load(Ordering::Relaxed) & broken != 0;
            AboutSession {
                slots: session.fore.max_requests,
                max_call: session.fore.max_request,
                max_reply: session.fore.max_response,
                max_kept_reply: session.fore.max_response_cached,
                max_operations: session.fore.max_operations,
                back_channel: match (inner.options.callbacks.is_some(), session.has_back_channel) {
                    (false, _) => BackChannel::NotAsked,
                    (true, false) => BackChannel::Refused,
                    (true, true) if is_broken => BackChannel::Broken,
                    (true, true) => BackChannel::Works,
                },
            }
        });
        Ok(About { minor: inner.minor, lease: self.lease(), session })
    }

    /// Whether the server has a feature in the file system of `directory`, as far as this minor version can tell. If
    /// the server knows the operation and refuses it for another reason, the feature counts as present.
    pub async fn has(&self, directory: &Handle, feature: Feature) -> Result<bool, Error> {
        let Some(operation) = feature.operation() else { return self.has_attribute(directory, feature).await };
        let op = operation.op();
        if !op.exists_in(self.minor()) {
            return Ok(false);
        }
        let ops = [put(directory), Args::SaveFh, operation];
        let reply = self.inner.perform(Plan::looks(op), None, &mut |_| Ok(ops.to_vec())).await?;
        match reply.failed {
            Some(failed) if failed.op != op => Err(reply.error()),
            Some(failed) => Ok(!matches!(failed.status, Status::NOTSUPP | Status::OP_ILLEGAL)),
            None => Ok(true),
        }
    }

    async fn has_attribute(&self, directory: &Handle, feature: Feature) -> Result<bool, Error> {
        let asked = Bitmap::of(&[Attribute::SupportedAttributes, Attribute::XattrSupport]);
        let asked = asked.and(&Attribute::all_in(self.minor()));
        let ops = [put(directory), get(asked)];
        let mut reply = self.inner.perform(Plan::looks(Op::GetAttr), None, &mut |_| Ok(ops.to_vec())).await?;
        let told = done!(reply, GetAttr)?.attributes;
        let values = super::attributes::values(&told, asked)?;
        Ok(values.iter().any(|value| match (feature, value) {
            (Feature::Acl, Value::SupportedAttributes(supported)) => supported.contains(Attribute::Acl),
            (Feature::Xattr, Value::XattrSupport(has)) => *has,
            _ => false,
        }))
    }
}

/// The minor versions of version 4 that a server has: the client asks for each with a call that does nothing.
///
/// # Errors
/// [`Error::NoVersion4`] if it has none, and the errors of all calls.
pub async fn served_minors(client: &Client) -> Result<Vec<u32>, Error> {
    let mut served = Vec::new();
    for minor in 0..=MAX_MINOR {
        let mut encoder = Encoder::new();
        Arguments::new(minor, Vec::new()).encode(&mut encoder);
        let shape = ReplyShape::inline(EMPTY_BYTES);
        let answered = client.call_repeatable(Arguments::PROCEDURE, encoder.finish(), shape).await;
        let mut results = answered.map_err(|source| Error::call(Op::Sequence, source))?.decoder;
        let status = Status::decode(&mut results).map_err(|error| Error::call(Op::Sequence, error.into()))?;
        results.discard_rest();
        if status != Status::MINOR_VERS_MISMATCH {
            served.push(minor);
        }
    }
    Ok(served)
}
