//! Which connections belong to a session, and for which directions (RFC 8881 sections 2.10.5 and 18.34).
//!
//! Connections are numbers here. A connection that only carries calls joins the session by the first SEQUENCE over it,
//! and gives way to newer ones if there are too many: the server goes on serving calls over it. If a client reserves
//! BIND_CONN_TO_SESSION for its machine, connections join only by this operation.

use rpcrdma_nfs::v4::Status;

/// What a client asks of a connection (`channel_dir_from_client4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The client's calls.
    Fore,
    /// The server's calls.
    Back,
    /// The client's calls, and the server's if the server wants to.
    ForeOrBoth,
    /// The server's calls, and the client's if the server wants to.
    BackOrBoth,
}

/// What a connection is used for (`channel_dir_from_server4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The client's calls.
    Fore,
    /// The server's calls.
    Back,
    /// Both.
    Both,
}

impl Direction {
    fn has_back(self) -> bool {
        self != Direction::Fore
    }
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    connection: u64,
    direction: Direction,
    /// A SEQUENCE has added it, without a wish of the client.
    automatic: bool,
}

/// The connections of a session, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Connections(Vec<Bound>);

impl Connections {
    /// A connection carries a call: adds it if it is new. Returns `None` if it was known, else the connection that had
    /// to go for it, if any.
    pub(super) fn note(&mut self, connection: u64, limit: usize) -> Option<Option<u64>> {
        if self.has(connection) {
            return None;
        }
        let bound = Bound { connection, direction: Direction::Fore, automatic: true };
        Some(self.add(bound, limit))
    }

    /// Adds a connection. At the limit, the oldest one without calls of the server goes; if all have such calls, the
    /// oldest.
    fn add(&mut self, bound: Bound, limit: usize) -> Option<u64> {
        let gone = (self.0.len() >= limit.max(1)).then(|| {
            let at = self.0.iter().position(|bound| !bound.direction.has_back()).unwrap_or(0);
            self.0.remove(at).connection
        });
        self.0.push(bound);
        gone
    }

    /// Binds a connection as the client asks by CREATE_SESSION or BIND_CONN_TO_SESSION. Returns its direction, and the
    /// connection that had to go for it.
    ///
    /// # Errors
    /// INVAL if the connection is already bound and the client demands another direction, or if it demands calls of the
    /// server and `back` says that there will be none.
    // NFS4-8881-18.34-a, NFS4-8881-2.10.3.1-a
    pub(super) fn bind(
        &mut self,
        connection: u64,
        ask: Ask,
        back: bool,
        limit: usize,
    ) -> Result<(Direction, Option<u64>), Status> {
        let direction = match (ask, back) {
            (Ask::Fore, _) | (Ask::ForeOrBoth, false) => Direction::Fore,
            (Ask::ForeOrBoth | Ask::BackOrBoth, true) => Direction::Both,
            (Ask::Back, true) => Direction::Back,
            (Ask::Back | Ask::BackOrBoth, false) => return Err(Status::INVAL),
        };
        let Some(bound) = self.0.iter_mut().find(|bound| bound.connection == connection) else {
            let bound = Bound { connection, direction, automatic: false };
            return Ok((direction, self.add(bound, limit)));
        };
        // NFS4-8881-18.34-b: if a SEQUENCE has added the connection, the client has demanded nothing yet.
        let has = bound.direction;
        let stays = match ask {
            Ask::Fore => has == Direction::Fore,
            Ask::Back => has == Direction::Back,
            Ask::ForeOrBoth => has != Direction::Back,
            Ask::BackOrBoth => has != Direction::Fore,
        };
        if !stays && !bound.automatic {
            return Err(Status::INVAL);
        }
        // If the connection already fits the request, it keeps all its directions.
        if !(stays && has == Direction::Both) {
            bound.direction = direction;
        }
        bound.automatic = false;
        Ok((bound.direction, None))
    }

    /// A connection has ended. Returns whether it belonged to the session.
    pub(super) fn remove(&mut self, connection: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|bound| bound.connection != connection);
        self.0.len() < before
    }

    /// Whether a connection belongs to the session.
    pub(super) fn has(&self, connection: u64) -> bool {
        self.0.iter().any(|bound| bound.connection == connection)
    }

    /// The connections that the server may call over.
    // NFS4-8881-2.10.3.1-a
    pub(super) fn back(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().filter(|bound| bound.direction.has_back()).map(|bound| bound.connection)
    }

    /// All connections.
    pub(super) fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|bound| bound.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NFS4-8881-18.34-a
    #[test]
    fn a_direction_is_what_was_asked_for_or_one_of_the_two_that_were() {
        let asks = [Ask::Fore, Ask::Back, Ask::ForeOrBoth, Ask::BackOrBoth];
        let bind = |ask, back| Connections::default().bind(1, ask, back, 4).map(|(direction, _)| direction);
        let (fore, both) = (Ok(Direction::Fore), Ok(Direction::Both));
        assert_eq!(asks.map(|ask| bind(ask, true)), [fore, Ok(Direction::Back), both, both]);
        let none = Err(Status::INVAL);
        assert_eq!(asks.map(|ask| bind(ask, false)), [fore, none, fore, none]);
    }

    /// proves: NFS4-8881-18.34-b
    #[test]
    fn a_connection_that_is_bound_changes_only_within_what_was_asked() {
        let mut connections = Connections::default();
        let mut bind = |connection, ask| connections.bind(connection, ask, true, 9).map(|(direction, _)| direction);
        assert_eq!(bind(1, Ask::Fore), Ok(Direction::Fore));
        assert_eq!(bind(1, Ask::Fore), Ok(Direction::Fore), "again");
        assert_eq!(bind(1, Ask::Back), Err(Status::INVAL));
        assert_eq!(bind(1, Ask::BackOrBoth), Err(Status::INVAL));
        assert_eq!(bind(1, Ask::ForeOrBoth), Ok(Direction::Both));
        assert_eq!(bind(1, Ask::ForeOrBoth), Ok(Direction::Both));
        assert_eq!(bind(1, Ask::Fore), Err(Status::INVAL), "no step back");
        assert_eq!(bind(2, Ask::Back), Ok(Direction::Back));
        assert_eq!(bind(2, Ask::ForeOrBoth), Err(Status::INVAL));
        assert_eq!(connections.back().collect::<Vec<_>>(), [1, 2]);
        // A SEQUENCE over a new connection, before the client binds it.
        assert_eq!(connections.note(3, 9), Some(None));
        assert_eq!(connections.bind(3, Ask::BackOrBoth, true, 9), Ok((Direction::Both, None)));
        assert_eq!(connections.bind(3, Ask::Fore, true, 9), Err(Status::INVAL), "now it was a demand");
    }

    #[test]
    fn the_oldest_connection_without_calls_of_the_servers_gives_way() {
        let mut connections = Connections::default();
        connections.bind(1, Ask::ForeOrBoth, true, 3).unwrap();
        assert_eq!([connections.note(2, 3), connections.note(3, 3)], [Some(None); 2], "at the limit");
        assert_eq!(connections.note(4, 3), Some(Some(2)), "one past it");
        assert_eq!(connections.note(4, 3), None);
        assert_eq!(connections.all().collect::<Vec<_>>(), [1, 3, 4]);
        for connection in 5..=6 {
            connections.bind(connection, Ask::Back, true, 3).unwrap();
        }
        assert_eq!(connections.bind(7, Ask::Back, true, 3), Ok((Direction::Back, Some(1))), "none is left without");
        assert!(connections.remove(7) && !connections.remove(7) && !connections.has(7));
    }
}
