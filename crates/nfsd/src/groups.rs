//! The groups of AUTH_SYS callers, as this host knows them: a credential names at most sixteen groups, and the client
//! may name any. If this host has looked up a caller's groups lately, the call goes on at once; otherwise this call
//! waits, and no other call does ([`Lookups`]).

use crate::lookups::{Found, Lookups};
use rpcrdma_env::{BoxFuture, Clock};
use rpcrdma_oncrpc::{
    Answer, ArgumentWords, CallContext, ClientNetwork, Credential, Repetition, Service, SysCredential, gss::Work,
};
use rpcrdma_xdr::Decoder;
use std::{fmt, io, sync::Arc};

/// What a host knows of its users.
pub trait Groups: Send + Sync {
    /// The groups of a user, without the group in the credential; none if there is no such user. May wait, also for
    /// other hosts.
    ///
    /// # Errors
    /// If the groups are not available now: the call that needs them fails, and the next call asks again.
    fn of(&self, uid: u32) -> io::Result<Arc<[u32]>>;
}

/// The groups of callers by AUTH_SYS.
pub struct ManagedGroups(Arc<Lookups<u32, Arc<[u32]>>>);

impl ManagedGroups {
    /// Asks `groups` on the threads of `work`.
    pub fn new(groups: Arc<dyn Groups>, work: Arc<dyn Work>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self(Lookups::new(move |uid: &u32| groups.of(*uid), work, clock)))
    }

    /// How many users are known, and for how many users there are calls that wait.
    pub fn sizes(&self) -> (usize, usize) {
        self.0.sizes()
    }

    /// The groups of a user, for a call of this client.
    fn find(&self, uid: u32, client: ClientNetwork) -> Found<Arc<[u32]>> {
        self.0.find(uid, client)
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
// NFS3-ID-e
fn with_groups(credential: &SysCredential, groups: &[u32]) -> Credential {
    let SysCredential { stamp, machine, uid, gid, .. } = credential;
    // NFS3-ID-c
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
        match self.groups.find(sys.uid, ClientNetwork::of(context.connection.peer.ip())) {
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
    use crate::{
        lookups::{AT_ONCE, MAX_KNOWN},
        testing::env,
    };
    use futures_util::FutureExt;
    use rpcrdma_env::Timestamp;
    use std::{
        collections::VecDeque,
        sync::{
            Mutex,
            atomic::{AtomicU64, Ordering},
            mpsc,
        },
        time::Duration,
    };
    use tokio::sync::oneshot;

    /// Keeps jobs until a test asks for them.
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

    /// Each user has one group, whose number is the user's plus a hundred. Sends the test each user that is looked up.
    struct Host(Mutex<mpsc::Sender<u32>>);

    impl Groups for Host {
        fn of(&self, uid: u32) -> io::Result<Arc<[u32]>> {
            self.0.lock().unwrap().send(uid).unwrap();
            if uid == SILENT { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Arc::new([uid + 100])) }
        }
    }

    /// A user whose groups the host cannot look up.
    const SILENT: u32 = 4_000_000;

    fn client(last: u8) -> ClientNetwork {
        ClientNetwork::of([192, 0, 2, last].into())
    }

    fn house() -> (Arc<ManagedGroups>, Arc<Kept>, mpsc::Receiver<u32>) {
        let (sender, asked) = mpsc::channel();
        let work = Arc::new(Kept::default());
        let groups = ManagedGroups::new(Arc::new(Host(Mutex::new(sender))), work.clone(), env().clock);
        (groups, work, asked)
    }

    fn later(groups: &Arc<ManagedGroups>, uid: u32, last: u8) -> oneshot::Receiver<Arc<[u32]>> {
        match groups.find(uid, client(last)) {
            Found::Later(receiver) => receiver,
            Found::Known(_) => panic!("{uid} is known"),
        }
    }

    /// The failure is not kept, and no caller waits longer for it.
    #[test]
    fn what_the_host_cannot_tell_is_asked_again() {
        let (groups, work, asked) = house();
        for _ in 0..2 {
            let mut waiting = later(&groups, SILENT, 1);
            work.do_one();
            assert!(waiting.try_recv().is_err());
            assert_eq!((groups.sizes(), asked.try_recv()), ((0, 0), Ok(SILENT)));
        }
    }

    /// A directory of users that gives up after half a minute. The clock moves on by the seconds that it has needed.
    #[derive(Clone, Default)]
    struct GivesUp(Arc<AtomicU64>);

    impl Groups for GivesUp {
        fn of(&self, _: u32) -> io::Result<Arc<[u32]>> {
            self.0.fetch_add(30, Ordering::Relaxed);
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    impl Clock for GivesUp {
        fn now(&self) -> Timestamp {
            Timestamp::ZERO + Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
        fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
        fn unix_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// A caller that comes again learns at once that the host does not answer; callers wait for the host at most half
    /// of the time.
    #[test]
    fn a_host_that_needs_long_to_say_that_it_cannot_tell_is_given_as_long() {
        let (host, work) = (GivesUp::default(), Arc::new(Kept::default()));
        let groups = ManagedGroups::new(Arc::new(host.clone()), work.clone(), Arc::new(host.clone()));
        for _ in 0..2 {
            let first = later(&groups, 7, 1);
            work.do_one();
            assert!(first.now_or_never().unwrap().is_err());
            host.0.fetch_add(29, Ordering::Relaxed);
            assert!(later(&groups, 7, 2).now_or_never().unwrap().is_err());
            assert_eq!(work.len(), 0, "nobody is asked");
            host.0.fetch_add(1, Ordering::Relaxed);
        }
        let other = later(&groups, 8, 1);
        assert_eq!(work.len(), 1, "another user may well be known");
        drop(other);
    }

    /// The program's threads are gone, or one of them has panicked.
    #[test]
    fn questions_that_nobody_asks_keep_nobody_waiting() {
        let (groups, work, _asked) = house();
        let mut waiting: Vec<_> = (0..5).map(|uid| later(&groups, uid, 1)).collect();
        while work.len() > 0 {
            let job = work.0.lock().unwrap().pop_front();
            drop(job);
        }
        assert!(waiting.iter_mut().all(|waiting| waiting.try_recv().is_err()));
        assert_eq!(groups.sizes(), (0, 0));
    }

    /// proves: NFS3-ID-e
    #[test]
    fn a_user_is_asked_for_once_and_known_then() {
        let (groups, work, asked) = house();
        let waiting = [later(&groups, 7, 1), later(&groups, 7, 2)];
        assert_eq!((work.len(), groups.sizes()), (1, (0, 1)), "both wait for the same answer");
        work.do_one();
        for receiver in waiting {
            assert_eq!(receiver.now_or_never().unwrap().unwrap()[..], [107]);
        }
        assert!(matches!(groups.find(7, client(3)), Found::Known(known) if known[..] == [107]));
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
        for uid in 0..MAX_KNOWN as u32 + 10 {
            drop(later(&groups, uid, 1));
            work.do_one();
        }
        assert_eq!(groups.sizes(), (MAX_KNOWN, 0));
        let last = MAX_KNOWN as u32;
        assert!(matches!(groups.find(last, client(1)), Found::Known(_)));
        groups.0.age();
        assert!(matches!(groups.find(last, client(1)), Found::Later(_)), "it is asked for again");
    }
}
