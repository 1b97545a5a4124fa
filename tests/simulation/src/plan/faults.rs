//! The faults of a host while it runs.

use super::HostPlan;
use crate::{lock, tally::Tally};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::{
    WorkError,
    faults::{self, Fault, Point, Step},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// The faults of a host, which can be turned off.
pub struct Faults {
    on: AtomicBool,
    /// Whether a completion was withheld or a message corrupted, so that only a new connection helps.
    ails: AtomicBool,
    /// Completions of one kind never overtake each other: if one is withheld, so are all later ones. By connection and
    /// kind.
    withheld: Mutex<BTreeSet<(u64, Point)>>,
    pub(crate) random: Arc<SeededRandom>,
    chance: faults::Chance,
    scarce: u64,
    corrupt: u64,
    tally: Arc<Tally>,
}

impl Faults {
    /// The faults of the plan, turned off.
    pub fn new(host: &HostPlan, seed: u64, tally: Arc<Tally>) -> Self {
        let random = Arc::new(SeededRandom::new(seed));
        let chance = host.faults.iter().fold(faults::Chance::new(random.clone()), |chance, (point, fault, one_in)| {
            chance.with(*point, *one_in, *fault)
        });
        Self { chance, scarce: host.scarce, corrupt: host.corrupt, tally, ..Self::with(random) }
    }

    /// No faults at all.
    pub fn none() -> Self {
        Self::with(Arc::new(SeededRandom::new(0)))
    }

    fn with(random: Arc<SeededRandom>) -> Self {
        Self {
            on: AtomicBool::new(false),
            ails: AtomicBool::new(false),
            withheld: Mutex::default(),
            chance: faults::Chance::new(random.clone()),
            random,
            scarce: 0,
            corrupt: 0,
            tally: Arc::default(),
        }
    }

    /// Turns the faults on or off.
    pub fn turn(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Whether an allocator has no memory this time.
    pub fn is_scarce(&self) -> bool {
        self.happens(self.scarce)
    }

    /// Whether to corrupt a message that arrives.
    pub fn corrupts(&self) -> bool {
        let corrupts = self.happens(self.corrupt);
        self.ails.fetch_or(corrupts, Ordering::Relaxed);
        corrupts
    }

    /// Whether the host has connections that must end.
    pub fn ails(&self) -> bool {
        self.ails.load(Ordering::Relaxed)
    }

    /// The host's connections are about to end.
    pub fn healed(&self) {
        self.ails.store(false, Ordering::Relaxed);
    }

    fn happens(&self, one_in: u64) -> bool {
        one_in > 0 && self.on.load(Ordering::Relaxed) && self.random.below(one_in) == 0
    }
}

impl faults::Plan for Faults {
    fn fault(&self, step: &Step) -> Option<Fault> {
        if lock(&self.withheld).contains(&(step.connection, step.point)) {
            return Some(Fault::Withhold);
        }
        if !self.on.load(Ordering::Relaxed) {
            return None;
        }
        let fault = self.chance.fault(step)?;
        let what = match fault {
            Fault::Delay(_) => "late".to_owned(),
            Fault::FailAs(error) => status(error).to_owned(),
            Fault::Withhold => {
                self.ails.store(true, Ordering::Relaxed);
                if matches!(step.point, Point::Received | Point::Done | Point::Read) {
                    lock(&self.withheld).insert((step.connection, step.point));
                }
                "withheld".to_owned()
            }
            _ => format!("{fault:?}"),
        };
        self.tally.count(format!("fault: {:?} {what}", step.point));
        self.tally.count(format!("fault: any {what}"));
        Some(fault)
    }
}

/// The name of an error status.
fn status(error: &WorkError) -> &'static str {
    match error {
        WorkError::Flushed => "Flushed",
        WorkError::LocalLength => "LocalLength",
        WorkError::RemoteAccess => "RemoteAccess",
        WorkError::RemoteOperation => "RemoteOperation",
        WorkError::NoReceive => "NoReceive",
        WorkError::Unreachable => "Unreachable",
        WorkError::Fabric => "Fabric",
        _ => "another status",
    }
}
