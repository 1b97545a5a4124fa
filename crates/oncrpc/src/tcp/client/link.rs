//! One connection: it writes and reads records, and decides what the server's silence means.

use super::{
    ClientOptions, Command,
    driver::{Driver, Outstanding},
    serving::Peer,
};
use crate::{
    Limits, Reply,
    outage::Standing,
    overlap::Portion,
    peek::{Direction, peek_direction},
    tcp::{
        Io, RecordError,
        record::{RecordReader, RecordWriter},
    },
};
use rpcrdma_env::{BoxFuture, Timestamp};
use rpcrdma_xdr::Stream;
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// Bytes of a record mark (RFC 5531 section 11).
const MARK_BYTES: u64 = 4;

/// How a connection ended.
pub(super) enum End {
    /// All handles are gone and nothing is outstanding.
    Finished,
    /// It was lost.
    Lost(Lost),
    /// The server broke the rules of record marking.
    Violation(&'static str),
}

/// Why a connection is lost.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("the server closed the last of them")]
    Closed,
    #[error("the last of them broke: {0}")]
    Broken(Arc<io::Error>),
    #[error("the server fell silent on the last of them")]
    Silent,
    #[error("the server sent nothing on the last of them")]
    Mute,
}

/// What the silence timer waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Silence,
    Probe,
}

/// One connection of a driver.
pub(super) struct Link<'a> {
    driver: &'a mut Driver,
    io: Box<dyn Io>,
    reader: RecordReader,
    writer: RecordWriter,
    /// What the timer waits for; the last sign of the server, and the bytes that had come, when the timer was set; and
    /// the timer.
    timer: Option<(Watch, (Timestamp, u64), BoxFuture<'static, ()>)>,
    commands_open: bool,
    /// Callers that have got their reply, and have not run since.
    told: Portion,
    /// The server has answered on this connection.
    answered: bool,
    started: Timestamp,
    /// Bytes that the watch has noted.
    heard: u64,
    /// The XID of the NULL that was sent last.
    null: Option<u32>,
    /// Bytes of answers to NULLs that the watch has not noted.
    alive: u64,
    /// The connection as the server's calls see it, if the client executes such calls.
    peer: Option<Peer>,
}

impl<'a> Link<'a> {
    pub(super) fn new(driver: &'a mut Driver, io: Box<dyn Io>) -> Self {
        let ClientOptions { max_record, busy_poll, .. } = driver.options;
        let reader = RecordReader::new(driver.allocator.clone(), max_record, busy_poll, driver.env.clock.clone());
        let writer = RecordWriter::default();
        let started = driver.env.clock.now();
        let limits = Limits::new(driver.options.max_record, driver.options.max_record);
        let peer = driver.serving.begin(driver.sought.server, limits, driver.allocator.clone());
        let mut link = Self {
            driver,
            io,
            reader,
            writer,
            timer: None,
            commands_open: true,
            told: Portion::default(),
            answered: false,
            started,
            heard: 0,
            null: None,
            alive: 0,
            peer,
        };
        link.driver.forget_dropped();
        link.driver.renew();
        for call in link.driver.calls.values_mut() {
            link.writer.push(&call.command.message);
            call.sent = call.sent.saturating_add(1);
        }
        link
    }

    /// Runs the connection to its end. Also returns whether the server has answered anything.
    pub(super) async fn run(mut self) -> (End, bool) {
        let end = poll_fn(|cx| {
            let end = self.poll(cx);
            self.tell_silence();
            end
        })
        .await;
        (end, self.answered)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        while self.commands_open {
            match self.driver.commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.send(command),
                Poll::Ready(None) => self.commands_open = false,
                Poll::Pending => break,
            }
        }
        self.answer(cx);
        self.told = Portion::default();
        // Data that the server sent before it closed is read even if nothing can be sent to it any more.
        let flushed = self.writer.poll_flush(Pin::new(&mut *self.io), cx);
        loop {
            match self.reader.poll_record(&mut *self.io, cx, self.writer.queued()) {
                Poll::Ready(Ok(Some(record))) => {
                    if let Err(rule) = self.receive(record, cx) {
                        return Poll::Ready(End::Violation(rule));
                    }
                    if self.told.is_complete(self.told.messages() + self.driver.calls.len()) {
                        // Meanwhile the callers that got replies call again, and the server begins with these calls.
                        cx.waker().wake_by_ref();
                        break;
                    }
                }
                Poll::Ready(Ok(None) | Err(RecordError::Truncated)) => return Poll::Ready(End::Lost(Lost::Closed)),
                Poll::Ready(Err(RecordError::Io(error))) => return Poll::Ready(broken(error)),
                Poll::Ready(Err(RecordError::TooLong { .. })) => {
                    return Poll::Ready(End::Violation("a record must not be longer than the largest reply"));
                }
                Poll::Ready(Err(RecordError::TooManyFragments)) => {
                    return Poll::Ready(End::Violation("a record must not have too many fragments"));
                }
                Poll::Pending => break,
            }
        }
        // Replies to calls of the server that were executed at once.
        let flushed = match flushed {
            Poll::Ready(Ok(())) if self.writer.queued() > 0 => self.writer.poll_flush(Pin::new(&mut *self.io), cx),
            flushed => flushed,
        };
        if let Poll::Ready(Err(error)) = flushed {
            return Poll::Ready(broken(Arc::new(error)));
        }
        if !self.commands_open && self.driver.calls.is_empty() {
            return Poll::Ready(End::Finished);
        }
        self.note_heard();
        self.poll_silence(cx).map(End::Lost)
    }

    /// Notes that the server has answered, and whether it was more than a health check.
    fn note_heard(&mut self) {
        let received = self.reader.received();
        let new = received.saturating_sub(std::mem::replace(&mut self.heard, received));
        let alive = std::mem::take(&mut self.alive);
        self.driver.listener.came(new, alive, self.driver.env.clock.now());
    }

    /// The time of the server's last sign on this connection; before the first sign, the time when the connection
    /// began.
    fn last(&self) -> Timestamp {
        self.started.max(self.driver.listener.last())
    }

    fn tell_silence(&mut self) {
        self.note_heard();
        let standing = Standing {
            since: self.last(),
            patience: self.patience(Watch::Silence) + self.patience(Watch::Probe),
            is_proof: true,
        };
        self.driver.tell_silence(Some(standing));
    }

    fn send(&mut self, command: Command) {
        if let Some(call) = self.driver.add(command).and_then(|call| self.driver.calls.get_mut(&call)) {
            self.writer.push(&call.command.message);
            call.sent = 1;
        }
    }

    /// Gives a reply to its caller, and a call of the server to the handler. Replies without a waiting caller are
    /// dropped.
    fn receive(&mut self, record: Stream, cx: &mut Context<'_>) -> Result<(), &'static str> {
        let (xid, direction) = peek_direction(&record).ok_or("a reply must begin with an XID")?;
        match direction {
            Some(Direction::Call) => {
                if let Some(peer) = &self.peer
                    && let Some(reply) = self.driver.serving.execute(peer, record, cx)
                {
                    self.writer.push(&reply);
                }
                return Ok(());
            }
            Some(Direction::Reply) => {
                self.answered = true;
                self.driver.outage.answered();
            }
            None => {}
        }
        if self.null == Some(xid) {
            self.null = None;
            self.alive = self.alive.saturating_add(MARK_BYTES + record.len() as u64);
            let (server, calls) = (self.driver.sought.server, self.driver.calls.len());
            tracing::debug!(%server, calls, "the server has answered a health check: it is slow");
        }
        if let Some(Outstanding { command, sent }) = self.driver.take(xid) {
            self.told.add(record.len());
            command.answer(Reply { stream: record, retransmitted: sent > 1 });
        }
        Ok(())
    }

    /// Answers calls of the server that have been executed.
    fn answer(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some((connection, reply))) = self.driver.serving.poll(cx) {
            // A reply to a call of an earlier connection is dropped.
            if self.peer.as_ref().is_some_and(|peer| peer.number() == connection)
                && let Some(reply) = reply
            {
                self.writer.push(&reply);
            }
        }
    }

    /// How long the server may be silent while the timer waits for this.
    fn patience(&self, watch: Watch) -> Duration {
        let ClientOptions { silence, probe, first_sign, .. } = self.driver.options;
        let usual = match watch {
            Watch::Silence => silence,
            Watch::Probe => probe,
        };
        match self.driver.outage.has_answered() {
            true => usual,
            // RPC-OUTAGE-a
            false => usual.min(first_sign / 4),
        }
    }

    /// Ready when the server has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        loop {
            let last = self.last();
            let Some((watch, before, timer)) = &mut self.timer else {
                if self.driver.calls.is_empty() {
                    return Poll::Pending;
                }
                self.set_timer(Watch::Silence, last);
                continue;
            };
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let (watch, silent) = (*watch, *before == (last, self.reader.received()));
            self.timer = None;
            self.driver.forget_dropped();
            let now = self.driver.env.clock.now();
            match watch {
                _ if !silent || self.driver.calls.is_empty() => {}
                Watch::Probe if self.reader.received() == 0 => return Poll::Ready(Lost::Mute),
                Watch::Probe => return Poll::Ready(Lost::Silent),
                Watch::Silence => {
                    // RPC-TCP-d
                    let Some((xid, null)) = self.driver.null_call() else {
                        self.set_timer(Watch::Silence, now);
                        continue;
                    };
                    self.writer.push(&null);
                    self.null = Some(xid);
                    self.set_timer(Watch::Probe, now);
                    if let Poll::Ready(Err(error)) = self.writer.poll_flush(Pin::new(&mut *self.io), cx) {
                        return Poll::Ready(Lost::Broken(Arc::new(error)));
                    }
                }
            }
        }
    }

    fn set_timer(&mut self, watch: Watch, from: Timestamp) {
        let when: Timestamp = from + self.patience(watch);
        let before = (self.last(), self.reader.received());
        self.timer = Some((watch, before, self.driver.env.clock.sleep_until(when)));
    }
}

fn broken(error: Arc<io::Error>) -> End {
    End::Lost(Lost::Broken(error))
}
