//! Delegations: files that a client may use on its own until another user wants them (RFC 8881 section 10.4).
//!
//! A file has any number of delegations for reading, one for each client, or a single one for writing. Code that is
//! about to use a file, other than by an open in the table, calls [`Claims::recall`] first. If delegations conflict,
//! the table recalls them once, through [`Recalls`], and the caller gets [`Recalling`]. If none does, the caller gets
//! [`Using`]; while it exists, the table grants no delegation that conflicts with it. An open holds one until its share
//! is in the table: so the table never grants both a delegation and an open that it excludes.
//!
//! Nothing sleeps, and the table holds no lock while it calls [`Recalls`]. The protocol handles the rest of a recall:
//! the delegation stays until its guard is dropped.

use super::{
    Claims,
    files::{FileKey, Sharded},
    holder::Client,
    modes::{Access, Deny},
    range::Kind,
};
use foldhash::HashMap;
use rpcrdma_env::Timestamp;
use smallvec::SmallVec;
use std::{
    collections::HashSet,
    fmt, mem,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// How many files with a conflict the table remembers for each period: the present one and the one before. If there are
/// more files, the table delegates some again too early, which costs a recall.
pub const MAX_REMEMBERED_CONFLICTS: usize = 65_536;

/// Recalls delegations.
pub trait Recalls: Send + Sync {
    /// A delegation conflicts with a use for the first time. Called without any lock of the table held; must not sleep.
    fn recall(self: Arc<Self>, client: Client, file: FileKey);
}

/// Conflicting delegations are being recalled: NFS4ERR_DELAY, in version 3 NFS3ERR_JUKEBOX.
#[derive(Debug, thiserror::Error)]
#[error("a delegation is being recalled")]
pub struct Recalling {
    /// Each is closed when its delegation ends.
    ends: Vec<watch::Receiver<()>>,
}

impl Recalling {
    /// Completes when the conflicting delegations have ended: clients have returned them, or the server has taken them
    /// away.
    pub async fn returned(mut self) {
        for end in &mut self.ends {
            while end.changed().await.is_ok() {}
        }
    }

    /// How many delegations conflict.
    pub fn count(&self) -> usize {
        self.ends.len()
    }
}

/// Why a file is not delegated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDelegated {
    /// Another user uses the file, or wanted it a short while ago.
    #[error("others use the file")]
    Contention,
    /// The client has a delegation of this kind already.
    #[error("the client has a delegation of the file")]
    Has(Kind),
    /// The server could not recall it.
    #[error("nothing can be delegated")]
    Nobody,
}

struct Held {
    kind: Kind,
    number: u64,
    is_recalled: bool,
    /// Dropped with the delegation; this wakes the users that wait for its end.
    end: watch::Sender<()>,
}

/// The user of the file: a client, or an unknown user.
type User = Option<Client>;

/// The delegations of one file, and the present users of the file.
#[derive(Default)]
struct OfFile {
    held: HashMap<Client, Held>,
    /// How many uses each user has: for reading, and for writing. Usually one user has one.
    uses: SmallVec<[(User, [usize; 2]); 1]>,
}

impl OfFile {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.uses.is_empty()
    }

    fn begin_use(&mut self, user: User, kind: Kind) {
        let at = self.uses.iter().position(|(other, _)| *other == user).unwrap_or_else(|| {
            self.uses.push((user, [0, 0]));
            self.uses.len() - 1
        });
        self.uses[at].1[place(kind)] += 1;
    }

    fn end_use(&mut self, user: User, kind: Kind) {
        let Some(at) = self.uses.iter().position(|(other, _)| *other == user) else { return };
        let counts = &mut self.uses[at].1;
        counts[place(kind)] = counts[place(kind)].saturating_sub(1);
        if *counts == [0, 0] {
            self.uses.swap_remove(at);
        }
    }

    /// Whether a user other than a client uses the file in a way that excludes such a delegation.
    fn is_used_by_others(&self, client: Client, kind: Kind) -> bool {
        let excludes = |counts: &[usize; 2]| counts[1] > 0 || kind == Kind::Write && counts[0] > 0;
        self.uses.iter().any(|(user, counts)| *user != Some(client) && excludes(counts))
    }

    /// Whether another client has a delegation that excludes one of this kind.
    fn is_delegated_to_others(&self, client: Client, kind: Kind) -> bool {
        self.held.iter().any(|(holder, held)| *holder != client && held.kind.excludes(kind))
    }

    /// Recalls the delegations that conflict with a use. Returns the clients to call now, and a receiver for the end of
    /// each conflicting delegation.
    fn recall(&mut self, user: User, kind: Kind) -> (Vec<Client>, Vec<watch::Receiver<()>>) {
        let (mut fresh, mut ends) = (Vec::new(), Vec::new());
        for (client, held) in &mut self.held {
            // NFS4-8881-10.4-d
            if user == Some(*client) || !held.kind.excludes(kind) {
                continue;
            }
            ends.push(held.end.subscribe());
            if !mem::replace(&mut held.is_recalled, true) {
                fresh.push(*client);
            }
        }
        (fresh, ends)
    }
}

/// The files that other users wanted lately.
#[derive(Default)]
struct Conflicts {
    now: HashSet<FileKey>,
    before: HashSet<FileKey>,
    turned: Timestamp,
}

impl Conflicts {
    fn turn(&mut self, now: Timestamp, period: Duration) {
        let passed = now.since(self.turned);
        if passed >= period {
            self.before = mem::take(&mut self.now);
            if passed >= period.saturating_mul(2) {
                self.before.clear();
            }
            self.turned = now;
        }
    }

    fn note(&mut self, file: FileKey, now: Timestamp, period: Duration) {
        self.turn(now, period);
        if self.now.len() >= MAX_REMEMBERED_CONFLICTS {
            self.before = mem::take(&mut self.now);
        }
        self.now.insert(file);
    }

    fn has(&mut self, file: &FileKey, now: Timestamp, period: Duration) -> bool {
        self.turn(now, period);
        self.now.contains(file) || self.before.contains(file)
    }
}

/// Recalls delegations; and for how long the table does not delegate a file after a conflict.
type Connected = (Weak<dyn Recalls>, Duration);

/// The table of delegations.
#[derive(Default)]
pub(super) struct Delegations {
    files: Sharded<FileKey, OfFile>,
    /// How many delegations there are.
    count: AtomicUsize,
    numbers: AtomicU64,
    conflicts: Mutex<Conflicts>,
    connected: OnceLock<Connected>,
    /// Whether a client has ever asked for a delegation.
    is_asked: AtomicBool,
    /// How many uses there are at this moment that are not in `files`, since no client had asked for a delegation: for
    /// reading, and for writing.
    unlisted: [AtomicUsize; 2],
}

impl Delegations {
    fn on<R>(&self, file: FileKey, act: impl FnOnce(&mut OfFile) -> R) -> R {
        self.files.with(&file, |files| {
            let of_file = files.entry(file).or_default();
            let result = act(of_file);
            if of_file.is_empty() {
                files.remove(&file);
            }
            result
        })
    }

    fn with_conflicts<R>(&self, act: impl FnOnce(&mut Conflicts) -> R) -> R {
        act(&mut self.conflicts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.files.len() == 0 && self.count.load(Ordering::Relaxed) == 0
    }
}

/// A delegation. It ends when this is dropped, or with [`Claims::release_client`].
#[must_use = "the delegation ends when its guard is dropped"]
pub struct Delegation {
    claims: Claims,
    file: FileKey,
    client: Client,
    number: u64,
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation").field("file", &self.file).field("client", &self.client).finish_non_exhaustive()
    }
}

impl Delegation {
    /// Whether another user has wanted the file, or the delegation has ended.
    pub fn is_recalled(&self) -> bool {
        self.claims.table.delegations.on(self.file, |of_file| {
            let own = of_file.held.get(&self.client).filter(|held| held.number == self.number);
            own.is_none_or(|held| held.is_recalled)
        })
    }

    /// Recalls it for a reason that the table does not know. Returns whether it was not recalled before.
    pub fn recall(&self) -> bool {
        self.claims.table.delegations.on(self.file, |of_file| {
            let own = of_file.held.get_mut(&self.client).filter(|held| held.number == self.number);
            own.is_some_and(|held| !mem::replace(&mut held.is_recalled, true))
        })
    }
}

impl Drop for Delegation {
    fn drop(&mut self) {
        self.claims.end_delegation(self.file, self.client, Some(self.number));
    }
}

/// A file is in use. The table grants no conflicting delegation until this is dropped.
#[must_use = "the use ends when its guard is dropped"]
pub struct Using(Option<(Claims, Used)>);

/// What is used.
enum Used {
    File(FileKey, User, Kind),
    /// A file or files that are not listed.
    Unlisted(Kind),
}

impl fmt::Debug for Using {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.0.as_ref().and_then(|(_, used)| match used {
            Used::File(file, ..) => Some(file),
            Used::Unlisted(_) => None,
        });
        f.debug_tuple("Using").field(&file).finish()
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        let Some((claims, used)) = self.0.take() else { return };
        let delegations = &claims.table.delegations;
        match used {
            Used::File(file, user, kind) => delegations.on(file, |of_file| of_file.end_use(user, kind)),
            Used::Unlisted(kind) => _ = delegations.unlisted[place(kind)].fetch_sub(1, Ordering::SeqCst),
        }
    }
}

fn place(kind: Kind) -> usize {
    usize::from(kind == Kind::Write)
}

impl Claims {
    /// Sets the code that recalls delegations, and for how long the table does not delegate a file that another user
    /// has wanted. Later calls change nothing. Without this call the table delegates nothing, and asking it costs
    /// nothing.
    pub fn connect_recalls(&self, recalls: Weak<dyn Recalls>, quiet: Duration) {
        let _ = self.table.delegations.connected.set((recalls, quiet));
    }

    /// Whether the table delegates files at all.
    pub fn delegates(&self) -> bool {
        self.table.delegations.connected.get().is_some()
    }

    /// Asks before a use of a file: to read it ([`Kind::Read`]), or to change it, its attributes or its names
    /// ([`Kind::Write`]). `user` is the client, if it is known: its own delegation does not conflict. The table recalls
    /// conflicting delegations.
    ///
    /// # Errors
    /// If delegations conflict.
    pub fn recall(&self, file: FileKey, user: Option<Client>, kind: Kind) -> Result<Using, Recalling> {
        let delegations = &self.table.delegations;
        let Some((recalls, quiet)) = delegations.connected.get() else { return Ok(Using(None)) };
        // The most frequent use, and one that costs nothing else. It is not in the way of a delegation for reading.
        if user.is_none()
            && kind == Kind::Read
            && let Some(using) = self.unlisted(kind)
        {
            return Ok(using);
        }
        let (fresh, ends) = delegations.on(file, |of_file| {
            let recalled = of_file.recall(user, kind);
            if recalled.1.is_empty() {
                of_file.begin_use(user, kind);
            }
            recalled
        });
        if ends.is_empty() {
            return Ok(Using(Some((self.clone(), Used::File(file, user, kind)))));
        }
        let now = self.table.clock.now();
        delegations.with_conflicts(|conflicts| conflicts.note(file, now, *quiet));
        if let Some(recalls) = recalls.upgrade() {
            fresh.into_iter().for_each(|client| recalls.clone().recall(client, file));
        }
        Err(Recalling { ends })
    }

    /// Asks before a change of names, whichever files they name. Before any client has asked for a delegation there is
    /// none to recall, and the table does not grant the first one while this lasts. Later this returns `None`: then the
    /// caller must name the files ([`recall`](Self::recall)).
    pub fn undelegated(&self) -> Option<Using> {
        self.unlisted(Kind::Write)
    }

    /// A use of any files, whichever they are, before a client has asked for a delegation.
    fn unlisted(&self, kind: Kind) -> Option<Using> {
        let delegations = &self.table.delegations;
        if delegations.is_asked.load(Ordering::Relaxed) {
            return None;
        }
        delegations.unlisted[place(kind)].fetch_add(1, Ordering::SeqCst);
        let using = Using(Some((self.clone(), Used::Unlisted(kind))));
        (!delegations.is_asked.load(Ordering::SeqCst)).then_some(using)
    }

    /// Delegates a file to a client that has it open. `again` means that the client had the delegation before a
    /// restart.
    ///
    /// # Errors
    /// If other users use the file or (unless `again`) have wanted it lately, or if the client already has a delegation
    /// of the file, of either kind.
    pub fn delegate(&self, file: FileKey, client: Client, kind: Kind, again: bool) -> Result<Delegation, NotDelegated> {
        let delegations = &self.table.delegations;
        let (_, quiet) = delegations.connected.get().ok_or(NotDelegated::Nobody)?;
        // In this order: if a user does not see the flag, this code sees the user.
        delegations.is_asked.store(true, Ordering::SeqCst);
        let are_unlisted = |uses: Kind| delegations.unlisted[place(uses)].load(Ordering::SeqCst) > 0;
        if !again && (are_unlisted(Kind::Write) || kind == Kind::Write && are_unlisted(Kind::Read)) {
            return Err(NotDelegated::Contention);
        }
        let now = self.table.clock.now();
        let is_wanted = || delegations.with_conflicts(|conflicts| conflicts.has(&file, now, *quiet));
        // NFS4-8881-10.4-c
        if !again && is_wanted() {
            return Err(NotDelegated::Contention);
        }
        let number = delegations.numbers.fetch_add(1, Ordering::Relaxed);
        delegations.on(file, |of_file| {
            if let Some(own) = of_file.held.get(&client) {
                return Err(NotDelegated::Has(own.kind));
            }
            if of_file.is_delegated_to_others(client, kind) || of_file.is_used_by_others(client, kind) {
                return Err(NotDelegated::Contention);
            }
            let (end, _) = watch::channel(());
            of_file.held.insert(client, Held { kind, number, is_recalled: false, end });
            self.table.clients.note_delegated(client, file, true);
            delegations.count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })?;
        let delegation = Delegation { claims: self.clone(), file, client, number };
        // Only now: an open whose share is not yet in the table is among the uses, or finds the delegation.
        if self.is_open_by_others(file, client, kind) {
            return Err(NotDelegated::Contention);
        }
        Ok(delegation)
    }

    /// Whether another client has the file open in a way that excludes such a delegation.
    fn is_open_by_others(&self, file: FileKey, client: Client, kind: Kind) -> bool {
        let (access, deny) = match kind {
            // A read delegation excludes no reader, and no reader excludes it.
            Kind::Read => (Access::READ, Deny::WRITE),
            Kind::Write => (Access::BOTH, Deny::BOTH),
        };
        self.in_the_way_of_share(file, access, deny).into_iter().any(|other| other != client)
    }

    /// The client to which a file is delegated for writing, unless `user` is that client.
    pub fn writer(&self, file: FileKey, user: Option<Client>) -> Option<Client> {
        let delegations = &self.table.delegations;
        if delegations.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        delegations.on(file, |of_file| {
            let (client, _) = of_file.held.iter().find(|(_, held)| held.kind == Kind::Write)?;
            Some(*client).filter(|client| user != Some(*client))
        })
    }

    /// How many delegations there are.
    pub fn delegations(&self) -> usize {
        self.table.delegations.count.load(Ordering::Relaxed)
    }

    /// Ends a client's delegation of a file: the one with this number, or any.
    pub(super) fn end_delegation(&self, file: FileKey, client: Client, number: Option<u64>) {
        let delegations = &self.table.delegations;
        let ended = delegations.on(file, |of_file| {
            let is_it = of_file.held.get(&client).is_some_and(|held| number.is_none_or(|number| held.number == number));
            let ended = if is_it { of_file.held.remove(&client) } else { None };
            if ended.is_some() {
                self.table.clients.note_delegated(client, file, false);
                delegations.count.fetch_sub(1, Ordering::Relaxed);
            }
            ended
        });
        // After the lock is released: this wakes the users that wait.
        drop(ended);
    }
}
