//! Additional hosts, called guests in this module. They must not affect the server and its clients.
//!
//! Hostile clients call the server. Clients that run the transport ("victims") call hostile servers. Strangers are
//! decent clients that run another implementation. Messages of hostile hosts do not count in the judgement, but memory
//! on our side of their connections is watched as everywhere, and nothing of it may remain at the end.

mod enemy;
mod hostile;
mod lists;
mod speech;
mod stranger;

use crate::{
    hosts::{ADDRESS, ClientHost, Common},
    plan,
};
use hostile::Hostile;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The port of hostile servers.
const PORT: u16 = 20049;
/// Process numbers of victims begin here.
const VICTIMS: u64 = 100;

fn ip(net: u8, index: u64) -> IpAddr {
    // A few at most.
    IpAddr::V4(Ipv4Addr::new(10, 0, net, 1 + index as u8))
}

/// All guests of a run.
pub(crate) struct Guests {
    victims: Vec<ClientHost>,
    /// Whether guests go on.
    on: Arc<AtomicBool>,
}

impl Guests {
    /// Starts all guests.
    pub(crate) fn come(common: &Common, plan: &plan::Plan) -> Self {
        let (server, plan) = (plan.server.versions, &plan.guests);
        let on = Arc::new(AtomicBool::new(true));
        let trust = &common.judges.ledger.trust;
        for index in 0..plan.hostile_clients {
            trust.is_now_hostile(ip(1, index));
            Hostile::new(common, ip(1, index), &on).call(ADDRESS);
        }
        let mut victims = Vec::new();
        for (index, victim) in (0..).zip(&plan.victims) {
            let server = SocketAddr::new(ip(2, index), PORT);
            trust.is_now_hostile(server.ip());
            Hostile::new(common, server.ip(), &on).serve(server);
            victims.push(ClientHost::victim(common, ip(3, index), VICTIMS + index, victim, server));
        }
        for index in 0..plan.strangers {
            trust.is_now_foreign(ip(4, index));
            stranger::come(common, ip(4, index), server, &on);
        }
        Self { victims, on }
    }

    /// Turns the faults of victims on or off.
    pub(crate) fn turn_faults(&self, on: bool) {
        self.victims.iter().for_each(|victim| victim.faults().turn(on));
    }

    /// Whether victims still have calls to make.
    pub(crate) fn are_busy(&self) -> bool {
        self.victims.iter().any(ClientHost::is_busy)
    }

    /// Ends all guests that do not run the transport.
    pub(crate) fn leave(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    /// Ends the other guests. Returns false if something did not end.
    pub(crate) async fn stop(self, within: Duration) -> bool {
        let mut ended = true;
        for victim in self.victims {
            ended &= victim.stop(within).await;
        }
        ended
    }
}
