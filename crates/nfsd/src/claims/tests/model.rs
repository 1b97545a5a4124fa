//! Byte ranges against a model that knows each byte: without a host, on a real file beside a program of the host, and
//! on a host that fails now and then.

use super::*;
use crate::OfdLocks;
use proptest::prelude::*;
use std::{fs::OpenOptions, io, os::fd::OwnedFd, sync::atomic::AtomicBool};

/// The bytes that the model distinguishes; the last one stands for all bytes up to the end.
const OCTETS: u64 = 20;
/// Owners 0 and 1 belong to one client, 2 and 3 to another; the last is a program of the host.
const OWNERS: usize = 4;
const PROGRAM: usize = OWNERS;

#[derive(Clone, Debug)]
enum Step {
    Lock(usize, Range, Kind),
    Test(usize, Range, Kind),
    Unlock(usize, Range),
    UnlockAll(usize),
    Release(u64),
    Program(Range, Option<Kind>),
}

fn ranges() -> impl Strategy<Value = Range> {
    let from = |first: u64| (Just(first), prop_oneof![3 => first..OCTETS, 1 => Just(u64::MAX)]);
    (0..OCTETS)
        .prop_flat_map(from)
        .prop_map(|(first, last)| range(first, if last >= OCTETS - 1 { u64::MAX } else { last }))
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Read), Just(Kind::Write)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..OWNERS, ranges(), kinds()).prop_map(|(owner, range, kind)| Step::Lock(owner, range, kind)),
        2 => (0..OWNERS, ranges(), kinds()).prop_map(|(owner, range, kind)| Step::Test(owner, range, kind)),
        4 => (0..OWNERS, ranges()).prop_map(|(owner, range)| Step::Unlock(owner, range)),
        1 => (0..OWNERS).prop_map(Step::UnlockAll),
        1 => (0u64..2).prop_map(Step::Release),
        2 => (ranges(), prop::option::of(kinds())).prop_map(|(range, kind)| Step::Program(range, kind)),
    ];
    prop::collection::vec(step, 0..60)
}

fn holder(number: usize) -> Holder {
    owner(number as u64 / 2, if number.is_multiple_of(2) { "even" } else { "odd" })
}

/// How each owner has locked each byte.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model([[Option<Kind>; OWNERS + 1]; OCTETS as usize]);

impl Model {
    fn set(&mut self, owner: usize, range: Range, kind: Option<Kind>) {
        for (octet, owners) in (0..).zip(&mut self.0) {
            if range.overlaps(self::range(octet, octet)) {
                owners[owner] = kind;
            }
        }
    }

    /// Whether owners other than `owner` have locks that exclude this one.
    fn excludes(&self, owner: usize, range: Range, kind: Kind, owners: std::ops::RangeInclusive<usize>) -> bool {
        let octets = (0..).zip(&self.0).filter(|(octet, _)| range.overlaps(self::range(*octet, *octet)));
        let mut held = octets.flat_map(|(_, of)| owners.clone().filter(|other| *other != owner).map(|other| of[other]));
        held.any(|held| held.is_some_and(|held| held.excludes(kind)))
    }

    /// The union of these owners' locks, which the host has to know.
    fn union(&self, owners: std::ops::RangeInclusive<usize>) -> Vec<Option<Kind>> {
        let strongest = |of: &[Option<Kind>; OWNERS + 1]| {
            let held = |kind| of[owners.clone()].contains(&Some(kind));
            if held(Kind::Write) { Some(Kind::Write) } else { held(Kind::Read).then_some(Kind::Read) }
        };
        self.0.iter().map(strongest).collect()
    }

    /// How many ranges an owner has, if touching ranges of one kind are one.
    fn runs(&self, owner: usize) -> usize {
        let of: Vec<_> = self.0.iter().map(|owners| owners[owner]).collect();
        (0..of.len()).filter(|at| of[*at].is_some() && (*at == 0 || of[at - 1] != of[*at])).count()
    }

    /// The state of the table.
    fn of(claims: &Claims, program: &Model) -> Self {
        let mut model = Self::default();
        for (owners, of_program) in model.0.iter_mut().zip(&program.0) {
            owners[PROGRAM] = of_program[PROGRAM];
        }
        for (holder, range, kind) in claims.owned(file(1)) {
            let number = (0..OWNERS).find(|number| self::holder(*number) == holder).unwrap();
            assert_eq!(claims_overlap(&model, number, range), None, "{holder:?} has {range:?} twice");
            model.set(number, range, Some(kind));
        }
        model
    }
}

fn claims_overlap(model: &Model, owner: usize, range: Range) -> Option<Kind> {
    (0..).zip(&model.0).find_map(|(octet, of)| of[owner].filter(|_| range.overlaps(self::range(octet, octet))))
}

/// One side of a host: this server's, or a program's.
struct Host {
    ours: Option<Arc<dyn HostLocks>>,
    /// Takes locks, and sees all locks of ours.
    program: Option<OfdLocks>,
    /// Sees everything.
    witness: Option<OfdLocks>,
}

impl Host {
    fn none() -> Self {
        Self { ours: None, program: None, witness: None }
    }

    fn real(directory: &tempfile::TempDir) -> Self {
        let path = directory.path().join("file");
        let open = || {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
            OfdLocks::new(OwnedFd::from(file)).unwrap()
        };
        Self { ours: Some(Arc::new(open())), program: Some(open()), witness: Some(open()) }
    }

    /// How the host has locked each byte; the last stands for all up to the kernel's end.
    fn octets(&self) -> Option<Vec<Option<Kind>>> {
        let witness = self.witness.as_ref()?;
        let held = |octet: u64| {
            let octet = range(octet, octet);
            let for_writing = witness.test(octet, Kind::Write).unwrap()?;
            let kind = witness.test(octet, Kind::Read).unwrap().map_or(Kind::Read, |lock| lock.kind);
            assert!(for_writing.range.overlaps(octet));
            Some(kind)
        };
        let octets: Vec<_> = (0..OCTETS).map(held).collect();
        assert_eq!(octets.last().copied().unwrap(), held(i64::MAX as u64), "to the end");
        Some(octets)
    }
}

/// The lock that a denial names is one that its owner has, exactly as far as it reaches.
fn is_in_the_way(denied: &Denied, wanted: Range, kind: Kind, model: &Model) -> Result<(), TestCaseError> {
    prop_assert!(denied.range.overlaps(wanted) && denied.kind.excludes(kind), "{denied:?}");
    let number = match &denied.by {
        LockedBy::Host => PROGRAM,
        LockedBy::Holder(by) => (0..OWNERS).find(|number| holder(*number) == *by).unwrap(),
    };
    for (octet, of) in (0..).zip(&model.0) {
        let octet_range = range(octet, octet);
        let beside = range(denied.range.first().saturating_sub(1), denied.range.last().saturating_add(1));
        if denied.range.overlaps(octet_range) {
            prop_assert_eq!(of[number], Some(denied.kind), "{:?} has not {}", denied, octet);
        } else if beside.overlaps(octet_range) {
            prop_assert_ne!(of[number], Some(denied.kind), "{:?} ends before {}", denied, octet);
        }
    }
    Ok(())
}

fn take(claims: &Claims, host: &Host, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    let asked = |number: &usize, range: &Range, kind: &Kind, model: &Model, locks: bool| {
        let holder = holder(*number);
        let request = LockRequest { host: host.ours.as_ref(), ..request(file(1), &holder, *range, *kind) };
        let result = if locks { claims.lock(&request) } else { claims.test(&request) };
        let excluded = model.excludes(*number, *range, *kind, 0..=PROGRAM);
        prop_assert_eq!(result.is_err(), excluded, "{:?}", result);
        if excluded {
            is_in_the_way(&denied(result), *range, *kind, model)?;
        }
        Ok(!excluded)
    };
    match step {
        Step::Lock(number, range, kind) => {
            if asked(number, range, kind, model, true)? {
                model.set(*number, *range, Some(*kind));
            }
        }
        Step::Test(number, range, kind) => drop(asked(number, range, kind, model, false)?),
        Step::Unlock(number, range) => {
            claims.unlock(file(1), &holder(*number), *range).unwrap();
            model.set(*number, *range, None);
        }
        Step::UnlockAll(number) => {
            claims.unlock_all(file(1), &holder(*number));
            model.set(*number, Range::ALL, None);
        }
        Step::Release(client) => {
            claims.release_client(Client::V4(*client));
            (0..OWNERS).filter(|number| *number as u64 / 2 == *client).for_each(|n| model.set(n, Range::ALL, None));
        }
        Step::Program(range, kind) => {
            let Some(program) = &host.program else { return Ok(()) };
            let excluded = kind.is_some_and(|kind| model.excludes(PROGRAM, *range, kind, 0..=PROGRAM));
            prop_assert_eq!(program.set(*range, *kind).is_err(), excluded, "a program is excluded as clients are");
            if !excluded {
                model.set(PROGRAM, *range, *kind);
            }
        }
    }
    Ok(())
}

fn run(steps: &[Step], host: &Host) -> Result<(), TestCaseError> {
    let (claims, mut model) = (claims(), Model::default());
    for step in steps {
        take(&claims, host, &mut model, step)?;
        prop_assert_eq!(&Model::of(&claims, &model), &model, "{:?}", step);
        for client in 0..2 {
            let ranges = model.runs(2 * client) + model.runs(2 * client + 1);
            prop_assert_eq!(claims.held_by(Client::V4(client as u64)), (0, ranges));
        }
        if let Some(octets) = host.octets() {
            prop_assert_eq!(octets, model.union(0..=PROGRAM), "{:?}", step);
        }
    }
    (0..2).for_each(|client| claims.release_client(Client::V4(client)));
    prop_assert!(claims.is_empty());
    if let Some(octets) = host.octets() {
        prop_assert_eq!(octets, model.union(PROGRAM..=PROGRAM), "released on the host too");
    }
    Ok(())
}

/// A host without programs that refuses some of our calls.
struct Failing {
    octets: Mutex<Model>,
    /// Which calls fail: the bits of this number, from the lowest, again and again.
    fails: AtomicU64,
}

/// An open file of the host: its locks end with it.
struct Opened {
    host: Arc<Failing>,
    is_used: AtomicBool,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.is_used.load(Ordering::Relaxed) {
            *self.host.octets.lock().unwrap() = Model::default();
        }
    }
}

impl HostLocks for Opened {
    fn set(&self, range: Range, kind: Option<Kind>) -> Result<(), HostDenied> {
        let fails =
            self.host.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some(bits.rotate_right(1)));
        if fails.unwrap() & 1 == 1 {
            return Err(io::Error::from_raw_os_error(libc::ENOLCK).into());
        }
        self.is_used.store(true, Ordering::Relaxed);
        self.host.octets.lock().unwrap().set(0, range, kind);
        Ok(())
    }

    fn test(&self, _: Range, _: Kind) -> io::Result<Option<HostLock>> {
        Ok(None)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// proves: NFS4-8881-9.5-a, NFS4-8881-9.2-a, NFS4-8881-9.3-a, NFS4-8881-18.10.3-c, NFS4-8881-18.11.3-a
    #[test]
    fn without_a_host(steps in steps()) {
        run(&steps, &Host::none())?;
    }

    /// proves: NFS4-HOST-a, NFS4-HOST-b
    #[test]
    fn beside_a_program_of_the_host(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        run(&steps, &Host::real(&directory))?;
    }

    /// proves: NFS4-HOST-c
    #[test]
    fn on_a_host_that_fails(steps in steps(), fails in any::<u64>()) {
        let host = Arc::new(Failing { octets: Mutex::default(), fails: AtomicU64::new(0) });
        let (claims, mut before) = (claims(), Model::default());
        let mut is_owed = false;
        for (number, step) in (0..).zip(&steps) {
            // A quarter of the calls fail, others with each step.
            let fails = fails.rotate_left(number * 5);
            host.fails.store(fails.rotate_left(7) & fails, Ordering::Relaxed);
            let failed = match step {
                Step::Lock(number, range, kind) => {
                    let opened = Opened { host: host.clone(), is_used: AtomicBool::new(false) };
                    let (holder, offered) = (holder(*number), Arc::new(opened) as Arc<dyn HostLocks>);
                    let request = LockRequest { host: Some(&offered), ..request(file(1), &holder, *range, *kind) };
                    let failed = claims.lock(&request).is_err();
                    prop_assert!(!failed || Model::of(&claims, &before) == before, "refused, and yet changed");
                    failed
                }
                Step::Unlock(number, range) => claims.unlock(file(1), &holder(*number), *range).is_err(),
                Step::UnlockAll(number) => {
                    claims.unlock_all(file(1), &holder(*number));
                    prop_assert!(!claims.has_locks(file(1), &holder(*number)));
                    is_owed = true;
                    false
                }
                Step::Release(client) => {
                    claims.release_client(Client::V4(*client));
                    prop_assert_eq!(claims.held_by(Client::V4(*client)), (0, 0));
                    is_owed = true;
                    false
                }
                Step::Test(..) | Step::Program(..) => false,
            };
            let after = Model::of(&claims, &before);
            if let (Step::Unlock(owner, range), true) = (step, failed) {
                // The unlock failed in the middle: the ranges before that place are released, the rest is unchanged.
                let released = (0..OCTETS).find(|octet| {
                    let mut expected = before.clone();
                    if let Some(last) = octet.checked_sub(1).filter(|last| *last >= range.first()) {
                        expected.set(*owner, self::range(range.first(), last.min(range.last())), None);
                    }
                    expected == after
                });
                prop_assert!(released.is_some(), "{:?} {:?}", before, after);
            }
            if is_owed && fails & 2 == 0 {
                // The next operation on the file asks for the owed ranges again, and now the host does not fail.
                host.fails.store(0, Ordering::Relaxed);
                claims.unlock(file(1), &owner(9, "nobody"), Range::ALL).unwrap();
                is_owed = false;
            }
            let of_host: Vec<_> = host.octets.lock().unwrap().0.iter().map(|of| of[0]).collect();
            let of_table = after.union(0..=PROGRAM);
            if is_owed {
                let knows = |octet: (&Option<Kind>, &Option<Kind>)| octet.1.is_none() || octet.0.is_some();
                prop_assert!(of_host.iter().zip(&of_table).all(knows), "{:?}", step);
            } else {
                prop_assert_eq!(of_host, of_table, "{:?}", step);
            }
            for client in 0..2 {
                let ranges = after.runs(2 * client) + after.runs(2 * client + 1);
                prop_assert_eq!(claims.held_by(Client::V4(client as u64)), (0, ranges));
            }
            before = after;
        }
    }
}
