//! All TCP connections of a capture, by their ports and addresses. Bounded: the one silent longest makes room.

use super::{
    MAX_CONNECTIONS, Shared, Sink, Summary,
    connection::{Context, Flow},
    packet,
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
        let Some(segment) = packet::segment(link, octets) else {
            self.shared.summary.other_packets += 1;
            return Ok(());
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
