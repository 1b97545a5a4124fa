//! A server that a test scripts: a function makes the reply to each call. For what a well-behaved server seldom does:
//! restarts, short transfers, forgotten calls.

use bytes::Bytes;
use rpcrdma_env::{BoxFuture, SeededRandom, TokioClock};
use rpcrdma_nfs::{v2, v3};
use rpcrdma_nfs_client::{Access, File, Files, Handle, Nfs2, Nfs3};
use rpcrdma_oncrpc::{
    CallHeader, CallInFlight, Cancelled, Client, ClientTransport, Limits, NoAuth, OpaqueAuth, PendingCall, Reply,
    ReplyHeader, Request, TransportError, TransportKind, XidSource,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Payload, Stream};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

/// The server's reply, and whether the transport had to send the call again.
pub(crate) struct Scripted {
    pub(crate) results: Payload,
    pub(crate) retransmitted: bool,
}

pub(crate) fn once(results: &impl Encode) -> Scripted {
    let mut encoder = Encoder::new();
    results.encode(&mut encoder);
    Scripted { results: encoder.finish(), retransmitted: false }
}

pub(crate) fn again(results: &impl Encode) -> Scripted {
    Scripted { retransmitted: true, ..once(results) }
}

/// Makes the reply from the number of the procedure and the arguments.
type Script = Box<dyn FnMut(u32, Decoder) -> Scripted + Send>;

struct Server {
    xids: XidSource,
    is_idempotent: fn(u32) -> bool,
    script: Mutex<Script>,
}

impl Server {
    fn of(
        is_idempotent: fn(u32) -> bool,
        script: impl FnMut(u32, Decoder) -> Scripted + Send + 'static,
        version: u32,
    ) -> Client {
        let (xids, script) = (XidSource::new(&SeededRandom::new(1)), Mutex::new(Box::new(script) as Script));
        Client::new(Arc::new(Self { xids, is_idempotent, script }), Arc::new(NoAuth), v3::PROGRAM, version)
    }
}

struct Answered(Option<Reply>);

impl Future for Answered {
    type Output = Result<Reply, TransportError>;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.0.take().ok_or(TransportError::Closed))
    }
}

impl CallInFlight for Answered {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        Box::pin(std::future::ready(Cancelled::default()))
    }
}

impl ClientTransport for Server {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        let mut decoder = Decoder::new(Stream::from(request.message.to_bytes()));
        let header = CallHeader::decode(&mut decoder).unwrap();
        let procedure = header.id.procedure;
        assert_eq!(request.repeatable, (self.is_idempotent)(procedure), "procedure {procedure}");
        let scripted = (self.script.lock().unwrap())(procedure, decoder);
        let mut encoder = Encoder::new();
        ReplyHeader { xid: header.id.xid, verifier: OpaqueAuth::none(), status: Ok(()) }.encode(&mut encoder);
        encoder.payload(scripted.results);
        let stream = Stream::from(encoder.finish().to_bytes());
        PendingCall::new(Answered(Some(Reply { stream, retransmitted: scripted.retransmitted })))
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn limits(&self) -> Limits {
        Limits::new(2 << 20, 2 << 20)
    }

    fn server(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], 2049).into()
    }
}

fn third(procedure: u32) -> v3::Procedure {
    v3::Procedure::from_number(procedure).unwrap()
}

fn second(procedure: u32) -> v2::Procedure {
    v2::Procedure::from_number(procedure).unwrap()
}

/// A client of version 3, whose server does what `script` says.
pub(crate) fn client(mut script: impl FnMut(v3::Procedure, Decoder) -> Scripted + Send + 'static) -> Nfs3 {
    let script = move |procedure, decoder| script(third(procedure), decoder);
    let rpc = Server::of(|procedure| third(procedure).is_idempotent(), script, v3::VERSION);
    Nfs3::new(rpc, Arc::new(TokioClock::new()))
}

/// The same for version 2.
pub(crate) fn client_2(mut script: impl FnMut(v2::Procedure, Decoder) -> Scripted + Send + 'static) -> Nfs2 {
    let script = move |procedure, decoder| script(second(procedure), decoder);
    Nfs2::new(Server::of(|procedure| second(procedure).is_idempotent(), script, v2::VERSION))
}

/// An open file of that server.
pub(crate) async fn opened(nfs: Nfs3) -> File {
    Files::from(nfs).open(&Handle::from(handle("file")), Access::Both).await.unwrap()
}

pub(crate) fn args<T: Decode>(mut decoder: Decoder) -> T {
    let args = T::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    args
}

pub(crate) fn handle(text: &str) -> v3::Handle {
    v3::Handle::new(text.as_bytes()).unwrap()
}

pub(crate) fn attributes(file_type: v3::FileType) -> v3::Attributes {
    let time = v3::Time::default();
    v3::Attributes {
        file_type,
        mode: 0o755,
        links: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: v3::Specification::default(),
        file_system: 1,
        file_id: 2,
        accessed: time,
        modified: time,
        changed: time,
    }
}

pub(crate) fn found(file_type: v3::FileType) -> v3::Answer<v3::LookupOk, Option<v3::Attributes>> {
    v3::Answer::Ok(v3::LookupOk { file: handle("found"), attributes: Some(attributes(file_type)), directory: None })
}

pub(crate) fn failed(status: v3::Status) -> v3::Answer<(), v3::WeakCache> {
    v3::Answer::failed(status, v3::WeakCache::default())
}

pub(crate) fn lookup_failed(status: v3::Status) -> v3::Answer<(), Option<v3::Attributes>> {
    v3::Answer::failed(status, None)
}

pub(crate) fn read_ok(data: &[u8], end: bool) -> v3::Answer<v3::ReadOk, Option<v3::Attributes>> {
    v3::Answer::Ok(v3::ReadOk { attributes: None, end, data: Bytes::copy_from_slice(data) })
}
