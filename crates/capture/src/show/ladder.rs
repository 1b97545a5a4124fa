//! Ladders: for each call the exchange between requester and responder, drawn with arrows as RFC 8166 section 3.5 does.
//!
//! Holds the lines of calls that are not answered yet, at most [`MAX_HELD_LINES`]; then the oldest call is drawn as it
//! is.

use super::describe;
use crate::{
    event::{CallTag, End, Event, EventKind, Message, Outcome, Rpc},
    read::{Sink, Summary},
};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::SocketAddr,
    time::Duration,
};

/// Lines held for calls under way: some MiB.
pub const MAX_HELD_LINES: usize = 16_384;
/// Columns between the two ends' lines.
const WIDTH: usize = 96;
/// Columns left of the requester's line: time, and "Call".
const MARGIN: usize = 18;

/// The signs with which lines are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `|`, `-`, `<`, `>`.
    Ascii,
    /// Box drawing.
    Unicode,
}

struct Signs {
    bar: char,
    dash: char,
    left: char,
    right: char,
}

impl Style {
    fn signs(self) -> Signs {
        match self {
            Style::Ascii => Signs { bar: '|', dash: '-', left: '<', right: '>' },
            Style::Unicode => Signs { bar: '│', dash: '─', left: '◀', right: '▶' },
        }
    }
}

/// An arrow.
struct Line {
    time: Duration,
    to_right: bool,
    text: String,
    mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Call,
    Reply,
}

/// A call under way.
struct Group {
    tag: CallTag,
    requester: SocketAddr,
    responder: SocketAddr,
    lines: Vec<Line>,
    answered: Option<Duration>,
    outcome: Option<Outcome>,
}

/// Draws a ladder for each call when it is answered, and between them the messages that belong to no call.
pub struct Ladder<W> {
    out: W,
    style: Style,
    groups: BTreeMap<(u64, u64), Group>,
    held: usize,
    /// The connection whose messages without a call were drawn last.
    drawing: Option<u64>,
}

impl<W: Write> Ladder<W> {
    /// Writes to `out`, best a buffered one.
    pub fn new(out: W, style: Style) -> Self {
        Ladder { out, style, groups: BTreeMap::new(), held: 0, drawing: None }
    }

    fn draw(&mut self, line: &Line) -> io::Result<()> {
        let signs = self.style.signs();
        let bar = signs.bar;
        let mut rows = wrap(&line.text, WIDTH - 6);
        let last = rows.pop().unwrap_or_default();
        for (index, row) in rows.iter().enumerate() {
            let time = if index == 0 { format!("{:12.6}", line.time.as_secs_f64()) } else { String::new() };
            writeln!(self.out, "{time:<MARGIN$}{bar}   {row:<width$}{bar}", width = WIDTH - 3)?;
        }
        let time = if rows.is_empty() { format!("{:12.6}", line.time.as_secs_f64()) } else { " ".repeat(12) };
        let call = if line.mark == Mark::Call { " Call" } else { "" };
        let reply = if line.mark == Mark::Reply { " Reply" } else { "" };
        let dashes = |columns: usize| signs.dash.to_string().repeat(columns);
        let fill = WIDTH.saturating_sub(last.chars().count() + 5);
        let arrow = match line.to_right {
            true => format!("{} {last} {}{}", dashes(2), dashes(fill), signs.right),
            false => format!("{}{} {last} {}", signs.left, dashes(1), dashes(fill + 1)),
        };
        let front = format!("{time}{call}");
        writeln!(self.out, "{front:<MARGIN$}{bar}{arrow}{bar}{reply}")
    }

    fn heads(&mut self, left: &str, right: &str) -> io::Result<()> {
        let space = (WIDTH + 2).saturating_sub(left.chars().count());
        writeln!(self.out, "{:MARGIN$}{left}{right:>space$}", "")
    }

    fn group(&mut self, group: &Group, number: u64) -> io::Result<()> {
        self.drawing = None;
        let name = group.tag.name.map_or("an unknown procedure".into(), |name| name.to_string());
        write!(self.out, "\nConnection {number}, call {}: {name}, xid {:#010x}", group.tag.number, group.tag.xid)?;
        match group.answered {
            Some(after) => write!(self.out, ", answered after {:.3} ms", after.as_secs_f64() * 1e3)?,
            None => write!(self.out, ", no answer seen")?,
        }
        match group.outcome {
            Some(Outcome::Executed(Some(status))) => write!(self.out, ": {status}")?,
            Some(Outcome::Rejected(rejection)) => write!(self.out, ": {rejection}")?,
            _ => {}
        }
        writeln!(self.out)?;
        let left = format!("requester {}", group.requester);
        let right = format!("responder {}", group.responder);
        self.heads(&left, &right)?;
        group.lines.iter().try_for_each(|line| self.draw(line))
    }

    /// Draws the oldest call as far as it has come.
    fn give_up_oldest(&mut self) -> io::Result<()> {
        if let Some((key, group)) = self.groups.pop_first() {
            self.held -= group.lines.len();
            self.group(&group, key.0)?;
        }
        Ok(())
    }
}

impl<W: Write> Sink for Ladder<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let connection = &event.connection;
        let text = describe::event(event);
        let Some(tag) = event.call else {
            if self.drawing != Some(connection.number) {
                self.drawing = Some(connection.number);
                writeln!(self.out, "\nConnection {}", connection.number)?;
                let left = format!("initiator {}", connection.initiator);
                let right = format!("responder {}", connection.responder);
                self.heads(&left, &right)?;
            }
            let to_right = event.from == End::Initiator;
            return self.draw(&Line { time: event.time, to_right, text, mark: Mark::None });
        };
        let (requester, responder) = match tag.requester {
            End::Initiator => (connection.initiator, connection.responder),
            End::Responder => (connection.responder, connection.initiator),
        };
        let key = (connection.number, tag.number);
        let group = self.groups.entry(key).or_insert_with(|| Group {
            tag,
            requester,
            responder,
            lines: Vec::new(),
            answered: None,
            outcome: None,
        });
        group.tag = tag;
        let mut mark = Mark::None;
        match &event.kind {
            EventKind::Send { since_call, message, .. } => {
                mark = match (event.from == tag.requester, since_call) {
                    (true, _) => Mark::Call,
                    // Other parts follow.
                    (false, None) => Mark::None,
                    (false, Some(_)) => Mark::Reply,
                };
                group.answered = *since_call;
                if let Message::Transport { rpc: Some(Rpc::Reply { outcome, .. }), .. } = message {
                    group.outcome = Some(*outcome);
                }
            }
            EventKind::Record { rpc, since_call, .. } => {
                mark = if since_call.is_some() { Mark::Reply } else { Mark::Call };
                group.answered = *since_call;
                if let Some(Rpc::Reply { outcome, .. }) = rpc {
                    group.outcome = Some(*outcome);
                }
            }
            EventKind::Write(tagged) => {
                if let Some(Rpc::Reply { outcome, .. }) = tagged.rpc {
                    group.outcome = Some(outcome);
                }
            }
            _ => {}
        }
        group.lines.push(Line { time: event.time, to_right: event.from == tag.requester, text, mark });
        self.held += 1;
        if mark == Mark::Reply
            && let Some(group) = self.groups.remove(&key)
        {
            self.held -= group.lines.len();
            self.group(&group, connection.number)?;
        }
        while self.held > MAX_HELD_LINES {
            self.give_up_oldest()?;
        }
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        while !self.groups.is_empty() {
            self.give_up_oldest()?;
        }
        writeln!(self.out, "\n{}", describe::summary(summary))?;
        self.out.flush()
    }
}

impl<W> std::fmt::Debug for Ladder<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ladder").field("held", &self.held).finish_non_exhaustive()
    }
}

/// Rows of at most `columns`, broken at spaces.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in text.split(' ') {
        let Some(row) = rows.last_mut() else { break };
        if row.is_empty() {
            row.push_str(word);
        } else if row.chars().count() + 1 + word.chars().count() <= columns {
            row.push(' ');
            row.push_str(word);
        } else {
            rows.push(word.to_owned());
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Carries, Connection};
    use rpcrdma_iwarp::protocol::rdmap::ReadRequest;
    use std::rc::Rc;

    #[test]
    fn held_lines_end_at_their_limit() {
        let (initiator, responder) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        let connection = Rc::new(Connection { number: 1, carries: Carries::Iwarp, initiator, responder });
        let request = ReadRequest { sink_stag: 1, sink_offset: 0, size: 9, source_stag: 2, source_offset: 0 };
        let mut ladder = Ladder::new(Vec::new(), Style::Ascii);
        let mut read = |number: u64| {
            let call = Some(CallTag { number, xid: 7, requester: End::Initiator, name: None });
            let kind = EventKind::ReadRequest(request);
            let (time, connection, from) = (Duration::ZERO, connection.clone(), End::Responder);
            ladder.event(&Event { time, connection, from, call, kind, content: None }).unwrap();
            (ladder.held, ladder.out.is_empty())
        };
        for number in 1..MAX_HELD_LINES as u64 {
            read(number);
        }
        assert_eq!(read(MAX_HELD_LINES as u64), (MAX_HELD_LINES, true));
        assert_eq!(read(MAX_HELD_LINES as u64 + 1), (MAX_HELD_LINES, false));
        assert!(
            String::from_utf8(ladder.out).unwrap().contains("call 1: an unknown procedure, xid 0x00000007, no answer")
        );
    }

    #[test]
    fn rows_break_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 6), ["one", "two", "three"]);
        assert_eq!(wrap("extraordinary", 6), ["extraordinary"]);
        assert_eq!(wrap("", 6), [""]);
    }
}
