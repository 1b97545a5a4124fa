//! One line for each message.

use super::describe;
use crate::{
    event::{End, Event},
    read::{Sink, Summary},
};
use std::io::{self, Write};

/// Writes a line of text for each event: seconds, connection, from whom to whom, what, for which call.
#[derive(Debug)]
pub struct Text<W> {
    out: W,
}

impl<W: Write> Text<W> {
    /// Writes to `out`, best a buffered one.
    pub fn new(out: W) -> Self {
        Text { out }
    }
}

impl<W: Write> Sink for Text<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let connection = &event.connection;
        let (from, to) = match event.from {
            End::Initiator => (connection.initiator, connection.responder),
            End::Responder => (connection.responder, connection.initiator),
        };
        let (time, number) = (event.time.as_secs_f64(), connection.number);
        write!(self.out, "{time:12.6} #{number} {from} > {to}  {}", describe::event(event))?;
        if let Some(tag) = &event.call {
            write!(self.out, "  [{}]", describe::call(tag))?;
        }
        writeln!(self.out)
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        writeln!(self.out, "{}", describe::summary(summary))?;
        self.out.flush()
    }
}
