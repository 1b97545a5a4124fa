//! Calling procedures of one program.
//!
//! A [`Client`] adds the RPC header and the credential to encoded arguments, states the size of the largest reply, and
//! reads the reply's header. [`PendingCall`](crate::PendingCall) says what becomes of memory that a call lends to the
//! transport.

mod signed;

use crate::{
    CALL_HEADER_BYTES, CallError, CallHeader, CallId, Cancelled, ClientFlavour, ClientTransport, MISMATCH_BYTES,
    PendingCall, Protected, REPLY_HEADER_BYTES, Reply, ReplyHeader, ReplyShape, Request, Wrapped,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Payload, SharedScratch, padded};
use signed::{Sending, SignedCall};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Calls the procedures of one version of one program, as one identity. Cloning shares the transport.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn ClientTransport>,
    flavour: Arc<dyn ClientFlavour>,
    program: u32,
    version: u32,
    /// Memory for short calls.
    scratch: SharedScratch,
}

/// Room for arguments in the same memory as the header: enough for most calls.
const SHORT_ARGUMENTS_BYTES: usize = 128;

impl Client {
    /// A client of `program` and `version` over `transport`.
    pub fn new(
        transport: Arc<dyn ClientTransport>,
        flavour: Arc<dyn ClientFlavour>,
        program: u32,
        version: u32,
    ) -> Self {
        Self { transport, flavour, program, version, scratch: SharedScratch::default() }
    }

    /// The same client with another identity.
    pub fn with_flavour(&self, flavour: Arc<dyn ClientFlavour>) -> Self {
        Self { flavour, ..self.clone() }
    }

    /// The transport.
    pub fn transport(&self) -> &Arc<dyn ClientTransport> {
        &self.transport
    }

    /// The same client over another transport.
    #[must_use]
    pub fn over(mut self, transport: Arc<dyn ClientTransport>) -> Self {
        self.transport = transport;
        self
    }

    /// The same transport and identity for another program, which the server has on the same port.
    #[must_use]
    pub fn with_program(self, program: u32, version: u32) -> Self {
        Self { program, version, ..self }
    }

    /// The version of the program that is called.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The user and the group as whom calls are made, if the flavour names them.
    pub fn caller(&self) -> Option<(u32, u32)> {
        self.flavour.caller()
    }

    /// The most bytes of arguments that a call can carry over this transport now.
    pub fn max_args(&self) -> usize {
        let header = CALL_HEADER_BYTES + padded(self.flavour.max_credential()) + self.flavour.max_call_expansion();
        self.transport.limits().max_call.saturating_sub(header)
    }

    /// The most bytes of results that a reply can carry over this transport now.
    pub fn max_results(&self) -> usize {
        self.transport.limits().max_reply.saturating_sub(self.reply_overhead())
    }

    /// An encoder for the arguments of a call, in memory that they share with the arguments of other calls.
    pub fn encoder(&self) -> Encoder {
        self.scratch.encoder(SHORT_ARGUMENTS_BYTES)
    }

    /// Calls `procedure` with encoded arguments; `results` says how large its results can be.
    ///
    /// Data that RDMA may place directly are items: of the arguments by [`Encoder::item`], of the results by an
    /// [`ItemRoom`](crate::ItemRoom) for each. The service reads and writes them in the same way.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use rpcrdma_oncrpc::{CallError, Client, ItemRoom, ReplyShape};
    /// use rpcrdma_xdr::{Encoder, ItemData};
    ///
    /// /// Sends data, and gets at most `most` bytes back, both placed directly where the transport can.
    /// async fn echo(client: &Client, data: Bytes, most: usize) -> Result<ItemData, CallError> {
    ///     let mut arguments = Encoder::new();
    ///     arguments.item(data);
    ///     // The largest results have a length word, and padding up to a multiple of four.
    ///     let max_len = 4 + most.next_multiple_of(4);
    ///     let shape = ReplyShape { max_len, items: [ItemRoom::new(most)].into_iter().collect() };
    ///     let mut results = client.call(1, arguments.finish(), shape).await?;
    ///     let data = results.decoder.item(most)?;
    ///     results.decoder.finish()?;
    ///     Ok(data)
    /// }
    /// ```
    pub fn call(&self, procedure: u32, args: Payload, results: ReplyShape) -> Call {
        self.send(procedure, args, results, false)
    }

    /// The same for a procedure that does no harm when it is executed twice: the transport may send the call again when
    /// its results turn out to be larger than `results` says. See [`Request::repeatable`].
    pub fn call_repeatable(&self, procedure: u32, args: Payload, results: ReplyShape) -> Call {
        self.send(procedure, args, results, true)
    }

    fn send(&self, procedure: u32, args: Payload, results: ReplyShape, repeatable: bool) -> Call {
        let id = CallId { xid: self.transport.next_xid(), program: self.program, version: self.version, procedure };
        let wrapped = self.flavour.wrap(&id, args, &self.transport);
        let max_len = results.max_len.max(MISMATCH_BYTES).saturating_add(self.reply_overhead());
        // A protected body is one item: no part of it can be placed by itself.
        let items = if self.flavour.protects_bodies() { Default::default() } else { results.items };
        let reply = ReplyShape { max_len, items };
        let way = match wrapped {
            Wrapped::Plain(protected) => {
                let message = message(id, protected, &self.scratch);
                let pending = self.transport.call(Request { xid: id.xid, message, reply, repeatable, anew: None });
                Way::Plain { pending, flavour: self.flavour.clone() }
            }
            Wrapped::Signed(signed) => Way::Signed(SignedCall::new(self.sending(id, repeatable), reply).begun(signed)),
            Wrapped::Later(later) => Way::Signed(SignedCall::new(self.sending(id, repeatable), reply).waiting(later)),
        };
        Call { id, way }
    }

    fn sending(&self, id: CallId, repeatable: bool) -> Sending {
        Sending { id, repeatable, transport: self.transport.clone(), scratch: self.scratch.clone() }
    }

    /// Calls a procedure whose arguments and results have nothing that may be placed directly.
    ///
    /// `max_results` is the room for the results: the most bytes that they take when encoded, with length words and
    /// padding. RPC-over-RDMA prepares for so many. Larger results may come nevertheless; if they do not, the call
    /// fails.
    ///
    /// # Errors
    /// The errors of [`Call`], and malformed results.
    pub async fn call_inline<T: Decode>(
        &self,
        procedure: u32,
        args: &(impl Encode + ?Sized),
        max_results: usize,
    ) -> Result<T, CallError> {
        let mut encoder = Encoder::new();
        args.encode(&mut encoder);
        self.call(procedure, encoder.finish(), ReplyShape::inline(max_results)).await?.decode()
    }

    /// Calls procedure 0, which does nothing.
    ///
    /// # Errors
    /// The errors of [`Call`].
    pub async fn null(&self) -> Result<(), CallError> {
        let results = self.call_repeatable(0, Payload::new(), ReplyShape::inline(0)).await?;
        Ok(results.decoder.finish()?)
    }

    fn reply_overhead(&self) -> usize {
        REPLY_HEADER_BYTES + padded(self.flavour.max_verifier()) + self.flavour.max_expansion()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client(program {} version {} at {})", self.program, self.version, self.transport.server())
    }
}

/// The message of a call.
fn message(id: CallId, protected: Protected, scratch: &SharedScratch) -> Payload {
    let header = CallHeader { id, credential: protected.credential, verifier: protected.verifier };
    let octets = CALL_HEADER_BYTES + header.credential.body.len() + header.verifier.body.len() + 8;
    scratch.write(octets + protected.body.len().min(SHORT_ARGUMENTS_BYTES), |encoder| {
        header.encode(encoder);
        encoder.payload(protected.body);
    })
}

/// The header of the reply to a call, and what follows it.
fn header(id: CallId, reply: Reply) -> Result<(ReplyHeader, Decoder), CallError> {
    let mut decoder = Decoder::new(reply.stream);
    let header = ReplyHeader::decode(&mut decoder)?;
    if header.xid != id.xid {
        return Err(CallError::WrongXid { expected: id.xid, got: header.xid });
    }
    Ok((header, decoder))
}

/// A call on its way. As with [`PendingCall`], dropping it leaves its memory lent. If its flavour must wait before it
/// can sign the call, polling the call continues this wait, and then sends the call.
#[must_use = "a call that is not awaited has no result"]
pub struct Call {
    id: CallId,
    way: Way,
}

enum Way {
    Plain { pending: PendingCall, flavour: Arc<dyn ClientFlavour> },
    Signed(Box<SignedCall>),
}

impl Call {
    /// Takes the call back; the server may still execute it.
    pub async fn cancel(self) -> Cancelled {
        match self.way {
            Way::Plain { pending, .. } => pending.cancel().await,
            Way::Signed(call) => call.cancel().await,
        }
    }
}

impl Future for Call {
    type Output = Result<Results, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id;
        match &mut self.way {
            Way::Plain { pending, flavour } => {
                let reply = ready!(Pin::new(pending).poll(cx))?;
                let retransmitted = reply.retransmitted;
                let (header, decoder) = header(id, reply)?;
                header.status?;
                let decoder = flavour.unwrap(&id, &header.verifier, decoder).map_err(CallError::BadVerifier)?;
                Poll::Ready(Ok(Results { decoder, retransmitted }))
            }
            Way::Signed(call) => call.poll(cx),
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Call").field(&self.id).finish()
    }
}

/// The results of a successful call.
#[derive(Debug)]
pub struct Results {
    /// It stands at the first result.
    pub decoder: Decoder,
    /// Whether the call was sent more than once, so that the server may have executed it more than once.
    pub retransmitted: bool,
}

impl Results {
    /// Reads results of one type to their end.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn decode<T: Decode>(mut self) -> Result<T, CallError> {
        let value = T::decode(&mut self.decoder)?;
        self.decoder.finish()?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ItemRoom, Limits, NoAuth, OpaqueAuth, Rejection, SysAuth, SysCredential, TransportError, TransportKind,
        XidSource,
    };
    use rpcrdma_env::SeededRandom;
    use rpcrdma_xdr::{DecodeError, Stream};
    use std::sync::Mutex;

    /// Answers each call with the result of a function.
    struct Echo<F> {
        xids: XidSource,
        seen: Mutex<Vec<(usize, usize, bool)>>,
        answer: F,
    }

    struct Ready(Option<Stream>);
    impl Future for Ready {
        type Output = Result<Reply, TransportError>;
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            let stream = self.0.take().unwrap_or_default();
            Poll::Ready(Ok(Reply { stream, retransmitted: true }))
        }
    }
    impl crate::CallInFlight for Ready {
        fn cancel(self: Pin<Box<Self>>) -> rpcrdma_env::BoxFuture<'static, Cancelled> {
            Box::pin(std::future::ready(Cancelled::default()))
        }
    }

    impl<F: Fn(CallHeader) -> ReplyHeader + Send + Sync> ClientTransport for Echo<F> {
        fn next_xid(&self) -> u32 {
            self.xids.next_xid()
        }
        fn call(&self, request: Request) -> PendingCall {
            self.seen.lock().unwrap().push((request.message.len(), request.reply.max_len, request.repeatable));
            let header = CallHeader::decode(&mut Decoder::new(Stream::from(request.message.to_bytes()))).unwrap();
            let mut encoder = Encoder::new();
            (self.answer)(header).encode(&mut encoder);
            encoder.u32(77);
            PendingCall::new(Ready(Some(Stream::from(encoder.finish().to_bytes()))))
        }
        fn kind(&self) -> TransportKind {
            TransportKind::Tcp
        }
        fn limits(&self) -> Limits {
            Limits::new(2000, 3000)
        }
        fn server(&self) -> std::net::SocketAddr {
            ([127, 0, 0, 1], 1).into()
        }
    }

    fn client<F: Fn(CallHeader) -> ReplyHeader + Send + Sync + 'static>(answer: F) -> (Client, Arc<Echo<F>>) {
        let echo = Arc::new(Echo { xids: XidSource::new(&SeededRandom::new(1)), seen: Mutex::default(), answer });
        (Client::new(echo.clone(), Arc::new(NoAuth), 9, 1), echo)
    }

    fn success(call: CallHeader) -> ReplyHeader {
        ReplyHeader { xid: call.id.xid, verifier: OpaqueAuth::none(), status: Ok(()) }
    }

    #[tokio::test]
    async fn sizes_of_header_credential_and_verifier_are_added() {
        let (client, echo) = client(success);
        let client = client.with_flavour(Arc::new(SysAuth::new(SysCredential::default())));
        let mut args = Payload::new();
        args.push_run(vec![0; 8].into());
        let shape = ReplyShape { max_len: 100, items: vec![ItemRoom::new(50)].into() };
        let mut results = client.call(3, args, shape).await.unwrap();
        assert_eq!(results.decoder.u32(), Ok(77));
        assert!(results.retransmitted);
        assert_eq!(*echo.seen.lock().unwrap(), [(40 + 20 + 8, 24 + 400 + 100, false)]);
        assert_eq!((client.max_args(), client.max_results()), (2000 - 60, 3000 - 424));
    }

    #[tokio::test]
    async fn the_room_for_an_answer_always_holds_a_rejection() {
        let (client, echo) = client(success);
        let call = client.call(0, Payload::new(), ReplyShape::inline(0));
        assert!(matches!(call.await, Ok(Results { .. })));
        assert_eq!(echo.seen.lock().unwrap()[0].1, 24 + 400 + 8);
        assert!(matches!(client.null().await, Err(CallError::Malformed(DecodeError::Trailing { .. }))));
    }

    #[tokio::test]
    async fn the_transport_is_told_what_may_be_repeated() {
        let (client, echo) = client(success);
        let _ = client.null().await;
        let _ = client.call_repeatable(3, Payload::new(), ReplyShape::inline(4)).await;
        let _ = client.call(3, Payload::new(), ReplyShape::inline(4)).await;
        let told: Vec<bool> = echo.seen.lock().unwrap().iter().map(|seen| seen.2).collect();
        assert_eq!(told, [true, true, false]);
    }

    #[tokio::test]
    async fn a_rejection_and_a_foreign_reply_are_errors() {
        let (rejecting, _) = client(|call| {
            let status = Err(Rejection::ProcedureUnavailable);
            ReplyHeader { xid: call.id.xid, verifier: OpaqueAuth::none(), status }
        });
        let refused = rejecting.call(3, Payload::new(), ReplyShape::inline(4)).await;
        assert!(matches!(refused, Err(CallError::Rejected(Rejection::ProcedureUnavailable))));
        let (foreign, _) =
            client(|call| ReplyHeader { xid: call.id.xid ^ 1, verifier: OpaqueAuth::none(), status: Ok(()) });
        let refused = foreign.call(3, Payload::new(), ReplyShape::inline(4)).await;
        assert!(matches!(refused, Err(CallError::WrongXid { .. })));
    }
}
