//! Which messages count in the judgement: not those of hostile hosts, and not those of connections on which a message
//! was corrupted.
//!
//! Messages on those connections may be anything, and so may the results of calls over them. Rules that do not depend
//! on a peer's messages hold there too: who owns which memory, and that nothing is left.

use crate::lock;
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Mutex,
};

#[derive(Default)]
struct State {
    hostile: BTreeSet<IpAddr>,
    /// Hosts whose provider is not watched, hostile hosts included.
    foreign: BTreeSet<IpAddr>,
    /// Connections on which a message was corrupted, by the initiator's address.
    spoilt: BTreeSet<SocketAddr>,
    /// Those among them that still exist at their initiator.
    standing: BTreeSet<SocketAddr>,
}

/// Knows which hosts and connections are not trusted.
#[derive(Default)]
pub struct Trust {
    state: Mutex<State>,
}

impl Trust {
    /// A host does not run the transport, and may send anything.
    pub fn is_now_hostile(&self, host: IpAddr) {
        lock(&self.state).hostile.insert(host);
        self.is_now_foreign(host);
    }

    /// A host's provider is not watched.
    pub fn is_now_foreign(&self, host: IpAddr) {
        lock(&self.state).foreign.insert(host);
    }

    /// Whether a host's provider is not watched.
    pub fn is_foreign(&self, host: IpAddr) -> bool {
        lock(&self.state).foreign.contains(&host)
    }

    /// Whether a host is hostile.
    pub fn is_hostile(&self, host: IpAddr) -> bool {
        lock(&self.state).hostile.contains(&host)
    }

    /// A message was corrupted on this connection.
    pub(crate) fn spoil(&self, initiator: SocketAddr) {
        let mut state = lock(&self.state);
        state.spoilt.insert(initiator);
        state.standing.insert(initiator);
    }

    /// Whether a message of this host, or one to it, was ever corrupted.
    pub(crate) fn was_spoilt(&self, host: IpAddr) -> bool {
        lock(&self.state).spoilt.iter().any(|initiator| initiator.ip() == host)
    }

    /// The initiator's end is gone: later calls use other connections.
    pub fn over(&self, initiator: SocketAddr) {
        lock(&self.state).standing.remove(&initiator);
    }

    /// Whether the messages of our end of a connection count: they do unless a message was corrupted, also towards a
    /// hostile host.
    pub fn holds_us(&self, initiator: SocketAddr) -> bool {
        !lock(&self.state).spoilt.contains(&initiator)
    }

    /// Whether messages over a connection count.
    pub fn counts(&self, initiator: SocketAddr, acceptor: IpAddr) -> bool {
        let state = lock(&self.state);
        let hostile = [initiator.ip(), acceptor].iter().any(|ip| state.hostile.contains(ip));
        !hostile && !state.spoilt.contains(&initiator)
    }

    /// Whether a call from or to a client now may use a corrupted connection or meet a hostile host.
    pub fn doubts(&self, client: IpAddr) -> bool {
        let state = lock(&self.state);
        state.hostile.contains(&client) || state.standing.iter().any(|initiator| initiator.ip() == client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corrupted_connection_is_doubted_for_good_and_its_host_while_it_stands() {
        let trust = Trust::default();
        let initiator: SocketAddr = "10.0.0.2:5000".parse().unwrap();
        let other: SocketAddr = "10.0.0.2:5001".parse().unwrap();
        let server = IpAddr::from([10, 0, 0, 1]);
        assert!(trust.counts(initiator, server) && !trust.doubts(initiator.ip()));
        trust.spoil(initiator);
        assert!(!trust.holds_us(initiator) && trust.holds_us(other));
        assert!(!trust.counts(initiator, server) && trust.counts(other, server) && trust.doubts(initiator.ip()));
        trust.over(initiator);
        assert!(!trust.counts(initiator, server) && !trust.doubts(initiator.ip()));
    }

    #[test]
    fn nothing_that_a_hostile_host_says_counts() {
        let trust = Trust::default();
        let (good, bad) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 100]));
        trust.is_now_hostile(bad);
        assert!(trust.is_foreign(bad) && !trust.is_foreign(good));
        assert!(trust.is_hostile(bad) && trust.doubts(bad) && !trust.doubts(good));
        assert!(!trust.counts(SocketAddr::new(good, 1), bad) && !trust.counts(SocketAddr::new(bad, 1), good));
    }
}
