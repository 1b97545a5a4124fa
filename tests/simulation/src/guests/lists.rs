//! Chunk lists that no peer should send, and that some peers do send.

use super::enemy::Known;
use rpcrdma_env::Random;
use rpcrdma_wire::chunk::{Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList};

/// The Position of the item in a call's arguments: behind header, number, sleep, wanted bytes and length.
pub(super) const ITEM_POSITION: u32 = 40 + 20;
/// The most segments of a list: more than any end accepts.
const MAX_SEGMENTS: u64 = 80;

/// A segment: lent by the enemy, named by the peer, or invented; whole, empty, cut, or far too long.
fn segment(known: &Known, random: &dyn Random) -> Segment {
    let real = match random.below(8) {
        0..5 => pick(&known.own, random),
        5 => pick(&known.handles, random),
        _ => None,
    };
    let made_up =
        || Segment { handle: random.next_u32(), length: random.below(10_000) as u32, offset: random.next_u64() };
    let whole = real.unwrap_or_else(made_up);
    match random.below(12) {
        0 => Segment { length: 0, ..whole },
        1 => Segment { length: u32::MAX, ..whole },
        2 => Segment { offset: u64::MAX - random.below(64), ..whole },
        3 => Segment { length: whole.length / 2, ..whole },
        4 => Segment { offset: whole.offset.wrapping_add(u64::from(whole.length)), ..whole },
        _ => whole,
    }
}

pub(super) fn pick<T: Copy>(from: &[T], random: &dyn Random) -> Option<T> {
    from.get(random.below(from.len() as u64) as usize).copied()
}

/// A few segments, or many; sometimes always the same one.
fn segments(known: &Known, random: &dyn Random) -> Vec<Segment> {
    let count = match random.below(12) {
        0 => 0,
        1 => random.below(MAX_SEGMENTS),
        _ => 1 + random.below(3),
    };
    let first = segment(known, random);
    let overlap = random.below(4) == 0;
    (0..count).map(|_| if overlap { first } else { segment(known, random) }).collect()
}

fn position(random: &dyn Random) -> u32 {
    match random.below(8) {
        0 => 0,
        1 => random.next_u32(),
        2 => random.below(400) as u32,
        _ => ITEM_POSITION,
    }
}

/// Any chunk lists.
pub(super) fn draw(known: &Known, random: &dyn Random) -> Lists {
    let mut reads = Vec::new();
    for _ in 0..random.below(3) {
        let position = position(random);
        reads.extend(segments(known, random).into_iter().map(|segment| ReadSegment { position, segment }));
    }
    let writes = (0..random.below(3)).map(|_| WriteChunk(segments(known, random).into())).collect();
    let reply = (random.below(3) == 0).then(|| WriteChunk(segments(known, random).into()));
    Lists { reads: ReadList(reads.into()), writes: WriteList(writes), reply }
}

/// The lists of a call as a reply repeats them: right, or with one change.
pub(super) fn echo(lists: &Lists, known: &Known, random: &dyn Random) -> Lists {
    let mut echo = Lists { reads: ReadList::default(), ..lists.clone() };
    let chunks = &mut echo.writes.0;
    match random.below(10) {
        0 => chunks.push(WriteChunk(segments(known, random).into())),
        1 => {
            chunks.pop();
        }
        2 => echo.reads = lists.reads.clone(),
        3 => echo.reply = Some(WriteChunk(segments(known, random).into())),
        4 => echo.reply = None,
        5 => return draw(known, random),
        change => {
            for segment in chunks.iter_mut().chain(&mut echo.reply).flat_map(|chunk| &mut chunk.0) {
                segment.length = match change {
                    6 => segment.length.saturating_add(1),
                    7 => random.below(u64::from(segment.length) + 1) as u32,
                    8 => 0,
                    _ => segment.length,
                };
            }
        }
    }
    echo
}
