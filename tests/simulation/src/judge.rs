//! Judges a run when it is over: what the network has seen, and what is left.

use crate::{record::Record, watch::Watch};
use rpcrdma_fabric::CloseReason;
use rpcrdma_sim::{Event, Happening, Logged, Side, World};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// The least time for which a dropped call's memory stays lent.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Hosts whose calls may end before they are answered.
#[derive(Clone, Debug, Default)]
pub struct TakenBack {
    /// These cancel calls: a server that still works on such a call then loses the connection.
    pub cancel: BTreeSet<IpAddr>,
    /// These drop calls: only a server that takes very long loses the connection.
    pub forget: BTreeSet<IpAddr>,
}

/// Connections that ended because a rule of the fabric was broken: an end touched memory that is not lent, or a message
/// found no receive. `counts` says for two ends whether they have to keep rules at all.
pub fn violations(log: &[Logged], taken_back: &TakenBack, counts: impl Fn(SocketAddr, IpAddr) -> bool) -> Vec<String> {
    let (mut ends, mut exposures) = (BTreeMap::new(), BTreeMap::new());
    let mut found = Vec::new();
    for Logged { at, event } in log {
        match event {
            Event::Connecting { connection, from, to } => {
                ends.insert(*connection, (*from, to.ip()));
            }
            Event::Exposed { connection, side: Side::Initiator, handle, .. } => {
                exposures.insert((*connection, format!("{handle:#010x}")), *at);
            }
            Event::Completed { connection, side, happening: Happening::Closed(CloseReason::Violation(violation)) } => {
                let Some((from, to)) = ends.get(connection) else { continue };
                let handle = violation.rule.split(' ').next_back().unwrap_or_default().to_owned();
                let lent = exposures.get(&(*connection, handle));
                let long_ago = lent.is_some_and(|then| at.since(*then) >= FORGOTTEN);
                let client = from.ip();
                let excused = *side == Side::Initiator
                    && (taken_back.cancel.contains(&client) && lent.is_some()
                        || taken_back.forget.contains(&client) && long_ago);
                if counts(*from, *to) && !excused {
                    found.push(format!("connection {connection}, {side:?}, at {} ns: {violation}", at.as_nanos()));
                }
            }
            _ => {}
        }
    }
    found
}

/// Reports ends of connections, memory and exposures that are left and should not be.
pub fn leftovers(world: &World, watch: &Watch, record: &Record) {
    if world.open_ends() > 0 {
        record.found(format!("{} ends of connections are left", world.open_ends()));
    }
    if watch.exposed() > 0 {
        record.found(format!("{} pieces of memory are still exposed", watch.exposed()));
    }
    for (source, count) in watch.registry.live() {
        record.found(format!("{count} buffers of {source} are left"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::Ledger, memory::Registry, tally::Tally};
    use bytes::Bytes;
    use rpcrdma_env::Buffer;
    use rpcrdma_fabric::{Connected, ConnectionParams, Fabric, Lent, RemoteSegment, Token, WriteWork};
    use rpcrdma_fabric::{Receives, SendWork};
    use std::{future::poll_fn, sync::Arc, task::Poll};

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn params() -> ConnectionParams {
        let receives = Receives::Own(vec![Buffer::from_vec(vec![0; 64])]);
        ConnectionParams { private_data: Bytes::new(), ird: 1, ord: 1, receives }
    }

    async fn connect(world: &World) -> (Connected, Connected) {
        let (client, server) = (world.fabric(CLIENT), world.fabric(SERVER));
        let mut listener = server.listen("10.0.0.1:20049".parse().unwrap()).await.unwrap();
        let address = listener.local_addr();
        let connecting = world.spawn(async move { client.connect(address, params()).await.unwrap() });
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let accepted = pending.request().await.unwrap().accept(params()).await.unwrap();
        (connecting.await, accepted)
    }

    /// Lets both ends work until nothing more happens.
    async fn settle(world: &World, ends: &mut [&mut Connected]) {
        for _ in 0..20 {
            for end in &mut *ends {
                poll_fn(|cx| {
                    while end.poll(cx).is_ready() {}
                    Poll::Ready(())
                })
                .await;
            }
            world.sleep(Duration::from_millis(1)).await;
        }
    }

    /// A server writes once more after `pause`, when the client has invalidated its memory.
    fn late_write(pause: Duration) -> Vec<Logged> {
        let world = World::new(1);
        world.block_on(async {
            let (mut client, mut server) = connect(&world).await;
            let lent = Lent::Sink(Buffer::from_vec(vec![0; 10]));
            let RemoteSegment { handle, offset, .. } = client.expose(Token(1), lent).unwrap();
            let write = || WriteWork {
                octets: vec![Bytes::from_static(b"octets")].into(),
                handle,
                offset,
                ..WriteWork::default()
            };
            server.post_write(write()).unwrap();
            settle(&world, &mut [&mut server, &mut client]).await;
            world.sleep(pause).await;
            client.invalidate(handle);
            settle(&world, &mut [&mut client]).await;
            server.post_write(write()).unwrap();
            settle(&world, &mut [&mut server, &mut client]).await;
        });
        world.log()
    }

    #[test]
    fn an_access_after_the_memory_was_fenced_is_found() {
        let (nobody, all) = (TakenBack::default(), |_, _| true);
        let only = |set: &str| {
            let hosts = BTreeSet::from([CLIENT]);
            match set {
                "cancel" => TakenBack { cancel: hosts, ..TakenBack::default() },
                _ => TakenBack { forget: hosts, ..TakenBack::default() },
            }
        };
        let soon = late_write(Duration::ZERO);
        assert_eq!(violations(&soon, &nobody, all).len(), 1);
        assert_eq!(violations(&soon, &only("forget"), all).len(), 1, "it was not lent for long");
        assert_eq!(violations(&soon, &only("cancel"), all).len(), 0);
        assert_eq!(violations(&soon, &nobody, |_, _| false).len(), 0, "hostile hosts do what they like");
        let late = late_write(FORGOTTEN);
        assert_eq!(violations(&late, &only("forget"), all).len(), 0);
        assert_eq!(violations(&late, &nobody, all).len(), 1);
    }

    /// More messages than receives: an end has overrun its credits, and nothing excuses that.
    #[test]
    fn a_message_without_a_receive_is_found() {
        let world = World::new(1);
        world.block_on(async {
            let (mut client, mut server) = connect(&world).await;
            for _ in 0..2 {
                server
                    .post_send(SendWork { octets: vec![Bytes::from_static(b"octets")].into(), ..SendWork::default() })
                    .unwrap();
            }
            settle(&world, &mut [&mut server, &mut client]).await;
        });
        let all: BTreeSet<IpAddr> = [CLIENT, SERVER].into();
        let taken_back = TakenBack { cancel: all.clone(), forget: all };
        assert_eq!(violations(&world.log(), &taken_back, |_, _| true).len(), 1);
    }

    #[test]
    fn what_is_left_is_found() {
        let world = World::new(1);
        let record = Record::new(world.env().clock);
        let registry = Registry::new(record.clone());
        let watch =
            Watch::new(record.clone(), registry.clone(), Ledger::new(record.clone()), Arc::<Tally>::default(), None);
        leftovers(&world, &watch, &record);
        assert_eq!(record.findings().len(), 0);
        let allocator = crate::memory::Watched {
            inner: Arc::new(rpcrdma_env::Heap),
            name: "test",
            registry,
            faults: Arc::new(crate::plan::Faults::none()),
            clock: world.env().clock,
            allowance: None,
        };
        let buffer = rpcrdma_env::Allocator::try_allocate(&allocator, 10).unwrap();
        leftovers(&world, &watch, &record);
        assert_eq!(record.findings().len(), 1, "a buffer");
        let ends = world.block_on(connect(&world));
        leftovers(&world, &watch, &record);
        assert_eq!(record.findings().len(), 3, "the buffer, and ends of connections");
        drop((buffer, ends));
        leftovers(&world, &watch, &record);
        assert_eq!(record.findings().len(), 3);
    }
}
