//! Series of runs, and counts over them.

use super::World;

/// The runs of a series.
const RUNS: u64 = 60;

/// A series of runs, from this seed on.
pub fn row(first: u64, run: impl Fn(u64) -> World) -> impl Iterator<Item = World> {
    (first..first + RUNS).map(run)
}

/// The sums of `counts` over everything seen of each end.
pub fn sums<S, const N: usize>(seen: impl Iterator<Item = S>, counts: [fn(&S) -> u64; N]) -> [u64; N] {
    let mut sums = [0; N];
    for seen in seen {
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count(&seen));
    }
    sums
}

/// The numbers of calls whose XID was in use in the other direction, and of calls of the servers.
pub fn in_both_directions(worlds: impl Iterator<Item = World>) -> (usize, u64) {
    worlds.fold((0, 0), |(shared, reverse), world| (shared + world.shared, reverse + world.ends[1].ended))
}

/// How often memory was exposed. All exposed memory has been fenced, and the written bytes were handed on.
pub fn exposed(worlds: impl Iterator<Item = World>) -> u64 {
    let mut exposed = 0;
    for end in worlds.flat_map(|world| world.ends) {
        assert_eq!(end.memory.exposed_ever, end.memory.fenced_ever);
        assert!(end.memory.returned.is_empty(), "what was written was handed on with its reply");
        exposed += end.memory.exposed_ever;
    }
    exposed
}
