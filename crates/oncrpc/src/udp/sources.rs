//! How many calls each source has sent lately.
//!
//! The table has a fixed size: a sender that invents sources costs no memory, and at worst fills it, which slows down
//! only sources that share places with the invented ones. Each source has a place in each row, found by a secret hash,
//! and is refused only if all of them are full.

use crate::ClientNetwork;
use rpcrdma_env::{Random, Timestamp};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU32,
    time::Duration,
};

/// Places in a row, in number.
const PLACES: usize = 1024;
/// Rows, in number. A source is slowed down by others only if it shares a place with some of them in every row.
const ROWS: usize = 2;

/// The table.
pub(super) struct Sources {
    secret: [u64; 2],
    /// The part of a source's share, in time, that one call takes.
    interval: Duration,
    /// Until when each place's share is spent, in each row.
    spent: Box<[[Timestamp; PLACES]; ROWS]>,
}

impl Sources {
    /// A table in which each source has this many calls a second.
    pub(super) fn new(calls_per_second: NonZeroU32, random: &dyn Random) -> Self {
        Self {
            secret: [random.next_u64(), random.next_u64()],
            interval: Duration::from_secs(1) / calls_per_second.get(),
            spent: Box::new([[Timestamp::ZERO; PLACES]; ROWS]),
        }
    }

    /// Whether a call of `source` may be taken now; it is counted then.
    pub(super) fn take(&mut self, source: ClientNetwork, now: Timestamp) -> bool {
        let mut places = [0; ROWS];
        for (row, place) in places.iter_mut().enumerate() {
            let mut hasher = DefaultHasher::new();
            (self.secret, row, source).hash(&mut hasher);
            *place = (hasher.finish() % PLACES as u64) as usize;
        }
        let rows = || (0..ROWS).zip(places);
        let least = rows().map(|(row, place)| self.spent[row][place]).min().unwrap_or_default().max(now);
        let after = least + self.interval;
        // RPC-UDP-b
        if after > now + Duration::from_secs(1) {
            return false;
        }
        for (row, place) in rows() {
            // A place that other sources have filled further stays as it is.
            let spent = &mut self.spent[row][place];
            *spent = (*spent).max(after);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::SeededRandom;

    fn source(number: u32) -> ClientNetwork {
        ClientNetwork::of(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into())
    }

    fn taken(sources: &mut Sources, number: u32, calls: u32, now: Timestamp) -> usize {
        (0..calls).filter(|_| sources.take(source(number), now)).count()
    }

    #[test]
    fn a_source_has_its_share_of_each_second_and_no_more() {
        let ten = NonZeroU32::new(10).unwrap();
        let mut sources = Sources::new(ten, &SeededRandom::new(1));
        let now = Timestamp::from_nanos(1);
        assert_eq!(taken(&mut sources, 1, 10, now), 10, "at the limit");
        assert!(!sources.take(source(1), now), "one past it");
        assert_eq!(taken(&mut sources, 2, 11, now), 10, "another has its own");
        let later = now + Duration::from_millis(200);
        assert_eq!(taken(&mut sources, 1, 9, later), 2);
        assert_eq!(taken(&mut sources, 1, 99, later + Duration::from_secs(9)), 10, "what it has not used is gone");
    }

    #[test]
    fn sources_that_are_made_up_leave_most_others_alone() {
        let mut sources = Sources::new(NonZeroU32::new(10).unwrap(), &SeededRandom::new(3));
        let now = Timestamp::from_nanos(1);
        for flooding in 0..50 {
            taken(&mut sources, flooding, 100, now);
        }
        let served = (1000..2000).filter(|decent| taken(&mut sources, *decent, 1, now) == 1).count();
        assert!(served > 900, "{served} of 1000");
    }
}
