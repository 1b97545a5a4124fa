//! Deliberate faults: cut links, partitions, crashing hosts.

use crate::{
    endpoint::Channel,
    log::Event,
    state::{Action, Held, Route, State, pair},
    world::stall_nanos,
};
use rpcrdma_fabric::{CloseReason, ConnectError};
use std::{io, net::IpAddr};

/// The protocol's name in violations.
pub(crate) const PROTOCOL: &str = "SIM";

/// After so long without a message passing, the sender gives up, like TCP with a user time-out or hardware with a retry
/// count.
pub(crate) const STALL_SECONDS: u64 = 30;

impl State {
    /// Delivers a message, unless a fault prevents it.
    pub(crate) fn arrive(&mut self, route: Route, action: Action) {
        if route.from != route.to && self.is_partitioned(route.from, route.to) {
            self.stall(route);
            self.held.push(Held { route, action });
        } else if self.is_down(route.to) {
            if let Some(end) = route.sender.and_then(|id| self.endpoints.get_mut(&id)) {
                end.lost = true;
            }
            self.stall(route);
        } else {
            action(self);
        }
    }

    /// Lets the sender give up after a while, unless its messages pass again.
    fn stall(&mut self, route: Route) {
        let Some(id) = route.sender else { return };
        let Some(end) = self.open_end(id).filter(|end| !end.stalling) else { return };
        end.stalling = true;
        self.after(stall_nanos(), move |state| {
            let blocked = state.is_partitioned(route.from, route.to) || state.is_down(route.to);
            let Some(end) = state.open_end(id) else { return };
            end.stalling = false;
            if blocked {
                state.end(id, CloseReason::Stalled { seconds: STALL_SECONDS }, None);
            }
        });
    }

    pub(crate) fn cut(&mut self, a: IpAddr, b: IpAddr) {
        self.record(Event::Cut(a, b));
        for id in self.ends_between(a, b) {
            self.sever(id, "the link was cut");
        }
    }

    fn sever(&mut self, id: u64, why: &'static str) {
        let Some(end) = self.open_end(id) else { return };
        end.severed = true;
        self.locally(id, Channel::Last, move |state| state.end(id, CloseReason::Broken(why.to_owned()), None));
    }

    pub(crate) fn partition(&mut self, a: IpAddr, b: IpAddr) {
        self.partitions.insert(pair(a, b));
        self.record(Event::Partitioned(a, b));
    }

    pub(crate) fn heal(&mut self, a: IpAddr, b: IpAddr) {
        self.partitions.remove(&pair(a, b));
        self.record(Event::Healed(a, b));
        // Delivers them at once, or messages that are still under way would overtake them.
        for Held { route, action } in std::mem::take(&mut self.held) {
            self.arrive(route, action);
        }
    }

    pub(crate) fn crash(&mut self, ip: IpAddr) {
        self.record(Event::Crashed(ip));
        let host = self.host(ip);
        host.down = true;
        let listeners = std::mem::take(&mut host.listeners);
        drop(listeners);
        for id in self.ends_where(|local, _| local == ip) {
            if let Some(end) = self.open_end(id) {
                end.severed = true;
            }
            self.end(id, CloseReason::Broken("the host crashed".to_owned()), None);
        }
        let own: Vec<u64> = self.connecting.iter().filter(|(_, c)| c.local.ip() == ip).map(|(id, _)| *id).collect();
        for id in own {
            self.not_connected(id, |peer| ConnectError::Io { peer, error: io::ErrorKind::NetworkDown.into() });
        }
    }

    pub(crate) fn restart(&mut self, ip: IpAddr) {
        self.record(Event::Restarted(ip));
        self.host(ip).down = false;
        for id in self.ends_where(|_, peer| peer == ip) {
            if self.endpoints.get(&id).is_some_and(|end| end.lost) {
                self.sever(id, "reset by the peer");
            }
        }
    }

    fn ends_between(&self, a: IpAddr, b: IpAddr) -> Vec<u64> {
        self.ends_where(|local, peer| pair(local, peer) == pair(a, b))
    }

    fn ends_where(&self, which: impl Fn(IpAddr, IpAddr) -> bool) -> Vec<u64> {
        self.endpoints
            .iter()
            .filter(|(_, end)| end.is_open() && which(end.info.local.ip(), end.info.peer.ip()))
            .map(|(id, _)| *id)
            .collect()
    }
}
