//! Whatever a client does, and whatever happens to it: each state is released once, and nothing stays pinned.

use super::*;
use crate::claims::FileKey;
use crate::nfs4::state::{
    held::{Held, Totals},
    owners::LockBy,
    release::{Release, Released, Why},
};
use proptest::prelude::*;
use rpcrdma_nfs::v4::StateIdOther;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Step {
    Open { owner: u8, file: u64, access: u32 },
    Downgrade { which: usize, access: u32 },
    Lock { which: usize, owner: u8 },
    LockAgain { which: usize },
    Unlock { which: usize, holds: bool },
    Delegate { file: u64 },
    Close { which: usize },
    Return { which: usize },
    Free { which: usize },
    Revoke { which: usize },
    RevokeFile { file: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<prop::sample::Index>().prop_map(|index| index.index(1_000));
    prop_oneof![
        6 => (0..3u8, 0..3u64, 1..=3u32).prop_map(|(owner, file, access)| Step::Open { owner, file, access }),
        2 => (which.clone(), 1..=3u32).prop_map(|(which, access)| Step::Downgrade { which, access }),
        4 => (which.clone(), 0..3u8).prop_map(|(which, owner)| Step::Lock { which, owner }),
        2 => which.clone().prop_map(|which| Step::LockAgain { which }),
        2 => (which.clone(), any::<bool>()).prop_map(|(which, holds)| Step::Unlock { which, holds }),
        1 => (0..3u64).prop_map(|file| Step::Delegate { file }),
        2 => which.clone().prop_map(|which| Step::Close { which }),
        1 => which.clone().prop_map(|which| Step::Return { which }),
        2 => which.clone().prop_map(|which| Step::Free { which }),
        1 => which.prop_map(|which| Step::Revoke { which }),
        1 => (0..3u64).prop_map(|file| Step::RevokeFile { file }),
    ]
}

/// The states that should be held, by stateid: the file and the kind.
#[derive(Default)]
struct Model(HashMap<StateIdOther, (u64, char)>);

impl Model {
    /// A state that ever had a name, chosen by a number; half of the time a state that is held.
    fn pick(&self, all: &[(StateIdOther, u64)], which: usize) -> (StateId, FileKey) {
        let held: Vec<_> = all.iter().filter(|(other, _)| self.0.contains_key(other)).collect();
        let (other, number) = match (all, &held[..]) {
            ([], _) => (StateIdOther([5; 12]), 0),
            (_, [_, ..]) if which.is_multiple_of(2) => *held[which / 2 % held.len()],
            (all, _) => all[which / 2 % all.len()],
        };
        (StateId { sequence: 0, other }, file(number))
    }

    fn take(&mut self, released: Vec<Release<Arc<()>>>) {
        for release in released {
            let (number, kind) = self.0.remove(&release.other).expect("held, and given back once");
            assert_eq!(release.file, file(number));
            let expected = match release.what {
                Released::Open(_, pins) => {
                    assert!(!pins.is_empty(), "an open always pins something");
                    'o'
                }
                Released::Lock(_) => 'l',
                Released::Delegation(_) => 'd',
            };
            assert_eq!(kind, expected);
        }
    }
}

proptest! {
    #[test]
    fn each_state_is_given_back_once_and_with_all_that_it_pinned(steps in prop::collection::vec(step(), 1..120)) {
        let totals = Arc::new(Totals::default());
        let limits = Arc::new(Limits { held_by_client: 20, ..limits() });
        let held: Held<Arc<()>> = Held::new(ClientId(1_000 << 32 | 1), limits, totals.clone());
        let (recorded, pin) = (Recorded::for_tests(), Arc::new(()));
        let (mut model, mut all) = (Model::default(), Vec::new());
        for step in steps {
            let mut note = |model: &mut Model, id: StateId, number: u64, kind| {
                if model.0.insert(id.other, (number, kind)).is_none() {
                    all.push((id.other, number));
                }
            };
            match step {
                Step::Open { owner, file: number, access } => {
                    let (owner, share) = (name(&owner.to_string()), share(access, 0));
                    let opening = Opening { owner, file: file(number), share, pin: pin.clone() };
                    if let Ok(opened) = held.open(&recorded, opening) {
                        note(&mut model, opened.id, number, 'o');
                    }
                }
                Step::Delegate { file: number } => {
                    if let Ok(id) = held.delegate(&recorded, file(number), share(1, 0), pin.clone()) {
                        note(&mut model, id, number, 'd');
                    }
                }
                Step::Lock { which, owner } => {
                    let (open, of) = model.pick(&all, which);
                    let number = model.0.get(&open.other).map_or(0, |(number, _)| *number);
                    if let Ok(id) = held.locked(LockBy::New { open, owner: name(&owner.to_string()) }, of) {
                        prop_assert_eq!(model.0.get(&open.other).map(|(_, kind)| *kind), Some('o'));
                        if model.0.insert(id.other, (number, 'l')).is_none() {
                            all.push((id.other, number));
                        }
                    }
                }
                Step::Downgrade { which, access } => {
                    let (id, of) = model.pick(&all, which);
                    let _ = held.downgrade(id, of, share(access, 0));
                }
                Step::LockAgain { which } => {
                    let (id, of) = model.pick(&all, which);
                    let _ = held.locked(LockBy::Known(id), of);
                }
                Step::Unlock { which, holds } => {
                    let (id, of) = model.pick(&all, which);
                    let _ = held.unlocked(id, of, holds);
                }
                Step::Close { which } => {
                    let (id, of) = model.pick(&all, which);
                    held.close(id, of).into_iter().for_each(|released| model.take(released));
                }
                Step::Return { which } => {
                    let (id, of) = model.pick(&all, which);
                    held.undelegate(id, of).into_iter().for_each(|released| model.take(released));
                }
                Step::Free { which } => {
                    let (id, _) = model.pick(&all, which);
                    if held.free(id).is_ok() {
                        // Locks without a range need no release.
                        let gone = model.0.remove(&id.other);
                        prop_assert!(gone.is_none_or(|(_, kind)| kind == 'l'));
                    }
                }
                Step::Revoke { which } => {
                    let (id, _) = model.pick(&all, which);
                    model.take(held.revoke(id.other, Why::Admin));
                }
                Step::RevokeFile { file: number } => {
                    model.take(held.revoke_file(file(number), Why::Expired));
                    prop_assert!(model.0.values().all(|(on, _)| *on != number), "all of the file");
                }
            }
            for (other, _) in &all {
                let is_held = held.test(StateId { sequence: 0, other: *other }) == Status::OK;
                prop_assert_eq!(is_held, model.0.contains_key(other));
            }
        }
        model.take(held.release_all());
        prop_assert!(model.0.is_empty(), "all of it");
        prop_assert_eq!((Arc::strong_count(&pin), held.counts()), (1, [0; 3]));
        prop_assert_eq!(totals.counts(), [0; 3]);
    }
}
