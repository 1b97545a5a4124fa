//! Holders: clients of NFS version 4 that share a few files. They get delegations and locks, wait for each other, and
//! the server recalls what others want. Some give back late, some never, and some vanish with all their claims.
//!
//! Each is one task that makes one call at a time, and no call waits for another holder: a holder that does not get a
//! claim asks again, and between two attempts it does what the server has asked for. [`ledger`] judges.

mod counts;
mod ledger;
mod link;
mod work;

pub(super) use counts::judge as judge_counts;

use super::Scene;
use crate::clients::{CALL_LIMIT, Dialler};
use anyhow::Context as _;
use ledger::{Claim, Ledger, Who};
use link::{Asked, Gone, Link, Road, Way};
use rpcrdma_env::{Random as _, SeededRandom};
use rpcrdma_nfs::{
    attr::NewAttributes,
    v4::{Handle, StateId, StateIdOther, Status, ops::sequence_status},
};
use rpcrdma_nfs_client::{Handle as Directory, Name};
use rpcrdma_transport::Versions;
use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use work::Wish;

/// The server's lease: short, so that even in a short run the server takes away what is not given back.
pub(super) const LEASE: Duration = Duration::from_secs(6);
/// The directory of the files that they share.
const DIRECTORY: &str = "shared";
/// How often a holder looks for something to do, and how often it renews its lease.
const TICK: Duration = Duration::from_millis(20);
const RENEWED: Duration = Duration::from_secs(1);
/// The longest pause between two steps, in milliseconds.
const PAUSE: u64 = 120;
/// The pause before a client tries again to connect, or to bind its connection.
const CONNECT_PAUSE: Duration = Duration::from_millis(300);
/// The longest delay of a late return, and the longest time for which a lock is held, in milliseconds: less than a
/// third of a lease.
const LATE: u64 = 1_800;
const LOCKED: u64 = 600;
/// Within this time after a recall the server has taken the delegation away: a lease, and more for a busy machine.
const LAST: Duration = LEASE.saturating_mul(4);
/// The flags by which SEQUENCE says that the server cannot call.
const DOWN: u32 = sequence_status::CB_PATH_DOWN | sequence_status::CB_PATH_DOWN_SESSION;
/// The flags by which it says that a lease was not renewed.
const EXPIRED: u32 = sequence_status::EXPIRED_ALL_STATE_REVOKED | sequence_status::EXPIRED_SOME_STATE_REVOKED;

/// How a holder returns a recalled delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    AtOnce,
    Late(Duration),
    Never,
}

/// What a holder has besides its open.
#[derive(Clone, Copy, Debug)]
enum Thing {
    Delegation { manner: Manner, recalled: Option<Instant> },
    Lock { until: Instant },
}

/// A file that a holder has open, with a delegation or a lock of it.
#[derive(Clone, Debug)]
struct Held {
    file: Handle,
    open: (StateId, Claim),
    state: StateId,
    claim: Claim,
    thing: Thing,
}

impl Held {
    /// Whether it is time to give it back.
    fn is_due(&self, now: Instant) -> bool {
        match self.thing {
            Thing::Lock { until } => now >= until,
            Thing::Delegation { recalled: Some(recalled), manner } => match manner {
                Manner::AtOnce => true,
                Manner::Late(by) => now >= recalled + by,
                Manner::Never => false,
            },
            Thing::Delegation { recalled: None, .. } => false,
        }
    }
}

/// One holder.
pub(super) struct Holder {
    number: usize,
    scene: Arc<Scene>,
    ledger: Arc<Ledger>,
    road: Road,
    random: SeededRandom,
    minor: u32,
    incarnation: u64,
    link: Link,
    /// The server of its session: the first, the second, and so on after restarts.
    server: u64,
    held: Vec<Held>,
    /// Delegations that the server recalled before its reply to their OPEN arrived.
    early: HashSet<StateIdOther>,
    wish: Option<Wish>,
    /// How many open owners it has used so far.
    owners: u64,
    /// When it does something next, and when it may bind its connection again.
    next: Instant,
    next_bind: Instant,
}

/// The addresses of the server: direct, and over a path that is cut now and then.
#[derive(Clone, Copy)]
pub(super) struct Paths {
    pub(super) rdma: [SocketAddr; 2],
    pub(super) tcp: [SocketAddr; 2],
}

/// Makes the directory that holders share, and starts the holders.
///
/// # Errors
/// If one of them cannot begin.
pub(super) async fn start(
    count: usize,
    dialler: &Dialler,
    paths: Paths,
    root: &Directory,
    scene: &Arc<Scene>,
) -> anyhow::Result<tokio::task::JoinSet<()>> {
    let nfs = dialler.connect(paths.rdma[0], Versions::One).await?;
    let attributes = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
    nfs.mkdir(root, &Name::from(DIRECTORY), attributes).await.context(DIRECTORY)?;
    let ledger = Arc::new(Ledger::new(LEASE));
    let mut all = tokio::task::JoinSet::new();
    for number in 0..count {
        let (way, at) = match number % 3 {
            0 => (Way::Tcp, paths.tcp),
            1 => (Way::Rdma(Versions::One), paths.rdma),
            _ => (Way::Rdma(Versions::Two), paths.rdma),
        };
        // The first three connect directly.
        let server = at[number / 3 % 2];
        let road = Road { env: dialler.env(), fabric: dialler.fabric(), way, server };
        let random = SeededRandom::new(scene.seed.rotate_left(7) ^ (number as u64) << 40);
        let minor = 1 + random.below(2) as u32;
        let name = name(number);
        let link = Link::new(&road, (&name, 1), minor, || {}).await.with_context(|| name.clone())?;
        let now = Instant::now();
        let holder = Holder {
            number,
            scene: scene.clone(),
            ledger: ledger.clone(),
            road,
            random,
            minor,
            incarnation: 1,
            link,
            server: scene.starts.load(Ordering::SeqCst) / 2,
            held: Vec::new(),
            early: HashSet::new(),
            wish: None,
            owners: 0,
            next: now,
            next_bind: now,
        };
        all.spawn(holder.work());
    }
    Ok(all)
}

fn name(number: usize) -> String {
    format!("holder {number}")
}

impl Holder {
    async fn work(mut self) {
        while !self.scene.is_over() {
            if let Err(gone) = self.turn().await
                && !self.begin_again(gone).await
            {
                return;
            }
        }
        self.end().await;
    }

    /// Does one turn: takes the server's calls, then does what is due.
    async fn turn(&mut self) -> Result<(), Gone> {
        while let Ok(asked) = self.link.asked.try_recv() {
            self.asked(asked)?;
        }
        let now = Instant::now();
        while let Some(at) = self.held.iter().position(|held| held.is_due(now)) {
            self.give_back(at).await?;
        }
        self.look_at_flags().await?;
        // At a quiet point it only returns recalled delegations and renews its lease.
        if !self.scene.quiet.load(Ordering::SeqCst) && now >= self.next {
            self.step().await?;
        }
        if self.link.heard.elapsed() >= RENEWED {
            self.call(Vec::new()).await?;
        }
        if let Ok(Some(asked)) = tokio::time::timeout(TICK, self.link.asked.recv()).await {
            self.asked(asked)?;
        }
        Ok(())
    }

    /// Takes a call of the server.
    fn asked(&mut self, asked: Asked) -> Result<(), Gone> {
        let now = Instant::now();
        match asked {
            Asked::Recall(file, state) => {
                self.count("told that a delegation is wanted");
                self.ledger.recalled(&file, self.number, now);
                let it =
                    self.held.iter_mut().find(|held| held.claim.is_delegation() && held.state.other == state.other);
                match it.map(|held| &mut held.thing) {
                    Some(Thing::Delegation { recalled, .. }) => *recalled = recalled.or(Some(now)),
                    // Its OPEN is not answered yet, or it was returned a moment ago.
                    _ => _ = self.early.insert(state.other),
                }
                Ok(())
            }
            Asked::Free => {
                self.count("told that a lock may be free");
                self.next = now;
                Ok(())
            }
            Asked::Wrong(what) => Err(Gone::Wrong(what)),
        }
    }

    /// Reacts to the status flags of SEQUENCE.
    async fn look_at_flags(&mut self) -> Result<(), Gone> {
        let (flags, now) = (self.link.flags, Instant::now());
        if flags & EXPIRED != 0 {
            return Err(Gone::Session(Status::EXPIRED));
        }
        if flags & DOWN != 0 && now >= self.next_bind {
            self.count("a connection bound again");
            self.next_bind = now + CONNECT_PAUSE;
            self.link.bind().await?;
        }
        if flags & sequence_status::RECALLABLE_STATE_REVOKED != 0 {
            self.look_for_what_is_lost().await?;
        }
        let is_late =
            |held: &Held| matches!(held.thing, Thing::Delegation { recalled: Some(since), .. } if now >= since + LAST);
        match self.held.iter().any(is_late) {
            true => Err(Gone::Wrong("a delegation that is not given back is not taken away".to_owned())),
            false => Ok(()),
        }
    }

    /// All claims are lost, and a new incarnation of the same name begins. Returns whether that succeeded.
    async fn begin_again(&mut self, gone: Gone) -> bool {
        let (is_restarted, is_silent) = (self.is_restarted(), self.link.heard.elapsed() >= LEASE / 2);
        match gone {
            Gone::Broken(what) => {
                self.fail(what);
                return false;
            }
            _ if is_restarted => self.count("begun anew after a restart"),
            Gone::Session(_) if is_silent => self.count("begun anew after a long pause"),
            Gone::Vanished => self.count("vanished, and come back"),
            Gone::Lost => self.count("begun anew after a loss"),
            other => {
                self.fail(format!("{other}, {:?} after the last call", self.link.heard.elapsed()));
                return false;
            }
        }
        (self.held, self.wish) = (Vec::new(), None);
        self.early.clear();
        let begin = Instant::now();
        while begin.elapsed() < CALL_LIMIT {
            self.incarnation += 1;
            let (starts, ledger) = (self.scene.starts.load(Ordering::SeqCst), self.ledger.clone());
            let (name, number) = (name(self.number), self.number);
            let forget = || ledger.forgets(number);
            match Link::new(&self.road, (&name, self.incarnation), self.minor, forget).await {
                Ok(link) if starts == self.scene.starts.load(Ordering::SeqCst) => {
                    (self.link, self.server) = (link, starts / 2);
                    self.ledger.heard(self.number, self.link.heard);
                    return true;
                }
                Ok(_) => {}
                // The path is cut, or no server runs; both will change.
                Err(_) if self.scene.is_over() => return false,
                Err(_) => {}
            }
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
        self.fail("it does not come in".to_owned());
        false
    }

    /// Gives back everything, and leaves.
    async fn end(mut self) {
        let begin = Instant::now();
        while begin.elapsed() < CALL_LIMIT {
            match self.give_back_all().await {
                Ok(()) => {
                    if let Err(gone) = self.link.leave().await {
                        let who = name(self.number);
                        self.scene.fail(format!("{who} cannot leave: {gone}"));
                    }
                    return;
                }
                Err(gone) => {
                    if !self.begin_again(gone).await {
                        return;
                    }
                }
            }
        }
        self.fail("it does not come to its end".to_owned());
    }

    /// Whether the server of the session is gone: another one runs, or none.
    fn is_restarted(&self) -> bool {
        let starts = self.scene.starts.load(Ordering::SeqCst);
        starts / 2 != self.server || starts.is_multiple_of(2)
    }

    fn who(&self) -> Who {
        Who { client: self.number, server: self.server }
    }

    fn count(&self, what: &'static str) {
        self.scene.report(|report| *report.holders.entry(what).or_default() += 1);
    }

    fn fail(&self, what: String) {
        self.scene.fail(format!("{} over {:?}: {what}", name(self.number), self.road.way));
    }
}
