//! The status monitor (NSM): it knows which hosts to notify when the server restarts, and takes notices from hosts that
//! have restarted.
//!
//! Locks of NFS version 3 end with the host that holds them; no host renews them. So lockd puts each host on a list
//! ([`Monitor::monitor`]) before it grants the first lock; the list is durable. After a restart the server notifies
//! every host on it ([`notices`]), and the hosts reclaim their locks; a host that does not is off the list after a
//! while. If a host notifies us of its restart ([`service`]), we free the locks of the host at the address from which
//! the notice comes.
//!
//! Owns the list on the disk ([`list`]) and the table of its hosts ([`hosts`]). If the disk fails, the lock fails.

mod disk;
mod hosts;
mod list;
mod notices;
mod service;

use crate::{Origin, Outside, Queue};
use bytes::Bytes;
use hosts::{Heard, Hosts, Wanted};
use list::{FileNumber, List, Listed};
use rpcrdma_env::{BoxFuture, Clock, Env, Random, Timestamp};
use rpcrdma_nfs::nsm::MAX_NAME_BYTES;
pub(crate) use service::NsmService;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The holder of locks: statd reports restarts of hosts to lockd.
pub(crate) trait Holders: Send + Sync {
    /// The host of this name at this address has restarted: frees all that it holds and waits for.
    fn rebooted(&self, address: IpAddr, name: &[u8]);

    /// Whether that host holds or waits for anything.
    fn holds(&self, address: IpAddr, name: &[u8]) -> bool;
}

/// Why the server cannot monitor a host, which then gets no locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotMonitored {
    /// Its name is too long.
    #[error("the host's name is longer than {MAX_NAME_BYTES} bytes")]
    Name,
    /// There is no room for another host, in all, with its address or in its network.
    #[error("no more hosts can be monitored")]
    Full,
    /// The disk has failed.
    #[error("the list of hosts cannot be written")]
    Disk,
}

/// Why the list of hosts cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// It cannot be read or written.
    #[error("the list of hosts with locks in {} cannot be used", directory.display())]
    Io {
        /// The state directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another server uses it.
    #[error("another server that runs has the list of hosts with locks in {}", directory.display())]
    InUse {
        /// The state directory.
        directory: PathBuf,
    },
}

/// What the monitor has done since it began, for an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorCounts {
    /// Hosts on the list.
    pub hosts: usize,
    /// Hosts that still have to be notified of our restart.
    pub untold: usize,
    /// Hosts that have answered our notice.
    pub told: u64,
    /// Attempts to notify a host that were not answered.
    pub unanswered: u64,
    /// Hosts that were not reached in time: the next start notifies them.
    pub given_up: u64,
    /// Notices of hosts that the server has believed.
    pub believed: u64,
    /// Notices that it has not believed: from hosts that hold nothing, from ports that any program may use, or too
    /// many.
    pub disbelieved: u64,
}

#[derive(Default)]
struct Totals {
    told: AtomicU64,
    unanswered: AtomicU64,
    given_up: AtomicU64,
    believed: AtomicU64,
    disbelieved: AtomicU64,
}

/// The parts of a monitor.
pub(crate) struct Setup<'a> {
    /// The state directory, and the number of this server among those that share it.
    pub(crate) directory: &'a Path,
    pub(crate) server: Option<u64>,
    /// The name under which hosts know us.
    pub(crate) name: Bytes,
    pub(crate) queue: Arc<Queue>,
    pub(crate) outside: Arc<dyn Outside>,
}

/// The status monitor of a server.
pub(crate) struct Monitor {
    list: List,
    hosts: Mutex<Hosts>,
    name: Bytes,
    state: u32,
    had_hosts: bool,
    restarted: Timestamp,
    holders: OnceLock<Weak<dyn Holders>>,
    queue: Arc<Queue>,
    outside: Arc<dyn Outside>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    totals: Totals,
    is_driven: AtomicBool,
    /// The results of the notices are logged, or there were none.
    is_told: AtomicBool,
    /// Failures of the disk, of which the log has only a few.
    failures: AtomicU64,
}

impl Monitor {
    /// Opens the list and raises the state number. [`drive`](Self::drive) then notifies every host on the list. Waits
    /// for the disk.
    pub(crate) fn open(setup: Setup<'_>, env: &Env) -> Result<Arc<Self>, MonitorError> {
        let directory = || setup.directory.to_owned();
        let failed = |source| MonitorError::Io { directory: directory(), source };
        let taken = List::take(setup.directory, setup.server).map_err(failed)?;
        let list = taken.ok_or_else(|| MonitorError::InUse { directory: directory() })?;
        Self::with_list(list, &setup, env).map_err(failed)
    }

    fn with_list(list: List, setup: &Setup<'_>, env: &Env) -> io::Result<Arc<Self>> {
        let past = list.open(env.random.next_u32() >> 2)?;
        let (mut hosts, now) = (Hosts::default(), env.clock.now());
        let mut twice = Vec::new();
        for (file, listed) in past.hosts {
            if !hosts.add_past(file, listed, now) {
                twice.push(file);
            }
        }
        twice.into_iter().try_for_each(|file| list.remove(file))?;
        let untold = hosts.sizes().hosts;
        if past.damaged > 0 {
            tracing::error!(
                files = past.damaged,
                directory = %setup.directory.display(),
                "files of the list of hosts with locks are damaged and kept aside: the hosts in them do not learn of \
                 this restart"
            );
        }
        if untold > 0 {
            tracing::info!(
                hosts = untold,
                state = past.state,
                "the server has restarted: notifying the hosts that had locks"
            );
        }
        Ok(Arc::new(Self {
            list,
            hosts: Mutex::new(hosts),
            name: setup.name.clone(),
            state: past.state,
            // The hosts in damaged files are unknown.
            had_hosts: untold > 0 || past.damaged > 0,
            restarted: now,
            holders: OnceLock::new(),
            queue: setup.queue.clone(),
            outside: setup.outside.clone(),
            clock: env.clock.clone(),
            random: env.random.clone(),
            totals: Totals::default(),
            is_driven: AtomicBool::new(false),
            is_told: AtomicBool::new(untold == 0),
            failures: AtomicU64::new(0),
        }))
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the holder of locks. Later calls change nothing.
    pub(crate) fn connect(&self, holders: Weak<dyn Holders>) {
        let _ = self.holders.set(holders);
    }

    fn holders(&self) -> Option<Arc<dyn Holders>> {
        self.holders.get().and_then(Weak::upgrade)
    }

    /// Puts the host of this name at this address, which knows us by `local`, on the list. The disk has it when this
    /// returns. lockd calls this before it grants a host's first lock, and may call it before each lock: a host that is
    /// already on the list costs nothing.
    pub(crate) fn monitor(
        self: &Arc<Self>,
        address: IpAddr,
        local: IpAddr,
        name: &[u8],
    ) -> BoxFuture<'static, Result<(), NotMonitored>> {
        if name.len() > MAX_NAME_BYTES {
            return Box::pin(std::future::ready(Err(NotMonitored::Name)));
        }
        let [address, local] = [address, local].map(|address| address.to_canonical());
        let listed = Listed { address, local, name: Bytes::copy_from_slice(name) };
        let new = FileNumber(self.random.next_u64());
        let Ok(wanted) = self.hosts().want(listed, new) else {
            return Box::pin(std::future::ready(Err(NotMonitored::Full)));
        };
        if wanted.on_disk.initialized() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let monitor = self.clone();
        Box::pin(async move {
            let Wanted { listed, file, on_disk, removed } = wanted;
            if let Some(removed) = removed {
                monitor.remove(vec![removed]).await;
            }
            let written = on_disk.get_or_try_init(|| monitor.write(file, listed.clone())).await;
            written.copied().map_err(|NotWritten| {
                let now = monitor.clock.now();
                monitor.hosts().forget(listed.address, &listed.name, now);
                NotMonitored::Disk
            })
        })
    }

    async fn write(self: &Arc<Self>, file: FileNumber, listed: Listed) -> Result<(), NotWritten> {
        let origin = Origin::at(SocketAddr::new(listed.address, 0));
        let monitor = self.clone();
        let written = self.queue.ask(origin, move || monitor.list.put(file, &listed)).await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.failed(&error);
                Err(NotWritten)
            }
            // The program is about to end.
            Err(_) => Err(NotWritten),
        }
    }

    /// Removes files of the list, in their turn.
    async fn remove(self: &Arc<Self>, files: Vec<FileNumber>) {
        if files.is_empty() {
            return;
        }
        let monitor = self.clone();
        let removing = move || {
            for file in files {
                if let Err(error) = monitor.list.remove(file) {
                    monitor.failed(&error);
                }
            }
        };
        let _ = self.queue.ask(Origin::LOCAL, removing).await;
    }

    fn failed(&self, error: &io::Error) {
        let count = self.failures.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if count.is_power_of_two() {
            tracing::warn!(
                %error, count,
                "the list of hosts with locks cannot be written: hosts that are not on it get no locks of NFS version 3"
            );
        }
    }

    /// The host of this name at this address holds nothing any more. It leaves the list after a while, unless it has
    /// taken a lock since.
    pub(crate) fn forget(&self, address: IpAddr, name: &[u8]) {
        let now = self.clock.now();
        self.hosts().forget(address.to_canonical(), name, now);
    }

    /// Whether any host may have held locks before this start, and may reclaim them.
    pub(crate) fn had_hosts(&self) -> bool {
        self.had_hosts
    }

    /// Our state number: odd, and different after each start.
    pub(crate) fn state_number(&self) -> u32 {
        self.state
    }

    /// What the monitor has done.
    pub(crate) fn counts(&self) -> MonitorCounts {
        let hosts::Sizes { hosts, untold } = self.hosts().sizes();
        let Totals { told, unanswered, given_up, believed, disbelieved } = &self.totals;
        let [told, unanswered, given_up, believed, disbelieved] =
            [told, unanswered, given_up, believed, disbelieved].map(|total| total.load(Ordering::Relaxed));
        MonitorCounts { hosts, untold, told, unanswered, given_up, believed, disbelieved }
    }

    /// A notice from this address says that a host has restarted. Returns whether to reply.
    fn hear(&self, address: IpAddr, name: &[u8], state: u32) -> bool {
        let address = address.to_canonical();
        let heard = self.hosts().hear(address, name, state, self.clock.now());
        let counted = match heard {
            Heard::Restarted(_) => &self.totals.believed,
            // Nothing new: the host got no reply, or announces each of its names.
            Heard::Again => return true,
            Heard::Unknown | Heard::TooSoon => &self.totals.disbelieved,
        };
        counted.fetch_add(1, Ordering::Relaxed);
        match heard {
            Heard::Restarted(names) => {
                for name in names {
                    tracing::debug!(client = %address, name = %name.escape_ascii(), state, "a host has restarted");
                    if let Some(holders) = self.holders() {
                        holders.rebooted(address, &name);
                    }
                }
                true
            }
            Heard::TooSoon => false,
            Heard::Unknown | Heard::Again => true,
        }
    }
}

/// The disk has not taken the host's entry.
struct NotWritten;

#[cfg(test)]
mod tests;
