//! The groups of callers by AUTH_SYS, as this host knows them: a credential names sixteen at most, and any it likes.
//!
//! Who calls is answered at once if his groups were asked for lately. Else his call waits, and no other does: the host
//! is asked on threads of the program's, a few times at once, in turn for each address that waits. So a client that
//! calls as many users, or a directory of users that does not answer, keeps nobody waiting whose users are known, and
//! nobody else's new ones beyond their turn.
//!
//! What is known is bounded, and forgotten after a while. The calls that wait are bounded by their connections.

use rpcrdma_env::{BoxFuture, Clock, Timestamp};
use rpcrdma_oncrpc::{Answer, ArgumentWords, CallContext, Credential, Repetition, Service, SysCredential, gss::Work};
use rpcrdma_xdr::Decoder;
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// How many users are known at a time.
const MAX_USERS: usize = 4_096;
/// For how long what was told of a user is believed.
const LIFETIME: Duration = Duration::from_secs(300);
/// How many users are asked for at a time.
const AT_ONCE: usize = 2;

/// What a host knows of its users.
pub trait Groups: Send + Sync {
    /// The groups of a user beside the one of the credential; none if there is no such user. May wait, also for other
    /// hosts.
    fn of(&self, uid: u32) -> Arc<[u32]>;
}

/// The groups of callers by AUTH_SYS.
pub struct ManagedGroups {
    groups: Arc<dyn Groups>,
    work: Arc<dyn Work>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<u32, Known>,
    /// Who waits for a user that is asked for, or is to be.
    waiting: HashMap<u32, Vec<oneshot::Sender<Arc<[u32]>>>>,
    /// The addresses whose users are to be asked for, in turn, and those users. An address is there once.
    turns: VecDeque<(IpAddr, VecDeque<u32>)>,
    asked: usize,
}

struct Known {
    groups: Arc<[u32]>,
    until: Timestamp,
}

/// What is known of a user now.
enum Found {
    Known(Arc<[u32]>),
    Later(oneshot::Receiver<Arc<[u32]>>),
}

impl ManagedGroups {
    /// Asks `groups` where `work` is done.
    pub fn new(groups: Arc<dyn Groups>, work: Arc<dyn Work>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { groups, work, clock, state: Mutex::default() })
    }

    /// How many users are known, and how many are waited for.
    pub fn sizes(&self) -> (usize, usize) {
        let state = self.state();
        (state.known.len(), state.waiting.len())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The groups of a user, for whom somebody at this address calls.
    fn find(self: &Arc<Self>, uid: u32, address: IpAddr) -> Found {
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(known) = state.known.get(&uid).filter(|known| now < known.until) {
            return Found::Known(known.groups.clone());
        }
        let (sender, receiver) = oneshot::channel();
        match state.waiting.get_mut(&uid) {
            // Who does not wait any more makes room for others.
            Some(waiting) => {
                waiting.retain(|sender| !sender.is_closed());
                waiting.push(sender);
            }
            None => {
                state.waiting.insert(uid, vec![sender]);
                match state.turns.iter_mut().find(|(other, _)| *other == address) {
                    Some((_, users)) => users.push_back(uid),
                    None => state.turns.push_back((address, VecDeque::from([uid]))),
                }
                self.go_on(state);
            }
        }
        Found::Later(receiver)
    }

    /// Asks for the next users, if not enough are asked for.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut next = Vec::new();
        while state.asked < AT_ONCE
            && let Some((address, mut users)) = state.turns.pop_front()
        {
            let Some(uid) = users.pop_front() else { continue };
            if !users.is_empty() {
                state.turns.push_back((address, users));
            }
            state.asked += 1;
            next.push(uid);
        }
        drop(state);
        for uid in next {
            let all = self.clone();
            self.work.run(Box::new(move || {
                let groups = all.groups.of(uid);
                all.told(uid, groups);
            }));
        }
    }

    fn told(self: &Arc<Self>, uid: u32, groups: Arc<[u32]>) {
        let now = self.clock.now();
        let mut state = self.state();
        state.asked -= 1;
        state.known.retain(|_, known| now < known.until);
        if state.known.len() >= MAX_USERS
            && let Some(oldest) = state.known.iter().min_by_key(|(_, known)| known.until).map(|(uid, _)| *uid)
        {
            state.known.remove(&oldest);
        }
        state.known.insert(uid, Known { groups: groups.clone(), until: now + LIFETIME });
        for waiting in state.waiting.remove(&uid).unwrap_or_default() {
            let _ = waiting.send(groups.clone());
        }
        self.go_on(state);
    }
}

impl fmt::Debug for ManagedGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManagedGroups").field(&self.sizes()).finish()
    }
}

/// A service whose callers by AUTH_SYS have the groups that this host knows.
pub(crate) struct Managed<S> {
    service: Arc<S>,
    groups: Arc<ManagedGroups>,
}

impl<S: Service> Managed<S> {
    pub(crate) fn new(service: S, groups: Arc<ManagedGroups>) -> Self {
        Self { service: Arc::new(service), groups }
    }
}

/// The same credential with these groups.
fn with_groups(credential: &SysCredential, groups: &[u32]) -> Credential {
    let SysCredential { stamp, machine, uid, gid, .. } = credential;
    let (machine, groups) = (machine.clone(), groups.to_vec());
    Credential::Sys(Arc::new(SysCredential { stamp: *stamp, machine, uid: *uid, gid: *gid, groups }))
}

impl<S: Service + 'static> Service for Managed<S> {
    fn program(&self) -> u32 {
        self.service.program()
    }

    fn version(&self) -> u32 {
        self.service.version()
    }

    fn is_idempotent(&self, procedure: u32) -> bool {
        self.service.is_idempotent(procedure)
    }

    fn repetition(&self, procedure: u32, arguments: &mut ArgumentWords<'_>) -> Repetition {
        self.service.repetition(procedure, arguments)
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let Credential::Sys(sys) = context.credential.clone() else {
            return self.service.call(context, procedure, args);
        };
        match self.groups.find(sys.uid, context.connection.peer.ip().to_canonical()) {
            Found::Known(groups) => {
                self.service.call(context.with_credential(with_groups(&sys, &groups)), procedure, args)
            }
            Found::Later(groups) => {
                let service = self.service.clone();
                Box::pin(async move {
                    match groups.await {
                        Ok(groups) => {
                            let context = context.with_credential(with_groups(&sys, &groups));
                            service.call(context, procedure, args).await
                        }
                        Err(_) => Answer::SystemErr,
                    }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::env;
    use futures_util::FutureExt;
    use std::sync::mpsc;

    /// Keeps jobs until they are asked for.
    #[derive(Default)]
    struct Kept(Mutex<VecDeque<Box<dyn FnOnce() + Send>>>);

    impl Work for Kept {
        fn run(&self, job: Box<dyn FnOnce() + Send>) {
            self.0.lock().unwrap().push_back(job);
        }
    }

    impl Kept {
        fn len(&self) -> usize {
            self.0.lock().unwrap().len()
        }

        fn do_one(&self) {
            let job = self.0.lock().unwrap().pop_front().expect("a job");
            job();
        }
    }

    /// Users have the group of their number and a hundred; it is told who was asked for.
    struct Host(Mutex<mpsc::Sender<u32>>);

    impl Groups for Host {
        fn of(&self, uid: u32) -> Arc<[u32]> {
            self.0.lock().unwrap().send(uid).unwrap();
            Arc::new([uid + 100])
        }
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn house() -> (Arc<ManagedGroups>, Arc<Kept>, mpsc::Receiver<u32>) {
        let (sender, asked) = mpsc::channel();
        let work = Arc::new(Kept::default());
        let groups = ManagedGroups::new(Arc::new(Host(Mutex::new(sender))), work.clone(), env().clock);
        (groups, work, asked)
    }

    fn later(groups: &Arc<ManagedGroups>, uid: u32, last: u8) -> oneshot::Receiver<Arc<[u32]>> {
        match groups.find(uid, address(last)) {
            Found::Later(receiver) => receiver,
            Found::Known(_) => panic!("{uid} is known"),
        }
    }

    /// proves: NFS3-ID-c
    #[test]
    fn a_user_is_asked_for_once_and_known_then() {
        let (groups, work, asked) = house();
        let waiting = [later(&groups, 7, 1), later(&groups, 7, 2)];
        assert_eq!((work.len(), groups.sizes()), (1, (0, 1)), "both wait for the same answer");
        work.do_one();
        for receiver in waiting {
            assert_eq!(receiver.now_or_never().unwrap().unwrap()[..], [107]);
        }
        assert!(matches!(groups.find(7, address(3)), Found::Known(known) if known[..] == [107]));
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [7]);
    }

    /// proves: NFS3-ID-d
    #[test]
    fn who_calls_as_many_users_keeps_nobody_waiting_beyond_his_turn() {
        let (groups, work, asked) = house();
        let crowd: Vec<_> = (1000..1100).map(|uid| later(&groups, uid, 1)).collect();
        assert_eq!(work.len(), AT_ONCE, "no more are asked for at once");
        let decent = later(&groups, 7, 2);
        for _ in 0..AT_ONCE + 2 {
            work.do_one();
        }
        assert!(decent.now_or_never().is_some(), "{:?}", asked.try_iter().collect::<Vec<_>>());
        assert!(crowd.len() > AT_ONCE + 1);
        while work.len() > 0 {
            work.do_one();
        }
        assert_eq!(groups.sizes(), (101, 0));
    }

    /// proves: NFS3-ID-d
    #[test]
    fn what_is_known_is_bounded_and_forgotten() {
        let (groups, work, _asked) = house();
        for uid in 0..MAX_USERS as u32 + 10 {
            drop(later(&groups, uid, 1));
            work.do_one();
        }
        assert_eq!(groups.sizes(), (MAX_USERS, 0));
        let last = MAX_USERS as u32;
        assert!(matches!(groups.find(last, address(1)), Found::Known(_)));
        groups.state().known.values_mut().for_each(|known| known.until = Timestamp::ZERO);
        assert!(matches!(groups.find(last, address(1)), Found::Later(_)), "it is asked for again");
    }
}
