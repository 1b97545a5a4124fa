//! Calls on their way over a connection, as their callers see them: those of a client, and those of a server.
//!
//! A caller's buffers stay with its pending call: over TCP results are slices of the record that was received. A driver
//! that ends drops the sender of each reply, and the call fails with [`TransportError::Closed`].

use crate::{Anew, CallInFlight, Cancelled, Limits, Misuse, PendingCall, Reply, Request, TransportError};
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_xdr::Payload;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::{mpsc, oneshot};

/// A call that a driver is to make.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) xid: u32,
    pub(super) message: Payload,
    /// Makes the message of a further transmission, where no message may be sent twice.
    pub(super) anew: Option<Arc<dyn Anew>>,
    /// The largest reply, in bytes.
    pub(super) max_reply: usize,
    pub(super) sender: oneshot::Sender<Result<Reply, TransportError>>,
}

impl Command {
    /// Makes the message of a further transmission.
    ///
    /// # Errors
    /// If that is not possible any more.
    pub(super) fn renew(&mut self) -> Result<(), TransportError> {
        if let Some(anew) = &self.anew {
            self.message = anew.message()?;
        }
        Ok(())
    }

    /// Ends it without a reply.
    pub(super) fn fail(self, error: TransportError) {
        let _ = self.sender.send(Err(error));
    }

    /// Ends it because another call has its XID.
    pub(super) fn refuse(self) {
        let misuse = Misuse::XidInUse { xid: self.xid };
        self.fail(misuse.into());
    }

    /// Gives a reply to the waiting caller.
    pub(super) fn answer(self, reply: Reply) {
        let len = reply.stream.len();
        let _ = self.sender.send(match len > self.max_reply {
            true => Err(TransportError::ReplyTooLarge { len, max: self.max_reply }),
            false => Ok(reply),
        });
    }
}

/// Hands a call to a driver, unless records within these limits cannot carry it or its reply.
pub(super) fn start(request: Request, limits: Limits, commands: &mpsc::UnboundedSender<Command>) -> PendingCall {
    if let Err(misuse) = request.check(limits) {
        return PendingCall::failed(misuse.into());
    }
    let Request { xid, message, reply, anew, .. } = request;
    let lent = reply.items.into_iter().filter_map(|room| room.buffer).collect();
    let max_reply = reply.max_len;
    let (sender, reply) = oneshot::channel();
    // A driver that has ended drops the sender, and the call finds that out.
    let _ = commands.send(Command { xid, message, anew, max_reply, sender });
    PendingCall::new(InFlight { reply, lent })
}

struct InFlight {
    reply: oneshot::Receiver<Result<Reply, TransportError>>,
    lent: Vec<Buffer>,
}

impl Future for InFlight {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(cx).map(|reply| reply.unwrap_or(Err(TransportError::Closed)))
    }
}

impl CallInFlight for InFlight {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        let buffers = Pin::into_inner(self).lent;
        Box::pin(std::future::ready(Cancelled { buffers }))
    }
}
