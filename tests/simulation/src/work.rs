//! One call to make: the procedure, the bytes in each direction, and how the call shall end.

use crate::plan::Edition;
use rpcrdma_env::Random;
use rpcrdma_xdr::{Encoder, Payload};
use std::time::Duration;

/// The program's number.
pub(crate) const PROGRAM: u32 = 0x2000_0010;
/// Bytes in and out, each as an item that may be placed directly.
pub(crate) const ITEMS: u32 = 1;
/// The same, not idempotent.
pub(crate) const ITEMS_ONCE: u32 = 2;
/// Bytes in and out, as parts of the stream.
pub(crate) const RUNS: u32 = 3;
/// The same, not idempotent.
pub(crate) const RUNS_ONCE: u32 = 4;
/// The server calls back as often as the call says. Not idempotent.
pub(crate) const BACK: u32 = 5;
/// Two items in, and two out.
pub(crate) const PAIR: u32 = 6;
/// There is no such procedure.
pub(crate) const UNKNOWN: u32 = 99;
/// The most bytes of an item or run.
pub(crate) const MAX_OCTETS: usize = 1 << 20;
/// The most bytes in each direction of a call from the server: it must fit into the smallest inline threshold.
pub(crate) const MAX_BACK_OCTETS: u64 = 400;
/// The most bytes of a reply that is kept for duplicates: so few that no cache of these runs must forget one.
pub(crate) const MAX_KEPT_BYTES: usize = 10_000;
/// Inline thresholds around which sizes are drawn, in bytes.
const THRESHOLDS: [usize; 4] = [1024, 4096, 8192, 20 * 4096];

/// Bytes that depend on a number and on their place.
pub(crate) fn pattern(len: usize, number: u64) -> Vec<u8> {
    let word =
        |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93)).to_le_bytes();
    let mut octets: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    octets.truncate(len);
    octets
}

/// The number of a call's results, for [`pattern`].
pub(crate) fn answer_to(number: u64) -> u64 {
    !number
}

/// The number of the second item of a pair.
pub(crate) fn second_of(number: u64) -> u64 {
    number.rotate_left(32)
}

/// The length of the second item of a pair.
pub(crate) fn second_octets(first: usize) -> usize {
    first / 3
}

/// Whether the server may execute calls of a procedure only once.
pub(crate) fn is_once(procedure: u32) -> bool {
    matches!(procedure, ITEMS_ONCE | RUNS_ONCE | BACK)
}

/// How much room a call has for the item of its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// As much as it needs.
    Fits,
    /// More than it needs.
    Ample,
    /// Less than it needs: the call has to fail.
    Short,
}

/// One call to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) procedure: u32,
    pub(crate) sleep: Duration,
    pub(crate) octets: usize,
    pub(crate) wanted: usize,
    pub(crate) room: Room,
}

impl Work {
    /// Draws a call of any procedure; calls back only if the server can call the client.
    pub(crate) fn draw(random: &dyn Random, can_call_back: bool, edition: Edition) -> Self {
        let work = Self::first(random, can_call_back);
        match edition {
            Edition::First => work,
            Edition::Second | Edition::Third | Edition::Fourth | Edition::Fifth => work.second(random),
        }
    }

    fn first(random: &dyn Random, can_call_back: bool) -> Self {
        let octets = |random: &dyn Random| match random.below(10) {
            0..4 => random.below(600),
            4..7 => random.below(9_000),
            7..9 => random.below(60_000),
            _ => random.below(300_000),
        } as usize;
        let procedure = match random.below(10) {
            0..3 => ITEMS,
            3..5 => ITEMS_ONCE,
            5..7 => RUNS,
            7 => RUNS_ONCE,
            _ if can_call_back => BACK,
            _ => ITEMS,
        };
        let sleep = match random.below(4) {
            0 => Duration::from_micros(random.below(100)),
            1 => Duration::from_micros(random.below(30_000)),
            _ => Duration::ZERO,
        };
        let work = Self { procedure, sleep, octets: octets(random), wanted: octets(random), room: Room::Fits };
        match procedure {
            BACK => Self { octets: work.octets % 64, wanted: 1 + work.wanted % 3, ..work },
            ITEMS_ONCE | RUNS_ONCE => Self { wanted: work.wanted % MAX_KEPT_BYTES, ..work },
            _ => work,
        }
    }

    /// The same call, or an empty one, one that just fits, one with pairs, or one with the wrong room.
    fn second(mut self, random: &dyn Random) -> Self {
        if self.procedure == BACK {
            return self;
        }
        for octets in [&mut self.octets, &mut self.wanted] {
            match random.below(12) {
                0 => *octets = 0,
                1 => {
                    let threshold = THRESHOLDS[random.below(THRESHOLDS.len() as u64) as usize];
                    *octets = threshold - random.below(200) as usize;
                }
                _ => {}
            }
        }
        match (self.procedure, random.below(16)) {
            (ITEMS, 0..4) => self.procedure = PAIR,
            (ITEMS | RUNS, 4) => self.procedure = UNKNOWN,
            (ITEMS | ITEMS_ONCE, 5..8) => self.room = Room::Ample,
            (ITEMS | RUNS | RUNS_ONCE | ITEMS_ONCE, 8) if self.wanted > 0 => self.room = Room::Short,
            (ITEMS | RUNS, 9) if random.below(4) == 0 => self.sleep = Duration::from_millis(random.below(20_000)),
            _ => {}
        }
        if is_once(self.procedure) {
            self.wanted %= MAX_KEPT_BYTES;
        }
        self
    }

    /// Draws a call from the server back to the client.
    pub(crate) fn back(random: &dyn Random) -> Self {
        let once = random.below(2) == 0;
        Self {
            procedure: if once { RUNS_ONCE } else { RUNS },
            sleep: Duration::ZERO,
            octets: random.below(MAX_BACK_OCTETS) as usize,
            wanted: random.below(MAX_BACK_OCTETS) as usize,
            room: Room::Fits,
        }
    }

    /// Bytes of room for the wanted results.
    pub(crate) fn room_octets(&self) -> usize {
        match self.room {
            Room::Fits => self.wanted,
            Room::Ample => self.wanted * 2 + 1000,
            Room::Short => self.wanted / 2,
        }
    }

    /// Whether the call must fail: the server refuses it, or its results are too large.
    pub(crate) fn is_to_fail(&self) -> bool {
        self.procedure == UNKNOWN || self.room == Room::Short
    }

    /// The arguments, and the items among them.
    pub(crate) fn arguments(&self, number: u64) -> (Payload, Vec<bytes::Bytes>) {
        let mut args = Encoder::new();
        args.u64(number);
        // At most twenty seconds, and 1 MiB.
        args.u32(self.sleep.as_micros() as u32);
        args.u32(self.wanted as u32);
        let octets: bytes::Bytes = pattern(self.octets, number).into();
        let mut items = Vec::new();
        match self.procedure {
            RUNS | RUNS_ONCE | BACK => args.opaque(&octets),
            _ => {
                args.item(octets.clone());
                items.push(octets);
            }
        }
        if self.procedure == PAIR {
            let second: bytes::Bytes = pattern(second_octets(self.octets), second_of(number)).into();
            args.u32(self.procedure);
            args.item(second.clone());
            items.push(second);
        }
        (args.finish(), items)
    }
}
