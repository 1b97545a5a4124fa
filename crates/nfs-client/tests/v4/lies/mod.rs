//! A server that is ours except for one lie: in each field of the results of SEQUENCE, OPEN, LOCK and READDIR, and in
//! the frame of a reply. A row of a table is a lie, and what the client must do about it. In any case the client makes
//! few calls meanwhile, and works as before when the server is honest again.

mod frame;
mod list;
mod lock;
mod open;
mod sequence;

use crate::{
    every::{mode, name},
    house::{Fate, House, Wire},
};
use bytes::Bytes;
use rpcrdma_nfs::v4::{
    Args, Op, Outcome, Results, Status, Tag,
    ops::{LockKind, Stability},
};
use rpcrdma_nfs_client::v4::{Access, Error, How, Nfs4, Opened};
use std::sync::Arc;

/// The most calls that an operation may make while the replies are lies.
const MOST_CALLS: usize = 24;

/// What the server changes in a reply.
enum Lie {
    /// The results of one operation.
    Results(Box<dyn FnMut(&mut Outcome) + Send>),
    /// The whole reply.
    Answer(Box<dyn FnMut(&mut Results) + Send>),
    /// First changes the results, and then replaces these bytes, so that they are no operation's encoding.
    Octets(Box<dyn FnMut(&mut Outcome) + Send>, &'static [u8], &'static [u8]),
    /// The same for the frame; first sets its tag to the word `markmark`.
    Marked(&'static [u8], &'static [u8]),
}

/// What the client must do.
#[derive(Clone, Copy, Debug)]
enum Must {
    /// Fail because the server talks nonsense: in this operation, with this text.
    Refuse(Op, &'static str),
    /// Fail because the reply cannot be read.
    NotRead,
    /// Go on, because nothing depends on it.
    GoOn,
    /// Report a loss, as soon as it uses the lie.
    Lose,
    /// Return the server's status.
    Tell(Status),
}

/// The operation of the client while the server lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Look,
    Open,
    Lock,
    List,
}

impl Does {
    /// The operation in whose results the server lies.
    fn op(self) -> Op {
        match self {
            Self::Look => Op::Sequence,
            Self::Open => Op::Open,
            Self::Lock => Op::Lock,
            Self::List => Op::ReadDir,
        }
    }
}

/// A lie in a field.
struct Row {
    field: &'static str,
    lie: Lie,
    must: Must,
}

/// Changes the results of one operation, and ends the reply at the first failed operation.
fn tell(results: &mut Results, change: &mut (dyn FnMut(&mut Outcome) + Send)) {
    results.results.iter_mut().for_each(change);
    if let Some(failed) = results.results.iter().position(|outcome| outcome.status() != Status::OK) {
        results.results.truncate(failed + 1);
    }
    results.status = results.results.last().map_or(results.status, Outcome::status);
}

/// Replaces bytes, which must occur exactly once.
fn replaced(octets: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let found: Vec<_> = octets.windows(from.len()).enumerate().filter(|(_, window)| *window == from).collect();
    let [(at, _)] = found[..] else { panic!("{from:02x?} is {} times in {octets:02x?}", found.len()) };
    [&octets[..at], to, &octets[at + from.len()..]].concat()
}

/// From now on the server lies in its replies to calls with this operation.
fn begin(wire: &Arc<Wire>, op: Op, lie: Lie) {
    let is_meant = move |ops: &[Args]| ops.iter().any(|args| args.op() == op);
    match lie {
        Lie::Results(mut change) => wire.after(move |call, results| {
            if is_meant(&call.ops) {
                tell(results, &mut change);
            }
            Fate::Arrives
        }),
        Lie::Answer(mut change) => wire.after(move |call, results| {
            if is_meant(&call.ops) {
                change(results);
            }
            Fate::Arrives
        }),
        Lie::Marked(from, to) => {
            wire.after(move |_, results| {
                results.tag = Tag::from("markmark");
                Fate::Arrives
            });
            wire.mangle(move |call, octets| if is_meant(&call.ops) { replaced(&octets, from, to) } else { octets });
        }
        Lie::Octets(mut change, from, to) => {
            wire.after(move |call, results| {
                if is_meant(&call.ops) {
                    tell(results, &mut change);
                }
                Fate::Arrives
            });
            wire.mangle(move |call, octets| if is_meant(&call.ops) { replaced(&octets, from, to) } else { octets });
        }
    }
}

async fn open(nfs: &Nfs4) -> Result<Opened, Error> {
    let root = nfs.root().await?.file;
    nfs.open(&root, &name("file"), Access::Both, How::Unchecked(mode(0o644))).await.map(|(opened, _)| opened)
}

/// Runs the operation while the server lies; then, with an honest server, uses and gives back what was opened or
/// locked.
async fn act(nfs: &Nfs4, wire: &Arc<Wire>, does: Does, lie: Lie) -> Result<(), Error> {
    let root = nfs.root().await.unwrap().file;
    let opened = if does == Does::Lock { Some(open(nfs).await.unwrap()) } else { None };
    wire.calls();
    begin(wire, does.op(), lie);
    let done = match (does, &opened) {
        (Does::Look, _) => nfs.root().await.map(|_| None),
        (Does::List, _) => nfs.readdir(&root, 0, Default::default(), 8_192).await.map(|_| None),
        (_, Some(opened)) => nfs.lock(opened, LockKind::Write, 0, 10).await.map(|()| None),
        (_, None) => open(nfs).await.map(Some),
    };
    wire.honest();
    let calls = wire.calls();
    assert!(calls.len() <= MOST_CALLS, "{} calls", calls.len());
    match (done?, opened) {
        (Some(opened), _) => {
            nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"x")).await?;
            nfs.close(opened).await
        }
        (None, Some(opened)) => {
            nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"x")).await?;
            nfs.unlock(&opened, 0, 10).await?;
            nfs.close(opened).await
        }
        (None, None) => Ok(()),
    }
}

/// With an honest server everything works as before, in the same session or another.
async fn is_served(nfs: &Nfs4) {
    let root = nfs.root().await.unwrap().file;
    nfs.readdir(&root, 0, Default::default(), 8_192).await.unwrap();
    let (opened, _) = nfs.open(&root, &name("after"), Access::Both, How::Unchecked(mode(0o644))).await.unwrap();
    nfs.lock(&opened, LockKind::Write, 0, 10).await.unwrap();
    nfs.write(&opened, 0, Stability::FileSync, Bytes::from_static(b"after")).await.unwrap();
    nfs.unlock(&opened, 0, 10).await.unwrap();
    assert_eq!(nfs.read(&opened, 0, 10).await.unwrap().data, b"after"[..]);
    nfs.close(opened).await.unwrap();
}

/// Whether the error says that the open or the lock is lost, perhaps after the file was made.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Lost { .. } => true,
        Error::AfterCreation(error) => is_lost(error),
        _ => false,
    }
}

/// Tells the lies of a table in a minor version, each to its own client.
async fn play(minor: u32, does: Does, rows: Vec<Row>) {
    for Row { field, lie, must } in rows {
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        let done = act(&nfs, &wire, does, lie).await;
        match (must, &done) {
            (Must::GoOn, Ok(())) => {}
            (Must::Refuse(of, text), Err(Error::Nonsense { operation, what })) if (of, text) == (*operation, *what) => {
            }
            (Must::NotRead, Err(Error::Call { .. })) => {}
            (Must::Lose, Err(error)) if is_lost(error) => {}
            (Must::Tell(status), Err(error)) if error.status() == Some(status) => {}
            _ => panic!("4.{minor}, {does:?}, {field}: {done:?} instead of {must:?}"),
        }
        is_served(&nfs).await;
    }
}

/// A row that changes the results of one operation: `row!(Open, "field", must, |ok| ok.field = 1)`.
macro_rules! row {
    ($op:ident, $field:expr, $must:expr, $change:expr) => {
        $crate::lies::Row { field: $field, lie: $crate::lies::lie!($op, $change), must: $must }
    };
}
/// Only the lie of such a row.
macro_rules! lie {
    ($op:ident, $change:expr) => {
        $crate::lies::Lie::Results($crate::lies::on!($op, $change))
    };
}
/// Does something to the results of an operation that has succeeded.
macro_rules! on {
    ($op:ident, $change:expr) => {{
        let mut change: Box<dyn FnMut(&mut _) + Send> = Box::new($change);
        Box::new(move |outcome: &mut rpcrdma_nfs::v4::Outcome| {
            if let rpcrdma_nfs::v4::Outcome::$op(Ok(ok)) = outcome {
                change(ok);
            }
        })
    }};
}
use {lie, on, row};
