//! The list of all measurements. Each round goes through it once, so measurements that are compared with each other
//! happen close together.

use super::data::Place;

pub(super) const READ: &str = "read";
pub(super) const WRITE: &str = "write";
pub(super) const NULL: &str = "null";
/// What `rpcrdma bench --baseline` calls its two parts.
pub(super) const STREAM: &str = "baseline_stream";
pub(super) const REQUEST: &str = "baseline_request";

pub(super) const KIB_4: u32 = 4 << 10;
pub(super) const MIB: u32 = 1 << 20;
/// The sizes of blocks in the picture by size, and the depth there and in the table.
pub(super) const BLOCKS: [u32; 5] = [KIB_4, 16 << 10, 64 << 10, 256 << 10, MIB];
pub(super) const DEPTH: u64 = 8;
/// The depths in the pictures by depth.
pub(super) const DEPTHS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// The depth of small calls in the table.
pub(super) const MAX_DEPTH: u64 = 32;

/// One run of `rpcrdma bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Plain TCP, in blocks: gives [`STREAM`] and [`REQUEST`].
    Baseline { place: Place, block: u32 },
    /// An operation over NFS/RDMA.
    Bench { place: Place, op: &'static str, block: Option<u32>, depth: u64 },
}

impl Step {
    pub(super) fn place(self) -> Place {
        match self {
            Step::Baseline { place, .. } | Step::Bench { place, .. } => place,
        }
    }
}

/// All steps of one round, each once; steps in the same place follow each other.
pub(super) fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |step: Step| {
        if !steps.contains(&step) {
            steps.push(step);
        }
    };
    let free = |op, block, depth| Step::Bench { place: Place::Free, op, block, depth };
    for block in BLOCKS.into_iter().rev() {
        add(Step::Baseline { place: Place::Free, block });
        add(free(READ, Some(block), DEPTH));
        add(free(WRITE, Some(block), DEPTH));
        if block == KIB_4 {
            add(free(READ, Some(block), 1));
        }
    }
    for depth in DEPTHS {
        add(free(READ, Some(MIB), depth));
        add(free(WRITE, Some(MIB), depth));
        add(free(READ, Some(KIB_4), depth));
        add(free(NULL, None, depth));
    }
    for place in Place::ALL.into_iter().filter(|place| *place != Place::Free) {
        add(Step::Baseline { place, block: KIB_4 });
        add(Step::Bench { place, op: READ, block: Some(KIB_4), depth: 1 });
        add(Step::Bench { place, op: NULL, block: None, depth: 1 });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_stands_once_and_beside_its_baseline() {
        let steps = steps();
        for (at, step) in steps.iter().enumerate() {
            assert!(!steps[..at].contains(step), "{step:?} twice");
        }
        let at = |wanted: Step| steps.iter().position(|step| *step == wanted).unwrap();
        let place = Place::Free;
        let baseline = at(Step::Baseline { place, block: MIB });
        assert!(at(Step::Bench { place, op: READ, block: Some(MIB), depth: DEPTH }) - baseline <= 2);
        let baseline = at(Step::Baseline { place, block: KIB_4 });
        assert!(at(Step::Bench { place, op: READ, block: Some(KIB_4), depth: 1 }) - baseline <= 3);
        let mut places: Vec<Place> = steps.iter().map(|step| step.place()).collect();
        places.dedup();
        assert_eq!(places, Place::ALL, "one server for each place");
    }
}
