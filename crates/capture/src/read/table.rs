//! All TCP connections of a capture, by their ports and addresses. Bounded: the one that was silent longest makes room.

use super::{
    MAX_CONNECTIONS, Shared, Sink, Summary,
    connection::{Context, Flow},
    packet::{self, Foreign, Packet},
};
use pcap_file::DataLink;
use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

pub(super) struct Table {
    flows: BTreeMap<[SocketAddr; 2], Flow>,
    shared: Shared,
    first_time: Option<Duration>,
    last_time: Duration,
}

impl Table {
    pub(super) fn new() -> Self {
        Table { flows: BTreeMap::new(), shared: Shared::default(), first_time: None, last_time: Duration::ZERO }
    }

    /// Takes a packet with its time of day.
    pub(super) fn packet(
        &mut self,
        time: Duration,
        link: DataLink,
        octets: &[u8],
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        self.shared.summary.packets += 1;
        let first = *self.first_time.get_or_insert(time);
        self.last_time = time.saturating_sub(first);
        let segment = match packet::packet(link, octets) {
            Packet::Tcp(segment) => segment,
            other => {
                let summary = &mut self.shared.summary;
                summary.other_packets += 1;
                match other {
                    Packet::Rdma(Foreign::Roce1) => summary.roce_1_packets += 1,
                    Packet::Rdma(Foreign::Roce2) => summary.roce_2_packets += 1,
                    Packet::Rdma(Foreign::InfiniBand) => summary.infiniband_packets += 1,
                    Packet::Tcp(_) | Packet::Other => {}
                }
                return Ok(());
            }
        };
        let (key, from) = match segment.from <= segment.to {
            true => ([segment.from, segment.to], 0),
            false => ([segment.to, segment.from], 1),
        };
        let mut context = Context { shared: &mut self.shared, time: self.last_time, sink };
        if let Some(flow) = self.flows.get_mut(&key).filter(|flow| flow.is_other(from, &segment)) {
            flow.finish(&mut context)?;
            self.flows.remove(&key);
        }
        if !self.flows.contains_key(&key) && self.flows.len() >= MAX_CONNECTIONS {
            let oldest = self.flows.iter().min_by_key(|(_, flow)| flow.last_used).map(|(key, _)| *key);
            if let Some(mut flow) = oldest.and_then(|key| self.flows.remove(&key)) {
                flow.finish(&mut context)?;
            }
        }
        let flow = self.flows.entry(key).or_insert_with(|| Flow::new(key));
        flow.last_used = context.shared.summary.packets;
        flow.segment(from, &segment, &mut context)
    }

    /// There are no more packets.
    pub(super) fn finish(mut self, cut_short: bool, sink: &mut dyn Sink) -> io::Result<Summary> {
        let mut context = Context { shared: &mut self.shared, time: self.last_time, sink };
        for flow in self.flows.values_mut() {
            flow.finish(&mut context)?;
        }
        self.shared.summary.cut_short = cut_short;
        sink.finish(&self.shared.summary)?;
        Ok(self.shared.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use etherparse::PacketBuilder;

    struct Nothing;

    impl Sink for Nothing {
        fn event(&mut self, event: &Event) -> io::Result<()> {
            panic!("{event:?}")
        }

        fn finish(&mut self, _: &Summary) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn connections_end_at_their_limit() {
        let mut table = Table::new();
        let mut packet = |port: u16| {
            let mut octets = Vec::new();
            let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(port, 22, 1, 2);
            builder.write(&mut octets, b"x").unwrap();
            table.packet(Duration::ZERO, DataLink::RAW, &octets, &mut Nothing).unwrap();
            (table.flows.len(), table.shared.summary.other_connections)
        };
        let most = MAX_CONNECTIONS as u16;
        for port in 0..most {
            packet(1000 + port);
        }
        assert_eq!(packet(1000), (MAX_CONNECTIONS, 0), "all have room");
        assert_eq!(packet(1000 + most), (MAX_CONNECTIONS, 1));
        assert_eq!(packet(1000), (MAX_CONNECTIONS, 1), "it was not the one silent longest");
        assert_eq!(packet(1001), (MAX_CONNECTIONS, 2), "that one was");
        assert_eq!(table.finish(false, &mut Nothing).unwrap().other_connections, 2 + u64::from(most));
    }
}
