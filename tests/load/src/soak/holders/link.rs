//! A holder's connection and session: calls over one slot, and the server's calls, which are answered at once and
//! queued for the task that does what they ask.

use anyhow::{Context as _, bail};
use rpcrdma_env::{BoxFuture, Env, Heap};
use rpcrdma_fabric::Fabric;
use rpcrdma_nfs::v4::{
    self, Args, Arguments, ClientId, ClientName, Handle, Outcome, Results, SessionId, StateId, Status, Verifier,
    callback::{self, CbSequence, CbSequenceOk},
    ops::{self, ClientDirection, ServerDirection, TRANSIENT_PROGRAM, create_session},
};
use rpcrdma_oncrpc::{
    Answer, CallContext, Client, ClientTransport, ReplyShape, Router, Service, SysAuth, SysCredential,
    tcp::{self, TcpConnector},
};
use rpcrdma_transport::{ClientOptions, Quiet, Reverse, Versions};
use rpcrdma_xdr::{Decode as _, Decoder, Encode as _, Encoder, ItemData};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// COMPOUND's number, and the bytes that the longest reply here has.
const COMPOUND: u32 = 1;
const MAX_RESULTS: usize = 2_048;
/// What CREATE_SESSION asks for: bytes of a call, operations of a COMPOUND, and slots; and how many calls the server
/// may have under way.
const CHANNEL: (u32, u32, u32) = (4_096 - 28, 16, 16);
const CREDITS: u32 = 16;
/// How long a client waits before it repeats a call that is under way.
const PAUSE: Duration = Duration::from_millis(100);
/// How long anything may take.
const PATIENCE: Duration = crate::clients::CALL_LIMIT;

/// How a holder connects to the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Tcp,
    Rdma(Versions),
}

/// What a call of the server asks for.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// The server recalls a delegation.
    Recall(Handle, StateId),
    /// A lock may be free.
    Free,
    /// The server may not make this call.
    Wrong(String),
}

/// Why a call has no valid results.
#[derive(Debug, thiserror::Error)]
pub(super) enum Gone {
    /// The session no longer exists.
    #[error("its session is gone: {0}")]
    Session(Status),
    /// The connection cannot be made.
    #[error("no connection: {0}")]
    Connection(String),
    /// The holder itself has hung up.
    #[error("it has hung up")]
    Vanished,
    /// The server has taken away a claim, and had the right to.
    #[error("what it had was taken away")]
    Lost,
    /// The answer is wrong, unless the server has restarted meanwhile.
    #[error("{0}")]
    Wrong(String),
    /// The ledger, which distinguishes the servers before and after a restart, says that two clients have claims that
    /// exclude each other, or that an acknowledged write is lost: no restart excuses that.
    #[error("{0}")]
    Broken(String),
}

/// A client's callback program: takes the server's calls, and passes them on.
struct Program {
    asked: mpsc::UnboundedSender<Asked>,
    /// The last sequence number of each slot of each session.
    slots: Mutex<HashMap<(SessionId, u32), u32>>,
}

impl Program {
    /// Whether this is the slot's next call, or a repetition of the last one.
    fn is_in_order(&self, call: &CbSequence) -> bool {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let last = slots.entry((call.session, call.slot)).or_default();
        let is_right = call.sequence == *last || call.sequence == last.wrapping_add(1);
        *last = call.sequence;
        is_right
    }

    fn answer(&self, op: callback::Args) -> callback::Outcome {
        match op {
            callback::Args::Sequence(call) => {
                if !self.is_in_order(&call) {
                    let _ = self.asked.send(Asked::Wrong(format!("a call out of its order: {call:?}")));
                }
                let CbSequence { session, sequence, slot, .. } = call;
                let highest = CHANNEL.2 - 1;
                let ok = CbSequenceOk { session, sequence, slot, highest_slot: highest, target_highest_slot: highest };
                callback::Outcome::Sequence(Ok(ok))
            }
            callback::Args::Recall(recall) => {
                let _ = self.asked.send(Asked::Recall(recall.file, recall.state));
                callback::Outcome::Recall(Ok(()))
            }
            callback::Args::NotifyLock(_) => {
                let _ = self.asked.send(Asked::Free);
                callback::Outcome::NotifyLock(Ok(()))
            }
            other => callback::Outcome::failed(other.op(), Status::NOTSUPP),
        }
    }
}

impl Service for Program {
    fn program(&self) -> u32 {
        TRANSIENT_PROGRAM
    }

    fn version(&self) -> u32 {
        callback::VERSION
    }

    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, _: CallContext, _: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let Ok(call) = callback::Arguments::decode(&mut args) else {
            let _ = self.asked.send(Asked::Wrong("a call that cannot be read".to_owned()));
            return Box::pin(std::future::ready(Answer::GarbageArgs));
        };
        let outcomes = call.ops.iter().cloned().map(|op| self.answer(op)).collect();
        let mut encoder = Encoder::new();
        callback::Results::of(call.tag.clone(), outcomes).encode(&mut encoder);
        Box::pin(std::future::ready(Answer::Results(encoder.finish())))
    }
}

/// Everything that is needed to connect to a server.
#[derive(Clone)]
pub(super) struct Road {
    pub(super) env: Env,
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) way: Way,
    pub(super) server: SocketAddr,
}

impl Road {
    async fn connect(&self, asked: mpsc::UnboundedSender<Asked>) -> anyhow::Result<Client> {
        let program = Program { asked, slots: Mutex::default() };
        let handler = Arc::new(Router::new(&self.env).with_service(Arc::new(program)));
        let transport: Arc<dyn ClientTransport> = match self.way {
            Way::Tcp => {
                let mut options = tcp::ClientOptions::default();
                options.reverse = Some(tcp::Reverse { handler, calls: CREDITS as usize });
                let connector = Arc::new(TcpConnector::new(self.server));
                let (transport, driver) = tcp::connect(connector, Arc::new(Heap), &self.env, options).await?;
                tokio::spawn(driver);
                transport
            }
            Way::Rdma(versions) => {
                let mut options = ClientOptions::default();
                (options.versions, options.reverse) = (versions, Some(Reverse { handler, credits: CREDITS }));
                let connecting =
                    rpcrdma_transport::connect(self.fabric.clone(), self.server, &self.env, options, Arc::new(Quiet));
                let (transport, driver) = connecting.await?;
                tokio::spawn(driver);
                transport
            }
        };
        let identity = Arc::new(SysAuth::new(SysCredential::default()));
        Ok(Client::new(transport, identity, v4::PROGRAM, v4::VERSION))
    }
}

/// A session over a connection of its own, which ends when the value is dropped.
pub(super) struct Link {
    /// None after the holder has hung up.
    client: Option<Client>,
    minor: u32,
    pub(super) id: ClientId,
    session: SessionId,
    sequence: u32,
    pub(super) asked: mpsc::UnboundedReceiver<Asked>,
    /// The status flags of the last SEQUENCE.
    pub(super) flags: u32,
    /// When the last answered call was sent.
    pub(super) heard: Instant,
}

impl Link {
    /// Registers a client of this name and incarnation, which reclaims nothing. Calls `forget` before a former
    /// incarnation loses its claims.
    ///
    /// # Errors
    /// If the server refuses.
    pub(super) async fn new(
        road: &Road,
        (name, incarnation): (&str, u64),
        minor: u32,
        forget: impl FnOnce(),
    ) -> anyhow::Result<Self> {
        let (sender, asked) = mpsc::unbounded_channel();
        let client = tokio::time::timeout(PATIENCE, road.connect(sender)).await.context("connecting")??;
        let exchange = ops::ExchangeId::new(ClientName::from(name), Verifier(incarnation.to_be_bytes()), 0);
        let known = match only(&client, minor, Args::ExchangeId(Box::new(exchange))).await? {
            Outcome::ExchangeId(Ok(known)) => known,
            other => bail!("EXCHANGE_ID: {:?}", other.status()),
        };
        forget();
        let (octets, operations, slots) = CHANNEL;
        let channel = ops::ChannelAttributes::new(octets, MAX_RESULTS as u32, operations, slots);
        let mut create = ops::CreateSession::new(&known, channel);
        create.flags = create_session::CONN_BACK_CHAN;
        let created = match only(&client, minor, Args::CreateSession(Box::new(create))).await? {
            Outcome::CreateSession(Ok(created)) => created,
            other => bail!("CREATE_SESSION: {:?}", other.status()),
        };
        let (id, session) = (known.client, created.session);
        let client = Some(client);
        let mut link = Self { client, minor, id, session, sequence: 0, asked, flags: 0, heard: Instant::now() };
        let complete = Args::ReclaimComplete(ops::ReclaimComplete { one_file_system: false });
        match link.call(vec![complete]).await {
            Ok(outcomes) if outcomes.iter().all(|outcome| outcome.status() == Status::OK) => Ok(link),
            other => bail!("RECLAIM_COMPLETE: {other:?}"),
        }
    }

    fn client(&self) -> Result<&Client, Gone> {
        self.client.as_ref().ok_or(Gone::Vanished)
    }

    /// Ends the connection, without ending the session.
    pub(super) fn hang_up(&mut self) {
        self.client = None;
    }

    /// Sends a COMPOUND in the session, and returns the results behind SEQUENCE.
    ///
    /// # Errors
    /// If the results cannot be known.
    pub(super) async fn call(&mut self, ops: Vec<Args>) -> Result<Vec<Outcome<ItemData>>, Gone> {
        self.sequence = self.sequence.wrapping_add(1);
        let (session, sequence) = (self.session, self.sequence);
        let first = Args::Sequence(ops::Sequence { session, sequence, slot: 0, highest_slot: 0, cache: true });
        let call = Arguments::new(self.minor, [vec![first], ops].concat());
        loop {
            let begin = Instant::now();
            let mut results = send(self.client()?, &call).await?;
            if results.is_empty() {
                return Err(Gone::Wrong("a COMPOUND has no results".to_owned()));
            }
            match results.remove(0) {
                Outcome::Sequence(Ok(told)) => {
                    (self.flags, self.heard) = (told.status, begin);
                    return Ok(results);
                }
                Outcome::Sequence(Err(Status::DELAY)) => tokio::time::sleep(PAUSE).await,
                Outcome::Sequence(Err(status @ (Status::BADSESSION | Status::DEADSESSION))) => {
                    return Err(Gone::Session(status));
                }
                other => return Err(Gone::Wrong(format!("SEQUENCE is answered with {other:?}"))),
            }
        }
    }

    /// Lets the server call over the present connection.
    pub(super) async fn bind(&mut self) -> Result<(), Gone> {
        let direction = ClientDirection::BackOrBoth;
        let bind = ops::BindConnToSession { session: self.session, direction, rdma_mode: false };
        let call = Arguments::new(self.minor, vec![Args::BindConnToSession(bind)]);
        match send(self.client()?, &call).await?.pop() {
            Some(Outcome::BindConnToSession(Ok(bound))) if bound.direction != ServerDirection::Fore => Ok(()),
            Some(Outcome::BindConnToSession(Err(status @ (Status::BADSESSION | Status::DEADSESSION)))) => {
                Err(Gone::Session(status))
            }
            other => Err(Gone::Wrong(format!("BIND_CONN_TO_SESSION is answered with {other:?}"))),
        }
    }

    /// Ends the session and the client, which has no claims any more.
    pub(super) async fn leave(mut self) -> Result<(), Gone> {
        // Sent within the session, which binds it to the present connection.
        let session = self.session;
        match self.call(vec![Args::DestroySession(ops::DestroySession { session })]).await {
            Ok(outcomes) if outcomes.iter().all(|outcome| outcome.status() == Status::OK) => {}
            // An earlier attempt has succeeded, but its reply was lost with the connection.
            Err(Gone::Session(Status::BADSESSION)) => {}
            other => return Err(Gone::Wrong(format!("DESTROY_SESSION is answered with {other:?}"))),
        }
        let destroy = Args::DestroyClientId(ops::DestroyClientId { client: self.id });
        let outcome = send(self.client()?, &Arguments::new(self.minor, vec![destroy])).await?.pop();
        match outcome.as_ref().map(Outcome::status) {
            Some(Status::OK | Status::STALE_CLIENTID) => Ok(()),
            _ => Err(Gone::Wrong(format!("DESTROY_CLIENTID is answered with {outcome:?}"))),
        }
    }
}

async fn only(client: &Client, minor: u32, op: Args) -> anyhow::Result<Outcome<ItemData>> {
    match send(client, &Arguments::new(minor, vec![op])).await {
        Ok(mut results) => results.pop().context("a COMPOUND has no results"),
        Err(why) => bail!(why),
    }
}

async fn send(client: &Client, call: &Arguments) -> Result<Vec<Outcome<ItemData>>, Gone> {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    let calling = client.call(COMPOUND, encoder.finish(), ReplyShape::inline(MAX_RESULTS));
    let answered = tokio::time::timeout(PATIENCE, calling).await.map_err(|_| Gone::Wrong("a call starves".into()))?;
    let answer = answered.map_err(|error| Gone::Connection(error.to_string()))?;
    let results = answer.decode::<Results<ItemData>>();
    Ok(results.map_err(|error| Gone::Wrong(format!("results that cannot be read: {error}")))?.results)
}
