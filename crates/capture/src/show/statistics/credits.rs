//! Credits of each connection: how many were granted, and how many calls were under way.

use crate::{
    event::{Connection, End, Event, EventKind, Message},
    header::{Meaning, TransportHeader},
};
use std::{collections::BTreeMap, rc::Rc};

/// Connections whose credits are shown; the capture's later ones are only counted.
pub(super) const MAX_TOLD_CONNECTIONS: usize = 256;

/// The lowest and the highest value that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range(pub(super) Option<(u64, u64)>);

impl Range {
    fn add(&mut self, value: u64) {
        let (low, high) = self.0.unwrap_or((value, value));
        self.0 = Some((low.min(value), high.max(value)));
    }
}

/// The credits for calls that a connection's initiator makes.
pub(super) struct OfConnection {
    pub(super) connection: Rc<Connection>,
    /// Credits that a responder's messages of version 1 grant, or the most that those of version 2 announce.
    pub(super) granted: Range,
    /// Calls under way, when one is made: itself included.
    pub(super) in_use: Range,
    under_way: u64,
    last_call: u64,
}

#[derive(Default)]
pub(super) struct Credits {
    pub(super) connections: BTreeMap<u64, OfConnection>,
    /// The highest number of a connection that is not among them.
    pub(super) untold: Option<u64>,
}

impl Credits {
    pub(super) fn event(&mut self, event: &Event) {
        let EventKind::Send { message: Message::Transport { header, .. }, .. } = &event.kind else { return };
        let number = event.connection.number;
        if !self.connections.contains_key(&number) && self.connections.len() >= MAX_TOLD_CONNECTIONS {
            self.untold = self.untold.max(Some(number));
            return;
        }
        let of = self.connections.entry(number).or_insert_with(|| OfConnection {
            connection: event.connection.clone(),
            granted: Range::default(),
            in_use: Range::default(),
            under_way: 0,
            last_call: 0,
        });
        match event.from {
            End::Responder => match header {
                // A call in the reverse direction asks for credits, and grants none.
                TransportHeader::V1(header_1) => {
                    let asks = event.call.is_some_and(|call| call.requester == End::Responder);
                    if !asks || header.meaning() == Meaning::Reply {
                        of.granted.add(header_1.credit.into());
                    }
                }
                TransportHeader::V2(header) => of.granted.add(u64::from(header.credits.maximum)),
            },
            End::Initiator => {
                let made = event.call.filter(|call| call.requester == End::Initiator && call.number > of.last_call);
                if let Some(call) = made {
                    of.last_call = call.number;
                    of.under_way += 1;
                    of.in_use.add(of.under_way);
                }
            }
        }
    }

    /// A call was answered.
    pub(super) fn answered(&mut self, connection: u64, requester: End) {
        if requester == End::Initiator
            && let Some(of) = self.connections.get_mut(&connection)
        {
            of.under_way = of.under_way.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Carries;
    use rpcrdma_iwarp::protocol::rdmap::Opcode;
    use rpcrdma_wire::v1::{Body, Header, Lists};

    fn send(number: u64) -> Event {
        let ends = ["192.0.2.1:40000".parse().unwrap(), "192.0.2.2:20049".parse().unwrap()];
        let connection = Connection { number, carries: Carries::Iwarp, initiator: ends[0], responder: ends[1] };
        let header = TransportHeader::V1(Header::new(1, 32, Body::Msg(Lists::default())));
        let message = Message::Transport { header, inline_bytes: 0, rpc: None, continues: false };
        Event {
            time: std::time::Duration::ZERO,
            connection: Rc::new(connection),
            from: End::Responder,
            call: None,
            kind: EventKind::Send {
                opcode: Opcode::Send,
                invalidate: None,
                octets: 28,
                fpdus: 1,
                message,
                since_call: None,
            },
            content: None,
        }
    }

    #[test]
    fn connections_are_told_up_to_their_limit() {
        let mut credits = Credits::default();
        let most = MAX_TOLD_CONNECTIONS as u64;
        for number in 1..=most {
            credits.event(&send(number));
        }
        assert_eq!((credits.connections.len(), credits.untold), (MAX_TOLD_CONNECTIONS, None));
        credits.event(&send(1));
        assert_eq!(credits.untold, None, "one of those that are told");
        credits.event(&send(most + 2));
        credits.event(&send(most + 1));
        assert_eq!((credits.connections.len(), credits.untold), (MAX_TOLD_CONNECTIONS, Some(most + 2)));
    }
}
