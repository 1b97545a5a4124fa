//! Delegations in the table: against a model of delegations and users, and beside opens.

use super::*;
use crate::claims::delegations::MAX_REMEMBERED_CONFLICTS;
use proptest::prelude::*;
use std::sync::Mutex;

const QUIET: Duration = Duration::from_secs(90);

/// Writes down which delegations the table recalls.
#[derive(Default)]
struct Called(Mutex<Vec<(Client, FileKey)>>);

impl Recalls for Called {
    fn recall(self: Arc<Self>, client: Client, file: FileKey) {
        self.0.lock().unwrap().push((client, file));
    }
}

/// A table that delegates files, its clock, and the record of its recalls.
fn delegating() -> (Claims, Arc<Hands>, Arc<Called>) {
    let (hands, called) = (Arc::new(Hands::default()), Arc::new(Called::default()));
    let claims = Claims::new(hands.clone());
    let recalls: Weak<dyn Recalls> = Arc::<Called>::downgrade(&called);
    claims.connect_recalls(recalls, QUIET);
    (claims, hands, called)
}

fn client(number: u64) -> Client {
    Client::V4(number)
}

#[test]
fn nothing_is_delegated_that_nobody_would_call_back() {
    let claims = claims();
    assert_eq!(claims.delegate(file(1), client(1), Kind::Read, false).err(), Some(NotDelegated::Nobody));
    assert!(claims.recall(file(1), None, Kind::Write).is_ok() && claims.is_empty());
}

#[test]
fn what_others_have_open_is_not_delegated_and_the_own_opens_are_no_hindrance() {
    let (claims, ..) = delegating();
    let modes = [Access::READ, Access::WRITE, Access::BOTH].into_iter();
    let modes = modes.flat_map(|access| [Deny::NONE, Deny::READ, Deny::WRITE, Deny::BOTH].map(|deny| (access, deny)));
    for (access, deny) in modes {
        let own = claims.share(file(1), &owner(1, "o"), access, deny).unwrap();
        for kind in [Kind::Read, Kind::Write] {
            assert!(claims.delegate(file(1), client(1), kind, false).is_ok(), "{access:?} {deny:?} of its own");
            let others_read_alone = !access.contains(Access::WRITE) && !deny.contains(Deny::READ);
            let may = kind == Kind::Read && others_read_alone;
            let delegated = claims.delegate(file(1), client(2), kind, false);
            assert_eq!(delegated.is_ok(), may, "{access:?} {deny:?} of another's for {kind:?}");
        }
        drop(own);
    }
    assert!(claims.is_empty());
}

/// Before a client asks for a delegation, no user has to know which files the names stand for.
#[test]
fn the_first_delegation_waits_for_names_that_are_being_changed() {
    let (claims, ..) = delegating();
    let first = claims.undelegated().expect("nobody has asked");
    let second = claims.undelegated().expect("nobody has asked");
    drop(first);
    assert_eq!(claims.delegate(file(1), client(1), Kind::Read, false).err(), Some(NotDelegated::Contention));
    assert!(claims.undelegated().is_none(), "somebody has asked");
    drop(second);
    let delegation = claims.delegate(file(1), client(1), Kind::Read, false).expect("no name is being changed");
    drop(delegation);
    assert!(claims.undelegated().is_none(), "and may ask again at any moment");
    assert!(claims.delegate(file(2), client(1), Kind::Read, false).is_ok());
    // A delegation from before a restart is granted again in any case.
    let (claims, ..) = delegating();
    let _naming = claims.undelegated().expect("nobody has asked");
    assert!(claims.delegate(file(1), client(1), Kind::Read, true).is_ok());
}

/// A READ of a client of version 3 costs the table as little as a name, until somebody asks for a delegation.
#[test]
fn the_first_delegation_for_writing_waits_for_readers() {
    for (kind, granted) in [(Kind::Write, false), (Kind::Read, true)] {
        let (claims, ..) = delegating();
        let reading = claims.recall(file(1), None, Kind::Read).unwrap();
        assert!(claims.table.delegations.is_empty(), "nobody has asked");
        assert_eq!(claims.delegate(file(1), client(1), kind, false).is_ok(), granted, "{kind:?}");
        let listed = claims.recall(file(2), None, Kind::Read).unwrap();
        assert!(!claims.table.delegations.is_empty(), "somebody has asked");
        drop(reading);
        assert_eq!(claims.delegate(file(2), client(1), Kind::Write, false).err(), Some(NotDelegated::Contention));
        drop(listed);
        assert!(claims.delegate(file(2), client(1), Kind::Write, false).is_ok(), "{kind:?}");
    }
    // A delegation from before a restart is granted again in any case: the reader came before it.
    let (claims, ..) = delegating();
    let _reading = claims.recall(file(1), None, Kind::Read).unwrap();
    assert!(claims.delegate(file(1), client(1), Kind::Write, true).is_ok());
}

#[test]
fn what_is_used_in_this_moment_is_not_delegated() {
    let (claims, ..) = delegating();
    for (user, kind) in [(None, Kind::Read), (None, Kind::Write), (Some(client(2)), Kind::Read)] {
        let using = claims.recall(file(1), user, kind).unwrap();
        let again = claims.recall(file(1), user, kind).unwrap();
        drop(again);
        let refused = Some(NotDelegated::Contention);
        assert_eq!(claims.delegate(file(1), client(1), Kind::Write, false).err(), refused);
        let may_read = kind == Kind::Read;
        assert_eq!(claims.delegate(file(1), client(1), Kind::Read, false).is_ok(), may_read, "{user:?} {kind:?}");
        drop(using);
        assert!(claims.delegate(file(1), client(1), Kind::Write, false).is_ok());
    }
    let _own = claims.recall(file(1), Some(client(1)), Kind::Write).unwrap();
    assert!(claims.delegate(file(1), client(1), Kind::Write, false).is_ok(), "its own use");
}

#[test]
fn a_conflict_is_remembered_for_a_time_and_no_longer() {
    let (claims, hands, _) = delegating();
    let delegated = claims.delegate(file(1), client(1), Kind::Write, false).unwrap();
    assert!(claims.recall(file(1), None, Kind::Read).is_err());
    drop(delegated);
    let delegate = || claims.delegate(file(1), client(1), Kind::Write, false);
    assert_eq!(delegate().err(), Some(NotDelegated::Contention));
    assert!(claims.delegate(file(1), client(1), Kind::Write, true).is_ok(), "what it had before a restart");
    hands.pass(QUIET - Duration::from_nanos(1));
    assert_eq!(delegate().err(), Some(NotDelegated::Contention));
    hands.pass(QUIET + Duration::from_nanos(1));
    assert!(delegate().is_ok(), "twice the time is always enough");
}

#[test]
fn conflicts_are_remembered_up_to_the_limit() {
    let (claims, ..) = delegating();
    let limit = u32::try_from(MAX_REMEMBERED_CONFLICTS).unwrap();
    let conflict = |number| {
        let delegated = claims.delegate(file(number), client(1), Kind::Read, true).unwrap();
        assert!(claims.recall(file(number), None, Kind::Write).is_err());
        drop(delegated);
    };
    let is_remembered = |number| claims.delegate(file(number), client(1), Kind::Read, false).is_err();
    (0..2 * limit).for_each(conflict);
    assert!(is_remembered(0) && is_remembered(2 * limit - 1), "at the limit, and as many of before");
    conflict(2 * limit);
    assert!(!is_remembered(0), "one past it");
    assert!(is_remembered(limit) && is_remembered(2 * limit));
}

#[test]
fn the_end_of_a_client_ends_what_it_has() {
    let (claims, ..) = delegating();
    let delegated = claims.delegate(file(1), client(1), Kind::Write, false).unwrap();
    let recalling = claims.recall(file(1), None, Kind::Read).unwrap_err();
    claims.release_client(client(1));
    crate::testing::wait(recalling.returned());
    assert!(delegated.is_recalled() && claims.is_empty());
    // A guard that has outlived its delegation does not end the next one.
    let next = claims.delegate(file(1), client(1), Kind::Write, true).unwrap();
    drop(delegated);
    assert!(!next.is_recalled() && claims.delegations() == 1);
}

#[test]
fn who_waits_is_woken_by_the_last_that_was_in_the_way() {
    let (claims, ..) = delegating();
    let mut delegations: Vec<_> =
        (0..3).map(|number| claims.delegate(file(1), client(number), Kind::Read, false).unwrap()).collect();
    let recalling = claims.recall(file(1), Some(client(0)), Kind::Write).unwrap_err();
    assert_eq!(recalling.count(), 2, "not its own");
    let mut returned = Box::pin(recalling.returned());
    let mut is_woken =
        || returned.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready();
    assert!(!is_woken());
    delegations.pop();
    assert!(!is_woken());
    delegations.pop();
    assert!(is_woken());
}

#[derive(Clone, Debug)]
enum Step {
    Delegate(u64, Kind),
    Return(u64),
    Use(Option<u64>, Kind),
    EndUse(usize),
    Open(u64, Access, Deny),
    Close(usize),
    Release(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let clients = || 0u64..3;
    let kinds = || prop_oneof![Just(Kind::Read), Just(Kind::Write)];
    let step = prop_oneof![
        4 => (clients(), kinds()).prop_map(|(client, kind)| Step::Delegate(client, kind)),
        2 => clients().prop_map(Step::Return),
        3 => (prop::option::of(clients()), kinds()).prop_map(|(user, kind)| Step::Use(user, kind)),
        2 => any::<usize>().prop_map(Step::EndUse),
        2 => (clients(), 1u32..4, 0u32..4).prop_map(|(client, access, deny)| {
            Step::Open(client, Access::from_bits(access).unwrap(), Deny::from_bits(deny).unwrap())
        }),
        2 => any::<usize>().prop_map(Step::Close),
        1 => clients().prop_map(Step::Release),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// proves: NFS4-8881-10.4-a
    #[test]
    fn as_a_model_says(steps in steps()) {
        let (claims, _, called) = delegating();
        // All uses are listed once somebody has asked for a delegation.
        drop(claims.delegate(file(2), client(0), Kind::Read, false));
        // Which client has which delegation, and whether it was recalled; who uses the file; who has it open.
        let mut held: HashMap<u64, (Kind, bool, Delegation)> = HashMap::new();
        let mut uses: Vec<(Option<u64>, Kind, Using)> = Vec::new();
        let mut opens: Vec<(u64, Access, Deny, Share)> = Vec::new();
        for step in steps {
            match step {
                Step::Delegate(number, kind) => {
                    let by_others = held.iter().any(|(other, (has, ..))| *other != number && has.excludes(kind));
                    let used = uses.iter().any(|(user, how, _)| *user != Some(number) && how.excludes(kind));
                    let open = opens.iter().any(|(other, access, deny, _)| {
                        let excludes = access.contains(Access::WRITE) || deny.contains(Deny::READ);
                        *other != number && (kind == Kind::Write || excludes)
                    });
                    let expected = !(by_others || used || open || held.contains_key(&number));
                    let delegated = claims.delegate(file(1), client(number), kind, true);
                    prop_assert_eq!(delegated.is_ok(), expected, "{:?}", delegated);
                    if let Ok(delegation) = delegated {
                        held.insert(number, (kind, false, delegation));
                    }
                }
                Step::Return(number) => drop(held.remove(&number)),
                Step::Use(user, kind) => {
                    let others = held.iter_mut().filter(|(holder, (has, ..))| Some(**holder) != user && has.excludes(kind));
                    let mut in_the_way = 0;
                    let mut expected = Vec::new();
                    for (holder, (_, is_recalled, _)) in others {
                        in_the_way += 1;
                        if !std::mem::replace(is_recalled, true) {
                            expected.push((client(*holder), file(1)));
                        }
                    }
                    match claims.recall(file(1), user.map(client), kind) {
                        Ok(using) => {
                            prop_assert_eq!(in_the_way, 0);
                            uses.push((user, kind, using));
                        }
                        Err(recalling) => prop_assert_eq!(recalling.count(), in_the_way),
                    }
                    let mut recalled = std::mem::take(&mut *called.0.lock().unwrap());
                    recalled.sort_by_key(|(client, _)| *client);
                    expected.sort_by_key(|(client, _)| *client);
                    prop_assert_eq!(recalled, expected, "each once");
                }
                Step::EndUse(at) if !uses.is_empty() => drop(uses.swap_remove(at % uses.len())),
                Step::Open(number, access, deny) => {
                    if let Ok(share) = claims.share(file(1), &owner(number, "o"), access, deny) {
                        opens.push((number, access, deny, share));
                    }
                }
                Step::Close(at) if !opens.is_empty() => drop(opens.swap_remove(at % opens.len())),
                Step::Release(number) => {
                    claims.release_client(client(number));
                    opens.retain(|(other, ..)| *other != number);
                    held.remove(&number);
                }
                Step::EndUse(_) | Step::Close(_) => {}
            }
            prop_assert_eq!(claims.delegations(), held.len());
            for (_, is_recalled, delegation) in held.values() {
                prop_assert_eq!(delegation.is_recalled(), *is_recalled);
            }
            let writer = held.iter().find(|(_, (kind, ..))| *kind == Kind::Write).map(|(number, _)| client(*number));
            prop_assert_eq!(claims.writer(file(1), None), writer);
            prop_assert_eq!(claims.writer(file(1), writer), None);
        }
        drop((held, uses, opens));
        prop_assert!(claims.is_empty());
    }
}
