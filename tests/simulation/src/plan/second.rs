//! The second edition of plans: the first edition's plan, with more faults.
//!
//! Its own random stream follows the first edition's plan: completions never come or have any error status, connections
//! are cut also while work is posted, messages are corrupted, links are slow, calls are dropped, and there are
//! additional hosts.

use super::{ClientPlan, Edition, HostPlan, Plan, one_of, spread};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::{
    WorkError,
    faults::{Fault, Point},
};
use rpcrdma_sim::SimConfig;
use rpcrdma_transport::Versions;
use std::time::Duration;

/// Keeps this stream apart from the first edition's.
const STREAM: u64 = 0x7365_636F_6E64_2121;
/// The most additional faults of a host.
const MAX_FAULTS: u64 = 4;
/// A fault hits one step in so many: the most frequent and the rarest fault.
const ONE_IN: (u64, u64) = (16, 512);
/// If messages are corrupted, one in so many is: the most frequent and the rarest case.
const CORRUPT_ONE_IN: (u64, u64) = (16, 512);
/// The most additional hosts of each kind.
const MAX_GUESTS: u64 = 2;
/// The time of each KiB on a slow link, in microseconds: 1 MiB takes ten seconds on the slowest link.
const SLOW_MICROS_PER_KIB: (u64, u64) = (10, 10_000);

/// All statuses that a provider may report for failed work.
const STATUSES: &[WorkError] = &[
    WorkError::Flushed,
    WorkError::LocalLength,
    WorkError::RemoteAccess,
    WorkError::RemoteOperation,
    WorkError::NoReceive,
    WorkError::Unreachable,
    WorkError::Fabric,
];

/// Completions that can be withheld, or come with an error status.
const COMPLETIONS: [Point; 4] = [Point::Received, Point::Done, Point::Read, Point::Fenced];
/// Work that can fail at once.
const WORK: [Point; 3] = [Point::PostSend, Point::PostWrite, Point::PostRead];
/// Steps at which connections are cut, besides those of the first edition.
const CUTS: [Point; 6] =
    [Point::PostReceive, Point::PostWrite, Point::PostRead, Point::Expose, Point::Fenced, Point::Done];

/// The plan of the first edition, with what the second adds.
pub(super) fn extend(plan: Plan, seed: u64) -> Plan {
    let random = SeededRandom::new(seed ^ STREAM);
    let mut plan = Plan { edition: Edition::Second, gentle: random.below(5) == 0, ..plan };
    let hosts = [&mut plan.server.host].into_iter().chain(plan.clients.iter_mut().map(|client| &mut client.host));
    hosts.for_each(|host| worsen(&random, host));
    for client in &mut plan.clients {
        client.drops = random.below(3) == 0;
    }
    plan.guests.hostile_clients = random.below(MAX_GUESTS + 1);
    plan.guests.strangers = random.below(MAX_GUESTS + 1);
    let link = plan.server.host.config.link;
    plan.guests.victims = (0..random.below(MAX_GUESTS + 1)).map(|_| draw_victim(&random, link)).collect();
    if plan.gentle {
        plan.mishaps.clear();
        for client in &mut plan.clients {
            (client.cancels, client.drops) = (false, false);
            soften(&mut client.host);
        }
        soften(&mut plan.server.host);
        plan.guests.hostile_clients = plan.guests.hostile_clients.max(1);
    }
    plan
}

fn soften(host: &mut HostPlan) {
    host.faults.clear();
    (host.scarce, host.corrupt) = (0, 0);
}

fn worsen(random: &SeededRandom, host: &mut HostPlan) {
    if random.below(2) == 0 {
        for _ in 0..random.below(MAX_FAULTS + 1) {
            let (point, fault) = match random.below(4) {
                0 => (*one_of(random, &COMPLETIONS), Fault::Withhold),
                1 => (*one_of(random, &COMPLETIONS), Fault::FailAs(one_of(random, STATUSES))),
                2 => (*one_of(random, &WORK), Fault::FailAs(one_of(random, STATUSES))),
                _ => (*one_of(random, &CUTS), Fault::Cut),
            };
            host.faults.push((point, fault, spread(random, ONE_IN)));
        }
        if random.below(8) == 0 {
            host.faults.push((Point::Invalidate, Fault::Withhold, spread(random, ONE_IN)));
        }
    }
    if random.below(4) == 0 {
        host.corrupt = spread(random, CORRUPT_ONE_IN);
    }
    if random.below(6) == 0 {
        host.config.link.per_kib = Duration::from_micros(spread(random, SLOW_MICROS_PER_KIB));
    }
}

/// The plan of a client whose server is hostile.
fn draw_victim(random: &SeededRandom, link: rpcrdma_sim::Link) -> ClientPlan {
    let mut host = HostPlan {
        config: if random.below(2) == 0 { SimConfig::default() } else { SimConfig::without_invalidation() },
        faults: Vec::new(),
        scarce: 0,
        corrupt: 0,
    };
    host.config.link = link;
    worsen(random, &mut host);
    ClientPlan {
        host,
        versions: *one_of(random, &[Versions::One, Versions::Two, Versions::Auto]),
        credits: 1 + random.below(16) as u32,
        inline_bytes: *one_of(random, &[1024, 4096, 8192]),
        reverse: random.below(3) as u32,
        callers: 1 + random.below(3),
        calls: 4 + random.below(20),
        cancels: true,
        drops: true,
    }
}
