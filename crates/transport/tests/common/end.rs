//! A peer that is only a queue pair: it sends what a test orders, and keeps what it receives.

use bytes::Bytes;
use rpcrdma_fabric::{Buffer, Completion, Connected, ConnectionParams, Pending, Receives, SendWork, Token};
use std::{collections::VecDeque, future::poll_fn, task::Poll};

/// The parameters of a connection: this many receives of 4 KiB, and four RDMA Reads at once in each direction.
pub fn params(receives: usize) -> ConnectionParams {
    let receives = (0..receives).map(|_| Buffer::from_vec(vec![0; 4096])).collect();
    ConnectionParams { private_data: Bytes::new(), ird: 4, ord: 4, receives: Receives::Own(receives) }
}

/// One end of a connection.
pub struct End {
    pub qp: Connected,
    /// Received messages that the test has not yet taken.
    heard: VecDeque<Bytes>,
    pub closed: bool,
}

impl End {
    pub fn new(qp: Connected) -> Self {
        Self { qp, heard: VecDeque::new(), closed: false }
    }

    /// Accepts a connection that a client has requested.
    pub async fn accepted(pending: Box<dyn Pending>) -> Self {
        Self::new(pending.request().await.unwrap().accept(params(128)).await.unwrap())
    }

    fn took(&mut self, completion: Completion) {
        match completion {
            Completion::Received { buffer, .. } => {
                let _ = self.qp.post_receive(Buffer::from_vec(vec![0; 4096]));
                self.heard.push_back(buffer.freeze());
            }
            Completion::Closed { .. } => self.closed = true,
            _ => {}
        }
    }

    /// Takes what has arrived, without waiting.
    pub async fn look(&mut self) {
        poll_fn(|cx| {
            while !self.closed
                && let Poll::Ready(completion) = self.qp.poll(cx)
            {
                self.took(completion);
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until something happens.
    pub async fn wait(&mut self) {
        let completion = poll_fn(|cx| self.qp.poll(cx)).await;
        self.took(completion);
    }

    /// Waits until the connection has ended.
    pub async fn ends(&mut self) {
        while !self.closed {
            self.wait().await;
        }
    }

    /// The next message that has arrived.
    pub fn next(&mut self) -> Option<Bytes> {
        self.heard.pop_front()
    }

    /// Posts a message, whether there is a credit or not. It goes out when the queue pair is next polled.
    pub fn post(&mut self, octets: Vec<Bytes>, invalidate: Option<u32>) {
        let _ =
            self.qp.post_send(SendWork { token: Token(1), octets: octets.into(), invalidate, ..SendWork::default() });
    }
}
