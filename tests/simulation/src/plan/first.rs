//! The first edition of plans: a server, clients, faults and mishaps.

use super::{ClientPlan, Edition, Guests, HostPlan, Mishap, Plan, ServerPlan, one_of, spread};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::faults::{Fault, Point};
use rpcrdma_sim::{Link, SimConfig};
use rpcrdma_transport::Versions;
use std::time::Duration;

/// The most clients: with the server, four hosts.
const MAX_CLIENTS: u64 = 3;
/// The most callers of a client at a time.
const MAX_CALLERS: u64 = 4;
/// The most calls of a caller while faults are on.
const MAX_CALLS: u64 = 12;
/// The most mishaps besides the faults of providers.
const MAX_EVENTS: u64 = 8;
/// The least and the most that a server has for arguments and results together, in bytes.
const MEMORY_BYTES: (u64, u64) = (64 << 10, 8 << 20);
/// A fault hits one step in so many: the most frequent and the rarest fault.
const ONE_IN: (u64, u64) = (16, 512);

/// The plan of a seed. It must not change, because seeds that have found something are kept by their numbers.
pub(super) fn draw(seed: u64) -> Plan {
    let random = SeededRandom::new(seed);
    let link = draw_link(&random);
    let server_versions = *one_of(&random, &[Versions::Auto, Versions::Auto, Versions::One, Versions::Two]);
    let server = ServerPlan {
        host: draw_host(&random, link),
        versions: server_versions,
        credits: draw_u32(&random, 1, 32),
        inline_bytes: *one_of(&random, &[1024, 4096, 4096, 8192]),
        reverse: *one_of(&random, &[0, 1, 4]),
        memory: spread(&random, MEMORY_BYTES) as usize,
    };
    let clients: Vec<_> =
        (0..=random.below(MAX_CLIENTS)).map(|_| draw_client(&random, link, server_versions)).collect();
    let count = clients.len() as u64;
    let mishaps = (0..random.below(MAX_EVENTS + 1)).map(|_| draw_mishap(&random, count)).collect();
    Plan { edition: Edition::First, server, clients, mishaps, guests: Guests::default(), gentle: false }
}

fn draw_u32(random: &SeededRandom, least: u64, most: u64) -> u32 {
    u32::try_from(spread(random, (least, most))).unwrap_or(u32::MAX)
}

fn draw_link(random: &SeededRandom) -> Link {
    let (min, max) = *one_of(random, &[(1, 50), (5, 500), (200, 1000), (1, 5000)]);
    Link::new(Duration::from_micros(min), Duration::from_micros(max))
}

fn draw_config(random: &SeededRandom, link: Link) -> SimConfig {
    let config = match random.below(3) {
        0 => SimConfig::without_invalidation(),
        _ => SimConfig::default(),
    };
    let narrow = random.below(3) == 0;
    config.with_link(link).with_capabilities(|capabilities| {
        if narrow {
            capabilities.max_gather = 2;
            capabilities.max_private_data = 0;
            capabilities.max_ord = 1;
            capabilities.max_ird = 1;
        }
    })
}

fn draw_host(random: &SeededRandom, link: Link) -> HostPlan {
    let late = |random: &SeededRandom| Fault::Delay(Duration::from_micros(spread(random, (1, 200_000))));
    let possible = [
        (Point::Connect, Fault::Refuse),
        (Point::Accept, Fault::Refuse),
        (Point::PostReceive, Fault::Refuse),
        (Point::PostSend, Fault::Refuse),
        (Point::PostSend, Fault::Fail),
        (Point::PostSend, Fault::Cut),
        (Point::PostWrite, Fault::Refuse),
        (Point::PostWrite, Fault::Fail),
        (Point::PostRead, Fault::Refuse),
        (Point::PostRead, Fault::Fail),
        (Point::Expose, Fault::Refuse),
        (Point::Expose, Fault::Refuse),
        (Point::Invalidate, Fault::Cut),
        (Point::Invalidate, late(random)),
        (Point::Received, Fault::Cut),
        (Point::Received, late(random)),
        (Point::Done, Fault::Cut),
        (Point::Done, late(random)),
        (Point::Read, Fault::Cut),
        (Point::Read, late(random)),
        (Point::Fenced, Fault::Cut),
        (Point::Fenced, late(random)),
    ];
    let faults = (0..random.below(6)).map(|_| *one_of(random, &possible));
    let faults = faults.map(|(point, fault)| (point, fault, spread(random, ONE_IN))).collect();
    let scarce = if random.below(3) == 0 { spread(random, (8, 128)) } else { 0 };
    HostPlan { config: draw_config(random, link), faults, scarce, corrupt: 0 }
}

fn draw_client(random: &SeededRandom, link: Link, server: Versions) -> ClientPlan {
    let versions = match server {
        Versions::One => *one_of(random, &[Versions::One, Versions::Auto]),
        Versions::Two => *one_of(random, &[Versions::Two, Versions::Auto]),
        _ => *one_of(random, &[Versions::One, Versions::Two, Versions::Auto]),
    };
    ClientPlan {
        host: draw_host(random, link),
        versions,
        credits: draw_u32(random, 1, 32),
        inline_bytes: *one_of(random, &[1024, 4096, 4096, 8192]),
        reverse: *one_of(random, &[0, 1, 4]),
        callers: 1 + random.below(MAX_CALLERS),
        calls: 1 + random.below(MAX_CALLS),
        cancels: random.below(3) == 0,
        drops: false,
    }
}

fn draw_mishap(random: &SeededRandom, clients: u64) -> (Duration, Mishap) {
    let client = random.below(clients) as usize;
    let short = Duration::from_micros(spread(random, (100, 2_000_000)));
    let long = Duration::from_millis(spread(random, (1, 60_000)));
    let far = Duration::from_millis(spread(random, (10, 400_000)));
    let mishap = match random.below(10) {
        0..4 => Mishap::Cut(client),
        4 | 5 => Mishap::Partition(client, long),
        6 => Mishap::RestartServer(short),
        7 => Mishap::RestartClient(client, short),
        8 => Mishap::JumpServer(far),
        _ => Mishap::JumpClient(client, far),
    };
    (Duration::from_micros(spread(random, (50, 20_000))), mishap)
}
