//! A session of version 4.2, and a file that is open in it: the smallest client that can read and write.

use super::calls::{Lane, exchange};
use anyhow::{bail, ensure};
use rpcrdma_fabric::pool::Pool;
use rpcrdma_nfs::v4::{
    Args, Arguments, ClientName, Handle, Name, Outcome, Owner, OwnerName, SessionId, StateId, Status, Verifier,
    ops::{self, exchange_id, share},
};
use rpcrdma_oncrpc::Client;
use rpcrdma_xdr::ItemData;

/// The minor version.
const MINOR: u32 = 2;
/// Bytes of a call or reply besides 1 MiB of data: Linux asks for a similar amount.
const HEADROOM_BYTES: u32 = 4096;
/// The largest data of a call.
const DATA_BYTES: u32 = 1 << 20;

/// A session over one connection.
pub(super) struct Session {
    pub(super) minor: u32,
    id: SessionId,
    highest_slot: u32,
}

/// A file that is open.
pub(super) struct Opened {
    pub(super) file: Handle,
    pub(super) state: StateId,
}

/// Takes the results of the only operation that was sent.
macro_rules! only {
    ($results:expr, $op:ident) => {
        match $results.pop() {
            Some(Outcome::$op(Ok(ok))) => ok,
            other => bail!("{}: {other:?}", stringify!($op)),
        }
    };
}

impl Session {
    /// Registers a client of this name, makes a session of at least so many slots, and tells the server that the client
    /// has nothing to reclaim.
    ///
    /// # Errors
    /// If the server refuses any of it.
    pub(super) async fn new(client: &Client, name: &str, slots: u32) -> anyhow::Result<Self> {
        let exchange = ops::ExchangeId::new(ClientName::from(name), Verifier([1; 8]), exchange_id::USE_NON_PNFS);
        let known = only!(send(client, vec![Args::ExchangeId(Box::new(exchange))]).await?, ExchangeId);
        let channel = ops::ChannelAttributes::new(DATA_BYTES + HEADROOM_BYTES, 2_048, 8, slots);
        let create = ops::CreateSession::new(&known, channel);
        let created = only!(send(client, vec![Args::CreateSession(Box::new(create))]).await?, CreateSession);
        let given = created.fore.max_requests;
        ensure!(given >= slots, "the server gives {given} slots, and {slots} are needed");
        Ok(Self { minor: MINOR, id: created.session, highest_slot: slots.saturating_sub(1) })
    }

    /// SEQUENCE for the next call of a lane.
    pub(super) fn sequence(&self, lane: &mut Lane) -> Args {
        lane.sequence = lane.sequence.wrapping_add(1);
        Args::Sequence(ops::Sequence {
            session: self.id,
            sequence: lane.sequence,
            slot: lane.slot,
            highest_slot: self.highest_slot,
            cache: false,
        })
    }

    /// Opens a file of the root to read and to write.
    ///
    /// # Errors
    /// If the server refuses.
    pub(super) async fn open(&self, client: &Client, lane: &mut Lane, name: &str) -> anyhow::Result<Opened> {
        let complete = Args::ReclaimComplete(ops::ReclaimComplete { one_file_system: false });
        only!(send(client, vec![self.sequence(lane), complete]).await?, ReclaimComplete);
        let open = ops::Open {
            sequence: 0,
            access: share::BOTH | share::WANT_NONE,
            deny: 0,
            owner: Owner { client: rpcrdma_nfs::v4::ClientId(0), name: OwnerName::from("load") },
            how: ops::OpenHow::NoCreate,
            claim: ops::Claim::Null(Name::from(name)),
        };
        let calls = vec![self.sequence(lane), Args::PutRootFh, Args::Open(Box::new(open)), Args::GetFh];
        let mut results = send(client, calls).await?;
        let file = only!(results, GetFh).file;
        let state = only!(results, Open).state;
        Ok(Opened { file, state })
    }
}

/// Sends a COMPOUND. Returns its results if all operations have succeeded.
async fn send(client: &Client, calls: Vec<Args>) -> anyhow::Result<Vec<Outcome<ItemData>>> {
    let answer = exchange(client, &Arguments::new(MINOR, calls), &Pool::new()).await?;
    match answer.status {
        Status::OK => Ok(answer.results),
        status => bail!("{status:?}: {:?}", answer.results.last().and_then(Outcome::op)),
    }
}
